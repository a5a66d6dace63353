"""Export an experiment's ended runs as a bundle, and import a bundle into an output folder: whole, or not at all."""

import hashlib
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
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
    list_files,
    read_manifest,
)
from isobench.common.environment import read_package_version
from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import (
    add_json_checksum,
    explain_output_errors,
    make_temporary_folder,
    read_file_time,
    refuse_bundle,
    require_writable,
    sha256_file,
    write_whole,
)
from isobench.common.terminal import format_count, name_some
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
from isobench.runs.trust import stay_in_folder

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
    earlier = _list_earlier_files(target, plan.experiment, {run.folder.key for run in ended})
    files, manifest = _make_files(plan, ended, analysis, anonymous, licence)
    with explain_output_errors(target):
        target.mkdir(parents=True, exist_ok=True)
        with make_temporary_folder(target) as new:  # a full disk leaves the earlier bundle
            for path, content in files.items():
                with write_whole(new / path) as file:
                    file.write_bytes(content)
            # Whenever this is killed, what is there is listed by a manifest, so that the export can be repeated.
            for path in earlier - files.keys():
                (target / path).unlink()
            for path in reversed(files):  # the manifest first
                (target / path).parent.mkdir(exist_ok=True)
                (new / path).replace(target / path)
    return manifest


def _list_earlier_files(target: Path, experiment: str | None, keys: Collection[str]) -> set[str]:
    """List the files of an earlier bundle; UserError for another experiment's, or if runs but ``keys`` get lost."""
    refuse_bundle(target.parent)
    if not target.is_dir() or not any(target.iterdir()):
        return set()
    manifest, found = read_manifest(target), list_files(target)
    if manifest.experiment != experiment:
        raise UserError(f"{target} is a bundle of {manifest.experiment}, not of {experiment}: name another folder")
    if lost := manifest.runs.keys() - keys:
        runs = format_count(len(lost), "run")
        raise UserError(f"{target} has {runs} that would be lost: remove it, or name another folder")
    if others := found - {MANIFEST_FILE, *manifest.files}:
        raise UserError(f"{target} holds {min(others)}, which is not the bundle's: move it, or name another folder")
    return found


def _make_files(
    plan: Plan, ended: Sequence[Run], analysis: Path | None, anonymous: bool, licence: str | None
) -> tuple[dict[str, bytes], Manifest]:
    """Make the content of a bundle's files by their paths; the manifest comes last."""
    records = {run.folder.key: _read_record(run, anonymous) for run in ended}
    rows = {run.folder.key: run.folder.read_predictions() for run in ended if run.record and run.record.predictions}
    files = {f"{ANALYSIS_FOLDER}/{name}": content for name, content in _read_analysis(analysis, anonymous).items()}
    files[PLAN_FILE] = format_plan(_prepare_plan(plan, anonymous))
    for path, content in files.items():
        if path.endswith(".json"):
            privacy.require_no_secret(path, content)
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
    return files | {MANIFEST_FILE: format_manifest(manifest)}, manifest


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
    files = {name: (folder / name).read_bytes() for name in digests}
    for name, content in files.items() if anonymous else ():
        privacy.require_no_folder(str(folder / name), content)
    return {**files, ABOUT_FILE: told}


def _prepare_plan(plan: Plan, anonymous: bool) -> Plan:
    """Return a plan without the output folder and, if the bundle is anonymous, without other folders and commands."""
    if not anonymous:
        runs = [(replace(cfg, output_dir=Config.output_dir), identity) for cfg, identity in plan.runs]
        return Plan(plan.experiment, plan.commands, runs)
    hidden = [(privacy.anonymise_config(cfg, own.key, own.fingerprints), own) for cfg, own in plan.runs]
    return Plan(plan.experiment, [], hidden)


@dataclass(frozen=True)
class Imported:
    """Hold what an import did: manifest, its experiment's paper, keys of new runs, the analysis's new files, plan."""

    manifest: Manifest
    paper: str | None
    new_runs: list[str]
    new_files: list[Path]
    plan: Path | None  # the runs' file; None without runs


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
    with require_writable(root), explain_output_errors(root):
        if manifest.runs:
            missing = _list_missing(output_dir, records, predictions)
            own = replace(plan, runs=[(stay_in_folder(cfg), identity) for cfg, identity in plan.runs])
            file: Path | None = write_plan(output_dir, own, is_imported=True)  # first, for prune keeps its runs
            for folder, names in missing.items():
                key = folder.key
                _write_run(folder, names, records[key], predictions.get(key), manifest.runs[key])
            new_runs = [folder.key for folder, names in missing.items() if RECORD_FILE in names]
            new_files = list[Path]()
        else:  # the rows of an analysis of trained runs are computed again for the report
            new_runs, new_files = [], _write_analysis(bundle, manifest, report_folder(root, manifest.experiment))
            file = None
            mark_output_folder(output_dir)
    return Imported(manifest, plan.runs[0][0].experiment.paper, new_runs, new_files, file)


def _list_missing(
    output_dir: str, records: Mapping[str, bytes], predictions: Mapping[str, Any]
) -> dict[RunFolder, list[str]]:
    """List which files of the runs the output folder lacks; UserError if a run has other results there."""
    missing, conflicts = {}, []
    for key, text in records.items():
        folder, rows = RunFolder(output_dir, key), predictions.get(key)
        found = {RECORD_FILE: folder.read_text()}
        if rows is not None:
            try:  # without a record they are those of a killed run
                found[PREDICTIONS_FILE] = folder.read_predictions() if found[RECORD_FILE] else None
            except Exception as error:  # a damaged file may raise any
                conflicts.append(f"{folder.predictions_file} can't be read ({extract_first_line(error)})")
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


def _write_run(folder: RunFolder, names: list[str], text: bytes, rows: Any, ended: float) -> None:
    """Write the files that a run lacks, its record last; UserError if another process is carrying the run out."""
    with folder.lock() as is_locked:
        if not is_locked or (RECORD_FILE in names and folder.result_file.exists()):
            raise UserError(f"{folder.path} is being carried out: repeat the import when it has ended")
        if PREDICTIONS_FILE in names:
            copy_predictions(folder.predictions_file, rows, orjson.loads(text)["predictions"]["sha256"])
        if RECORD_FILE in names:
            with write_whole(folder.result_file) as temporary:
                temporary.write_bytes(text)
                os.utime(temporary, (min(ended, time.time()),) * 2)


def _write_analysis(bundle: Path, manifest: Manifest, folder: Path) -> list[Path]:
    """Write the rows of an analysis that trains nothing, about.json last; UserError if others are there."""
    found_paths = (path for path in manifest.files if path.startswith(f"{ANALYSIS_FOLDER}/"))
    paths = sorted(found_paths, key=lambda path: path.endswith(ABOUT_FILE))
    files = {folder / Path(path).name: read_member(bundle, path) for path in paths}
    found = {file: file.read_bytes() for file in files if file.exists()}
    if others := [f"{file} has other content" for file, content in found.items() if content != files[file]]:
        raise _make_conflict(folder.parent.parent, others)
    new = [file for file in files if file not in found]
    for file in new:
        with write_whole(file) as temporary:
            temporary.write_bytes(files[file])
    return new
