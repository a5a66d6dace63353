"""Files are written whole or not at all, read within limits, and refused after any change."""

import contextlib
import errno
import math
import os
import resource
import time

import numpy as np
import pyarrow.parquet
import pytest
import safetensors.numpy
import torch
from helpers import fails

from isobench.common.files import (
    CHUNK_BYTES,
    is_storage_error,
    make_temporary_folder,
    read_bounded,
    read_checksummed,
    read_json,
    require_checksum,
    sha256_file,
    write_cached,
    write_json,
    write_text,
    write_whole,
)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_failed_write_keeps_the_old_file(tmp_path):
    file = tmp_path / "folder" / "result.txt"
    write_text(file, "old")
    with contextlib.suppress(RuntimeError), write_whole(file) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert file.read_text() == "old"
    write_text(file, "new", flush=False)
    assert file.read_text() == "new"
    assert names_in(file.parent) == ["result.txt"]


def test_a_folder_is_written_whole_or_not_at_all_and_a_file_is_read_up_to_its_limit(tmp_path):
    with contextlib.suppress(RuntimeError), make_temporary_folder(tmp_path / "x") as work:
        (work / "file").write_text("half")
        raise RuntimeError
    assert names_in(tmp_path) == []
    with make_temporary_folder(tmp_path / "x") as work:
        (work / "file").write_text("whole")
        work.rename(tmp_path / "x")
    assert names_in(tmp_path) == ["x"]
    assert read_bounded(tmp_path / "x/file", 5) == b"whole"
    with pytest.raises(OSError, match="larger than"):
        read_bounded(tmp_path / "x/file", 4)


def test_what_a_killed_process_left_a_day_ago_is_removed_and_a_living_one_keeps_its_file(tmp_path):
    names = [".x.0a1b2c3d.tmp", ".x.0a1b2c3e.tmp", ".y.0a1b2c3d.tmp"]
    for name in names:
        (tmp_path / name).write_text("half")
    day = 25 * 3600
    for name in (names[0], names[2]):
        os.utime(tmp_path / name, (time.time() - day, time.time() - day))
    write_text(tmp_path / "x", "whole")
    assert names_in(tmp_path) == [*names[1:], "x"]


@pytest.fixture
def small_files_only():
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 10, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "save",
    [
        lambda array, file: torch.save({"weights": torch.from_numpy(array)}, file),
        lambda array, file: safetensors.numpy.save_file({"weights": array}, file),
        lambda array, file: pyarrow.parquet.write_table(pyarrow.table({"values": array}), file),
    ],
)
def test_what_any_library_could_not_write_is_an_error_of_the_disk(tmp_path, small_files_only, save):
    array = np.random.default_rng(0).random(1 << 17)  # 1 MiB that can't be compressed
    with pytest.raises(OSError) as trouble, write_whole(tmp_path / "file") as temporary:  # noqa: PT011
        save(array, temporary)
    assert trouble.value.errno == errno.EFBIG
    assert is_storage_error(trouble.value)
    assert not names_in(tmp_path)
    with fails(), write_cached(tmp_path / "file") as temporary:
        save(array, temporary)


def test_a_pipe_a_device_and_a_folder_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link", "/dev/zero", "."):
        with pytest.raises(OSError, match=r"regular file"):
            read_bounded(tmp_path / name, 10)
    for name in ("pipe", "link", "/dev/zero"):
        with pytest.raises(OSError, match=r"regular file"):
            sha256_file(tmp_path / name)


@pytest.mark.parametrize("content", [b"", b"x", b"a line\n" * 9, b"0123456789" * (CHUNK_BYTES // 8)])
def test_what_was_written_is_read_and_every_changed_byte_is_noticed(tmp_path, content):
    file = tmp_path / "file"
    with write_cached(file) as temporary:
        temporary.write_bytes(content)
    assert read_checksummed(file) == content
    intact = file.read_bytes()
    for place in range(0, len(intact), 1 + len(intact) // 200):
        file.write_bytes(intact[:place] + bytes([intact[place] ^ 4]) + intact[place + 1 :])
        with pytest.raises(ValueError, match="checksum"):
            require_checksum(file)
    file.write_bytes(intact)
    file.rename(tmp_path / "two")  # under another name it is another file
    for text in (None, b"", b"short", b"content without a checksum, of more than 32 bytes"):
        if text is not None:
            (tmp_path / "two").write_bytes(text)
        with pytest.raises(ValueError, match="checksum"):
            require_checksum(tmp_path / "two")


def test_json_is_strict_and_every_changed_byte_of_it_is_noticed(tmp_path):
    content, file = {"a": [1, 2.5, None], "b": {"c": "text"}}, tmp_path / "x.json"
    write_json(file, content)
    with pytest.raises(ValueError, match="JSON"):
        write_json(file, {"x": math.nan})
    assert names_in(tmp_path) == ["x.json"]
    assert read_json(file) == content
    intact = file.read_bytes()
    for place in range(len(intact)):
        file.write_bytes(intact[:place] + bytes([intact[place] ^ 1]) + intact[place + 1 :])
        with contextlib.suppress(ValueError):
            assert read_json(file) == content  # white space between entries has no meaning
    write_json(file, content, "its owner")
    assert read_json(file, owner="its owner") == content
    with pytest.raises(ValueError, match="checksum"):
        read_json(file)
