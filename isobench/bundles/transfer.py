"""Export an experiment's ended runs as a bundle, and import a bundle into an output folder: whole, or not at all."""

import filecmp
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from isobench.bundles import privacy
from isobench.bundles.manifest import (
    ANALYSIS_FOLDER,
    BUNDLE_FORMAT,
    BUNDLE_PATH,
    MANIFEST_FILE,
    PLAN_FILE,
    TABLE_LIMIT,
    Manifest,
    format_manifest,
    read_manifest,
)
from isobench.common.environment import read_package_version
from isobench.common.errors import StorageError, UserError
from isobench.common.files import (
    RECORD_LIMIT,
    add_json_checksum,
    explain_output_errors,
    make_temporary_folder,
    name_system_error,
    read_bounded,
    read_file_time,
    refuse_bundle,
    require_writable,
    sha256_file,
)
from isobench.common.terminal import name_some
from isobench.config.schema import Config, config_from_plain
from isobench.runs.folder import (
    ABOUT_FILE,
    PREDICTIONS_FILE,
    RECORD_FILE,
    RunFolder,
    mark_output_folder,
    report_folder,
    run_folder_name,
)
from isobench.runs.grouping import NOT_COMPARED, flatten_settings
from isobench.runs.identity import Identity, compute_key
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
        anonymous: take names of machines, users and folders out of the records.
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
    files: dict[str, str] = {}
    disguise = None
    if anonymous:
        told = [*(run.folder.result_file for run in ended), *([analysis / ABOUT_FILE] if analysis else [])]
        disguise = privacy.Disguise(privacy.list_names(orjson.loads(file.read_bytes()) for file in told))

    def put(path: str, content: bytes) -> None:
        privacy.require_no_secret(path, content)
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
        files[path] = hashlib.sha256(content).hexdigest()

    for run in ended:
        for name, content in _read_run(run, disguise).items():
            put(f"runs/{run_folder_name(run.folder.key)}/{name}", content)
    for name, content in (_read_analysis(analysis, disguise) if analysis else {}).items():
        if not BUNDLE_PATH.fullmatch(f"{ANALYSIS_FOLDER}/{name}"):
            raise UserError(f"{analysis}/{name} can't be exported: name an analysis's rows with letters and digits")
        put(f"{ANALYSIS_FOLDER}/{name}", content)
    put(PLAN_FILE, format_plan(_prepare_plan(plan, disguise)))
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
        files=files,
    )
    (folder / MANIFEST_FILE).write_bytes(format_manifest(manifest))
    return manifest


def _read_end(run: Run) -> float:
    """Return when a run ended, in seconds since 1970; of an old record, when its file was written or copied."""
    ended = run.record.ended if run.record else None
    return read_file_time(run.folder.result_file) if ended is None else ended


def _read_analysis_end(folder: Path) -> float:
    """Return when an analysis ended, as `_read_end` does."""
    times = orjson.loads((folder / ABOUT_FILE).read_bytes()).get("times") or {}
    return times.get("ended") or read_file_time(folder / ABOUT_FILE)


def _read_run(run: Run, disguise: privacy.Disguise | None) -> dict[str, bytes]:
    """Read the files of an ended run, byte for byte unless the bundle is anonymous: name -> content."""
    source = run.folder.path
    files = {RECORD_FILE: (source / RECORD_FILE).read_bytes()}
    record = parse_record(files[RECORD_FILE], source / RECORD_FILE)
    if disguise:
        files = {RECORD_FILE: disguise.anonymise_record(orjson.loads(files[RECORD_FILE]))}
    if record.predictions is not None and (source / PREDICTIONS_FILE).is_file():
        files[PREDICTIONS_FILE] = (source / PREDICTIONS_FILE).read_bytes()
        if hashlib.sha256(files[PREDICTIONS_FILE]).hexdigest() != record.predictions.sha256:
            raise UserError(f"{source} was changed while it was exported: repeat the export")
    return files


def _read_analysis(folder: Path, disguise: privacy.Disguise | None) -> dict[str, bytes]:
    about: dict[str, Any] = orjson.loads((folder / ABOUT_FILE).read_bytes())
    digests = {name: sha256 for name, sha256 in about["sha256"].items() if name.endswith(".parquet")}
    for name, sha256 in digests.items():
        if not (folder / name).is_file() or sha256_file(folder / name) != sha256:
            raise UserError(f"{folder / name} is damaged or missing: repeat the analysis")
    left_out = ("checksum", "runs")  # the plan has the runs
    about = {name: value for name, value in about.items() if name not in left_out}
    about |= {"files": sorted(digests), "sha256": digests}
    files = {name: (folder / name).read_bytes() for name in digests}
    if disguise:
        about = disguise.anonymise_about(about)
        for name, content in files.items():
            disguise.require_no_name_in_rows(name, content)
    return {**files, ABOUT_FILE: orjson.dumps(add_json_checksum(about), option=orjson.OPT_INDENT_2)}


def _prepare_plan(plan: Plan, disguise: privacy.Disguise | None) -> Plan:
    """Return a plan without the output folder and, if the bundle is anonymous, without names of other folders."""
    if disguise is None:
        runs = [(replace(cfg, output_dir="outputs"), identity) for cfg, identity in plan.runs]
        return Plan(plan.experiment, plan.commands, runs)
    disguise.require_no_name(f"experiment={plan.experiment}")
    runs = [(_anonymise_run(cfg, identity, disguise), identity) for cfg, identity in plan.runs]
    return Plan(plan.experiment, [disguise.hide_names(command) for command in plan.commands], runs)


def _anonymise_run(cfg: Config, identity: Identity, disguise: privacy.Disguise) -> Config:
    """Return a run's config without names and folders; UserError if its key is made of one."""
    hidden = config_from_plain(disguise.anonymise_config(asdict(cfg)))
    if compute_key(hidden, *map(disguise.hide, identity.fingerprints)) != identity.key:
        before, after = flatten_settings(cfg), flatten_settings(hidden)
        names = [name for name in before if name not in NOT_COMPARED and not name.endswith("_target_")]
        told = [f"{name}={before[name]}" for name in names if after[name] != before[name]]
        told += [str(origin) for origin in identity.fingerprints if disguise.hide(origin) != origin]
        raise UserError(
            f"{told[0]} names a user, a machine or a folder, and the run's key is made of it: rename it and run it "
            "again, or export without --anonymous"
        )
    return hidden


@dataclass(frozen=True)
class Imported:
    """What an import did: the manifest, its experiment's paper, keys of new runs, new files of the analysis."""

    manifest: Manifest
    paper: str | None
    new_runs: list[str]
    new_files: list[Path]


def import_bundle(bundle: Path, output_dir: str, verify: Callable[[Path], Manifest]) -> Imported:
    """Add a bundle's runs to an output folder. A run that is there already stays as it is.

    ``verify`` checks the whole folder before anything is written. Then the bytes are imported that the verified
    manifest lists, and no others. Nothing that the bundle names is imported as code, opened or run. If the bundle
    fails, or a run is in the output folder with other results, nothing is imported (UserError).
    """
    bundle = bundle.expanduser()
    refuse_bundle(Path(output_dir))
    manifest = verify(bundle)
    root = Path(output_dir)
    with require_writable(root), explain_output_errors(root), make_temporary_folder(root / "import") as copy:
        _copy_bundle(bundle, manifest, copy)
        sources = _map_targets(manifest, copy, output_dir)
        _require_no_conflict(manifest, sources, output_dir)
        _flush_files(copy)
        return _move_files(manifest, sources, copy, output_dir)


def _copy_bundle(bundle: Path, manifest: Manifest, copy: Path) -> None:
    """Copy every file that the manifest lists; none of its paths leaves the copy."""
    for path, sha256 in manifest.files.items():
        try:
            content = read_bounded(bundle / path, TABLE_LIMIT if path.endswith(".parquet") else RECORD_LIMIT)
        except OSError:
            content = b""
        if hashlib.sha256(content).hexdigest() != sha256:
            raise UserError(f"{bundle / path} was changed while it was imported; {NOTHING_IMPORTED}")
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_bytes(content)


def _map_targets(manifest: Manifest, copy: Path, output_dir: str) -> dict[Path, Path]:
    """Return where in the output folder each copy belongs: target -> copy.

    The rows of an analysis that trains nothing belong into its folder, about.json last. Those of trained runs are
    computed again for the report.
    """
    sources = {}
    for key in manifest.runs:
        for name, path in manifest.list_run_files(key).items():
            sources[RunFolder(output_dir, key).path / name] = copy / path
    if not manifest.runs:
        names = [path.rpartition("/")[2] for path in manifest.files if path.startswith(f"{ANALYSIS_FOLDER}/")]
        for name in sorted(names, key=lambda name: name == ABOUT_FILE):
            sources[report_folder(output_dir, manifest.experiment) / name] = copy / ANALYSIS_FOLDER / name
    return sources


def _require_no_conflict(manifest: Manifest, sources: dict[Path, Path], output_dir: str) -> None:
    """Raise UserError if the output folder has other results of a run, or a process is carrying it out there.

    The config of a run that is there may differ, such as in the names of folders: the record decides.
    """
    conflicts = []
    for folder in dict.fromkeys(target.parent for target in sources):
        if folder.is_symlink():
            conflicts.append(f"{folder} is a link")
        elif not (folder / RECORD_FILE).exists() and folder.is_dir() and read_live_heartbeat(folder):
            conflicts.append(f"{folder} is being carried out")
    for target, copy in sources.items():
        is_decisive = target.name in (RECORD_FILE, PREDICTIONS_FILE) or not manifest.runs
        is_equal = target.is_file() and not target.is_symlink() and filecmp.cmp(target, copy, shallow=False)
        if is_decisive and os.path.lexists(target) and not is_equal:
            conflicts.append(f"{target} has other content")
    if conflicts:
        raise UserError(
            f"the bundle and {output_dir} conflict: {name_some(conflicts)}; {NOTHING_IMPORTED}: "
            "import it into another output_dir"
        )


def _move_files(manifest: Manifest, sources: dict[Path, Path], copy: Path, output_dir: str) -> Imported:
    """Move the copies to where no file is yet, and write the bundle's plan.

    If another process has begun to carry out one of the runs, this stops; the same command goes on later.
    """
    mark_output_folder(output_dir)
    plan = parse_plan((copy / PLAN_FILE).read_bytes(), output_dir)
    paper = plan.runs[0][0].experiment.paper
    new_runs, new_files = [], []
    for key, written in manifest.runs.items():
        folder = RunFolder(output_dir, key)
        files = {folder.path / name: sources[folder.path / name] for name in manifest.list_run_files(key)}
        if all(target.exists() for target in files):
            continue
        with folder.lock() as is_locked:
            if not is_locked:
                raise UserError(f"{folder.path} is being carried out: repeat the import when it has ended")
            is_new = not folder.result_file.exists()
            new_runs += [key] if is_new else []
            os.utime(files[folder.result_file], (min(written, time.time()),) * 2)
            for target, source in files.items():
                if is_new or not target.exists():
                    source.replace(target)
    if manifest.runs:
        write_plan(output_dir, plan, is_imported=True)
        return Imported(manifest, paper, new_runs, [])
    for target, source in sources.items():
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            source.replace(target)
            new_files.append(target)
    return Imported(manifest, paper, [], new_files)
