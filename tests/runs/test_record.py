"""A run's record and heartbeat: round trips, what is refused and how, the documented schemas."""

import contextlib
import errno
import hashlib
import json
import math
import os

import pytest
from helpers import ROOT, fails, make_config, record_content

from isobench.common.errors import StorageError, UserError
from isobench.common.files import replace_non_finite
from isobench.runs.folder import RunFolder
from isobench.runs.record import RECORD_FORMAT, Beat, RunRecord, add_checksum, format_record
from isobench.runs.run import Run, check_predictions, print_troubles
from isobench.runs.state import PROGRESS_FILE, Heartbeat, read_heartbeat

KEY = "ab" * 32
BEST = {
    "epoch": 1, "step": 9, "score": 0.5, "selection": 0.5, "isotropy": {},
    "validation": {"accuracy": 0.5, "constant_predictor": False},
}  # fmt: skip


CONFIG = {
    "task": {"dev_splits": ["validation"], "primary": "accuracy", "held_out": None},
    "optimization": {"report": "best"}, "checkpoint": {"keep": False},
}  # fmt: skip


def content(**parts) -> dict:
    own = {"key": KEY, "best": BEST, "history": [BEST], "config": CONFIG}
    return record_content(make_config(), **{**own, **parts})


def to_text(content: dict) -> str:
    return add_checksum(json.dumps(content, indent=1).encode()).decode()


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
    written = json.loads(folder.result_file.read_text())
    assert len(written.pop("checksum")) == 64
    assert written == whole | {"x": [None, 1.5, None]}
    folder.write_record(folder.read_record())
    assert folder.read_record().model_extra == {"x": [None, 1.5, None]}  # its new checksum replaces the one it had
    assert replace_non_finite({"a": (1, float("nan"))}) == {"a": [1, None]}


def test_what_monitors_and_newer_versions_add_is_kept(tmp_path):
    epoch = BEST | {"drift": {"now": {"l2": 0.5}}, "mine": [1, "two", None]}
    more = content(best=epoch, history=[epoch], cost={"euros": 3}, mood="good")
    record = folder_with(tmp_path, to_text(more)).read_record()
    assert record.best.noted("drift") == {"now": {"l2": 0.5}}
    assert record.best.noted("nothing") == record.best.noted("nowhere") == record.best.noted("mine") == {}
    assert record.model_dump(exclude_unset=True, exclude={"checksum"}) == more


NOT_WHOLE = [
    {"best": BEST | {"score": "0.5"}}, {"best": BEST | {"score": True}}, {"attempts": 2**63},
    {"history": [{"epoch": 1}]}, {"config": {"task": None}}, {"status": "failed"}, {"format": 2},
    {"history": [BEST, BEST | {"epoch": 2, "validation": {"accuracy": [0.5], "constant_predictor": False}}]},
]  # fmt: skip
TEXTS = ["", "{", "[]", "[" * 100_000, json.dumps(content(), indent=1), json.dumps({"format": RECORD_FORMAT + 1})]
OPEN = json.dumps(content(cost={"seconds": "here"}), indent=1)
TEXTS += [add_checksum(OPEN.replace('"here"', spelt).encode()).decode() for spelt in ("NaN", "1e400")]
TEXTS += [to_text(content(**part)) for part in NOT_WHOLE]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_damaged_record_is_not_trusted(tmp_path, text):
    with fails():
        folder_with(tmp_path, text).read_record()


HELD_OUT = {"accuracy": 0.25, "constant_predictor": False}
HELD_OUT_CONFIG = CONFIG | {"task": CONFIG["task"] | {"held_out": 0.1}}
EPOCHS = [
    BEST | {"epoch": n, "score": score, "selection": score, "validation": BEST["validation"] | {"accuracy": score}}
    for n, score in ((1, 0.4), (2, 0.6), (3, 0.6))
]  # fmt: skip


def with_held_out(**metrics) -> dict:
    epoch = BEST | {"selection": 0.25, "held_out": HELD_OUT | metrics}
    return {"config": HELD_OUT_CONFIG, "best": epoch, "history": [epoch]}


@pytest.mark.parametrize(
    "part",
    [
        {"best": BEST | {"score": 0.9, "selection": 0.9}}, {"best": BEST | {"isotropy": {"head/i1": 0.1}}},
        {"best": EPOCHS[0], "history": EPOCHS}, {"best": EPOCHS[2], "history": EPOCHS}, {"history": []},
        {"history": [BEST, BEST]}, {"history": [BEST | {"score": 0.9}]}, {"history": [BEST | {"selection": 0.9}]},
        with_held_out(accuracy=0.3), {"config": HELD_OUT_CONFIG},
    ],
)  # fmt: skip
def test_a_record_whose_scores_disagree_is_damaged_even_with_its_own_checksum(tmp_path, part):
    for agree, parts in enumerate(({"best": EPOCHS[1], "history": EPOCHS}, with_held_out())):
        assert folder_with(tmp_path / str(agree), to_text(content(**parts))).read_record()
    with pytest.raises(UserError, match="is damaged"):
        folder_with(tmp_path, to_text(content() | part)).read_record()


def test_any_changed_byte_of_a_record_is_noticed(tmp_path):
    folder = folder_with(tmp_path, format_record(content()).decode())
    intact = folder.result_file.read_bytes()
    assert folder.read_record() is not None
    start = intact.index(b'"format"')
    for position in (*range(0, len(intact), 47), *range(start, start + 12), *range(-82, 0, 3)):
        changed = bytearray(intact)
        changed[position] ^= 1
        folder.result_file.write_bytes(changed)
        with fails():
            folder.read_record()


def test_changed_predictions_make_a_run_damaged_and_leave_the_others(tmp_path, capsys, monkeypatch):
    def fail(_):
        raise OSError(errno.EIO, "as meant")

    predictions = {"file": "predictions.parquet", "sha256": hashlib.sha256(b"intact").hexdigest()}
    rows, files = [], []
    for key in (KEY, "cd" * 32, "ef" * 32, "01" * 32):
        folder = RunFolder(str(tmp_path), key)
        folder.path.mkdir(parents=True)
        files.append(folder.path / "predictions.parquet")
        files[-1].write_bytes(b"intact")
        folder.write_record(RunRecord.model_validate(content(key=key, predictions=predictions)))
        rows.append(Run.of(make_config(f"output_dir={tmp_path}"), key))
    check_predictions(rows)
    assert all(row.record for row in rows)
    times = files[0].stat()
    files[0].write_bytes(b"intacT")
    os.utime(files[0], ns=(times.st_atime_ns, times.st_mtime_ns))  # size and time say that nothing changed
    files[1].unlink()
    files[2].unlink()
    os.mkfifo(files[2])
    check_predictions(rows)
    assert [row.record is not None for row in rows] == [False, True, False, True]
    print_troubles(rows)
    assert capsys.readouterr().err.count(f"{files[0]} is damaged; remove {rows[0].folder.result_file}") == 1
    monkeypatch.setattr("isobench.common.files.open_regular", fail)
    run = Run.of(make_config(f"output_dir={tmp_path}"), "01" * 32)
    check_predictions([run])
    assert (run.record, "remove" in run.trouble) == (None, False)  # can't be read now, and is not damaged


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
        assert left.since == left.started == again.started < again.since
    assert read_heartbeat(tmp_path) is None
    file = tmp_path / PROGRESS_FILE
    for damage in (
        {"pid": "7"}, {"pid": 0}, {"pid": 2**40}, {"state": "asleep"}, {"updated": math.nan}, {"since": 1e300},
    ):  # fmt: skip
        file.write_text(json.dumps(left.model_dump() | damage))
        assert read_heartbeat(tmp_path) is None
    with contextlib.suppress(KeyboardInterrupt), Heartbeat(tmp_path):
        raise KeyboardInterrupt
    text = file.read_text()
    file.write_text(text.replace('"attempt": 1', '"attempt": 7'))
    assert (file.read_text() != text, read_heartbeat(tmp_path)) == (True, None)
    assert Heartbeat(tmp_path).beat.attempt == 1


@pytest.mark.parametrize(("name", "model"), [("result", RunRecord), ("progress", Beat)])
def test_the_documented_schema_is_the_models(name, model):
    """If this fails, write it anew: ``json.dumps(model.model_json_schema(), indent=2)``."""
    assert json.loads((ROOT / "docs" / f"{name}.schema.json").read_text()) == model.model_json_schema()


@pytest.mark.parametrize("status", ["finished", "failed"])
def test_what_a_process_left_that_was_killed_after_its_record_is_removed(tmp_path, status):
    failure = {"name": "crash", "message": "as meant"} if status == "failed" else None
    folder = folder_with(tmp_path, to_text(content(failure=failure)))
    (folder.path / "checkpoints").mkdir()
    own = ["checkpoints/step-000000001.ckpt", PROGRESS_FILE, ".progress.json.7.tmp"]
    for name in (*own, "predictions.parquet", "lock"):
        (folder.path / name).write_text("")
    folder.remove_leftovers(folder.read_record())
    kept = {path.name for path in folder.path.iterdir()} - {"result.json", "predictions.parquet", "lock"}
    # A failed run may be tried again by another process at this moment.
    assert kept == (set() if status == "finished" else {"checkpoints", PROGRESS_FILE, ".progress.json.7.tmp"})


def test_a_first_attempt_that_stops_with_an_error_keeps_its_checkpoints(tmp_path):
    folder = RunFolder(str(tmp_path / "outputs"), "0" * 64)

    def run():
        with folder.lock():
            (folder.path / "checkpoints").mkdir()
            (folder.path / "checkpoints" / "step-9.ckpt").write_text("weights")
            raise StorageError("checkpoint.export=FOLDER can't be written")

    with pytest.raises(StorageError):
        run()
    assert [file.name for file in folder.path.rglob("*.ckpt")] == ["step-9.ckpt"]
