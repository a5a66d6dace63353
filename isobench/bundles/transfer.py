"""Export an experiment's ended runs as a bundle, and import a bundle into an output folder: whole, or not at all."""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from isobench.bundles import privacy
from isobench.bundles.manifest import (
    ANALYSIS_FOLDER,
    BUNDLE_FORMAT,
    MANIFEST_FILE,
    PLAN_FILE,
    Manifest,
    format_manifest,
    read_manifest,
)
from isobench.common.environment import read_package_version
from isobench.common.errors import StorageError, UserError
from isobench.common.files import (
    add_json_checksum,
    explain_output_errors,
    make_temporary_folder,
    name_system_error,
    read_file_time,
    refuse_bundle,
    require_writable,
    sha256_file,
    write_whole,
)
from isobench.common.terminal import name_some
from isobench.config.schema import Config
from isobench.runs.bundled import (
    RECORDS_FILE,
    format_predictions,
    format_records,
    read_member,
    read_predictions,
    read_records,
    simplify,
)
from isobench.runs.folder import (
    ABOUT_FILE,
    PREDICTIONS_FILE,
    RECORD_FILE,
    RunFolder,
    copy_predictions,
    mark_output_folder,
    report_folder,
)
from isobench.runs.plan import Plan, format_plan, parse_plan, write_plan
from isobench.runs.record import parse_record
from isobench.runs.run import Run
from isobench.runs.state import read_live_heartbeat

NOTHING_IMPORTED = "nothing of this bundle is imported"


def export_bundle(
    target: Path,
    plan: Plan,
    ended: Sequence[Run],
    analysis: Path | None = None,
    anonymous: bool = False,
    licence: str | None = None,
) -> Manifest:
    """Write a bundle and return its manifest; an earlier bundle of the same experiment in its place is replaced.

    The same runs, whose files have the same times, give the same bytes with the same version of isobench.

    Args:
        target: the bundle's folder; UserError if it holds something else.
        plan: the runs that were asked for.
        ended: those of them that have ended, in the report's order; UserError if a file holds a key or a token.
        analysis: the folder of the experiment's analysis.
        anonymous: leave out what names machines, users and folders.
        licence: SPDX's name of the licence of these results.
    """
    target = target.expanduser().resolve()
    try:
        _put_back(target)
        _require_replaceable(target, plan.experiment)
        target.parent.mkdir(parents=True, exist_ok=True)
        with make_temporary_folder(target) as temporary:
            manifest = _fill_bundle(temporary, plan, ended, analysis, anonymous, licence)
            _replace_folder(temporary, target)
    except OSError as error:
        reason = f"{error.filename or target}: {name_system_error(error)}"
        raise StorageError(
            f"no bundle is written: {reason}; make room, or name another folder: --to FOLDER"
        ) from error
    return manifest


def _require_replaceable(target: Path, experiment: str | None) -> None:
    """Raise UserError unless a path is free, an empty folder, or a bundle of this experiment and nothing else."""
    refuse_bundle(target.parent)
    if target == Path.cwd():
        raise UserError(f"{target} is the folder that you are in: name another folder, such as --to bundle")
    if target.exists() and not target.is_dir():
        raise UserError(f"{target} is a file: name a folder")
    if not target.exists() or not any(target.iterdir()):
        return
    try:
        manifest = read_manifest(target)
    except UserError as error:
        raise UserError(f"{target} is not empty and no intact bundle: name another folder ({error})") from error
    if manifest.experiment != experiment:
        raise UserError(f"{target} is a bundle of {manifest.experiment}, not of {experiment}: name another folder")
    found = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_symlink() or path.is_file()}
    if others := found - manifest.files.keys() - {MANIFEST_FILE}:
        raise UserError(f"{target} holds {min(others)}, which is not the bundle's: move it, or name another folder")


def _name_aside(target: Path) -> Path:
    return target.with_name(f".{target.name}.old")


def _put_back(target: Path) -> None:
    """Undo what an export left that was killed between its renamings: the earlier bundle is then beside its place."""
    aside = _name_aside(target)
    if not aside.is_dir():
        return
    if target.exists():  # the new one had taken its place
        shutil.rmtree(aside)
    else:
        aside.rename(target)


def _replace_folder(new: Path, old: Path) -> None:
    """Rename the folder ``new`` to ``old``, after its files are on the disk; ``new`` then has what was in ``old``."""
    _flush_files(new)
    aside = _name_aside(old)
    if not old.exists() or not any(old.iterdir()):
        new.replace(old)
        return
    old.rename(aside)
    try:
        new.rename(old)
    except OSError:
        aside.rename(old)
        raise
    aside.rename(new)


def _flush_files(folder: Path) -> None:
    """Wait until every file in a folder is on the disk, so that a power cut after a renaming loses nothing."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _fill_bundle(
    folder: Path, plan: Plan, ended: Sequence[Run], analysis: Path | None, anonymous: bool, licence: str | None
) -> Manifest:
    """Write every file of a bundle into an empty folder; the manifest comes last."""
    records = {run.folder.key: _read_record(run, anonymous) for run in ended}
    rows = {run.folder.key: run.folder.read_predictions() for run in ended if run.record and run.record.predictions}
    files = {f"{ANALYSIS_FOLDER}/{name}": content for name, content in _read_analysis(analysis, anonymous).items()}
    files[PLAN_FILE] = format_plan(_prepare_plan(plan, anonymous))
    for path in (path for path in files if path.endswith(".json")):
        privacy.require_no_secret(path, files[path])
    if records:
        files[RECORDS_FILE] = format_records(records)
    files |= format_predictions({key: found for key, found in rows.items() if found is not None})
    runs = {run.folder.key: _read_end(run) for run in ended}
    newest = max([*runs.values(), *([_read_analysis_end(analysis)] if analysis else [])])
    manifest = Manifest(
        format=BUNDLE_FORMAT,
        isobench=read_package_version("isobench"),
        experiment=plan.experiment,
        created=datetime.fromtimestamp(int(newest), UTC).isoformat(),
        anonymous=anonymous,
        license=licence,
        runs=runs,
        files={path: hashlib.sha256(content).hexdigest() for path, content in files.items()},
    )
    for path, content in (files | {MANIFEST_FILE: format_manifest(manifest)}).items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)
    return manifest


def _read_end(run: Run) -> float:
    """Return when a run ended, in seconds since 1970; of an old record, when its file was written or copied."""
    ended = run.record.ended if run.record else None
    return read_file_time(run.folder.result_file) if ended is None else ended


def _read_analysis_end(folder: Path) -> float:
    """Return when an analysis ended, as `_read_end` does."""
    times = orjson.loads((folder / ABOUT_FILE).read_bytes()).get("times") or {}
    return times.get("ended") or read_file_time(folder / ABOUT_FILE)


def _read_record(run: Run, anonymous: bool) -> bytes:
    """Read the record's text of an ended run, byte for byte unless the bundle is anonymous."""
    text = run.folder.read_text() or b""
    if anonymous:
        text = privacy.anonymise_record(parse_record(text, run.folder.result_file))
    privacy.require_no_secret(str(run.folder.result_file), text)
    return text


def _read_analysis(folder: Path | None, anonymous: bool) -> dict[str, bytes]:
    if folder is None:
        return {}
    about: dict[str, Any] = orjson.loads((folder / ABOUT_FILE).read_bytes())
    digests = {name: sha256 for name, sha256 in about["sha256"].items() if name.endswith(".parquet")}
    for name, sha256 in digests.items():
        if not (folder / name).is_file() or sha256_file(folder / name) != sha256:
            raise UserError(f"{folder / name} is damaged or missing: repeat the analysis")
    left_out = ("checksum", "runs")  # the plan has the runs
    about = {name: value for name, value in about.items() if name not in left_out}
    about |= {"files": sorted(digests), "sha256": digests}
    about = privacy.anonymise_about(about) if anonymous else about
    told = orjson.dumps(add_json_checksum(about), option=orjson.OPT_INDENT_2)
    return {**{name: (folder / name).read_bytes() for name in digests}, ABOUT_FILE: told}


def _prepare_plan(plan: Plan, anonymous: bool) -> Plan:
    """Return a plan without the output folder and, if the bundle is anonymous, without other folders and commands."""
    if not anonymous:
        runs = [(replace(cfg, output_dir=Config.output_dir), identity) for cfg, identity in plan.runs]
        return Plan(plan.experiment, plan.commands, runs)
    hidden = [(privacy.anonymise_config(cfg, own.key, own.fingerprints), own) for cfg, own in plan.runs]
    return Plan(plan.experiment, [], hidden)


@dataclass(frozen=True)
class Imported:
    """Hold what an import did: the manifest, its experiment's paper, keys of new runs, new files of the analysis."""

    manifest: Manifest
    paper: str | None
    new_runs: list[str]
    new_files: list[Path]


def import_bundle(bundle: Path, output_dir: str, verify: Callable[[Path], Manifest]) -> Imported:
    """Add a bundle's runs to an output folder. A run that is there already stays as it is.

    ``verify`` checks the whole bundle before anything is written. Nothing that the bundle names is imported as code,
    opened or run. If the bundle fails, or a run is in the output folder with other results, nothing is imported
    (UserError).
    """
    bundle = bundle.expanduser()
    refuse_bundle(Path(output_dir))
    manifest = verify(bundle)
    plan = parse_plan(read_member(bundle, PLAN_FILE), output_dir)
    records, predictions, root = read_records(bundle), read_predictions(bundle), Path(output_dir)
    with require_writable(root), explain_output_errors(root), make_temporary_folder(root / "import") as copy:
        if manifest.runs:
            missing = _list_missing(output_dir, records, predictions)
            for folder, names in missing.items():
                _write_run(copy / folder.key, names, records[folder.key], predictions.get(folder.key))
            _flush_files(copy)
            new_runs, new_files = _move_runs(missing, copy, manifest.runs), list[Path]()
            write_plan(output_dir, plan, is_imported=True)
        else:  # the rows of an analysis of trained runs are computed again for the report
            new_runs, new_files = [], _write_analysis(bundle, manifest, report_folder(root, manifest.experiment))
            mark_output_folder(output_dir)
    return Imported(manifest, plan.runs[0][0].experiment.paper, new_runs, new_files)


def _list_missing(
    output_dir: str, records: Mapping[str, bytes], predictions: Mapping[str, Any]
) -> dict[RunFolder, list[str]]:
    """List which files of the runs the output folder lacks; UserError if it has other results of a run.

    The config of a run that is there may differ, such as in the names of folders: the record decides.
    """
    missing, conflicts = {}, []
    for key, text in records.items():
        folder, rows = RunFolder(output_dir, key), predictions.get(key)
        found = {RECORD_FILE: folder.read_text()}
        found |= {} if rows is None else {PREDICTIONS_FILE: folder.read_predictions()}
        if found[RECORD_FILE] is None and read_live_heartbeat(folder.path):
            conflicts.append(f"{folder.path} is being carried out")
        elif found[RECORD_FILE] not in (None, text):
            conflicts.append(f"{folder.result_file} has other content")
        elif (stored := found.get(PREDICTIONS_FILE)) is not None and not simplify(stored).equals(simplify(rows)):
            conflicts.append(f"{folder.predictions_file} has other content")
        missing[folder] = [name for name, content in found.items() if content is None]
    if conflicts:
        raise _make_conflict(output_dir, conflicts)
    return {folder: names for folder, names in missing.items() if names}


def _make_conflict(output_dir: str | Path, conflicts: list[str]) -> UserError:
    return UserError(
        f"the bundle and {output_dir} conflict: {name_some(conflicts)}; {NOTHING_IMPORTED}: "
        "import it into another output_dir"
    )


def _write_run(folder: Path, names: list[str], text: bytes, rows: Any) -> None:
    folder.mkdir()
    if RECORD_FILE in names:
        (folder / RECORD_FILE).write_bytes(text)
    if PREDICTIONS_FILE in names:
        copy_predictions(folder / PREDICTIONS_FILE, rows, orjson.loads(text)["predictions"]["sha256"])


def _move_runs(missing: Mapping[RunFolder, list[str]], copy: Path, ended: Mapping[str, float]) -> list[str]:
    """Move the files of runs into their folders, and return the keys of new runs; the record makes a run ended.

    If another process has begun to carry out one of the runs, this stops; the same command goes on later.
    """
    new_runs = []
    for folder, names in missing.items():
        with folder.lock() as is_locked:
            if not is_locked or (RECORD_FILE in names and folder.result_file.exists()):
                raise UserError(f"{folder.path} is being carried out: repeat the import when it has ended")
            for name in sorted(names):  # predictions first
                (copy / folder.key / name).replace(folder.path / name)
            if RECORD_FILE in names:
                os.utime(folder.result_file, (min(ended[folder.key], time.time()),) * 2)
                new_runs.append(folder.key)
    return new_runs


def _write_analysis(bundle: Path, manifest: Manifest, folder: Path) -> list[Path]:
    """Write the rows of an analysis that trains nothing, about.json last; UserError if others are there."""
    files = {folder / Path(path).name: read_member(bundle, path) for path in manifest.analysis_files}
    found = {file: file.read_bytes() for file in files if file.exists()}
    if others := [f"{file} has other content" for file, content in found.items() if content != files[file]]:
        raise _make_conflict(folder.parent.parent, others)
    new = [file for file in files if file not in found]
    for file in new:
        with write_whole(file) as temporary:
            temporary.write_bytes(files[file])
    return new
