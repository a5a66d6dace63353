"""Test how runs are handed out to workers, with threads in the workers' place; and the workers' own output."""

import re
import threading
import time
from itertools import count

import fake_workers
import pytest
from pseudo_terminal import PseudoTerminal
from waiting import PATIENCE, wait_until

from isobench.common.errors import StorageError
from isobench.common.interruption import Interrupted
from isobench.sweep.forecast import GIB, MemoryForecast
from isobench.sweep.pool import Ended


@pytest.fixture
def carry_out(monkeypatch):
    """Carry out runs with fake workers; returns their exit codes and how many ran at once, over time."""
    return lambda *args, **settings: fake_workers.carry_out(monkeypatch, *args, **settings)


def test_runs_are_carried_out_at_the_same_time_and_a_failure_stops_none(carry_out):
    codes, running = carry_out(range(5), lambda work: Ended(int(work.cfg.seed == 1), None))
    assert codes == [0, 1, 0, 0, 0]
    assert max(running) == 2


def test_memory_for_one_run_carries_out_one_at_a_time(carry_out, capsys):
    codes, running = carry_out(range(4), lambda work: Ended(0, 3 * GIB), MemoryForecast(), free=1.2 * GIB)
    assert codes == [0] * 4
    assert max(running) == 1
    said = re.search(
        r"1 at once: one more run needs about ([\d.]+) GiB of memory; 1.2 GiB are free, of which the others "
        r"may still take ([\d.]+) GiB",
        capsys.readouterr().err,
    )
    assert float(said[1]) == float(said[2]) > 1.2  # before a peak is known, both runs need the same


def test_a_measured_peak_makes_room_for_more(carry_out, monkeypatch):
    """The estimate by the weights is larger than what is free, until the first run was measured."""
    codes, running = carry_out(range(5), lambda work: Ended(0, 0.5 * GIB), MemoryForecast(), free=1.2 * GIB)
    assert codes == [0] * 5
    assert running[:3] == [0, 1, 0]
    assert max(running) == 2


def test_a_killed_run_is_tried_again_and_then_left(carry_out, capsys):
    asked = []

    def answer(work):
        asked.append(work.cfg.seed)
        return -9 if work.cfg.seed == 0 else Ended(0, None)

    codes, _ = carry_out(range(4), answer, MemoryForecast(), free=100 * GIB)
    assert codes == [1, 0, 0, 0]
    assert sorted(asked) == [0, 0, 1, 2, 3]
    assert asked[-1] == 0
    err = capsys.readouterr().err
    assert (
        "seed 0: a process was killed (out of memory?); it is tried again at the end; from now on, at most 1" in err
    )
    assert "seed 0: a process was killed (out of memory?); the same command goes on with it" in err


@pytest.mark.parametrize("is_chosen", [False, True], ids=["by the machine", "by the user"])
def test_after_a_lack_of_memory_fewer_runs_are_carried_out_unless_the_user_chose_how_many(
    carry_out, capsys, is_chosen
):
    """There is memory for three runs at once. The pool learns it from one killed process."""
    lock, active, killed, at_once, most = threading.Lock(), [0], [], [], 4 if is_chosen else 3

    def answer(work):
        with lock:
            if is_later := bool(killed):
                at_once.append(active[0] + 1)
            elif active[0] == 3:
                killed.append(work.cfg.seed)
                return -9
            active[0] += 1
        wait_until(lambda: max(at_once) >= most if is_later else killed)
        time.sleep(0.1)
        with lock:
            active[0] -= 1
        return Ended(0, None)

    memory = {} if is_chosen else {"memory": MemoryForecast(), "free": 100 * GIB}
    codes, _ = carry_out(range(12), answer, processes=4, **memory)
    assert codes == [0] * 12
    assert len(killed) == 1
    assert max(at_once) == most
    less = "" if is_chosen else "; from now on, at most 3 runs at once"
    assert f"it is tried again at the end{less}\n" in capsys.readouterr().err


def test_a_run_that_is_killed_twice_in_company_is_tried_alone(carry_out):
    """Run 0 needs all the memory. The others end when it has been killed once, twice and twice."""
    active, asked, kills = set(), [], []

    def answer(work):
        seed = work.cfg.seed
        asked.append(seed)
        active.add(seed)
        wait_until(lambda: len(kills) >= min(2, seed) if seed else kills or len(active) == 4)
        is_killed = seed == 0 and len(active) > 1
        active.remove(seed)
        if is_killed:
            kills.append(seed)
        return -9 if is_killed else Ended(0, None)

    codes, _ = carry_out(range(4), answer, processes=4)
    assert codes == [0] * 4
    assert sorted(asked) == [0, 0, 0, 1, 2, 3]


def test_a_crash_leaves_the_number_of_runs_at_once(carry_out, capsys):
    """After it, six runs end in pairs: each waits for another one."""
    calls, pair = count(), threading.Barrier(2, timeout=PATIENCE)

    def answer(work):
        if next(calls) == 0:
            return -11
        try:
            pair.wait()
        except threading.BrokenBarrierError:
            return Ended(1, None)
        return Ended(0, None)

    codes, _ = carry_out(range(6), answer)
    assert codes == [0] * 6
    assert "a process was ended by SIGSEGV; it is tried again at the end\n" in capsys.readouterr().err


def test_the_pool_does_not_wait_for_workers_that_have_nothing_left_to_do(carry_out, monkeypatch):
    """They take as long to end as this test lasts, and then they have ended."""
    over = threading.Event()
    monkeypatch.setattr(fake_workers.FakeProcess, "before_end", lambda self: over.wait(PATIENCE))
    assert carry_out(range(3), lambda work: Ended(0, None))[0] == [0] * 3
    workers = fake_workers.FakeProcess.started
    assert any(worker.thread.is_alive() for worker in workers)
    over.set()
    for worker in workers:
        worker.join()
    assert not any(worker.thread.is_alive() for worker in workers)


def test_a_worker_that_ends_by_an_error_names_its_run(carry_out):
    with pytest.raises(
        RuntimeError, match=r"rotten_tomatoes minilm none seed 2: a worker process ended with exit code 1"
    ):
        carry_out(range(4), lambda work: 1 if work.cfg.seed == 2 else Ended(0, None))


def test_a_full_disk_stops_the_sweep(carry_out):
    with pytest.raises(StorageError, match="no space left"):
        carry_out(range(50), lambda work: StorageError("no space left") if work.cfg.seed == 1 else Ended(0, None))


def test_a_signal_to_a_worker_stops_the_sweep(carry_out):
    with pytest.raises(Interrupted) as stop:
        carry_out(range(50), lambda work: 143 if work.cfg.seed == 1 else Ended(0, None))
    assert stop.value.signum == 15


def test_the_lines_of_ended_runs_are_printed_and_a_terminal_has_one_bar(carry_out, capsys, monkeypatch):
    assert carry_out(range(2), lambda work: Ended(0, None, f"seed {work.cfg.seed}\n"))[0] == [0, 0]
    assert sorted(capsys.readouterr().err.splitlines()) == ["seed 0", "seed 1"]
    with PseudoTerminal(24, 80) as terminal:
        carry_out(range(2), lambda work: Ended(0, None, f"seed {work.cfg.seed}\n"))
    assert {"seed 0", "seed 1"} <= set(terminal.lines)
    assert any("2/2" in line for line in terminal.lines)
