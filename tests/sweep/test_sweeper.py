"""Grids, what a sweep runs and skips, its table and exit code."""

import linecache
import pydoc
import random
import re
import shutil
import sys

import pytest
from helpers import check_done, read_records, review_columns, write_parquet
from tampering import change_byte

from isobench.cli import report

pytestmark = pytest.mark.slow


def test_a_sweep_runs_once_skips_what_is_finished_and_ends_with_its_table(cli, small, outputs):
    sweep = [*small, "+experiment=glue_isobn", "-m", "calibration=none,isobn_paper", "optimization.epochs=4"]
    sweep += ["task.train_samples=null"]
    out, _ = check_done(cli(*sweep, "seed=1,2"))
    first = read_records(outputs)
    assert len(first) == 4
    for name, label, cell in (("none", "plain", "92.43 (0.7)"), ("isobn_paper", "isobn_paper", "92.54 (0.1)")):
        line = next(line for line in out.splitlines() if line.startswith(f"{label} "))
        scores = [100 * r["best"]["score"] for r in first.values() if r["config"]["calibration"]["name"] == name]
        assert f"{sum(scores) / 2:.2f}" in line  # the mean of two
        assert all(f"{score:.2f}" in out for score in scores)
        assert f"[{cell}]" in out  # the published SST-2 cell
    assert "Not the paper's setting: encoder local is not the paper's" in out
    assert check_done(cli(*sweep, "seed=1,2"))[0] == out
    assert read_records(outputs) == first
    assert "6 runs: 4 finished, 2 to do" in check_done(cli(*sweep, "seed=1,2,3"))[1]


def test_results_of_a_class_that_was_edited_since_are_named(cli, small, outputs, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "calibration").mkdir()
    (tmp_path / "calibration" / "scaled.yaml").write_text(
        "name: scaled\n_target_: my_scaled_method.Scaled\nversion: 1\nplacement: after_pooler\ntarget: head\n"
    )
    source = "from isobench.calibration import Calibration\n\n\nclass Scaled(Calibration):\n"
    source += "    def forward(self, h):\n        return {} * h\n"
    (tmp_path / "my_scaled_method.py").write_text(source.format(1))
    small = [text for text in small if text != "report=false"]
    sweep = [*small, f"--config-dir={tmp_path}", "calibration=scaled", "optimization.epochs=1", "-m", "seed=1,2"]
    assert "my_scaled_method" not in "".join(check_done(cli(*sweep)))
    (tmp_path / "my_scaled_method.py").write_text(source.format(2))
    out, err = check_done(cli(*sweep))
    written = [file.read_text() for file in outputs.glob("reports/*/report.*")]
    again, _ = check_done(cli("report", *(text for text in sweep if text != "-m")))
    assert len(written) == 2
    for text in (err, out, *written, again):
        assert "my_scaled_method.Scaled has changed since 2 runs" in " ".join(text.replace("\\", "").split())
    (tmp_path / "my_scaled_method.py").write_text("class Scaled(")
    assert "Whether my_scaled_method.Scaled has changed" in " ".join(check_done(cli(*sweep))[0].split())


def test_a_failing_run_is_recorded_counted_and_the_rest_goes_on(cli, small, outputs):
    sweep = [*small, "-m", "optimization.lr=1e38,3e-3", "optimization.epochs=1"]
    for more, counts in (
        ([], "0 finished, 2 to do"),
        ([], "1 finished, 1 failed before (isobench status says why, retry_failed=true tries again), 0 to do"),
        (["retry_failed=true"], "1 finished, 1 to do"),
    ):
        code, _, err = cli(*sweep, *more)
        assert (code, f"2 runs: {counts}" in err) == (1, True)
        results = sorted(read_records(outputs).values(), key=lambda r: r["status"])
        assert [r["status"] for r in results] == ["failed", "finished"]
        assert (results[0]["failure"]["name"], results[0]["failure"]["step"] >= 1) == ("non_finite_loss", True)


def test_retry_failed_forgets_nothing_until_there_is_something_better(cli, small, outputs):
    failing = [*small, "optimization.lr=1e38", "optimization.epochs=1"]
    cli(*failing)
    before = read_records(outputs)
    assert cli(*failing, "-m", "retry_failed=true", "optimization.batch_size=16,0")[0] == 2
    assert read_records(outputs) == before
    (folder,) = outputs.glob("runs/*")
    (folder / "predictions.parquet").write_text("of an attempt that failed later")
    assert cli(*failing, "retry_failed=true")[0] == 1
    assert not (folder / "predictions.parquet").exists()
    (old,), (new,) = before.values(), read_records(outputs).values()
    assert ["retry_failed=true" in record["provenance"]["command"] for record in (old, new)] == [False, True]


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


def test_changed_scores_and_predictions_are_named_and_the_rest_is_shown(cli, command, small, outputs):
    sweep = [*small, "optimization.epochs=1", "-m", "seed=1,2,3"]
    check_done(cli(*sweep))
    first, second, third = sorted(outputs.glob("runs/*"))
    record, predictions = first / "result.json", second / "predictions.parquet"
    start, best, end = record.read_text().partition('"best": {')
    changed = re.sub(r'"score": 0\.\d', '"score": 0.1', end, count=1)
    assert changed != end
    record.write_text(start + best + changed)
    change_byte(random.Random(0), predictions)
    out, err = check_done(command(report.main, *sweep))
    assert ("2 damaged" in out, f"{record} is damaged" in err, f"{predictions} is damaged" in err) == (True,) * 3
    assert next(outputs.glob("reports/*/report.md")).read_text().count("is damaged; remove") == 2
    code, out, err = cli(*sweep, "seed=1,2,3,4")
    assert (code, "2 damaged" in out) == (2, True)
    assert "4 runs: 2 finished, 1 whose record can't be read, 1 to do" in err
    assert len(read_records(outputs)) == 4
    (third / "result.json").write_text("{")
    assert command(report.main, *sweep)[0] == 2  # no run has an intact record


def test_a_changed_class_of_the_users_own_is_named_where_its_runs_have_ended(cli, small, tmp_path, monkeypatch):
    file = tmp_path / "own_of_mine.py"
    text = "from isobench.calibration import Calibration\n\n\nclass Mine(Calibration):\n    def forward(self, h):\n"
    monkeypatch.syspath_prepend(str(tmp_path))
    sweep = [*small, "calibration._target_=own_of_mine.Mine", "calibration.name=mine", "optimization.epochs=1"]
    for body, is_named in (("h / 2", False), ("h / 2\n# the same", False), ("h / 3", True)):
        file.write_text(f"{text}        return {body}\n")
        linecache.clearcache()
        sys.modules.pop("own_of_mine", None)
        assert ("own_of_mine.Mine has changed" in check_done(cli(*sweep))[1]) == is_named


def test_a_page_that_can_t_be_written_costs_no_result(cli, small, outputs):
    outputs.mkdir()
    (outputs / "reports").write_text("in its place")
    check_done(cli(*small, "report=true", "optimization.epochs=1", "seed=1,2"))
    assert len(list(outputs.glob("runs/*/result.json"))) == 2
