"""Whether a process, or a local job, is still there."""

import os
import subprocess
import sys
import time

import pytest

from isobench.runs.heartbeat import is_process_alive
from isobench.runs.jobs import is_local_job_alive

NO_PROCESS = 2**22 + 1  # above the largest process id that Linux gives


def wait_until(condition) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_process_is_alive_until_it_ends_even_if_nobody_waited_for_it():
    assert is_process_alive(os.getpid())
    assert is_process_alive(1)  # another user's, or our own
    assert not is_process_alive(NO_PROCESS)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert is_process_alive(child.pid)
    assert child.stdin is not None
    child.stdin.close()
    wait_until(lambda: not is_process_alive(child.pid))  # a zombie: it has ended, and has not been waited for
    child.wait()
    assert not is_process_alive(child.pid)


def test_a_local_job_is_a_process_that_submitit_started():
    job = subprocess.Popen([sys.executable, "-c", "input()", "submitit"], stdin=subprocess.PIPE)
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    wait_until(lambda: is_local_job_alive(str(job.pid)))
    assert not is_local_job_alive(str(other.pid))  # it has the id of a job that is gone
    for process in (job, other):
        process.communicate(b"")
    assert not is_local_job_alive(str(job.pid))


@pytest.mark.parametrize("job", [str(NO_PROCESS), "12_3", "-1", "", "9" * 30])
def test_what_is_no_process_is_no_job(job):
    assert not is_local_job_alive(job)
