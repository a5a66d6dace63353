"""Test what a sweep does with its workers: made-up runs in real processes, killed and stopped in many ways."""

import os
import random
import signal
import threading
import time

import pytest
from made_up_worker import MadeUpSweep
from waiting import wait_until

from isobench.common.interruption import Interrupted, handle_signals, raise_interrupted
from isobench.runs.state import read_live_heartbeat
from isobench.sweep.machine import Division
from isobench.sweep.workers import Workers

pytestmark = pytest.mark.slow

INT, TERM, USR2 = signal.SIGINT, signal.SIGTERM, signal.SIGUSR2
DIE = "import os, signal; os.kill(os.getpid(), signal.{})"
# A run that saves, and takes a moment to: a signal that comes meanwhile would lose its work.
SAVE = """
import time
from isobench.common.interruption import Interrupted, SignalWatch
watch = SignalWatch()
watch.start()
note("trains")
while watch.signum is None:
    time.sleep(0.02)
time.sleep(0.3)
note("saved")
watch.raise_if_signalled()
"""


@pytest.fixture(autouse=True)
def handled_signals():
    """Outside of what is tested every signal raises, so that one which comes through ends no test process."""
    with handle_signals(raise_interrupted, INT, TERM, USR2):
        yield


def test_every_run_is_carried_out_once_and_the_gpus_are_dealt_out(tmp_path):
    """One run's mistake stops no other."""
    line = "import os; note(os.environ['CUDA_VISIBLE_DEVICES'])"
    wait = "; import time; time.sleep(1.5)"  # as long as a process takes to start
    sweep = MadeUpSweep(tmp_path, line + wait, line + wait, line + "; code = 2", line)
    assert sweep.carry_out(Division(2, 1, ("3", "5"))) == [2]
    assert sweep.list_ended() == [0, 1, 2, 3]
    notes = sweep.read_notes()
    assert sorted(note for note in notes if note not in "35") == ["0", "1", "2"]  # and 3, as the GPU
    assert {"3", "5"} <= set(notes)


def test_runs_that_kill_whoever_takes_them_are_left_and_the_others_are_done(tmp_path):
    """More of them than workers: the runs that nobody got to are carried out by the last worker."""
    sweep = MadeUpSweep(tmp_path, *[DIE.format("SIGKILL")] * 3, "", "")
    assert sweep.carry_out(Division(2)) == [1]
    assert sweep.list_ended() == [3, 4]
    assert sorted(sweep.read_notes()) == ["0", "0", "1", "1", "2", "3", "4"]  # 2 was alone the first time


def test_twenty_workers_killed_at_twenty_moments_and_every_run_is_done_once(tmp_path):
    """Two at once every third time. A run that is killed a second time, alone, is left to the next command."""
    rng = random.Random(20261126)
    sweep = MadeUpSweep(tmp_path, *["import time; time.sleep(0.6); note(f'end {run.cfg.seed}')"] * 20)
    pool, over, kills = Workers(sweep.command, Division(4)), threading.Event(), []

    def kill() -> None:
        while not over.wait(rng.uniform(0, 0.6)) and len(kills) < 20:
            beats = [beat for run in sweep.runs if (beat := read_live_heartbeat(run.folder.path))]
            for beat in beats[: 1 + (len(kills) % 3 == 0)]:
                os.kill(beat.pid, signal.SIGKILL)
                kills.append(beat.pid)

    killer = threading.Thread(target=kill)
    killer.start()
    codes = pool.carry_out(sweep.runs, sweep.since)
    over.set()
    killer.join()
    assert len(kills) >= 20
    left = [run for run in sweep.runs if not run.folder.read_record()]
    assert codes == ([1] if left else [])
    assert Workers(sweep.command[:-1], Division(1)).carry_out(left, time.time()) == []
    assert sweep.list_ended() == list(range(20))
    ends = [note for note in sweep.read_notes() if note.startswith("end")]
    assert len(ends) - len(set(ends)) <= 2  # killed between its last step and its record, a run ends once more


def test_a_full_disk_stops_the_sweep(tmp_path):
    full = "from isobench.common.errors import StorageError; raise StorageError('no space left')"
    with pytest.raises(SystemExit) as stop:
        MadeUpSweep(tmp_path, full, full, "").carry_out(Division(2))
    assert stop.value.code == 2


def test_a_signal_to_a_worker_stops_the_sweep(tmp_path):
    sweep = MadeUpSweep(tmp_path, DIE.format("SIGTERM") + "; import time; time.sleep(60)", SAVE, *[""] * 9)
    with pytest.raises(Interrupted) as stop:
        sweep.carry_out(Division(2))
    assert stop.value.signum == TERM


@pytest.mark.parametrize(("first", "second"), [(USR2, TERM), (INT, None)])
def test_a_signal_stops_the_sweep_and_a_second_one_loses_no_work(tmp_path, first, second):
    sweep = MadeUpSweep(tmp_path, SAVE, SAVE, "")

    def send() -> None:
        wait_until(lambda: sweep.read_notes().count("trains") == 2)
        os.kill(os.getpid(), first)
        if second:
            time.sleep(0.15)
            os.kill(os.getpid(), second)

    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(Interrupted) as stop:
        sweep.carry_out(Division(2))
    sender.join()
    assert stop.value.signum == first
    assert sweep.read_notes().count("saved") == 2
    assert sweep.list_ended() == []
