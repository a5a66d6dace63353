"""An experiment in a folder of the user's: run, shown by status and reported on with the same --config-dir."""

import pytest

from isobench.cli import prune, report, status

GRID = """# @package _global_
experiment:
  name: mybeta
  grid:
    embedded:
      - calibration: [none, isobn_paper]
        calibration.beta: [0.25, 0.5]
hydra:
  mode: MULTIRUN
"""


@pytest.mark.slow
def test_status_and_report_find_the_runs_of_an_own_experiment(
    cli, command, small, outputs, tmp_path, monkeypatch, capfd
):
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "mybeta.yaml").write_text(GRID)
    monkeypatch.chdir(tmp_path)
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
