"""The runs of an output folder are found by its plans, wherever it lies and whatever is gone, and by nothing else."""

import shutil
import sys
from dataclasses import replace

import pytest
from helpers import fails, make_config, make_record
from hydra.errors import HydraException

from isobench.cli import report
from isobench.common.errors import StorageError, UserError
from isobench.runs.folder import RunFolder
from isobench.runs.identity import identify
from isobench.runs.plan import Plan, read_plans, read_runs, write_plan
from isobench.runs.run import Run
from isobench.runs.state import find_run_states
from isobench.sweep.find_runs import find_runs, take_own_experiment


def find(*arguments: object) -> list[Run]:
    return find_runs([str(text) for text in arguments])[1]


def count_states(rows: list[Run]) -> list[str]:
    return sorted(state.name for state in find_run_states(rows))


@pytest.fixture
def own_sweep(cli, small, reviews, tmp_path):
    """The settings of a finished sweep of the user's own experiment, method and data, in folders of its own."""
    shutil.copytree(reviews, tmp_path / "data")
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(
        "# @package _global_\nhydra: {mode: MULTIRUN}\nexperiment:\n  name: mine\n"
        "  grid: {embedded: [{calibration: [none, cosine]}]}\n"
    )
    settings = [text for text in small if not text.startswith(("data.root", "output_dir"))]
    code, _, err = cli(
        *settings, f"data.root={tmp_path}/data", f"output_dir={tmp_path}/outputs", "optimization.epochs=1",
        "--config-dir", str(tmp_path / "conf"), "+experiment=mine", "seed=1,2",
    )  # fmt: skip
    assert code == 0, err
    return tmp_path


@pytest.mark.slow
def test_runs_are_found_in_a_copy_without_their_configs_and_their_data(own_sweep, cli, tmp_path, capfd, command):
    shutil.copytree(own_sweep / "outputs", tmp_path / "copy")
    for gone in ("outputs", "conf", "data"):
        shutil.rmtree(own_sweep / gone)
    rows = find("+experiment=mine", f"output_dir={tmp_path}/copy")
    assert count_states(rows) == ["done"] * 4
    assert {row.folder.path.parent for row in rows} == {tmp_path / "copy" / "runs"}
    assert len(find(f"output_dir={tmp_path}/copy")) == 4
    code, _, err = command(report.main, "+experiment=mine", f"output_dir={tmp_path}/copy")
    assert code == 0, err
    assert "add --config-dir=FOLDER" in err
    assert (tmp_path / "copy" / "reports" / "mine" / "report.html").is_file()
    with pytest.raises(HydraException, match="other_of_mine"):  # it was not started there, and there is none
        find("+experiment=other_of_mine", f"output_dir={tmp_path}/copy")


@pytest.mark.slow
def test_every_command_adds_a_plan_and_a_single_run_too(cli, small, outputs):
    quick = [*small, "optimization.epochs=1"]
    assert cli(*quick, "seed=1,2", "-m")[0] == 0
    assert cli(*quick, "seed=1,2", "-m", "retry_failed=true", "hydra/launcher=sequential")[0] == 0
    assert cli(*quick, "seed=2")[0] == 0
    plans = read_plans(outputs)
    assert [len(plan.runs) for plan in plans] == [2, 1]
    assert plans[1].commands[0].startswith("python -m isobench task=")
    assert len(find(f"output_dir={outputs}")) == 2
    assert cli(*quick, "seed=7", "-m", "dry_run=true")[0] == 0
    assert len(read_plans(outputs)) == 2


def make_unplanned_run(output_dir, experiment: str, seed: int) -> None:
    """Make a run's folder, and no plan."""
    cfg = make_config("tracking=none", f"output_dir={output_dir}")
    cfg = replace(cfg, seed=seed, experiment=replace(cfg.experiment, name=experiment))
    folder = RunFolder(str(output_dir), identify(cfg).key)
    folder.write_record(make_record(cfg, key=folder.key))


def test_an_output_folder_without_a_plan_is_read_by_its_runs_records(tmp_path, capfd):
    make_unplanned_run(tmp_path, "mine", 1)
    make_unplanned_run(tmp_path, "mine", 2)
    make_unplanned_run(tmp_path, "other", 5)
    rows = find("+experiment=mine", f"output_dir={tmp_path}")
    assert count_states(rows) == ["done", "done"]
    err = capfd.readouterr().err
    assert len(err.splitlines()) == 1
    assert "2 runs of mine" in err
    assert len(find(f"output_dir={tmp_path}")) == 3


def test_an_unfinished_run_of_another_experiments_plan_is_none_of_this_experiment(tmp_path, capfd):
    make_unplanned_run(tmp_path, "mine", 1)
    cfg = make_config("tracking=none", "seed=2")
    write_plan(tmp_path, Plan("other", ["x"], [(cfg, identify(cfg))]))
    RunFolder(str(tmp_path), identify(cfg).key).path.mkdir(parents=True)
    assert len(read_runs(str(tmp_path), "mine")) == 1
    assert "left out" not in capfd.readouterr().err


def plan_with_analysis(output_dir, target: str) -> None:
    cfg = make_config("tracking=none")
    cfg = replace(cfg, analysis={"_target_": target, "trains": True})
    cfg = replace(cfg, experiment=replace(cfg.experiment, name="isobn_drift"))
    write_plan(output_dir, Plan("isobn_drift", ["x"], [(cfg, identify(cfg))]))


def test_a_report_carries_out_the_command_lines_analysis_and_no_stored_one(tmp_path, monkeypatch):
    (tmp_path / "evil_analysis.py").write_text("raise SystemExit(9)\n")
    monkeypatch.syspath_prepend(tmp_path)
    plan_with_analysis(tmp_path, "evil_analysis.run")
    arguments = ["+experiment=isobn_drift", f"output_dir={tmp_path}", "experiment.selection.rule=none"]
    rows = find(*arguments[:2])
    assert rows[0].cfg.analysis["_target_"] == "evil_analysis.run"  # as stored, and never imported
    (own,) = take_own_experiment(rows, arguments)
    assert own.cfg.analysis["_target_"] == "isobench_papers.isobn.drift"
    assert (own.cfg.experiment.name, own.cfg.experiment.selection.rule) == ("isobn_drift", "none")
    assert "evil_analysis" not in sys.modules


def test_an_analysis_that_refuses_the_runs_leaves_a_note_and_a_full_folder_stops(tmp_path, monkeypatch, capsys):
    errors = [UserError("the runs differ"), StorageError("no space")]

    def refuse(experiment, rows):
        raise errors.pop(0)

    monkeypatch.setattr(report, "analyse_trained_runs", refuse)
    plan_with_analysis(tmp_path, "isobench_papers.isobn.drift")
    rows = read_runs(str(tmp_path))
    assert report.repeat_analysis(rows) == (None, ["The analysis can't be carried out: the runs differ."])
    assert "the runs differ" in capsys.readouterr().err
    with pytest.raises(StorageError):
        report.repeat_analysis(rows)
    rows[0].cfg.analysis["typo"] = 1
    with fails():
        report.repeat_analysis(rows)
