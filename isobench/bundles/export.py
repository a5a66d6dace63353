"""Write an experiment's ended runs as a bundle, whole or not at all."""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import orjson

from isobench.bundles import privacy
from isobench.bundles.crate import require_rocrate, write_crate
from isobench.bundles.exchange import replace_folder
from isobench.bundles.layout import (
    BUNDLE_FORMAT,
    COMMANDS_FILE,
    CONFIG_FILE,
    CRATE_FILE,
    MANIFEST_FILE,
    PREDICTIONS_FILE,
    RECORD_FILE,
    REPORT_FOLDER,
    compute_sha256,
    is_bundle_path,
    list_files,
    name_run_file,
)
from isobench.bundles.manifest import (
    BundledFile,
    BundledRun,
    Manifest,
    format_commands,
    format_manifest,
    read_manifest,
)
from isobench.common.errors import StorageError, UserError
from isobench.common.files import name_system_error, read_file_time, sha256_json, shorten_digest
from isobench.common.provenance import read_package_version
from isobench.common.temporaries import make_temporary_folder
from isobench.config.schema import Experiment, config_from_plain
from isobench.report.files import write_report
from isobench.runs.grouping import read_run_names
from isobench.runs.identity import compute_key
from isobench.runs.listing import read_stored_row
from isobench.runs.record_file import parse_record
from isobench.runs.row import Row
from isobench.runs.tolerance import TOLERANCE


@dataclass(frozen=True)
class Contents:
    """Hold what goes into a bundle.

    Args:
        experiment: the experiment, with the selection rule of its report.
        rows: its ended runs, in the report's order.
        commands: those that make these runs, each a line without names of folders.
        planned: how many runs the commands ask for.
        analysis: the files of its analysis, the one that lists them among them; empty without one.
        anonymous: take names of machines, users and folders out of the records.
        licence: SPDX's name of the licence of these results; None states none.
    """

    experiment: Experiment
    rows: Sequence[Row]
    commands: Sequence[str]
    planned: int
    analysis: Sequence[Path] = field(default_factory=list)
    anonymous: bool = False
    licence: str | None = None


def export_bundle(target: Path, contents: Contents) -> Manifest:
    """Write a bundle and return its manifest; an earlier bundle of the same experiment in its place is replaced.

    The same runs, whose files have the same times, give the same bytes with the same version of isobench.

    Raises:
        UserError: the folder holds something else, a file holds a key or a token, or the library is missing.
        StorageError: the folder can't be written.
    """
    require_rocrate()
    target = target.expanduser().resolve()
    require_replaceable(target, contents.experiment.name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with make_temporary_folder(target) as temporary:
            manifest = fill_bundle(temporary, contents)
            replace_folder(temporary, target)
    except OSError as error:
        reason = f"{error.filename or target}: {name_system_error(error)}"
        raise StorageError(
            f"no bundle is written: {reason}; make room, or name another folder: --to FOLDER"
        ) from error
    return manifest


def require_replaceable(target: Path, experiment: str | None) -> None:
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
    foreign = set(list_files(target)) - manifest.files.keys() - {MANIFEST_FILE, CRATE_FILE}
    if foreign:
        raise UserError(f"{target} holds {min(foreign)}, which is not the bundle's: move it, or name another folder")


def fill_bundle(folder: Path, contents: Contents) -> Manifest:
    """Write every file of a bundle into an empty folder; the manifest and the RO-Crate come last."""
    runs = {row.folder.key: copy_run(folder, row, contents.anonymous) for row in contents.rows}
    staged = [read_staged_row(folder, row, contents.experiment) for row in contents.rows]
    if staged:
        write_report(contents.experiment, staged, folder / REPORT_FOLDER)
    for file in contents.analysis:
        copy_analysis_file(file, folder / REPORT_FOLDER / file.name, contents.anonymous)
    (folder / COMMANDS_FILE).write_text(format_commands(contents.commands), encoding="utf-8")
    paths = list_files(folder)
    files = {path: describe_file(folder, path) for path in paths}
    if unusual := [path for path in paths if not is_bundle_path(path)]:
        raise UserError(f"{unusual[0]} can't be the name of a bundle's file: rename what the analysis calls so")
    if contents.anonymous:
        machines, _ = privacy.find_places(orjson.loads(row.folder.result_file.read_bytes()) for row in contents.rows)
        for path in paths:
            privacy.require_anonymous(path, (folder / path).read_bytes(), [*machines, *privacy.list_user_names()])
    moments = [run.ended for run in runs.values()] + [read_file_time(file) for file in contents.analysis]
    records = zip(runs.values(), (row.record for row in staged), strict=True)
    fingerprints = [(run, record.data.fingerprint, record.encoder.fingerprint) for run, record in records if record]
    manifest = Manifest(
        format=BUNDLE_FORMAT,
        isobench=read_package_version("isobench"),
        experiment=contents.experiment.name,
        commands=list(contents.commands),
        created=datetime.fromtimestamp(int(max(moments)), UTC).isoformat(),
        planned=contents.planned,
        anonymous=contents.anonymous,
        license=contents.licence,
        runs=runs,
        data={run.data: data for run, data, _ in fingerprints},
        weights={run.weights: weights for run, _, weights in fingerprints},
        analysis=sorted(file.name for file in contents.analysis),
        tolerance=dict(TOLERANCE),
        files=files,
    )
    text = format_manifest(manifest)
    (folder / MANIFEST_FILE).write_bytes(text)
    write_crate(folder, manifest, BundledFile(sha256=compute_sha256(text), bytes=len(text)))
    return manifest


def copy_run(folder: Path, row: Row, anonymous: bool) -> BundledRun:
    """Copy the files of an ended run, byte for byte unless the bundle is anonymous; return how the manifest lists it.

    Raises:
        UserError: a file holds a key or a token, or the record can't be made anonymous.
        OSError: a file can't be read or written.
    """
    key, source = row.folder.key, row.folder.path
    place = folder / name_run_file(key, RECORD_FILE)
    place.parent.mkdir(parents=True)
    text, config = (source / RECORD_FILE).read_bytes(), (source / CONFIG_FILE).read_bytes()
    record = parse_record(text, source / RECORD_FILE)
    if anonymous:
        original = orjson.loads(text)
        text = privacy.anonymise_record(original)
        hidden = privacy.anonymise_config(original["config"])
        config = privacy.format_config(hidden, key)
        if compute_key(config_from_plain(hidden), record.data.fingerprint, record.encoder.fingerprint) != key:
            raise UserError(f"{source} can't be made anonymous: a setting that decides its result names a folder")
    for name, content in ((RECORD_FILE, text), (CONFIG_FILE, config)):
        privacy.require_no_secret(str(source / name), content)
        place.with_name(name).write_bytes(content)
    predictions: Literal["kept", "removed", "none"] = "none" if record.predictions is None else "removed"
    if record.predictions is not None and (source / PREDICTIONS_FILE).is_file():
        shutil.copyfile(source / PREDICTIONS_FILE, place.with_name(PREDICTIONS_FILE))
        predictions = "kept"
        if describe_file(place.parent, PREDICTIONS_FILE).sha256 != record.predictions.sha256:
            raise UserError(f"{source} was changed while it was exported: repeat the export")
    task, encoder, method = read_run_names(row.cfg)
    return BundledRun(
        folder=place.parent.relative_to(folder).as_posix(),
        status=record.status,
        seed=row.cfg.seed,
        task=task,
        encoder=encoder,
        method=method,
        score=record.best.score if record.best else None,
        predictions=predictions,
        ended=read_file_time(source / RECORD_FILE),
        data=name_fingerprint(record.data.fingerprint),
        weights=name_fingerprint(record.encoder.fingerprint),
    )


def read_staged_row(folder: Path, row: Row, experiment: Experiment) -> Row:
    """Read a run back from the bundle, so that the report tells what the bundle's own files say.

    Raises:
        UserError: it has become damaged.
    """
    path = (folder / name_run_file(row.folder.key, RECORD_FILE)).parent
    staged = read_stored_row(str(folder), path)
    assert staged.record is not None
    staged.record.drop_notes_of_history()
    staged.cfg = replace(staged.cfg, experiment=experiment)
    staged.state = "failed" if staged.record.failure else "done"
    return staged


def copy_analysis_file(file: Path, place: Path, anonymous: bool) -> None:
    """Copy a file of an analysis; its about.json loses names of machines and folders in an anonymous bundle."""
    place.parent.mkdir(exist_ok=True)
    content = file.read_bytes()
    if anonymous and file.suffix == ".json":
        content = privacy.anonymise_json(content)
    privacy.require_no_secret(str(file), content)
    place.write_bytes(content)


def describe_file(folder: Path, path: str) -> BundledFile:
    """Compute a file's sha256 and size."""
    with (folder / path).open("rb") as file:
        return BundledFile(sha256=hashlib.file_digest(file, "sha256").hexdigest(), bytes=file.tell())


def name_fingerprint(hashes: dict[str, str]) -> str:
    """Name a set of hashes by sixteen digits, as the report's columns data and weights do."""
    return shorten_digest(sha256_json(hashes))
