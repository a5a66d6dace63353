"""A file that ends with its checksum is refused after any change, under another name too."""

import pytest

from isobench.common.checksums import CHUNK_BYTES, read_checksummed, require_checksum, with_checksum
from isobench.common.files import write_atomic


def write(file, content: bytes):
    write_atomic(file, with_checksum(lambda temporary: temporary.write_bytes(content), file.name))
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
