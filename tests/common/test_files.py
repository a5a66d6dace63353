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
from helpers import fails

from isobench.common.files import (
    CHUNK_BYTES,
    is_storage_error,
    make_temporary_folder,
    read_bounded,
    read_checksummed,
    read_json,
    require_checksum,
    require_regular_file,
    require_writable,
    sha256_file,
    sha256_json,
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


def test_a_folder_is_written_whole_or_not_at_all(tmp_path):
    with contextlib.suppress(RuntimeError), make_temporary_folder(tmp_path / "x") as work:
        (work / "file").write_text("half")
        raise RuntimeError
    assert names_in(tmp_path) == []
    with make_temporary_folder(tmp_path / "x") as work:
        (work / "file").write_text("whole")
        work.rename(tmp_path / "x")
    assert names_in(tmp_path) == ["x"]


def test_what_a_killed_process_left_a_day_ago_is_removed_and_a_living_one_keeps_its_file(tmp_path):
    names = [".x.0a1b2c3d.tmp", ".x.0a1b2c3e.tmp", ".y.0a1b2c3d.tmp"]
    for name in names:
        (tmp_path / name).write_text("half")
    day = 25 * 3600
    for name in (names[0], names[2]):
        os.utime(tmp_path / name, (time.time() - day, time.time() - day))
    write_text(tmp_path / "x", "whole")
    assert names_in(tmp_path) == [*names[1:], "x"]


def test_json_is_strict(tmp_path):
    write_json(tmp_path / "a.json", {"x": 1})
    assert read_json(tmp_path / "a.json") == {"x": 1}
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"x": math.nan})
    assert names_in(tmp_path) == ["a.json"]


def test_hashes_follow_content_and_not_the_order_of_keys(tmp_path):
    assert sha256_json({"a": 1, "b": 2}) == sha256_json({"b": 2, "a": 1}) != sha256_json({"a": 1, "b": 3})
    file = tmp_path / "file"
    file.write_text("one")
    first = sha256_file(file)
    file.write_text("three")
    second = sha256_file(file)
    assert second != first
    times = file.stat()
    file.write_text("theee")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # neither size nor mtime tell
    assert sha256_file(file) not in (first, second)


def test_an_unwritable_cache_names_the_setting(tmp_path):
    (tmp_path / "cache").write_text("a file, not a folder")
    with fails(), write_cached(tmp_path / "cache" / "tokens"):
        pass


def test_a_folder_made_for_work_that_fails_is_removed_again(tmp_path):
    with pytest.raises(RuntimeError), require_writable(tmp_path / "a" / "b"):
        raise RuntimeError
    assert not (tmp_path / "a").exists()
    with require_writable(tmp_path / "a" / "b"):
        pass
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    with fails(), require_writable(tmp_path / "file"):
        pass


def save_with_torch(array, file):
    import torch

    torch.save({"weights": torch.from_numpy(array)}, file)


def save_with_safetensors(array, file):
    from safetensors.numpy import save_file

    save_file({"weights": array}, file)


def save_tokenizer(array, file):
    from tokenizers import Tokenizer, models

    Tokenizer(models.WordLevel({str(i): i for i in range(len(array) // 4)}, unk_token="0")).save(str(file))


def save_table(array, file):
    pyarrow.parquet.write_table(pyarrow.table({"values": array}), file)


def save_with_numpy(array, file):
    with file.open("wb") as stream:
        np.save(stream, array)


@pytest.fixture
def small_files_only():
    """Files may not grow over 256 KiB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 10, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "save", [save_with_torch, save_with_safetensors, save_tokenizer, save_table, save_with_numpy]
)
def test_what_any_library_could_not_write_is_an_error_of_the_disk(tmp_path, small_files_only, save):
    array = np.random.default_rng(0).random(1 << 17)  # 1 MiB that can't be compressed
    with pytest.raises(OSError, match="File too large") as trouble, write_whole(tmp_path / "file") as temporary:
        save(array, temporary)
    assert trouble.value.errno == errno.EFBIG
    assert is_storage_error(trouble.value)
    assert not names_in(tmp_path)
    with fails(), write_cached(tmp_path / "file") as temporary:
        save(array, temporary)


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
            with fails():
                function(tmp_path / name)
    (tmp_path / "broken").symlink_to("nowhere")
    with fails():
        require_regular_file(tmp_path / "broken")
    for name in ("none", "."):
        require_regular_file(tmp_path / name)


def write(file, content: bytes):
    with write_cached(file) as temporary:
        temporary.write_bytes(content)
    return file


@pytest.mark.parametrize("content", [b"", b"x", b"a line\n" * 9, b"0123456789" * (CHUNK_BYTES // 8)])
def test_what_was_written_is_read(tmp_path, content):
    assert read_checksummed(write(tmp_path / "file", content)) == content


def test_every_changed_byte_is_noticed(tmp_path):
    file = write(tmp_path / "file", b"content")
    intact = file.read_bytes()
    for position in range(len(intact)):
        file.write_bytes(intact[:position] + bytes([intact[position] ^ 4]) + intact[position + 1 :])
        with pytest.raises(ValueError, match="checksum"):
            require_checksum(file)


@pytest.mark.parametrize("content", [b"", b"short", b"content without a checksum, of more than 32 bytes"])
def test_a_file_without_a_checksum_is_refused(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match="checksum"):
        require_checksum(tmp_path / "file")


def test_a_copy_under_another_name_is_refused_and_a_missing_file_is_missing(tmp_path):
    write(tmp_path / "one", b"content").rename(tmp_path / "two")
    with pytest.raises(ValueError, match="checksum"):
        require_checksum(tmp_path / "two")
    with pytest.raises(FileNotFoundError):
        require_checksum(tmp_path / "one")


def changes(content: bytes):
    """Yield the content with one byte changed, at each position in turn."""
    for position in range(len(content)):
        yield content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


def test_every_changed_byte_of_a_json_file_is_noticed(tmp_path):
    content, file = {"a": [1, 2.5, None], "b": {"c": "text"}}, tmp_path / "x.json"
    write_json(file, content)
    assert read_json(file) == content
    for changed in changes(file.read_bytes()):
        file.write_bytes(changed)
        try:
            found = read_json(file)
        except ValueError:
            continue
        assert found == content  # white space between entries has no meaning
    write_json(file, content, "its owner")
    assert read_json(file, owner="its owner") == content
    with pytest.raises(ValueError, match="checksum"):
        read_json(file)
