"""Find out which file of an encoder's folder is damaged, when transformers could not load it."""

from pathlib import Path

import orjson

from isobench.common.errors import extract_first_line

OBJECT_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")  # each holds one JSON object
POINTER = b"version https://git-lfs"  # what Git LFS puts in a large file's place until it is fetched


def find_damaged_file(folder: Path) -> str | None:
    """Return a sentence on the first damaged file of a folder; None if there is none, or no such folder."""
    for file in (folder / name for name in OBJECT_FILES):
        if file.is_file() and (problem := find_json_problem(file.read_bytes())):
            return f"{file} {problem}"
    for file in sorted(folder.glob("*.safetensors")):
        if problem := find_weights_problem(file):
            return f"{file} {problem}"
    return None


def find_json_problem(content: bytes) -> str | None:
    """Return a text that says why the content of a file is no JSON object; None if it is one."""
    try:
        value = orjson.loads(content)
    except ValueError:
        return "is damaged (it is not JSON): copy it again"
    return None if isinstance(value, dict) else "must hold a JSON object {...}: copy it again"


def find_weights_problem(file: Path) -> str | None:
    """Return a text that says why a safetensors file can't be read; None if its header fits its content."""
    from safetensors import safe_open

    with file.open("rb") as stream:
        if stream.read(len(POINTER)) == POINTER:
            return "is a pointer of Git LFS, not the weights: fetch them with git lfs pull"
    try:
        with safe_open(file, "pt"):
            return None
    except Exception as error:  # safetensors has an exception of its own, which it does not document
        return f"is damaged ({extract_first_line(error)}): copy it again"
