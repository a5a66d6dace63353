"""Runs in processes of their own, killed at a chosen moment; the fixture ``processes`` starts them."""

import gc
import json
import os
import signal
from pathlib import Path

from helpers import drop_replaced


def run_and_die(arguments: list[str], target: str | None, call: int, when: str) -> None:
    """In a process of its own: the command line, killed at the ``call``-th call of ``target``."""
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
        kill_at(target, call, when)
    entry.main()


def kill_at(target: str, call: int, when: str) -> None:
    """Replace ``target`` by one that kills the process before or after it, or with its file half-written."""
    import pydoc

    owner, name = pydoc.locate(target.rpartition(".")[0]), target.rpartition(".")[2]
    original, calls = getattr(owner, name), 0

    def dying(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == call and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if calls == call and when == "half":
            file = next(Path(arg) for arg in args if isinstance(arg, str | Path))
            os.truncate(file, file.stat().st_size // 2)
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, dying)


def start(processes, arguments, target=None, call=0, when="") -> int:
    process = processes.Process(target=run_and_die, args=(arguments, target, call, when))
    process.start()
    process.join(120)
    assert process.exitcode is not None
    return process.exitcode


def outcome(outputs: Path) -> tuple:
    (file,) = outputs.glob("runs/*/result.json")
    record = json.loads(file.read_text())
    assert record["status"] == "finished"
    return record["history"], record["best"], (file.parent / "predictions.parquet").read_bytes()
