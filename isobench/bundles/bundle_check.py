"""Check a bundle that somebody else may have made, file by file and run by run, and run nothing that it names."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import orjson

from isobench.bundles.layout import (
    COMMANDS_FILE,
    PREDICTIONS_FILE,
    RECORD_FILE,
    REPORT_FOLDER,
    RUN_FILES,
    compute_sha256,
    limit_bytes,
    name_run_file,
    read_bundle_file,
)
from isobench.bundles.manifest import BundledRun, Manifest
from isobench.bundles.privacy import UNKNOWN
from isobench.common.checksums import check_text_checksum, drop_json_checksum
from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import replace_non_finite
from isobench.config.bounds import check_value
from isobench.config.schema import Config, config_from_plain
from isobench.runs.grouping import read_run_names
from isobench.runs.identity import compute_key
from isobench.runs.layout import ABOUT_FILE, CONFIG_FILE, run_folder_name
from isobench.runs.listing import parse_config
from isobench.runs.record import RunRecord
from isobench.runs.record_file import parse_record

NOTHING_IMPORTED = "nothing of this bundle is imported"
# Finds what is wrong with a record, its config and its predictions, which may be absent.
FindMore = Callable[[RunRecord, Config, bytes | None], Iterable[str]]


def read_checked_files(bundle: Path, manifest: Manifest) -> Iterator[tuple[str, bytes]]:
    """Read every file that a manifest lists, compare size and sha256, and yield path and content.

    Raises:
        UserError: a file is missing, can't be read, or is not the one that the manifest lists.
    """
    for path, about in manifest.files.items():
        try:
            content = read_bundle_file(bundle, path, limit_bytes(path))
        except OSError as error:
            raise make_bundle_error(bundle / path, extract_first_line(error)) from error
        if len(content) != about.bytes or compute_sha256(content) != about.sha256:
            raise make_bundle_error(bundle / path, "it is not the file that the manifest lists")
        yield path, content


def check_commands(bundle: Path, manifest: Manifest, files: dict[str, Path]) -> None:
    """Raise UserError unless commands.txt has the commands of the manifest, and nothing else but comments."""
    if COMMANDS_FILE in files:
        lines = files[COMMANDS_FILE].read_bytes().decode("utf-8", "replace").splitlines()
        if [line for line in lines if not line.startswith("# ")] != manifest.commands:
            raise make_bundle_error(bundle / COMMANDS_FILE, "it has other commands than the manifest")


def make_bundle_error(file: Path, reason: str) -> UserError:
    """Make the error for a file of a bundle that can't be imported."""
    return UserError(f"{file} can't be imported: {reason}; {NOTHING_IMPORTED}")


def check_run(bundle: Path, manifest: Manifest, key: str, files: dict[str, Path], find_more: FindMore) -> None:
    """Check the record, the config and the predictions of a run against each other and against the manifest.

    Args:
        bundle: the bundle, which error messages name.
        manifest: its manifest.
        key: the run's key in the manifest.
        files: path in the bundle -> a copy of the file.
        find_more: finds what else is wrong with a run.

    Raises:
        UserError: something is damaged or another run's.
    """
    run = manifest.runs[key]
    folder = bundle / run.folder
    texts = {name: files[path] for name in RUN_FILES if (path := name_run_file(key, name)) in files}
    try:
        record = parse_record(texts[RECORD_FILE].read_bytes(), folder / RECORD_FILE)
        cfg = read_config(texts[CONFIG_FILE].read_bytes(), key)
        for problem in (*find_problems(key, run, record, cfg), *find_false_statements(run, manifest, record, cfg)):
            raise ValueError(problem)
        content = texts[PREDICTIONS_FILE].read_bytes() if PREDICTIONS_FILE in texts else None
        if content is not None and (
            record.predictions is None or record.predictions.sha256 != compute_sha256(content)
        ):
            raise ValueError("its predictions are not those that its record names")
        for problem in find_more(record, cfg, content):
            raise ValueError(problem)
    except Exception as error:  # a stranger's file may be wrong in any way
        raise make_bundle_error(folder, extract_first_line(error)) from error


def read_config(text: bytes, key: str) -> Config:
    """Read a run's config.yaml and check the type and bounds of every value; nothing that it names is opened.

    Raises:
        Exception: it is damaged, another run's, or not valid in this version.
    """
    cfg = parse_config(check_text_checksum(text.decode(), run_folder_name(key)))
    check_value("", cfg, Config)
    return cfg


def find_problems(key: str, run: BundledRun, record: RunRecord, cfg: Config) -> Iterator[str]:
    """Yield what is wrong if a record, its config and the manifest are not of one run."""
    if record.key != key:
        yield f"its record is that of {run_folder_name(record.key)}"
    if (run.status, run.seed) != (record.status, cfg.seed):
        yield "the manifest tells another status or seed than its record"
    if config_from_plain(record.config) != cfg and record.config != replace_non_finite(asdict(cfg)):
        yield "its config.yaml is not the config of its record"
    if compute_key(cfg, record.data.fingerprint, record.encoder.fingerprint) != key:
        yield "its config and fingerprints give another key, in this version"


def find_false_statements(run: BundledRun, manifest: Manifest, record: RunRecord, cfg: Config) -> Iterator[str]:
    """Yield what a manifest says of a run that its record and its config don't say."""
    for name, (listed, recorded) in pair_statements(run, manifest, record, cfg).items():
        if listed != recorded:
            yield f"the manifest tells another {name} than its record"
    if (run.predictions == "none") != (record.predictions is None):
        yield "the manifest and its record disagree on whether it has predictions"
    if manifest.anonymous and names_machine(record):
        yield "the manifest says that no machine is named, and its record names one"


def pair_statements(
    run: BundledRun, manifest: Manifest, record: RunRecord, cfg: Config
) -> dict[str, tuple[object, object]]:
    """Pair what a manifest says of a run with what its record and config say: name -> (listed, recorded)."""
    task, encoder, method = read_run_names(cfg)
    return {
        "task": (run.task, task),
        "encoder": (run.encoder, encoder),
        "method": (run.method, method),
        "score": (run.score, record.best.score if record.best else None),
        "data": (manifest.data.get(run.data), record.data.fingerprint),
        "weights": (manifest.weights.get(run.weights), record.encoder.fingerprint),
    }


def names_machine(record: RunRecord) -> bool:
    """Return True if a record names the machine that the run was on."""
    return {record.where.host, record.where.machine} != {UNKNOWN}


def check_analysis(bundle: Path, manifest: Manifest, files: dict[str, Path]) -> None:
    """Check that the files of an analysis are those that its about.json lists.

    Raises:
        UserError: about.json was changed, or a file is missing or another.
    """
    file = bundle / REPORT_FOLDER / ABOUT_FILE
    try:
        about = drop_json_checksum(orjson.loads(files[f"{REPORT_FOLDER}/{ABOUT_FILE}"].read_bytes()))
        if {ABOUT_FILE, *about["sha256"]} != set(manifest.analysis):
            raise ValueError("it lists other files than the manifest")
        for name, sha256 in about["sha256"].items():
            if manifest.files[f"{REPORT_FOLDER}/{name}"].sha256 != sha256:
                raise ValueError(f"{name} is not the file that it lists")
    except Exception as error:  # a stranger's file may be wrong in any way
        raise make_bundle_error(file, extract_first_line(error)) from error
