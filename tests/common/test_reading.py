"""Files that others made are read only if they are files, and not too large."""

import os

import pytest

from isobench.common.errors import UserError
from isobench.common.files import read_bounded, require_regular_file, sha256_file
from isobench.common.tidy import read_rows


def test_a_file_is_read_up_to_its_limit(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"12345")
    assert read_bounded(file, 5) == b"12345"
    with pytest.raises(OSError, match="larger than"):
        read_bounded(file, 4)
    with pytest.raises(FileNotFoundError):
        read_bounded(tmp_path / "none")


def test_a_pipe_a_device_and_a_folder_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link", "/dev/zero", "."):
        with pytest.raises(OSError, match=r"regular file"):
            read_bounded(tmp_path / name, 10)
    for name in ("pipe", "link", "/dev/zero"):
        for function in (require_regular_file, sha256_file):
            with pytest.raises(UserError, match=f"{name} is not a regular file"):
                function(tmp_path / name)
    (tmp_path / "broken").symlink_to("nowhere")
    with pytest.raises(UserError, match="broken is not a regular file but a pipe, a device or a broken link"):
        require_regular_file(tmp_path / "broken")
    for name in ("none", "."):
        require_regular_file(tmp_path / name)
    os.mkfifo(tmp_path / "rows.parquet")
    with pytest.raises(UserError, match="not a regular file"):
        read_rows(tmp_path, "rows")
