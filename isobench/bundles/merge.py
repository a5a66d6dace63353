"""Merge a bundle into an output folder: check all of it, then add what is missing there, and overwrite nothing."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from isobench.bundles.export import flush_files
from isobench.bundles.manifest import (
    ANALYSIS_FOLDER,
    MANIFEST_FILE,
    PLAN_FILE,
    Manifest,
    read_bundle_file,
    read_manifest,
)
from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import (
    make_storage_error,
    make_temporary_folder,
    read_bounded,
    refuse_file,
    require_writable,
)
from isobench.runs.folder import (
    ABOUT_FILE,
    PREDICTIONS_FILE,
    RECORD_FILE,
    RunFolder,
    mark_output_folder,
    report_folder,
)
from isobench.runs.plan import parse_plan, write_plan
from isobench.runs.state import read_live_heartbeat

NOTHING_IMPORTED = "nothing of this bundle is imported"
MAX_NAMED = 5  # conflicts that a message names
CheckBundle = Callable[[Path], list[str]]  # finds what is wrong with a bundle


@dataclass(frozen=True)
class Merged:
    """Say what an import did: the manifest, the keys of new runs, and the new files of the analysis."""

    manifest: Manifest
    new_runs: list[str]
    new_files: list[Path]


def import_bundle(bundle: Path, output_dir: str, check: CheckBundle) -> Merged:
    """Merge a bundle into an output folder.

    A copy of the bundle is checked before anything else is written. A run that is there already stays as it is.
    Nothing that the bundle names is imported, opened or run.

    Args:
        bundle: the bundle's folder.
        output_dir: the output folder, which is made if it is missing.
        check: finds what is wrong with the copy.

    Raises:
        UserError: the bundle is damaged, or a run is in the output folder with other results; then nothing is
            imported.
        StorageError: the output folder can't be written.
    """
    bundle = bundle.expanduser()
    manifest = read_manifest(bundle)
    refuse_file("output_dir", output_dir)
    for place in (Path(output_dir).resolve(), *Path(output_dir).resolve().parents):
        if (place / MANIFEST_FILE).is_file() and (place / PLAN_FILE).is_file():
            raise UserError(f"{output_dir} is or lies in the bundle {place}: name another output_dir")
    with require_writable(Path(output_dir)):
        try:
            with make_temporary_folder(Path(output_dir) / "import") as copy:
                _copy_bundle(bundle, manifest, copy)
                if problems := check(copy):
                    raise UserError(f"{bundle} can't be imported: {problems[0]}; {NOTHING_IMPORTED}")
                places = _place_files(manifest, copy, output_dir)
                _require_no_conflict(manifest, places, output_dir)
                flush_files(copy)
                return _move_files(manifest, places, copy, output_dir)
        except OSError as error:
            raise make_storage_error(error, Path(output_dir)) from error


def _copy_bundle(bundle: Path, manifest: Manifest, copy: Path) -> None:
    """Copy every file that the manifest lists; none of its paths leaves the copy."""
    for path in (MANIFEST_FILE, *manifest.files):
        try:
            content = read_bundle_file(bundle, path)
        except OSError as error:
            reason = extract_first_line(error)
            raise UserError(f"{bundle / path} can't be imported: {reason}; {NOTHING_IMPORTED}") from error
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_bytes(content)


def _place_files(manifest: Manifest, copy: Path, output_dir: str) -> dict[Path, Path]:
    """Return where in the output folder each copy belongs: place -> copy.

    The rows of an analysis that trains nothing belong into its folder, about.json last. Those of trained runs are
    computed again for the report.
    """
    places = {}
    for key in manifest.runs:
        for name, path in manifest.list_run_files(key).items():
            places[RunFolder(output_dir, key).path / name] = copy / path
    if not manifest.runs:
        names = [path.rpartition("/")[2] for path in manifest.files if path.startswith(f"{ANALYSIS_FOLDER}/")]
        for name in sorted(names, key=lambda name: name == ABOUT_FILE):
            places[report_folder(output_dir, manifest.experiment) / name] = copy / ANALYSIS_FOLDER / name
    return places


def _require_no_conflict(manifest: Manifest, places: dict[Path, Path], output_dir: str) -> None:
    """Raise UserError if the output folder has other results of a run, or a process is carrying it out there.

    The config of a run that is there may differ, such as in the names of folders: the record decides.
    """
    conflicts = []
    for key in manifest.runs:
        folder = RunFolder(output_dir, key).path
        if folder.is_symlink():
            conflicts.append(f"{folder} is a link")
        elif not (folder / RECORD_FILE).exists() and folder.is_dir() and read_live_heartbeat(folder):
            conflicts.append(f"{folder} is being carried out")
    for place, copy in places.items():
        decides = place.name in (RECORD_FILE, PREDICTIONS_FILE) or not manifest.runs
        if decides and os.path.lexists(place) and not _has_content(place, copy):
            conflicts.append(f"{place} has other content")
    if conflicts:
        more = f" and {len(conflicts) - MAX_NAMED} more" if len(conflicts) > MAX_NAMED else ""
        raise UserError(
            f"the bundle and {output_dir} conflict: {', '.join(conflicts[:MAX_NAMED])}{more}; {NOTHING_IMPORTED}: "
            "import it into another output_dir"
        )


def _has_content(file: Path, copy: Path) -> bool:
    expected = copy.read_bytes()
    try:
        return not file.is_symlink() and read_bounded(file, len(expected)) == expected
    except OSError:
        return False


def _move_files(manifest: Manifest, places: dict[Path, Path], copy: Path, output_dir: str) -> Merged:
    """Move the copies to their places, where there is no file yet, and write the bundle's plan.

    Raises:
        UserError: another process has begun to carry out one of the runs; the same command goes on later.
        OSError: the folder can't be written.
    """
    mark_output_folder(output_dir)
    new_runs, new_files = [], []
    for key, written in manifest.runs.items():
        folder = RunFolder(output_dir, key)
        own = {folder.path / name: places[folder.path / name] for name in manifest.list_run_files(key)}
        if all(place.exists() for place in own):
            continue
        with folder.lock() as is_locked:
            if not is_locked:
                raise UserError(f"{folder.path} is being carried out: repeat the import when it has ended")
            is_new = not folder.result_file.exists()
            new_runs += [key] if is_new else []
            os.utime(own[folder.result_file], (min(written, time.time()),) * 2)
            for place, source in own.items():
                if is_new or not place.exists():
                    source.replace(place)
    if not manifest.runs:
        for place, source in places.items():
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                source.replace(place)
                new_files.append(place)
    if manifest.runs:
        write_plan(output_dir, parse_plan((copy / PLAN_FILE).read_bytes(), output_dir))
    return Merged(manifest, new_runs, new_files)
