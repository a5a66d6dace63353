"""Functions that tests of bundles share: read a folder, change its runs and its manifest as a forger would."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pyarrow
import pyarrow.parquet

from isobench.bundles.manifest import MANIFEST_FILE, PLAN_FILE
from isobench.common.files import add_json_checksum
from isobench.runs.bundled import (
    RECORDS_FILE,
    format_predictions,
    format_records,
    is_bundle,
    list_predictions,
    parse_records,
    parse_table,
    simplify,
    split_by_key,
)
from isobench.runs.folder import run_folder_name


def read_content(folder: Path) -> dict[str, bytes]:
    """Read every file of a folder: relative path -> content."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in list_files(folder)}


def list_files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]


def read_manifest(bundle: Path) -> dict:
    return orjson.loads((bundle / MANIFEST_FILE).read_bytes())


def read_texts(bundle: Path) -> dict[str, bytes]:
    """Read the texts of a bundle's records: key -> text."""
    return dict(parse_records((bundle / RECORDS_FILE).read_bytes()))


def read_predictions(bundle: Path) -> dict[str, pyarrow.Table]:
    """Read a bundle's predictions: key -> rows."""
    names = list_predictions(path.name for path in bundle.iterdir())
    return {key: rows for name in names for key, rows in split_by_key(parse_table((bundle / name).read_bytes()))}


def write_tables(bundle: Path, texts: dict[str, bytes], predictions: dict[str, pyarrow.Table]) -> None:
    """Write records and predictions into a bundle, and repair its manifest."""
    for name in list_predictions(path.name for path in bundle.iterdir()):
        (bundle / name).unlink()
    for name, content in {RECORDS_FILE: format_records(texts), **format_predictions(predictions)}.items():
        (bundle / name).write_bytes(content)
    repair(bundle)


@contextmanager
def editable(folder: Path) -> Iterator[Path]:
    """A folder whose ``runs/`` can be changed: an output folder itself; a bundle then has what was changed."""
    if not is_bundle(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory() as name:
        place, texts, predictions = Path(name), read_texts(folder), read_predictions(folder)
        keys = {run_folder_name(key): key for key in texts}
        for key, text in texts.items():
            run = place / "runs" / run_folder_name(key)
            run.mkdir(parents=True)
            (run / "result.json").write_bytes(text)
            if key in predictions:
                pyarrow.parquet.write_table(simplify(predictions[key]), run / "predictions.parquet")
        (place / PLAN_FILE).write_bytes((folder / PLAN_FILE).read_bytes())
        yield place
        runs = list((place / "runs").iterdir())
        keys |= {
            run.name: json.loads((run / "result.json").read_text())["key"] for run in runs if run.name not in keys
        }
        (folder / PLAN_FILE).write_bytes((place / PLAN_FILE).read_bytes())
        with_predictions = [run for run in runs if (run / "predictions.parquet").exists()]
        rows = {keys[run.name]: pyarrow.parquet.read_table(run / "predictions.parquet") for run in with_predictions}
        write_tables(folder, {keys[run.name]: (run / "result.json").read_bytes() for run in runs}, rows)


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
    runs = dict.fromkeys(read_texts(bundle), 1e9) if (bundle / RECORDS_FILE).exists() else {}
    sign(bundle, lambda manifest: manifest.update(files=files, runs=runs))


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
    """Return the folder of the first run of an output folder."""
    return sorted((folder / "runs").iterdir())[0]
