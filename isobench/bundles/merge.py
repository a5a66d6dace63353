"""Merge a bundle into an output folder: check all of it, then add what is missing there, and overwrite nothing."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from isobench.bundles.bundle_check import (
    NOTHING_IMPORTED,
    FindMore,
    check_analysis,
    check_commands,
    check_run,
    read_checked_files,
)
from isobench.bundles.exchange import flush_files
from isobench.bundles.layout import (
    CRATE_FILE,
    MANIFEST_FILE,
    PREDICTIONS_FILE,
    RECORD_FILE,
    REPORT_FOLDER,
    RUN_FILES,
    name_run_file,
)
from isobench.bundles.manifest import Manifest, read_manifest
from isobench.common.errors import UserError
from isobench.common.files import make_storage_error, refuse_file, require_writable
from isobench.common.reading import read_bounded
from isobench.common.temporaries import make_temporary_folder
from isobench.papers.folders import find_config
from isobench.runs import heartbeat
from isobench.runs.folder import RunFolder, mark_output_folder
from isobench.runs.layout import ABOUT_FILE, REPORT_FILE, report_folder
from isobench.runs.listing import read_stored_row
from isobench.runs.plan import Plan, write_plan

ORDER = sorted(RUN_FILES, key=lambda name: name == RECORD_FILE)  # a run's record comes last: it makes the run ended
MAX_NAMED = 5  # conflicts that a message names


@dataclass(frozen=True)
class Merged:
    """Say what an import did: the manifest, the keys of new runs, and the new files of the analysis."""

    manifest: Manifest
    new_runs: list[str]
    new_files: list[Path]


def import_bundle(bundle: Path, output_dir: str, find_more: FindMore) -> Merged:
    """Merge a bundle into an output folder.

    Every sum and every record is checked before anything is written. A run that is there already stays as it is.
    Nothing that the bundle names is imported, opened or run.

    Args:
        bundle: the bundle's folder.
        output_dir: the output folder, which is made if it is missing.
        find_more: finds what is wrong with a run's record, config and predictions, beyond what is checked here.

    Raises:
        UserError: the bundle is damaged, or a run is in the output folder with other results; then nothing is
            imported.
        StorageError: the output folder can't be written.
    """
    bundle = bundle.expanduser()
    manifest = read_manifest(bundle)
    refuse_file("output_dir", output_dir)
    refuse_bundle(Path(output_dir))
    with require_writable(Path(output_dir)):
        try:
            with make_temporary_folder(Path(output_dir) / "import") as staging:
                files = stage_files(bundle, manifest, staging)
                check_commands(bundle, manifest, files)
                for key in manifest.runs:
                    check_run(bundle, manifest, key, files, find_more)
                if not manifest.runs:
                    require_known_analysis(bundle, manifest, output_dir)
                    check_analysis(bundle, manifest, files)
                places = place_files(manifest, files, output_dir)
                require_no_conflict(manifest, places, output_dir)
                flush_files(staging)
                return move_files(manifest, places, output_dir)
        except OSError as error:
            raise make_storage_error(error, Path(output_dir)) from error


def stage_files(bundle: Path, manifest: Manifest, staging: Path) -> dict[str, Path]:
    """Copy every file that the manifest lists, after comparing it, into a folder; return path -> copy.

    Only names that isobench chooses are given to the copies.
    """
    files = {}
    for number, (path, content) in enumerate(read_checked_files(bundle, manifest)):
        files[path] = staging / str(number)
        files[path].write_bytes(content)
    return files


def refuse_bundle(output_dir: Path) -> None:
    """Raise UserError if an output folder is a bundle or lies in one, which would then not fit its manifest."""
    for place in (output_dir.resolve(), *output_dir.resolve().parents):
        if (place / MANIFEST_FILE).is_file() and (place / CRATE_FILE).is_file():
            raise UserError(f"{output_dir} is or lies in the bundle {place}: name another output_dir")


def require_known_analysis(bundle: Path, manifest: Manifest, output_dir: str) -> None:
    """Require that a bundle without runs is of an experiment that trains nothing, so that its page is the analysis's.

    The files of an analysis that are put beside a report of trained runs would be shown on the page of that report.

    Raises:
        UserError: this version has no such experiment, or there is a report of trained runs in the output folder.
    """
    name = manifest.experiment
    file = find_config("experiment", name) if name else None
    analysis = yaml.safe_load(file.read_text(encoding="utf-8")).get("analysis") if file else None
    if name is None or not analysis or analysis.get("trains"):
        raise UserError(
            f"{bundle} has an analysis and no runs, and {name or 'a bundle without a name'} is no experiment of "
            f"this version that trains nothing; {NOTHING_IMPORTED}"
        )
    folder = report_folder(output_dir, name)
    for report in (REPORT_FILE, "runs.parquet"):
        if os.path.lexists(folder / report):
            raise UserError(
                f"{folder} has a report of trained runs ({report}), beside which no analysis can be imported; "
                f"{NOTHING_IMPORTED}: import it into another output_dir"
            )


def place_files(manifest: Manifest, files: dict[str, Path], output_dir: str) -> dict[Path, Path]:
    """Return where in the output folder each copy belongs: place -> copy.

    A report is made anew from the runs, and so is the analysis of trained runs. The files of an analysis that trains
    nothing belong into its folder, ``about.json`` last.
    """
    places = {}
    for key in manifest.runs:
        folder = RunFolder(output_dir, key).path
        for name in ORDER:
            if copy := files.get(name_run_file(key, name)):
                places[folder / name] = copy
    if not manifest.runs:
        for name in sorted(manifest.analysis, key=lambda name: name == ABOUT_FILE):
            places[report_folder(output_dir, manifest.experiment) / name] = files[f"{REPORT_FOLDER}/{name}"]
    return places


def require_no_conflict(manifest: Manifest, places: dict[Path, Path], output_dir: str) -> None:
    """Raise UserError if the output folder has other results of a run, or a process is carrying it out there.

    The config of a run that is there may differ, such as in the names of folders: the record decides.
    """
    conflicts = []
    for key in manifest.runs:
        folder = RunFolder(output_dir, key).path
        if folder.is_symlink():
            conflicts.append(f"{folder} is a link")
        elif not (folder / RECORD_FILE).exists() and folder.is_dir() and heartbeat.read_live_heartbeat(folder):
            conflicts.append(f"{folder} is being carried out")
    for place, copy in places.items():
        decides = place.name in (RECORD_FILE, PREDICTIONS_FILE) or not manifest.runs
        if decides and os.path.lexists(place) and not has_content(place, copy):
            conflicts.append(f"{place} has other content")
    if conflicts:
        more = f" and {len(conflicts) - MAX_NAMED} more" if len(conflicts) > MAX_NAMED else ""
        raise UserError(
            f"the bundle and {output_dir} conflict: {', '.join(conflicts[:MAX_NAMED])}{more}; {NOTHING_IMPORTED}: "
            "import it into another output_dir"
        )


def has_content(file: Path, copy: Path) -> bool:
    """Return True if a file is a regular one with the content of another."""
    expected = copy.read_bytes()
    try:
        return not file.is_symlink() and read_bounded(file, len(expected)) == expected
    except OSError:
        return False


def move_files(manifest: Manifest, places: dict[Path, Path], output_dir: str) -> Merged:
    """Move the copies to their places, where there is no file yet, and note the import in the output folder.

    Raises:
        UserError: another process has begun to carry out one of the runs; the same command goes on later.
        OSError: the folder can't be written.
    """
    mark_output_folder(output_dir)
    new_runs, new_files = [], []
    for key, run in manifest.runs.items():
        folder = RunFolder(output_dir, key)
        own = {place: places[place] for name in ORDER if (place := folder.path / name) in places}
        if all(place.exists() for place in own):
            continue
        with folder.lock() as is_locked:
            if not is_locked:
                raise UserError(f"{folder.path} is being carried out: repeat the import when it has ended")
            if not folder.result_file.exists():
                new_runs.append(key)
                ended = min(run.ended, time.time())
                os.utime(own[folder.result_file], (ended, ended))
            for place, copy in own.items():
                if not place.exists() or folder.key in new_runs:
                    copy.replace(place)
    if not manifest.runs:
        for place, copy in places.items():
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                copy.replace(place)
                new_files.append(place)
    if manifest.runs:
        rows = [read_stored_row(output_dir, RunFolder(output_dir, key).path) for key in manifest.runs]
        runs = [(row.cfg, row.identity) for row in rows if row.identity is not None]
        write_plan(output_dir, Plan(manifest.experiment, manifest.commands, runs))
    return Merged(manifest, new_runs, new_files)
