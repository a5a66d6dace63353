"""Runs that are stopped: killed in processes of their own, which the fixture ``processes`` starts, or by a signal."""

import gc
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers import check_done, drop_replaced
from waiting import wait_for_end


def run_and_die(
    arguments: list[str], target: str | None, call: int, when: str, signum: signal.Signals = signal.SIGKILL
) -> None:
    """In a process of its own: the command line, which gets a signal at the ``call``-th call of ``target``."""
    import sys

    import torch

    from isobench import __main__ as entry

    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, which this process would inherit
    gc.freeze()  # or the collection that ends a run goes through everything imported, and copies its pages
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    sys.argv = ["isobench", *drop_replaced(arguments)]
    sys.stderr = sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    if target:
        kill_at(target, call, when, signum)
    entry.main()


def kill_at(target: str, call: int, when: str, signum: signal.Signals) -> None:
    """Replace ``target`` by one that signals the process before or after it, or with its file half-written."""
    import pydoc

    owner, name = pydoc.locate(target.rpartition(".")[0]), target.rpartition(".")[2]
    original, calls = getattr(owner, name), 0

    def dying(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == call and when == "before":
            os.kill(os.getpid(), signum)
        result = original(*args, **kwargs)
        if calls == call and when == "half":
            file = next(Path(arg) for arg in args if isinstance(arg, str | Path))
            os.truncate(file, file.stat().st_size // 2)
        if calls == call and when != "before":
            os.kill(os.getpid(), signum)
        return result

    setattr(owner, name, dying)


def start(processes, arguments, target=None, call=0, when="", signum=signal.SIGKILL) -> int:
    process = processes.Process(target=run_and_die, args=(arguments, target, call, when, signum))
    process.start()
    *_, outputs = (Path(text.partition("=")[2]) for text in arguments if text.startswith("output_dir="))
    return wait_for_end(process, outputs)


def outcome(outputs: Path) -> tuple:
    (file,) = outputs.glob("runs/*/result.json")
    record = json.loads(file.read_text())
    assert record["status"] == "finished"
    return record["history"], record["best"], (file.parent / "predictions.parquet").read_bytes()


@contextmanager
def stop_training(is_moment: Callable[[int, int], bool]) -> Iterator[list[int]]:
    """Send SIGTERM at the end of every batch for which ``is_moment(step, batch)``; yields the batches' steps."""
    from isobench.training.checkpoint import Checkpointer

    original, steps = Checkpointer.on_train_batch_end, []

    def stop(self, trainer, *rest):
        steps.append(trainer.global_step)
        if is_moment(trainer.global_step, len(steps)):
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, trainer, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpointer, "on_train_batch_end", stop)
        yield steps


def check_accumulation(cli, base: list[str], tiny: str, folder: Path) -> dict:
    """Check, without dropout, that 2 x 8 examples a step are 1 x 16, also if interrupted; returns 1 x 16."""
    still, outputs = folder / "still", folder / "outputs"
    shutil.copytree(tiny, still)
    config = json.loads((still / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (still / "config.json").write_text(json.dumps(config))
    base = [*base, f"encoder.path={still}", "optimization.epochs=1"]
    halves = [*base, "optimization.batch_size=8", "optimization.accumulate=2"]
    seen: list[Path] = []

    def run(arguments):
        check_done(cli(*arguments))
        (file,) = (file for file in outputs.glob("runs/*/result.json") if file not in seen)
        seen.append(file)
        return json.loads(file.read_text())

    one, two = run(base), run(halves)
    assert one["history"][0]["step"] == two["history"][0]["step"] == 10
    for name, value in one["history"][0]["isotropy"].items():
        if "printed" not in name:  # rows of an eigenvector matrix whose kernel's basis is arbitrary
            assert two["history"][0]["isotropy"][name] == pytest.approx(value, rel=1e-3, abs=1e-4), name
    seen.pop().unlink()
    with stop_training(lambda step, batch: batch == 11) as steps:  # its gradient is in the checkpoint
        assert cli(*halves)[0] == 128 + signal.SIGTERM
    assert steps[-2:] == [5, 5]  # between two batches of one step
    again = run(halves)
    assert again["attempts"] == 2
    assert (again["history"], again["predictions"]) == (two["history"], two["predictions"])
    return one
