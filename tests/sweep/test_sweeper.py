"""Grids, what a sweep runs and skips, its table and exit code."""

import linecache
import os
import pydoc
import re
import shutil
import sys

import pytest
from helpers import ROOT, check_done, make_config, read_records, review_columns, write_parquet

from isobench.cli import report
from isobench.common.files import write_json
from isobench.runs.folder import RunFolder
from isobench.runs.identity import identify
from isobench.runs.record import Beat
from isobench.sweep import worker


@pytest.mark.slow
def test_a_sweep_runs_once_skips_what_is_finished_and_ends_with_its_table(cli, small, outputs):
    grid = ["+experiment=glue_isobn", "-m", "calibration=none,isobn_paper", "task.train_samples=null"]
    sweep = [*small, *grid, "optimization.epochs=4", "seed=1,2"]
    out, err = check_done(cli(*sweep))
    assert "4 runs: 0 finished, 4 to do" in err
    assert "[4/4] sst2 local isobn_paper seed 2: accuracy" in err
    first = read_records(outputs)
    assert len(first) == 4
    for name, label in (("none", "plain"), ("isobn_paper", "isobn_paper")):
        line = next(line for line in out.splitlines() if line.startswith(f"{label} "))
        scores = [100 * r["best"]["score"] for r in first.values() if r["config"]["calibration"]["name"] == name]
        assert f"{sum(scores) / 2:.2f}" in line  # the mean of two
        assert all(f"{score:.2f}" in out for score in scores)
        cell = {"none": "92.43 (0.7)", "isobn_paper": "92.54 (0.1)"}[name]
        assert f"[{cell} bert-base-cased]" in out  # the published SST-2 cell, with the encoder it is for
    assert out.count("bert-base-cased") == 4  # in the paper's own form, beside cells and averages
    assert "Not the paper's setting: encoder local is not the paper's" in out
    code, again, err = cli(*sweep)
    assert code == 0
    assert "4 runs: 4 finished, 0 to do" in err
    assert again == out
    assert read_records(outputs) == first
    code, _, err = cli(*sweep[:-1], "seed=1,2,3")
    assert "6 runs: 4 finished, 2 to do" in err


@pytest.mark.slow
def test_a_failing_run_is_recorded_counted_and_the_rest_goes_on(cli, small, outputs):
    code, out, err = cli(*small, "-m", "optimization.lr=1e38,3e-3", "optimization.epochs=1")
    assert code == 1
    assert "failed: the loss is not finite at step" in err
    assert "1 non_finite_loss" in out
    results = sorted(read_records(outputs).values(), key=lambda r: r["status"])
    assert [r["status"] for r in results] == ["failed", "finished"]
    assert results[0]["failure"]["step"] >= 1
    code, _, err = cli(*small, "-m", "optimization.lr=1e38,3e-3", "optimization.epochs=1")
    assert code == 1
    assert "2 runs: 1 finished, 1 failed before (retry_failed=true tries them again), 0 to do" in err
    _, _, err = cli(*small, "-m", "optimization.lr=1e38,3e-3", "optimization.epochs=1", "retry_failed=true")
    assert "2 runs: 1 finished, 1 to do" in err


def test_a_crash_is_recorded_with_its_traceback(cli, small, outputs, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tests")
    code, _, err = cli(*small, "calibration._target_=slow_calibration.Either", "+calibration.kind=failing")
    assert code == 1
    assert "failed: RuntimeError: as meant" in err
    (record,) = read_records(outputs).values()
    assert record["failure"]["name"] == "crash"
    assert "in forward" in record["failure"]["traceback"]


@pytest.mark.slow
def test_retry_failed_forgets_nothing_until_there_is_something_better(cli, small, outputs):
    failing = ["optimization.lr=1e38", "optimization.epochs=1"]
    cli(*small, *failing)
    before = read_records(outputs)
    code, _, _ = cli(*small, *failing, "-m", "retry_failed=true", "optimization.batch_size=16,0")
    assert code == 2
    assert read_records(outputs) == before
    code, _, err = cli(*small, *failing)
    assert code == 1
    assert "1 failed before (retry_failed=true tries them again), 0 to do" in err
    (folder,) = outputs.glob("runs/*")
    (folder / "predictions.parquet").write_text("of an attempt that failed later")
    _, _, err = cli(*small, *failing, "retry_failed=true")
    assert "failed: the loss is not finite" in err  # it was carried out again
    assert not (folder / "predictions.parquet").exists()
    (old,), (new,) = before.values(), read_records(outputs).values()
    assert "retry_failed=true" in new["provenance"]["command"]
    assert "retry_failed=true" not in old["provenance"]["command"]


@pytest.mark.slow
def test_a_run_another_process_holds_is_left_alone_and_said(cli, small, monkeypatch):
    monkeypatch.setattr(worker, "LOCK_SECONDS", 1.5)
    cfg = make_config(*small)
    with RunFolder(cfg.output_dir, identify(cfg).key).lock():
        code, out, err = cli(*small)
    assert code == 3
    assert "1 run left to another process, still at work" in err
    assert "missing" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment", ["isobench.training.execute.format_outcome", "isobench.kinds.classification.loaders.read_examples"]
)
def test_data_that_change_meanwhile_start_no_other_run_and_it_is_said(
    cli, small, reviews, outputs, tmp_path, monkeypatch, moment
):
    """After the first run has ended, and while its data are read."""
    shutil.copytree(reviews, tmp_path / "data")
    original = pydoc.locate(moment)

    def change(*arguments):
        answer = original(*arguments)
        write_parquet(tmp_path / "data/glue/sst2/train.parquet", review_columns(100, seed=9))
        return answer

    sweep = [*small, f"data.root={tmp_path}/data", f"data.cache={tmp_path}/cache", "optimization.epochs=1", "-m"]
    monkeypatch.setattr(moment, change)
    code, _, err = cli(*sweep, "seed=1,2,3")
    assert code == 2
    ended = len(read_records(outputs))
    assert ended == ("execute" in moment)
    assert err.count("changed") == 3 - ended
    assert not list(tmp_path.glob("cache/tokens/*")) or ended  # else they would count as the former data's
    monkeypatch.undo()
    check_done(cli(*sweep, "seed=1,2,3"))
    assert len(read_records(outputs)) == 3 + ended


@pytest.mark.slow
def test_a_report_is_not_written_through_a_link(cli, command, small, outputs, tmp_path):
    sweep = [*small, "optimization.epochs=1", "seed=1,2", "report=true"]
    check_done(cli(*sweep, "-m"))
    (outputs / "reports").rename(tmp_path / "reports")
    (outputs / "reports").symlink_to(tmp_path / "reports")  # which is the user's choice
    (folder,) = outputs.glob("reports/*")
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/report.md").write_text("mine")
    code, _, err = cli(*sweep, "-m")
    assert (code, f"no page is written: {folder} is a link" in err) == (0, True)
    code, _, err = command(report.main, *sweep)
    assert (code, f"{folder} is a link" in err) == (2, True)
    assert (tmp_path / "elsewhere/report.md").read_text() == "mine"
    folder.unlink()
    check_done(command(report.main, *sweep))
    assert (tmp_path / "reports" / folder.name / "report.md").exists()


@pytest.mark.slow
def test_a_run_that_killed_its_process_is_started_last(cli, small, outputs):
    quick = [*small, "optimization.epochs=1", "-m"]
    assert cli(*quick, "seed=1")[0] == 0
    (folder,) = outputs.glob("runs/*")
    (folder / "result.json").unlink()
    where = {"machine": "x", "host": "x", "job": None, "log": None, "share": 1}
    beat = Beat(state="training", step=0, steps=0, pid=1, since=0, updated=0, attempt=1, **where)
    write_json(folder / "progress.json", beat.model_dump(), owner=folder.name)
    os.utime(folder / "progress.json", (0, 0))  # a file of this minute would mean that the run is going on
    code, _, err = cli(*quick, "seed=1,2,3")
    assert code == 0
    started = [line.split("seed ")[1][0] for line in err.splitlines() if line.startswith("[")]
    assert started == ["2", "3", "1"]


@pytest.mark.slow
def test_changed_scores_and_predictions_are_named_and_the_rest_is_shown(cli, command, small, outputs):
    sweep = [*small, "optimization.epochs=1", "-m", "seed=1,2,3"]
    assert cli(*sweep)[0] == 0
    first, second, third = sorted(outputs.glob("runs/*"))
    record, predictions = first / "result.json", second / "predictions.parquet"
    start, best, end = record.read_text().partition('"best": {')
    assert best
    changed = re.sub(r'"score": 0\.\d', '"score": 0.1', end, count=1)
    assert len(changed) == len(end)
    assert changed != end
    record.write_text(start + best + changed)
    content = predictions.read_bytes()
    predictions.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    remove = f"remove {second}/result.json to run again"
    troubles = [
        f"isobench: {record} is damaged; remove it to run again (it was changed after it was written)",
        f"isobench: {predictions} is damaged; {remove} (its sha256 is not the record's)",
    ]
    code, out, err = command(report.main, *sweep)
    assert code == 0
    assert sorted(line for line in err.splitlines() if "damaged" in line) == sorted(troubles)
    assert "2 damaged" in out
    page = next(outputs.glob("reports/*/report.md")).read_text()
    assert page.count("is damaged; remove") == 2
    code, out, err = cli(*sweep, "seed=1,2,3,4")
    assert code == 2
    assert "4 runs: 2 finished, 1 whose record can't be read, 1 to do" in err
    assert sorted(err.splitlines()[-2:]) == sorted(troubles)
    assert "2 damaged" in out
    assert len(read_records(outputs)) == 4
    (third / "result.json").write_text("{")
    code, _, err = command(report.main, *sweep)
    assert code == 2
    assert "no run of this sweep has an intact record" in err


def test_a_changed_class_of_the_users_own_is_named_where_its_runs_have_ended(cli, small, tmp_path, monkeypatch):
    file = tmp_path / "own_of_mine.py"
    text = "from isobench.calibration import Calibration\n\n\nclass Mine(Calibration):\n    def forward(self, h):\n"
    file.write_text(f"{text}        return h / 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    sweep = [*small, "calibration._target_=own_of_mine.Mine", "calibration.name=mine", "optimization.epochs=1"]
    for change, is_named in (("", False), ("# the same", False), ("        return h / 3\n", True)):
        file.write_text(f"{text}{change}" if is_named else f"{file.read_text()}{change}")
        linecache.clearcache()
        sys.modules.pop("own_of_mine", None)
        assert ("own_of_mine.Mine has changed" in check_done(cli(*sweep))[1]) == is_named
