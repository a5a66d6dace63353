"""Write an experiment's ended runs as a bundle, whole or not at all."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
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
    Manifest,
    format_manifest,
    read_manifest,
)
from isobench.common.environment import read_package_version
from isobench.common.errors import StorageError, UserError
from isobench.common.files import (
    add_json_checksum,
    make_temporary_folder,
    name_system_error,
    read_file_time,
    sha256_file,
)
from isobench.config.schema import Config, config_from_plain
from isobench.runs.folder import ABOUT_FILE, CONFIG_FILE, PREDICTIONS_FILE, RECORD_FILE, run_folder_name
from isobench.runs.identity import compute_key
from isobench.runs.plan import Plan, format_plan
from isobench.runs.record import parse_record
from isobench.runs.run import Run


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
        target: the bundle's folder.
        plan: the runs that were asked for.
        ended: those of them that have ended, in the report's order.
        analysis: the folder of the experiment's analysis; None without one.
        anonymous: take names of machines, users and folders out of the records.
        licence: SPDX's name of the licence of these results; None states none.

    Raises:
        UserError: the folder holds something else, or a file holds a key or a token.
        StorageError: the folder can't be written.
    """
    target = target.expanduser().resolve()
    _require_replaceable(target, plan.experiment)
    try:
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
    if not target.exists():
        return
    if not target.is_dir():
        raise UserError(f"{target} is a file: name a folder")
    if not any(target.iterdir()):
        return
    try:
        manifest = read_manifest(target)
    except UserError as error:
        raise UserError(f"{target} is not empty and no intact bundle: name another folder ({error})") from error
    if manifest.experiment != experiment:
        raise UserError(f"{target} is a bundle of {manifest.experiment}, not of {experiment}: name another folder")
    found = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_symlink() or path.is_file()}
    if foreign := found - manifest.files.keys() - {MANIFEST_FILE}:
        raise UserError(f"{target} holds {min(foreign)}, which is not the bundle's: move it, or name another folder")


def _replace_folder(new: Path, old: Path) -> None:
    """Rename the folder ``new`` to ``old``, after its files are on the disk; ``new`` then has what was in ``old``.

    If the process is killed between the renamings, the earlier bundle is beside its place, as ``NAME.old``.
    """
    flush_files(new)
    aside = old.with_name(f"{old.name}.old")
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


def flush_files(folder: Path) -> None:
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
    names = [*_list_machines(ended), *privacy.list_user_names()] if anonymous else []

    def put(path: str, content: bytes) -> None:
        privacy.require_no_secret(path, content)
        privacy.require_anonymous(path, content, names)
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
        files[path] = hashlib.sha256(content).hexdigest()

    for row in ended:
        for name, content in _read_run(row, anonymous).items():
            put(f"runs/{run_folder_name(row.folder.key)}/{name}", content)
    for name, content in (_read_analysis(analysis, anonymous) if analysis else {}).items():
        if not BUNDLE_PATH.fullmatch(f"{ANALYSIS_FOLDER}/{name}"):
            raise UserError(f"{analysis}/{name} can't be exported: name an analysis's rows with letters and digits")
        put(f"{ANALYSIS_FOLDER}/{name}", content)
    put(PLAN_FILE, format_plan(_prepare_plan(plan, anonymous)))
    runs = {row.folder.key: read_file_time(row.folder.result_file) for row in ended}
    newest = max([*runs.values(), *([read_file_time(analysis / ABOUT_FILE)] if analysis else [])])
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


def _list_machines(ended: Iterable[Run]) -> list[str]:
    return privacy.find_places(orjson.loads(row.folder.result_file.read_bytes()) for row in ended)[0]


def _read_run(row: Run, anonymous: bool) -> dict[str, bytes]:
    """Read the files of an ended run, byte for byte unless the bundle is anonymous: name -> content.

    Raises:
        UserError: the record can't be made anonymous, or the predictions are not those of the record.
    """
    key, source = row.folder.key, row.folder.path
    files = {name: (source / name).read_bytes() for name in (CONFIG_FILE, RECORD_FILE)}
    record = parse_record(files[RECORD_FILE], source / RECORD_FILE)
    if anonymous:
        original = orjson.loads(files[RECORD_FILE])
        hidden = privacy.anonymise_config(original["config"])
        if compute_key(config_from_plain(hidden), record.data.fingerprint, record.encoder.fingerprint) != key:
            raise UserError(f"{source} can't be made anonymous: a setting that decides its result names a folder")
        files = {CONFIG_FILE: privacy.format_config(hidden, key), RECORD_FILE: privacy.anonymise_record(original)}
    if record.predictions is not None and (source / PREDICTIONS_FILE).is_file():
        files[PREDICTIONS_FILE] = (source / PREDICTIONS_FILE).read_bytes()
        if hashlib.sha256(files[PREDICTIONS_FILE]).hexdigest() != record.predictions.sha256:
            raise UserError(f"{source} was changed while it was exported: repeat the export")
    return files


def _read_analysis(folder: Path, anonymous: bool) -> dict[str, bytes]:
    """Read the rows of an analysis, and what about.json says of them: name -> content."""
    about: dict[str, Any] = orjson.loads((folder / ABOUT_FILE).read_bytes())
    digests = {name: sha256 for name, sha256 in about["sha256"].items() if name.endswith(".parquet")}
    for name, sha256 in digests.items():
        if not (folder / name).is_file() or sha256_file(folder / name) != sha256:
            raise UserError(f"{folder / name} is damaged or missing: repeat the analysis")
    left_out = ("checksum", "runs")  # the plan has the runs
    about = {name: value for name, value in about.items() if name not in left_out}
    about |= {"files": sorted(digests), "sha256": digests}
    if anonymous:
        about = privacy.anonymise_about(about)
    files = {name: (folder / name).read_bytes() for name in digests}
    return {**files, ABOUT_FILE: orjson.dumps(add_json_checksum(about), option=orjson.OPT_INDENT_2)}


def _prepare_plan(plan: Plan, anonymous: bool) -> Plan:
    """Return a plan without the output folder and, if the bundle is anonymous, without names of other folders."""

    def prepare(cfg: Config) -> Config:
        if anonymous:
            return config_from_plain(privacy.anonymise_config(asdict(cfg)))
        return replace(cfg, output_dir="outputs")

    return Plan(plan.experiment, plan.commands, [(prepare(cfg), identity) for cfg, identity in plan.runs])
