"""Remember the bundles that were imported into an output folder, so that status and report find their runs.

A run that was imported needs neither its command nor its data and weights to be shown: its config and its record are
in its folder, and its key follows from both.
"""

from collections.abc import Collection, Iterator
from dataclasses import asdict, replace
from pathlib import Path

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from isobench.common.checksums import MISMATCH, add_json_checksum, read_json
from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import sha256_json, shorten_digest, write_json
from isobench.common.reading import RECORD_LIMIT
from isobench.runs.identity import Identity, compute_key
from isobench.runs.layout import imports_folder, run_folder_name, runs_folder
from isobench.runs.listing import CHANGED_KEY, print_left_out, read_run_config
from isobench.runs.row import Row
from isobench.runs.validate import ConfigValidator


@dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid", defer_build=True))
class ImportedBundle:
    """A bundle that was imported: its experiment, its commands, and the keys of its runs in the bundle's order.

    Raises:
        ValueError: a value is of the wrong type.
    """

    experiment: str | None
    commands: list[str]
    keys: list[str]


def save_import(output_dir: str | Path, bundle: ImportedBundle) -> Path:
    """Write ``imports/<hash>.json``, unless it is there already, and return it.

    Raises:
        OSError: the folder can't be written.
    """
    file = imports_folder(output_dir) / f"{shorten_digest(sha256_json(asdict(bundle)))}.json"
    if not file.exists():
        write_json(file, add_json_checksum(asdict(bundle)))
    return file


def read_imports(output_dir: str | Path) -> list[ImportedBundle]:
    """Read which bundles were imported into an output folder, in the order in which that was done.

    Raises:
        UserError: a file is damaged.
    """
    files = sorted(imports_folder(output_dir).glob("*.json"), key=lambda file: (file.lstat().st_mtime_ns, file.name))
    bundles = []
    for file in files:
        try:
            bundle = ImportedBundle(**read_json(file, RECORD_LIMIT))
            if file.stem != shorten_digest(sha256_json(asdict(bundle))):
                raise ValueError(MISMATCH)
            bundles.append(bundle)
        except (OSError, ValueError, TypeError) as error:
            raise UserError(f"{file} is damaged; remove it and import that bundle again") from error
    return bundles


def list_imported_keys(output_dir: str | Path, experiment: str | None = None) -> list[str]:
    """List the keys of the runs that were imported, of one experiment or, with None, of all; each key once.

    Raises:
        UserError: the file of an imported bundle is damaged.
    """
    bundles = read_imports(output_dir)
    own = (bundle.keys for bundle in bundles if experiment in (None, bundle.experiment))
    return list(dict.fromkeys(key for keys in own for key in keys))


def read_imported_rows(
    output_dir: str, experiment: str | None = None, excluded: Collection[str] = ()
) -> Iterator[Row]:
    """Read the runs that were imported into an output folder, without their data and weights.

    Runs that were removed since are left out. So are runs whose config can't be read, or gives another key: how many
    these are is printed on standard error, with the reason and an example.

    Args:
        output_dir: the output folder.
        experiment: its runs only; None reads those of all experiments.
        excluded: keys that are left out.

    Raises:
        UserError: the file of an imported bundle is damaged.
    """
    validator = ConfigValidator()
    left_out: dict[str, list[Path]] = {}
    for key in list_imported_keys(output_dir, experiment):
        folder = runs_folder(output_dir) / run_folder_name(key)
        if key in excluded or not folder.is_dir():
            continue
        try:
            row = Row.of(replace(read_run_config(folder, validator), output_dir=output_dir), key)
            if row.record is not None:
                row.identity = Identity(key, row.record.data.fingerprint, row.record.encoder.fingerprint)
                if compute_key(row.cfg, row.identity.data, row.identity.encoder) != key:
                    raise UserError(CHANGED_KEY)
        except (UserError, OSError) as error:
            left_out.setdefault(extract_first_line(error), []).append(folder)
        else:
            yield row
    print_left_out(left_out)
