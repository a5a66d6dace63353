"""A file that ends with its checksum is refused after any change, under another name too."""

import pytest

from isobench.common.files import (
    CHUNK_BYTES,
    add_json_checksum,
    add_text_checksum,
    check_text_checksum,
    read_checksummed,
    read_json,
    require_checksum,
    write_cached,
    write_json,
)


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
    write_json(file, add_json_checksum(content))
    assert read_json(file) == content
    for changed in changes(file.read_bytes()):
        file.write_bytes(changed)
        try:
            found = read_json(file)
        except ValueError:
            continue
        # White space between entries has no meaning. A name other than "checksum" is an entry that no reader knows.
        assert found == content or len(found) == len(content) + 1
    write_json(file, add_json_checksum(content, "its owner"))
    assert read_json(file, owner="its owner") == content
    with pytest.raises(ValueError, match="checksum"):
        read_json(file)
    write_json(file, content)  # as earlier versions wrote it
    assert read_json(file) == content


def test_every_changed_byte_of_a_text_is_noticed():
    text = "a: 1\nb: 'x # checksum: no'\n"
    whole = add_text_checksum(text, "its owner")
    assert whole.startswith(text)
    assert check_text_checksum(whole, "its owner") == check_text_checksum(text, "its owner") == text
    with pytest.raises(ValueError, match="checksum"):
        check_text_checksum(whole, "another")
    for position in range(len(text) - 1):  # the line of the checksum itself follows
        changed = whole[:position] + chr(ord(whole[position]) ^ 1) + whole[position + 1 :]
        with pytest.raises(ValueError, match="checksum"):
            check_text_checksum(changed, "its owner")
