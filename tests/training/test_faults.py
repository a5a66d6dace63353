"""Whatever kills a run or its disk: every final result is the undisturbed one, and what was there stays."""

import errno
import json
import os
import pydoc
import random
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import torch
from helpers import fails, tiny_overrides
from killed_runs import outcome, run_and_die, start, stop_training
from tampering import list_failures
from waiting import wait_for_end

from isobench.runs.folder import RunFolder
from isobench.runs.trust import hash_loaded_sources, hash_sources
from isobench.training.checkpoint import CheckpointFiles

CLASSIFICATION = "isobench.kinds.classification.module"

pytestmark = pytest.mark.slow

# Where a run may be killed, twenty moments: what it does, how often it does so at most (30 steps, 3 epochs).
POINTS = [
    ("isobench.training.train.remove_temporaries", 1, "before"),
    ("isobench.training.train.build_run_parts", 1, "before"),
    ("isobench.kinds.classification.loaders.Loaders.__init__", 1, "after"),
    ("isobench.training.checkpoint.Checkpointer.on_train_start", 1, "before"),
    (f"{CLASSIFICATION}.Classifier.training_step", 30, "before"),
    (f"{CLASSIFICATION}.Classifier.configure_optimizers", 1, "after"), ("torch.optim.AdamW.step", 30, "after"),
    (f"{CLASSIFICATION}.Classifier.validation_step", 3, "after"),
    *((f"{CLASSIFICATION}.Classifier.on_validation_epoch_end", 3, when) for when in ("before", "after")),
    ("isobench.training.checkpoint.CheckpointFiles.save_checkpoint", 8, "before"), ("torch.save", 8, "half"),
    ("isobench.training.checkpoint.CheckpointFiles.save_checkpoint", 8, "after"),
    *(("isobench.training.train.write_predictions", 1, when) for when in ("before", "after")),
    ("pyarrow.parquet.write_table", 1, "half"), ("isobench.runs.folder.RunFolder.write_record", 1, "before"),
    ("pathlib.Path.write_text", 3, "half"), ("isobench.runs.folder.RunFolder.write_record", 1, "after"),
    ("isobench.training.checkpoint.CheckpointFiles.remove_all", 1, "before"),
]  # fmt: skip


LONG = ["optimization.epochs=3", "calibration=isobn_paper", "checkpoint.steps=3", "trainer.threads=1"]
RNG = random.Random(20261121)
MOMENTS = [(target, RNG.randint(1, most), when) for target, most, when in POINTS]


@pytest.fixture
def long(small):
    return [*small, *LONG]


@pytest.fixture(scope="module")
def undisturbed(processes, tiny, reviews, cache, tmp_path_factory):
    outputs = tmp_path_factory.mktemp("undisturbed")
    assert start(processes, [*tiny_overrides(tiny, reviews, cache, outputs), *LONG]) == 0
    return outcome(outputs)


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda m: f"{m[0].split('isobench.')[-1]}-{m[1]}-{m[2]}")
def test_killed_at_any_moment_the_result_is_the_same(processes, long, outputs, undisturbed, moment):
    assert start(processes, long, *moment) == -signal.SIGKILL
    finished = list(outputs.glob("runs/*/result.json"))
    assert len(finished) == (moment in MOMENTS[-2:])  # after the record was written
    (plan,) = outputs.glob("plans/*.json")
    a_worker = ["work", str(plan), f"output_dir={outputs}"]  # which any may be; the sweep itself clears up
    assert start(processes, long if finished else a_worker) == 0
    assert outcome(outputs) == undisturbed
    assert list_failures(outputs) == []
    assert not list(outputs.glob("runs/*/.*.tmp"))
    assert not list(outputs.glob("runs/*/checkpoints"))


def test_what_monitors_remember_survives_an_interruption(processes, tiny, reviews, cache, tmp_path):
    """The classifier's initialisation and the curves of past epochs: history and last checkpoint are the same."""
    found = []
    for name in ("whole", "resumed"):
        outputs = tmp_path / name
        arguments = ["+experiment=isobn_drift", *tiny_overrides(tiny, reviews, cache, outputs), *LONG]
        arguments += ["encoder.pooling=cls"]
        if name == "resumed":  # killed in the second epoch
            assert start(processes, arguments, f"{CLASSIFICATION}.Classifier.training_step", 15, "before") == -9
        end = ("isobench.training.checkpoint.CheckpointFiles.remove_all", 1, "before")  # its checkpoints stay
        assert start(processes, arguments, *end) == -signal.SIGKILL
        last = max(outputs.glob("runs/*/checkpoints/*.ckpt"))
        callbacks = torch.load(last, weights_only=False)["callbacks"]
        (state,) = (state for key, state in callbacks.items() if key.startswith("IsotropyMonitor"))
        found.append((outcome(outputs), state))
    assert found[0] == found[1]
    history, curves = found[0][0][0], found[0][1]["curves"]
    assert {"drift", "isotropy", "explained_variance"} <= set(history[-1])
    assert history[-1]["drift"]["now"]["l2"] > history[0]["drift"]["start"]["l2"] == 0
    assert len(curves["embedding"]) >= 2


@pytest.fixture(scope="module")
def killed_at_step_20(processes, tiny, reviews, cache, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    arguments = [*tiny_overrides(tiny, reviews, cache, folder), *LONG]
    assert start(processes, arguments, f"{CLASSIFICATION}.Classifier.training_step", 20, "before") == -9
    return folder


@pytest.fixture
def interrupted(killed_at_step_20, outputs) -> list[Path]:
    shutil.copytree(killed_at_step_20, outputs)
    return sorted(outputs.glob("runs/*/checkpoints/step-*.ckpt"))


@pytest.mark.parametrize("damage", ["truncated", "empty", "foreign", "flipped", "older", "both"])
def test_damaged_checkpoints_are_passed_over(cli, long, outputs, interrupted, undisturbed, damage):
    older, newest = interrupted
    if damage == "foreign":
        torch.save({"run": "another", "state_dict": {}}, newest)
    elif damage == "flipped":  # a bit of a weight, which torch.load does not notice
        weights = torch.load(newest, weights_only=True)["state_dict"]
        name, weight = max(weights.items(), key=lambda item: item[1].numel())
        content = bytearray(newest.read_bytes())
        content[content.index(weight.numpy().tobytes()) + 2] ^= 0x40
        newest.write_bytes(content)
        assert not torch.equal(torch.load(newest, weights_only=True)["state_dict"][name], weight)
    elif damage == "older":
        newest.write_bytes(older.read_bytes())
    else:
        os.truncate(newest, 0 if damage == "empty" else newest.stat().st_size // 2)
    if damage == "both":
        older.write_bytes(b"not a checkpoint")
    code, _, err = cli(*long)
    assert code == 0, err
    assert err.count("trying the one before") == 1
    assert err.count("the run starts anew") == (damage == "both")
    assert outcome(outputs) == undisturbed
    assert not older.exists()


@pytest.mark.parametrize(
    ("place", "number"),
    [
        ("isobench.runs.folder.filelock.FileLock.acquire", errno.EIO),
        ("isobench.kinds.classification.build.Classifier", errno.EREMOTEIO),
        ("isobench.training.checkpoint.CheckpointFiles.list_files", errno.ETIMEDOUT),
        ("isobench.training.checkpoint.require_checksum", errno.EIO), ("torch.load", errno.ESTALE),
        ("isobench.kinds.classification.module.Classifier.validation_step", errno.ENOTCONN),
    ],
)  # fmt: skip
def test_a_file_server_that_fails_for_a_moment_is_no_runs_failure(
    cli, long, outputs, interrupted, undisturbed, monkeypatch, place, number
):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number), "/a/file")

    with monkeypatch.context() as patch:
        patch.setattr(place, fail)
        code, _, err = cli(*long)
    assert code == 2, err
    assert not list(outputs.glob("runs/*/result.json"))
    assert set(interrupted) & set(outputs.glob("runs/*/checkpoints/step-*.ckpt"))
    assert cli(*long)[0] == 0
    assert outcome(outputs) == undisturbed


def test_folders_behind_a_link_are_left_alone(tmp_path):
    folder = RunFolder(str(tmp_path), "ab" * 32)
    (tmp_path / "elsewhere").mkdir()
    folder.path.parent.mkdir()
    folder.path.symlink_to(tmp_path / "elsewhere")
    with fails(), folder.lock():
        pass
    assert not list((tmp_path / "elsewhere").iterdir())
    (tmp_path / "checkpoints").symlink_to(tmp_path)
    with fails():
        CheckpointFiles(tmp_path, "any", {})


def test_a_run_goes_on_only_with_the_code_that_began_it(tmp_path, capsys):
    CheckpointFiles(tmp_path, "key", {"mine.Mine": "a"}).save_checkpoint({}, tmp_path / "checkpoints/step-1.ckpt")
    assert CheckpointFiles(tmp_path, "key", {"mine.Mine": "a"}).load_newest()
    assert CheckpointFiles(tmp_path, "key", {"mine.Mine": "b"}).load_newest() is None
    assert "the run starts anew" in capsys.readouterr().err


def test_a_run_that_goes_on_with_other_threads_is_mixed_from_then_on(tmp_path):
    found = [CheckpointFiles(tmp_path, "key", {}) for _ in range(4)]
    for files, threads in zip(found, (1, 1, 2, 2), strict=True):
        files.rounding = [threads]
        files.load_newest()
        files.save_checkpoint({}, tmp_path / "checkpoints/step-1.ckpt")
    assert [files.mixed for files in found] == [False, False, True, True]


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder], check=False).returncode:
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path, leave: int = 0) -> None:
    disk = os.statvfs(folder)
    (folder / "filler").write_bytes(b"x" * (disk.f_bavail * disk.f_bsize - leave))


def test_on_a_full_or_read_only_disk_earlier_results_are_intact(cli, small, small_disk):
    here = [*small, f"output_dir={small_disk}/outputs", "optimization.epochs=1", "-m"]
    _, table, _ = cli(*here, "seed=1")
    (result,) = small_disk.glob("outputs/runs/*/result.json")
    before = result.read_bytes()
    fill(small_disk)
    assert cli(*here, "seed=1,2,3,4")[0] == 2
    (small_disk / "filler").unlink()
    for mode in ("ro", "rw"):
        subprocess.run(["mount", "-o", f"remount,{mode}", small_disk], check=True)
        assert cli(*here, "seed=1")[:2] == (0, table)
        assert cli(*here, "seed=1,2,3,4")[0] == (2 if mode == "ro" else 0)
        assert result.read_bytes() == before
        assert len(list(small_disk.glob("outputs/runs/*/result.json"))) == (1 if mode == "ro" else 4)


def test_a_disk_without_room_for_a_checkpoint_lets_the_run_go_on(cli, small, small_disk, long, undisturbed):
    fill(small_disk, leave=200_000)
    code, _, err = cli(*long, f"output_dir={small_disk}/outputs")
    assert code == 0, err
    assert "no checkpoint" in err
    assert outcome(small_disk / "outputs") == undisturbed


def test_three_commands_at_once_run_each_point_once(processes, small, outputs):
    sweep = [*small, "-m", "seed=1,2,3", "trainer.threads=1"]
    all_three = [processes.Process(target=run_and_die, args=(sweep, None, 0, "")) for _ in range(3)]
    for process in all_three:
        process.start()
    codes = {wait_for_end(process, outputs) for process in all_three}
    found = [json.loads(file.read_text()) for file in outputs.glob("runs/*/result.json")]
    assert len(found) == 3
    assert [record["attempts"] for record in found] == [1, 1, 1]
    assert codes <= {0, 3}


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_and_a_closed_terminal_in_training_save_and_a_second_sweep_goes_on(
    processes, long, outputs, undisturbed, signum
):
    moment = (f"{CLASSIFICATION}.Classifier.training_step", 5, "before")
    assert start(processes, [*long, "checkpoint.steps=null"], *moment, signum) == 128 + signum
    assert len(list(outputs.glob("runs/*/checkpoints/*.ckpt"))) == 1
    assert start(processes, long) == 0
    assert outcome(outputs) == undisturbed


class Destroyed:
    """Receives Ctrl-C while it is destroyed, where Python drops every exception."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("call", "saved", "finished"),
    [
        ("isobench.training.train.build_run_parts", 1, 0),
        ("isobench.training.train.gc.collect", 0, 1),
        ("isobench.training.execute.format_outcome", 0, 1),
    ],
)
def test_ctrl_c_while_an_object_is_destroyed_is_not_lost(cli, small, outputs, monkeypatch, call, saved, finished):
    original = pydoc.locate(call)

    def destroy(*arguments):
        Destroyed()
        return original(*arguments)

    monkeypatch.setattr(call, destroy)
    code, _, err = cli(*small, "hydra/launcher=sequential", "-m", "seed=1,2")
    assert code == 130, err
    assert len(list(outputs.glob("runs/*/checkpoints/*.ckpt"))) == saved
    assert len(list(outputs.glob("runs/*/result.json"))) == finished
    assert len(list(outputs.glob("runs/*"))) == 1  # the second run was not begun


@pytest.mark.parametrize(("told", "saved"), [(9, 9), (10, 11), (20, 21), (30, None)])
def test_a_stop_on_an_epochs_last_batch_waits_for_the_next(cli, long, outputs, undisturbed, told, saved):
    """Lightning would take a checkpoint made there for a finished epoch; after the last epoch the run just ends."""
    with stop_training(lambda step, batch: step == told):
        code, _, _ = cli(*long, "checkpoint.steps=null")
    assert code == 128 + signal.SIGTERM
    files = [file.name for file in outputs.glob("runs/*/checkpoints/*")]
    assert files == ([f"step-{saved:09d}.ckpt"] if saved else [])
    assert cli(*long)[0] == 0
    assert outcome(outputs) == undisturbed


def test_a_run_with_one_batch_an_epoch_obeys_a_signal_and_starts_anew(cli, long, outputs):
    """Every batch is an epoch's last one, on which nothing can be saved: waiting for another would be for ever."""
    single = [*long, "optimization.batch_size=1000", "checkpoint.steps=1"]
    with stop_training(lambda step, batch: step == 2) as steps:
        code, _, _ = cli(*single)
    assert (code, steps) == (128 + signal.SIGTERM, [1, 2])
    assert not list(outputs.glob("runs/*/checkpoints/*"))
    assert cli(*single)[0] == 0
    assert len(list(outputs.glob("runs/*/result.json"))) == 1


def test_a_method_that_is_edited_while_it_trains_loses_no_run_and_is_recorded_as_it_was_loaded(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "my_edited_method.py"
    source = "from isobench.calibration import Calibration\n\n\nclass Mine(Calibration):\n    {}\n"
    file.write_text(source.format("pass"))
    config = {"name": "mine", "_target_": "my_edited_method.Mine"}
    before = hash_loaded_sources(config)
    assert list(before) == ["my_edited_method.Mine"]
    file.write_text(source.format("other = 1"))
    assert before == hash_loaded_sources(config) != hash_sources(config)
    file.write_text("class Mine(\n")
    assert hash_sources(config) == {}
    assert hash_sources({"name": "gone", "_target_": "my_method_that_is_gone.Mine"}) == {}
