"""Check that the next writer removes temporary files and folders of killed processes, and never of living ones."""

import os
import signal

import pytest

from isobench.common.files import write_atomic
from isobench.common.temporaries import make_temporary_file, make_temporary_folder, remove_abandoned

MAKERS = [make_temporary_file, make_temporary_folder]


def names_in(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def killed_while_writing(make, path) -> None:
    """Begin to write, and be killed; runs in a process of its own."""
    child = os.fork()
    if not child:
        with make(path):
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("make", MAKERS)
def test_what_a_killed_process_left_is_removed_by_the_next_one(tmp_path, make):
    for name in ("x", "y"):
        killed_while_writing(make, tmp_path / name)
    assert [name[:3] for name in names_in(tmp_path)] == [".x.", ".y."]
    with make(tmp_path / "x") as temporary:
        assert names_in(tmp_path) == sorted([temporary.name, *(n for n in names_in(tmp_path) if n.startswith(".y"))])
        assert len(names_in(tmp_path)) == 2
    remove_abandoned(tmp_path)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("make", MAKERS)
def test_what_another_writer_is_working_on_stays(tmp_path, make):
    with make(tmp_path / "x") as first, make(tmp_path / "x") as second:
        remove_abandoned(tmp_path)
        assert names_in(tmp_path) == sorted([first.name, second.name])
        if first.is_dir():
            (first / "content").write_text("1")
        first.rename(tmp_path / "x")
    assert names_in(tmp_path) == ["x"]


@pytest.mark.parametrize("make", MAKERS)
def test_one_that_is_removed_before_it_is_locked_is_made_again(tmp_path, monkeypatch, make):
    """Remove the temporary as another process may do between its making and its locking."""
    from isobench.common import temporaries

    lock, seen = temporaries.lock_temporary, []

    def remove_first(temporary, handle):
        if not seen:
            remove_abandoned(tmp_path)
        seen.append(temporary)
        return lock(temporary, handle)

    monkeypatch.setattr(temporaries, "lock_temporary", remove_first)
    with make(tmp_path / "x") as temporary:
        assert temporary.exists()
        assert [path.exists() for path in seen] == [False, True]


def test_names_that_only_look_alike_stay(tmp_path):
    for name in (".x.tmp", "x.1.tmp", ".[x].1.tmp", ".xx.1.tmp"):
        (tmp_path / name).write_text("")
    (tmp_path / ".x.2.tmp").symlink_to("x.1.tmp")
    remove_abandoned(tmp_path, "x")
    assert len(names_in(tmp_path)) == 5
    remove_abandoned(tmp_path, "[x]")
    assert names_in(tmp_path) == sorted([".x.tmp", "x.1.tmp", ".xx.1.tmp", ".x.2.tmp"])


def test_a_file_has_the_rights_that_the_user_wants(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "x", lambda temporary: temporary.write_text("1"))
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640
