"""Functions that tests of bundles share: read a folder, change a manifest as a forger would."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import orjson
import pyarrow
import pyarrow.parquet
from helpers import check_refused

from isobench.bundles.manifest import MANIFEST_FILE
from isobench.common.files import add_json_checksum


def read_content(folder: Path) -> dict[str, bytes]:
    """Read every file of a folder: relative path -> content."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in list_files(folder)}


def list_files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]


def read_manifest(bundle: Path) -> dict:
    return orjson.loads((bundle / MANIFEST_FILE).read_bytes())


def sign(bundle: Path, change=lambda manifest: None) -> None:
    """Change a manifest and give it the checksum of its content."""
    manifest = read_manifest(bundle)
    del manifest["checksum"]
    change(manifest)
    (bundle / MANIFEST_FILE).write_bytes(orjson.dumps(add_json_checksum(manifest)))


def repair(bundle: Path) -> None:
    """Make a manifest say what files and runs the bundle has now, as somebody does who changed them."""
    files = {path: hashlib.sha256(text).hexdigest() for path, text in read_content(bundle).items()}
    files.pop(MANIFEST_FILE)
    records = [json.loads(file.read_text()) for file in list_files(bundle) if file.name == "result.json"]
    sign(bundle, lambda manifest: manifest.update(files=files, runs={record["key"]: 1e9 for record in records}))


def write_signed_json(file: Path, content: dict) -> None:
    """Write a JSON object with the checksum of its content."""
    others = {name: value for name, value in content.items() if name != "checksum"}
    file.write_bytes(orjson.dumps(add_json_checksum(others)))


def edit_rows(file: Path, change: Callable[[list[dict]], list[dict] | None]) -> None:
    """Change the rows of a Parquet file; ``change`` returns other rows, or changes those that it is given."""
    table = pyarrow.parquet.read_table(file)
    rows = table.to_pylist()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(change(rows) or rows, schema=table.schema), file)


def list_best_epochs(content: dict) -> list[dict]:
    """List the two copies that a record's content has of the best epoch."""
    best = content["best"]
    return [best, *(epoch for epoch in content["history"] if epoch["epoch"] == best["epoch"])]


def pick_run(folder: Path) -> Path:
    """Return the folder of the first run of a bundle or output folder."""
    return sorted((folder / "runs").iterdir())[0]


def refuse(run_import, bundle, tmp_path, *words: str) -> None:
    """Import a bundle, and check that one line refuses it and that nothing is written."""
    outputs = tmp_path / "outputs"
    check_refused(run_import(bundle, outputs), *words)
    assert not outputs.exists()
