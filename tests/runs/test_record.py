"""A run's record and heartbeat: round trips, what is refused and how, the documented schemas."""

import contextlib
import json
import math

import pytest
from helpers import ROOT, make_config, make_record, record_content

from isobench.analyses.subject import Subject
from isobench.common.errors import UserError
from isobench.common.files import replace_non_finite
from isobench.runs.folder import RunFolder
from isobench.runs.heartbeat import PROGRESS_FILE, Heartbeat, read_heartbeat
from isobench.runs.record import RECORD_FORMAT, Beat, RunRecord
from isobench.runs.row import Row

KEY = "ab" * 32
BEST = {
    "epoch": 1, "step": 9, "score": 0.5, "selection": 0.5, "isotropy": {},
    "validation": {"accuracy": 0.5, "constant_predictor": False},
}  # fmt: skip


CONFIG = {"task": {"dev_splits": ["validation"]}, "checkpoint": {"keep": False}}


def content(**parts) -> dict:
    own = {"key": KEY, "best": BEST, "history": [BEST], "config": CONFIG}
    return record_content(make_config(), **{**own, **parts})


def folder_with(tmp_path, text: str) -> RunFolder:
    folder = RunFolder(str(tmp_path), KEY)
    folder.path.mkdir(parents=True)
    folder.result_file.write_text(text)
    return folder


def test_record_round_trip_and_nan(tmp_path):
    folder = RunFolder(str(tmp_path), KEY)
    assert folder.read_record() is None
    whole = content(x=[float("nan"), 1.5, float("inf")])
    with folder.lock() as ours:
        assert ours
        folder.write_record(RunRecord.model_validate(whole))
    assert folder.read_record().model_extra == {"x": [None, 1.5, None]}
    assert json.loads(folder.result_file.read_text()) == whole | {"x": [None, 1.5, None]}
    assert replace_non_finite({"a": (1, float("nan"))}) == {"a": [1, None]}


def test_what_monitors_and_newer_versions_add_is_kept(tmp_path):
    epoch = BEST | {"drift": {"now": {"l2": 0.5}}, "mine": [1, "two", None]}
    more = content(best=epoch, history=[epoch], cost={"euros": 3}, mood="good")
    record = folder_with(tmp_path, json.dumps(more)).read_record()
    assert record.best.noted("drift") == {"now": {"l2": 0.5}}
    assert record.best.noted("nothing") == record.best.metrics("nowhere") == record.best.noted("mine") == {}
    assert record.model_dump(exclude_unset=True) == more


def test_a_row_keeps_of_past_epochs_what_tables_show_and_an_analysis_reads_them_whole(tmp_path):
    epoch = BEST | {"drift": {"now": {"l2": 0.5}}, "isotropy": {"head/i1": 0.5}}
    folder = folder_with(tmp_path, json.dumps(content(best=epoch, history=[epoch, epoch])))
    row = Row.of(make_config(f"output_dir={tmp_path}"), KEY)
    assert row.record.best.model_dump(exclude_unset=True) == epoch
    named = {name: epoch[name] for name in ("epoch", "step", "score", "selection", "isotropy")}
    assert [kept.model_dump(exclude_unset=True) for kept in row.record.history] == [named, named]
    assert Subject(row).record == folder.read_record() != row.record


@pytest.mark.parametrize(
    "part",
    [
        {"best": {"epoch": 1, "score": 0.5}}, {"best": BEST | {"validation": {"accuracy": 0.5}}}, {"best": []},
        {"best": {"score": 0.5, "validation": BEST["validation"]}}, {"best": BEST | {"isotropy": None}},
        {"best": BEST | {"score": "high"}}, {"best": BEST | {"score": "0.5"}}, {"best": BEST | {"score": True}},
        {"best": BEST | {"epoch": 1.5}}, {"best": BEST | {"isotropy": {"head/i1": "0.5"}}},
        {"cost": {"seconds": None}}, {"cost": {"training_seconds": "6"}},
        {"history": {}}, {"history": None}, {"history": [1]}, {"history": [{"epoch": 1}]},
        {"scale": {}}, {"warnings": None}, {"warnings": [1]}, {"failure": "crash"}, {"config": None},
        {"config": {"task": None}}, {"config": {"task": {"dev_splits": []}}}, {"status": "failed"},
        {"status": "done"},        {"failure": {"name": 1, "message": "x"}}, {"seeds": {"init": "1"}},
        {"where": {}}, {"provenance": None},
        {"format": "1"}, {"format": None}, {"format": 1.5}, {"format": 0}, {"format": True},
        {"best": BEST | {"validation": {"accuracy": "0.5", "constant_predictor": False}}},
        {"history": [BEST, BEST | {"validation": {"accuracy": [0.5]}}]},
        {"config": CONFIG | {"checkpoint": None}}, {"config": CONFIG | {"checkpoint": [True]}},
        {"mine": math.nan}, {"mine": [math.inf]}, {"best": BEST | {"score": -math.inf}},
        {"history": [BEST | {"drift": {"now": [0.5, {"l2": math.nan}]}}]},
    ],
)  # fmt: skip
def test_a_record_that_is_not_whole_inside_is_damaged(tmp_path, part):
    folder = folder_with(tmp_path, json.dumps(content() | part))
    with pytest.raises(UserError, match=r"result.json is damaged; remove it to run again"):
        folder.read_record()


@pytest.mark.parametrize("name", sorted(RunRecord.model_fields.keys() - {"generation", "predictions"}))
def test_a_record_without_a_part_is_damaged(tmp_path, name):
    lacking = content()
    del lacking[name]
    with pytest.raises(UserError, match=r"result.json is damaged; remove it to run again"):
        folder_with(tmp_path, json.dumps(lacking)).read_record()


@pytest.mark.parametrize("name", ["seconds", "training_seconds"])
def test_a_record_without_its_time_is_damaged(tmp_path, name):
    lacking = content()
    del lacking["cost"][name]
    with pytest.raises(UserError, match=r"result.json is damaged; remove it to run again"):
        folder_with(tmp_path, json.dumps(lacking)).read_record()


def test_a_failed_runs_record_needs_no_epoch(tmp_path):
    folder = RunFolder(str(tmp_path), KEY)
    folder.path.mkdir(parents=True)
    failure = {"name": "crash", "message": "x"}
    folder.write_record(make_record(make_config(), key=KEY, failure=failure))
    assert folder.read_record().failure.model_dump(exclude_unset=True) == failure


@pytest.mark.parametrize(
    "text",
    ["", "{", "\0", '{"status": "finished", "key": "other"}', "[]", "7", json.dumps({"key": KEY}), "[" * 100_000],
)
def test_a_damaged_record_is_named_not_trusted(tmp_path, text):
    with pytest.raises(UserError, match=r"result.json is damaged; remove it to run again"):
        folder_with(tmp_path, text).read_record()


def test_another_runs_record_is_named_not_trusted(tmp_path):
    folder = folder_with(tmp_path, json.dumps(content(key="cd" * 32)))
    with pytest.raises(UserError, match=r"result.json is not this run's record; remove it to run again"):
        folder.read_record()


@pytest.mark.parametrize("spelt", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400"])
def test_a_record_with_a_number_that_is_not_finite_is_damaged(tmp_path, spelt):
    text = json.dumps(content(cost={"seconds": "here"})).replace('"here"', spelt)
    with pytest.raises(UserError, match=r"result.json is damaged; remove it to run again"):
        folder_with(tmp_path, text).read_record()


def test_a_record_in_memory_may_have_undefined_metrics():
    epoch = BEST | {"validation": {"accuracy": math.nan, "f1": None, "constant_predictor": True}}
    assert math.isnan(RunRecord.model_validate(content(best=epoch)).best.metrics("validation")["accuracy"])


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (RECORD_FORMAT + 1, "has format 3 and this isobench reads 2: update isobench"),
        (RECORD_FORMAT - 1, "was written by an earlier version of isobench; remove it to run again"),
    ],
)
def test_a_record_of_another_format_is_refused_in_one_line(tmp_path, version, message):
    folder = folder_with(tmp_path, json.dumps({"format": version, "shape": "unknown"}))
    with pytest.raises(UserError, match=rf"result.json {message}$"):
        folder.read_record()


def test_a_heartbeat_counts_its_attempts_and_a_damaged_one_is_none(tmp_path):
    with contextlib.suppress(KeyboardInterrupt), Heartbeat(tmp_path) as heartbeat:
        heartbeat.report_training(3, 9, loss=0.7, speed=2.5)
        heartbeat.report_training(4, 9)
        raise KeyboardInterrupt
    left = read_heartbeat(tmp_path)
    assert (left.state, left.step, left.steps, left.attempt) == ("interrupted", 4, 9, 1)
    assert (left.loss, left.speed) == (0.7, 2.5)
    with Heartbeat(tmp_path):
        again = read_heartbeat(tmp_path)
        assert (again.state, again.step, again.steps, again.attempt) == ("starting", 4, 9, 2)
    assert read_heartbeat(tmp_path) is None
    for damage in (
        {"pid": "7"}, {"pid": -1}, {"pid": 0}, {"pid": 2**40}, {"state": "asleep"}, {"updated": None},
        {"updated": math.nan}, {"updated": math.inf}, {"since": -math.inf}, {"since": 1e300},
    ):  # fmt: skip
        text = json.dumps(left.model_dump() | damage)
        for spelt in (text, text.replace("Infinity", "1e400")):
            (tmp_path / PROGRESS_FILE).write_text(spelt)
            assert read_heartbeat(tmp_path) is None


@pytest.mark.parametrize(("name", "model"), [("result", RunRecord), ("progress", Beat)])
def test_the_documented_schema_is_the_models(name, model):
    """If this fails: ``python -m isobench.runs.record [progress] > docs/<name>.schema.json``."""
    assert json.loads((ROOT / "docs" / f"{name}.schema.json").read_text()) == model.model_json_schema()
