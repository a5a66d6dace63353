"""An experiment in a folder of the user's: run, shown by status and reported on with the same --config-dir."""

import pytest

from isobench.cli import prune, report, status
from isobench.sweep.planning import compose_sweep, plan_runs

GRID = """# @package _global_
experiment:
  {name}
  grid:
    embedded:
      - calibration: [none, isobn_paper]
        calibration.beta: [0.25, 0.5]
hydra:
  mode: MULTIRUN
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write the experiment into conf/experiment/mybeta.yaml and work in the folder above."""

    def write_grid(name: str) -> None:
        (tmp_path / "conf" / "experiment").mkdir(parents=True)
        (tmp_path / "conf" / "experiment" / "mybeta.yaml").write_text(GRID.format(name=name))
        monkeypatch.chdir(tmp_path)

    return write_grid


@pytest.mark.slow
def test_status_and_report_find_the_runs_of_an_own_experiment(cli, command, small, outputs, tmp_path, write, capfd):
    write("name: mybeta")
    own = ["--config-dir", "conf", "+experiment=mybeta"]
    code, out, err = cli(*small, *own, "-m", "seed=2", "optimization.epochs=1")
    assert code == 0, err
    lines = [line.partition("] ")[2].partition(":")[0] for line in err.splitlines() if line.startswith("[")]
    isobn = [f"sst2 local isobn_paper seed 2 beta={beta}" for beta in (0.25, 0.5)]
    assert sorted(lines) == [*isobn, "sst2 local none seed 2"]
    assert "isobench: calibration.beta is set for isobn_paper; methods without this setting: none" in err
    assert cli(*small, "-m", "seed=9", "optimization.epochs=1")[0] == 0  # of no experiment
    place = f"output_dir={outputs}"
    for arguments, count in ((own, 3), ([f"--config-dir={tmp_path}/conf", "+experiment=mybeta"], 3), (own[:2], 4)):
        code, out, err = command(status.main, *arguments, place)
        assert (code, err) == (0, "")
        assert f"{count} runs: {count} done" in out
    code, out, err = command(report.main, *own, place)
    assert (code, err) == (0, "")
    assert "mybeta" in out.splitlines()[0]
    lines = [line for line in out.splitlines() if line.startswith("isobn_paper ")]
    betas = [beta for line in lines for beta in (0.25, 0.5) if f" beta={beta} " in line]
    assert betas == [0.25, 0.5]
    (line,) = [line for line in out.splitlines() if line.startswith("plain  ")]
    assert "beta=" not in line
    assert (outputs / "reports" / "mybeta" / "report.html").is_file()
    code, out, err = command(report.main, *own[:2], place)
    assert (code, err) == (0, "")
    assert (outputs / "reports" / "claims.md").is_file()
    prune.prune([place], yes=False)
    assert "No run in" in capfd.readouterr().out


@pytest.mark.slow
def test_an_experiment_without_a_name_has_its_files(write):
    write("paper: null")
    with compose_sweep(["--config-dir=conf", "+experiment=mybeta", "tracking=none"]) as parts:
        planned = plan_runs(*parts)
    assert {run.run.cfg.experiment.name for run in planned.values()} == {"mybeta"}
