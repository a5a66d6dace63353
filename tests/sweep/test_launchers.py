"""The same sweep through every launcher; SLURM has its own file."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from helpers import check_done, drop_replaced, read_records
from waiting import wait_until, watch_folder

from isobench.runs.state import Submission, find_queued_jobs, is_process_alive

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parents[1]  # tests/


def results(outputs) -> dict[str, tuple]:
    return {
        name: (record["history"], record["predictions"]["sha256"], record["attempts"])
        for name, record in read_records(outputs).items()
    }


def read_beats(outputs) -> list[dict]:
    return [json.loads(file.read_text()) for file in outputs.glob("runs/*/progress.json")]


@pytest.fixture
def quick(small, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    return drop_replaced([*small, "optimization.epochs=1", "trainer.threads=1"])


def test_every_launcher_gives_the_same_results(cli, quick, outputs, tmp_path):
    grid = ["-m", "seed=1,2,3"]
    check_done(cli(*quick, f"output_dir={tmp_path}/reference", "hydra/launcher=sequential", *grid))
    out, _ = check_done(cli(*quick, "hydra/launcher=auto", "hydra.launcher.workers=2", *grid))
    assert results(outputs) == results(tmp_path / "reference")
    again, err = check_done(cli(*quick, *grid))
    assert "3 runs: 3 finished, 0 to do" in err
    assert again == out


class SlowSweep:
    """A sweep of slow runs in two processes; every step waits for ``release``."""

    def __init__(self, quick, outputs, pace: Path, seeds="1,2,3,4") -> None:
        self.outputs, self.pace = outputs, pace
        pace.write_text("hold")
        slow = [*quick, "calibration._target_=slow_calibration.Slow", f"seed={seeds}", "-m"]
        self.command = [sys.executable, "-m", "isobench", *slow, "hydra.launcher.workers=2"]
        self.process = self.start()

    def start(self) -> subprocess.Popen:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(self.command, text=True, start_new_session=True, **pipes)

    def wait_until_training(self) -> None:
        """Wait until both processes are in a step."""
        held = lambda: len(list(self.pace.parent.glob(f"{self.pace.name}.*"))) == 2  # noqa: E731
        wait_until(held, "two runs train", watch_folder(self.outputs))

    def release(self, pace: str) -> None:
        """Let each step take as many seconds."""
        self.pace.write_text(pace)


@pytest.fixture
def slow_sweep(quick, outputs, tmp_path, monkeypatch):
    """Start a `SlowSweep`; its processes are killed at the end of the test."""
    monkeypatch.setenv("ISOBENCH_TEST_SLEEP", str(tmp_path / "pace"))
    sweeps = []

    def start(**settings) -> SlowSweep:
        sweeps.append(SlowSweep(quick, outputs, tmp_path / "pace", **settings))
        return sweeps[-1]

    yield start
    for sweep in sweeps:
        with suppress(ProcessLookupError):
            os.killpg(sweep.process.pid, signal.SIGKILL)


def kill_alone(process: subprocess.Popen) -> list[psutil.Process]:
    """Kill a process, and return the processes that it and its children had started."""
    descendants = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    return descendants


def test_workers_save_and_end_when_their_parent_is_killed(slow_sweep, outputs):
    sweep = slow_sweep()
    sweep.wait_until_training()
    descendants = kill_alone(sweep.process)
    assert {beat["pid"] for beat in read_beats(outputs)} <= {one.pid for one in descendants}
    sweep.release("0.5")  # they learn of it meanwhile
    have_ended = lambda: not any(is_process_alive(one.pid) for one in descendants)  # noqa: E731
    wait_until(have_ended, "the processes have ended", watch_folder(outputs))
    assert len(list(outputs.glob("runs/*/checkpoints/*.ckpt"))) == 2
    states = [beat["state"] for beat in read_beats(outputs)]
    assert states == ["interrupted"] * 2  # and no other run was begun
    assert not results(outputs)


def test_a_sweep_that_was_killed_is_finished_by_the_same_command_at_once(slow_sweep, outputs):
    """Its orphaned workers are in a step that goes on until the second command has planned its runs."""
    sweep = slow_sweep(seeds="1,2")
    sweep.wait_until_training()
    kill_alone(sweep.process)
    again = sweep.start()
    said = next(line for line in again.stderr if "2 runs:" in line)
    sweep.release("0")
    _, err = again.communicate()
    assert "2 running" in said
    assert again.returncode == 0, err
    assert [attempts for *_, attempts in results(outputs).values()] == [2, 2]


def test_a_scheduler_that_does_not_answer_has_lost_no_job(cli, quick, outputs, tmp_path, monkeypatch):
    outputs.mkdir()
    Submission("12", ["ab" * 8], time.time()).save(outputs)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "squeue").touch(0o755)
    for script, holds in (("echo 12", True), ("echo 13", False)):
        (tmp_path / "squeue").write_text(f"#!/bin/sh\n{script}\n")
        assert ("ab" * 8 in find_queued_jobs(outputs)) == holds
    (tmp_path / "squeue").write_text("#!/bin/sh\nexit 1\n")
    assert cli(*quick, "-m")[0] == 2


def test_a_crash_starts_anew_when_it_is_tried_again(cli, quick, outputs, monkeypatch):
    """Its code may have been mended: neither its checkpoints nor its state may stand in the way."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("ISOBENCH_TEST_CRASH", "1")
    crash = [*quick, "calibration._target_=slow_calibration.Mended", "checkpoint.steps=2"]
    assert cli(*crash)[0] == 1
    monkeypatch.setenv("ISOBENCH_TEST_CRASH", "0")
    assert cli(*crash)[0] == 1  # recorded as it was
    check_done(cli(*crash, "retry_failed=true"))
