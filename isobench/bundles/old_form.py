"""Write a bundle of an earlier isobench, with a folder for each run, in the form of today; `isobench import` does."""

import hashlib
from pathlib import Path

import orjson
import pyarrow.parquet

from isobench.bundles.manifest import BUNDLE_FORMAT, MANIFEST_FILE, Manifest, format_manifest
from isobench.common.errors import UserError
from isobench.common.files import drop_json_checksum, read_bounded
from isobench.runs.bundled import MANIFEST_LIMIT, RECORDS_FILE, TABLE_LIMIT, format_predictions, format_records
from isobench.runs.folder import PREDICTIONS_FILE, RECORD_FILE, run_folder_name


def write_anew(old: Path, new: Path) -> None:
    """Write a bundle of the old form into the empty folder ``new``; UserError unless its checksums fit."""
    try:
        content = drop_json_checksum(orjson.loads(read_bounded(old / MANIFEST_FILE, MANIFEST_LIMIT)))
        folders = {key: f"runs/{run_folder_name(key)}/" for key in content["runs"]}
        files = {path: read_bounded(old / path, TABLE_LIMIT) for path in content["files"]}
        if any(hashlib.sha256(files[path]).hexdigest() != sha256 for path, sha256 in content["files"].items()):
            raise ValueError("a file was changed")
        written = {path: text for path, text in files.items() if not path.startswith("runs/")}
        if folders:
            written[RECORDS_FILE] = format_records({key: files[path + RECORD_FILE] for key, path in folders.items()})
        predictions = {key: path + PREDICTIONS_FILE for key, path in folders.items()}
        written |= format_predictions(
            {
                key: pyarrow.parquet.read_table(pyarrow.BufferReader(files[path]))
                for key, path in predictions.items()
                if path in files
            }
        )
        digests = {path: hashlib.sha256(text).hexdigest() for path, text in written.items()}
        manifest = Manifest.model_validate(content | {"format": BUNDLE_FORMAT, "files": digests})
    except (OSError, ValueError, LookupError, TypeError, AttributeError, pyarrow.ArrowException) as error:
        raise UserError(f"{old} can't be imported: {error}") from error
    for path, text in (written | {MANIFEST_FILE: format_manifest(manifest)}).items():
        (new / path).parent.mkdir(exist_ok=True)
        (new / path).write_bytes(text)
