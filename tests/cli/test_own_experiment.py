"""An experiment in a folder of the user's: run, shown by status and reported on with the same --config-dir."""

import pytest

from isobench.cli import report, status

GRID = """# @package _global_
experiment:
  {name}
  grid:
    embedded:
      - calibration: [none]
      - calibration: [isobn_paper]
        calibration.beta: [0.25, 0.5]
hydra:
  mode: MULTIRUN
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["name: mybeta", "paper: null"], ids=["named", "named by its file"])
def test_status_and_report_find_the_runs_of_an_own_experiment(
    cli, command, small, outputs, tmp_path, monkeypatch, name
):
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "mybeta.yaml").write_text(GRID.format(name=name))
    monkeypatch.chdir(tmp_path)
    own = ["--config-dir", "conf", "+experiment=mybeta"]
    code, out, err = cli(*small, *own, "-m", "seed=1,2", "optimization.epochs=1")
    assert code == 0, err
    lines = [line.partition("] ")[2].partition(":")[0] for line in err.splitlines() if line.startswith("[")]
    assert sorted(lines) == [
        *(f"sst2 local isobn_paper seed {seed} beta={beta}" for seed in (1, 2) for beta in (0.25, 0.5)),
        "sst2 local none seed 1", "sst2 local none seed 2",
    ]  # fmt: skip
    assert cli(*small, "-m", "seed=9", "optimization.epochs=1")[0] == 0  # of no experiment
    place = f"output_dir={outputs}"
    for arguments, count in ((own, 6), ([f"--config-dir={tmp_path}/conf", "+experiment=mybeta"], 6), (own[:2], 7)):
        code, out, err = command(status.main, *arguments, place)
        assert (code, err) == (0, "")
        assert f"{count} runs: {count} done" in out
    code, out, err = command(report.main, *own, place)
    assert (code, err) == (0, "")
    assert "mybeta" in out.splitlines()[0]
    (line,) = [line for line in out.splitlines() if " isobn_paper " in line and "sst2 (" in line]
    assert " beta=0.25 " in line or " beta=0.5 " in line
    (line,) = [line for line in out.splitlines() if " none " in line and "sst2 (" in line]
    assert "beta=" not in line
    assert (outputs / "reports" / "mybeta" / "report.html").is_file()
    code, out, err = command(report.main, *own[:2], place)
    assert (code, err) == (0, "")
    assert (outputs / "reports" / "claims.md").is_file()
