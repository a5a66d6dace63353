"""The manifest of a bundle, as pydantic models: its files with their sums, its runs, its commands."""

import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from isobench.bundles.layout import (
    BUNDLE_FORMAT,
    CONFIG_FILE,
    MANIFEST_FILE,
    PREDICTIONS_FILE,
    RECORD_FILE,
    REPORT_FILES,
    REPORT_FOLDER,
    RUNS_FOLDER,
    fold_name,
    is_analysis_file,
    is_bundle_path,
    name_run_file,
    read_bundle_file,
)
from isobench.common.checksums import JSON_ENTRY, add_json_checksum, drop_json_checksum
from isobench.common.errors import UserError, extract_first_line
from isobench.common.reading import MEBIBYTE
from isobench.runs.layout import ABOUT_FILE, run_folder_name
from isobench.runs.record import Count, Part

MANIFEST_LIMIT = 64 * MEBIBYTE  # room for a hundred thousand runs
COMMAND_START = "python -m isobench "
HEX_64 = Field(pattern="^[0-9a-f]{64}$")


class BundlePart(Part):
    """A part of a manifest; other entries than those named are refused."""

    model_config = ConfigDict(extra="forbid")


def require_plain_command(line: str) -> str:
    """Return a command of a manifest; a shell that carries it out starts isobench and nothing else.

    Raises:
        ValueError: it is not one printable line that starts isobench, quoted as ``shlex.join`` quotes.
    """
    if not line.isprintable() or not line.startswith(COMMAND_START) or shlex.join(shlex.split(line)) != line:
        raise ValueError(f"a command is not one printable line that begins with {COMMAND_START!r} and is quoted")
    return line


class BundledFile(BundlePart):
    """A file of the bundle."""

    sha256: Annotated[str, HEX_64]
    bytes: Count


class BundledRun(BundlePart):
    """A run of the bundle."""

    folder: str = Field(description="runs/ and the first 16 digits of the key")
    status: Literal["finished", "failed"]
    seed: int
    task: str
    encoder: str
    method: str
    score: float | None = Field(description="of the reported epoch, a fraction; null if no epoch ended")
    predictions: Literal["kept", "removed", "none"] = Field(description="removed: the exporter's folder lacks them")
    ended: Annotated[float, Field(ge=0, le=1e11)] = Field(
        description="time of its record's file, in seconds since 1970"
    )
    data: str = Field(description="names an entry of `data`")
    weights: str = Field(description="names an entry of `weights`")


class Manifest(BundlePart):
    """Describe what a bundle holds: ``manifest.json``."""

    format: Literal[1]
    isobench: Annotated[str, Field(pattern=r"^[0-9A-Za-z.+!_-]{1,64}$")] | None = Field(
        description="the version that wrote the bundle"
    )
    experiment: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")] | None
    commands: list[Annotated[str, AfterValidator(require_plain_command)]]
    created: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$")] = Field(
        description="time of the newest result's file, UTC"
    )
    planned: Count = Field(description="runs that the commands ask for; those that have ended are in the bundle")
    anonymous: bool = Field(description="whether names of machines, users and folders were taken out of the records")
    license: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+-]{0,63}$")] | None = Field(
        description="SPDX's name of the licence of these results; null if none is stated"
    )
    runs: dict[Annotated[str, HEX_64], BundledRun]
    data: dict[str, dict[str, str]] = Field(description="fingerprints of data sets")
    weights: dict[str, dict[str, str]] = Field(description="fingerprints of pretrained weights")
    analysis: list[str] = Field(description="the files of the experiment's analysis in report/")
    tolerance: dict[str, float] = Field(
        default_factory=dict, description="how far runs that are trained again elsewhere may be (isobench verify)"
    )
    files: dict[str, BundledFile] = Field(description="every other file but the RO-Crate's, by its relative path")


def format_commands(commands: Sequence[str]) -> str:
    """Return the text of commands.txt: the commands, one a line, and a comment that says how to check the bundle."""
    return (
        "".join(f"{line}\n" for line in commands) + "# To check every file and every score: isobench verify FOLDER\n"
    )


def format_manifest(manifest: Manifest) -> bytes:
    """Return the text of a manifest, with a checksum of it."""
    content = add_json_checksum(manifest.model_dump())
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def read_manifest(bundle: Path) -> Manifest:
    """Read a bundle's manifest, and check its checksum, its shape, and that its runs and files agree.

    Raises:
        UserError: the folder is no bundle, or its manifest is damaged, was changed, or is a later version's.
    """
    file = bundle / MANIFEST_FILE
    if not bundle.is_dir():
        raise UserError(f"{bundle} is no folder: name the folder of a bundle")
    try:
        manifest = parse_manifest(read_bundle_file(bundle, MANIFEST_FILE, MANIFEST_LIMIT))
        check_paths(manifest)
        return manifest
    except FileNotFoundError as error:
        raise UserError(f"{bundle} is no bundle: it has no {MANIFEST_FILE}") from error
    except UserError:
        raise
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{file} is damaged or was changed: {describe_error(error)}") from error


def parse_manifest(text: bytes) -> Manifest:
    """Parse a manifest, compare its checksum, and check what it says of the whole bundle.

    Raises:
        ValueError: it is no JSON, lacks a part, has one that is unknown, was changed, or contradicts itself.
        UserError: a later version wrote it.
    """
    content: Any = orjson.loads(text)
    if not isinstance(content, dict) or JSON_ENTRY not in content:
        raise ValueError("it is no JSON object with a checksum")
    version = content.get("format")
    if type(version) is not int:
        raise ValueError("its format is no number")
    if version > BUNDLE_FORMAT:
        raise UserError(f"the bundle has format {version} and this isobench reads {BUNDLE_FORMAT}: update isobench")
    manifest = Manifest.model_validate(drop_json_checksum(content))
    check_statements(manifest)
    return manifest


def check_paths(manifest: Manifest) -> None:
    """Check that a manifest lists only files that a bundle has, and for each run all of them.

    Raises:
        ValueError: it lists another path, two that one file system takes for one, or not the files of its runs.
    """
    for path in manifest.files:
        if not is_bundle_path(path):
            raise ValueError(f"it lists the file {path!r}, and a bundle has no such file")
    if len({fold_name(path) for path in manifest.files}) < len(manifest.files):
        raise ValueError("it lists two files whose names differ in case or in the form of letters only")
    expected = set()
    for key, run in manifest.runs.items():
        if run.folder != f"{RUNS_FOLDER}/{run_folder_name(key)}":
            raise ValueError(f"the folder of run {run_folder_name(key)} is not {run.folder!r}")
        names = (CONFIG_FILE, RECORD_FILE, *([PREDICTIONS_FILE] if run.predictions == "kept" else []))
        expected |= {name_run_file(key, name) for name in names}
    listed = {path for path in manifest.files if path.startswith(f"{RUNS_FOLDER}/")}
    if listed != expected:
        raise ValueError(f"its runs and its files disagree on {min(listed ^ expected)}")
    check_report_names(manifest)


def check_report_names(manifest: Manifest) -> None:
    """Check that report/ has the files of a report, if there are runs, those of the analysis, and no others.

    Raises:
        ValueError: it has another file, or lacks one of the analysis.
    """
    for name in manifest.analysis:
        if not is_analysis_file(name):
            raise ValueError(f"it lists {name!r} as a file of the analysis, and no analysis has such a file")
        if f"{REPORT_FOLDER}/{name}" not in manifest.files:
            raise ValueError(f"it lacks the analysis's file {name!r}")
    if manifest.analysis and ABOUT_FILE not in manifest.analysis:
        raise ValueError(f"its analysis lacks {ABOUT_FILE}")
    known = {f"{REPORT_FOLDER}/{name}" for name in (*manifest.analysis, *(REPORT_FILES if manifest.runs else ()))}
    listed = {path for path in manifest.files if path.startswith(f"{REPORT_FOLDER}/")}
    if foreign := listed - known:
        raise ValueError(f"it lists the file {min(foreign)!r}, which is neither the report's nor the analysis's")


def check_statements(manifest: Manifest) -> None:
    """Check that what a manifest says of the whole bundle agrees with the runs that it lists.

    Raises:
        ValueError: it lists nothing, or its date, number of runs or fingerprints are not those of its runs.
    """
    runs = manifest.runs.values()
    if not runs and not manifest.analysis:
        raise ValueError("it lists neither runs nor an analysis: the bundle is empty")
    if manifest.planned < len(runs):
        raise ValueError(f"it says that {manifest.planned} runs were asked for, and lists {len(runs)}")
    for name, listed, used in (
        ("data", manifest.data, {run.data for run in runs}),
        ("weights", manifest.weights, {run.weights for run in runs}),
    ):
        if set(listed) != used:
            raise ValueError(f"its {name} are not those that its runs name")
    newest = max((run.ended for run in runs), default=0.0)
    created, earliest = datetime.fromisoformat(manifest.created), datetime.fromtimestamp(int(newest), UTC)
    if created < earliest or (created > earliest and not manifest.analysis):
        raise ValueError("created is not the time of its newest result")


def describe_error(error: Exception) -> str:
    """Say in one line what is wrong with a manifest."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))[:80]}: {first['msg']}"
    return re.sub(r"[^\x20-\x7e]+", " ", extract_first_line(error))[:200]
