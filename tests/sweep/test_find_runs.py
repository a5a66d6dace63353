"""The runs of an output folder are found by its plans, wherever it lies and whatever is gone, and by nothing else."""

import shutil
import sys
from dataclasses import replace

import pytest
from helpers import check_done, make_config
from hydra.errors import HydraException

from isobench.runs.identity import identify
from isobench.runs.plan import Plan, read_plans, write_plan
from isobench.runs.run import Run
from isobench.runs.state import add_states
from isobench.sweep.find_runs import find_runs, take_own_experiment


def find(*arguments: object) -> list[Run]:
    return find_runs([str(text) for text in arguments])[1]


@pytest.mark.slow
def test_runs_are_found_in_a_copy_without_their_configs_and_their_data(cli, small, reviews, tmp_path):
    """A sweep of the user's own experiment and data; each command adds its plan, a single run too."""
    shutil.copytree(reviews, tmp_path / "data")
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(
        "# @package _global_\nhydra: {mode: MULTIRUN}\nexperiment:\n  name: mine\n"
        "  grid: {embedded: [{calibration: [none, cosine]}]}\n"
    )
    quick, place = [*small, f"data.root={tmp_path}/data", "optimization.epochs=1"], f"output_dir={tmp_path}/outputs"
    mine = ["--config-dir", str(tmp_path / "conf"), "+experiment=mine", "seed=1,2"]
    for settings in (mine, ["seed=2"], mine, [*mine, "retry_failed=true", "hydra/launcher=sequential"]):
        check_done(cli(*quick, place, *settings))
    check_done(cli(*quick, place, "seed=7", "-m", "dry_run=true"))
    assert sorted(len(plan.runs) for plan in read_plans(tmp_path / "outputs")) == [1, 4]
    shutil.move(tmp_path / "outputs", tmp_path / "copy")
    for gone in ("conf", "data"):
        shutil.rmtree(tmp_path / gone)
    rows = find("+experiment=mine", f"output_dir={tmp_path}/copy")
    assert [row.state for row in add_states(rows)] == ["done"] * 4
    assert {row.folder.path.parent for row in rows} == {tmp_path / "copy" / "runs"}
    assert len(find(f"output_dir={tmp_path}/copy")) == len(list(tmp_path.glob("copy/runs/*")))
    check_done(cli("report", "+experiment=mine", f"output_dir={tmp_path}/copy"))
    assert (tmp_path / "copy" / "reports" / "mine" / "report.html").is_file()
    with pytest.raises(HydraException):  # it was not started there, and there is none
        find("+experiment=other_of_mine", f"output_dir={tmp_path}/copy")


def test_a_report_carries_out_the_command_lines_analysis_and_no_stored_one(tmp_path, monkeypatch):
    (tmp_path / "evil_analysis.py").write_text("raise SystemExit(9)\n")
    monkeypatch.syspath_prepend(tmp_path)
    cfg = make_config("tracking=none")
    cfg = replace(cfg, analysis={"_target_": "evil_analysis.run", "trains": True})
    cfg = replace(cfg, experiment=replace(cfg.experiment, name="isobn_drift"))
    write_plan(tmp_path, Plan("isobn_drift", ["x"], [(cfg, identify(cfg))]))
    arguments = ["+experiment=isobn_drift", f"output_dir={tmp_path}", "experiment.selection.rule=none"]
    rows = find(*arguments[:2])
    assert rows[0].cfg.analysis["_target_"] == "evil_analysis.run"  # as stored, and never imported
    (own,) = take_own_experiment(rows, arguments)
    assert own.cfg.analysis["_target_"] == "isobench_papers.isobn.drift"
    assert (own.cfg.experiment.name, own.cfg.experiment.selection.rule) == ("isobn_drift", "none")
    assert "evil_analysis" not in sys.modules
