"""Whether a process is still there, and the jobs that were submitted."""

import os
import subprocess
import sys

from waiting import wait_until

from isobench.runs.state import Submission, is_process_alive, read_submissions

NO_PROCESS = 2**22 + 1  # above the largest process id that Linux gives


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


def test_a_changed_submission_is_named_once_and_left_out(tmp_path, capsys):
    submission = Submission("123", ["ab" * 8], 1.5)
    submission.save(tmp_path)
    assert read_submissions(tmp_path) == [submission]
    (file,) = (tmp_path / "jobs").iterdir()
    file.write_text(file.read_text().replace("abab", "acac"))
    assert read_submissions(tmp_path) == read_submissions(tmp_path) == []
    assert capsys.readouterr().err.count(f"{file} is damaged") == 1
