"""What a bundle holds: the names of its files, and its manifest.

BUNDLE/bundle.json       the manifest: experiment, licence, runs, and every other file with its sha256
BUNDLE/plan.json         the runs that were asked for, with their settings (isobench.runs.plan)
BUNDLE/runs/KEY/         result.json and predictions.parquet of a run, as in an output folder
BUNDLE/analysis/         the rows of the experiment's analysis (Parquet), and about.json, which says of what they are
"""

import os
import re
from pathlib import Path
from typing import Annotated, Final, Literal

import orjson
from pydantic import ConfigDict, Field, ValidationError

from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import (
    BUNDLE_FILE,
    BUNDLE_PLAN,
    MEBIBYTE,
    add_json_checksum,
    drop_json_checksum,
    read_bounded,
)
from isobench.runs.folder import ABOUT_FILE, PREDICTIONS_FILE, RECORD_FILE, run_folder_name
from isobench.runs.record import Part, Time

BUNDLE_FORMAT: Final = 2  # raise it when the shape of bundle.json or the layout changes
MANIFEST_FILE, PLAN_FILE, ANALYSIS_FOLDER = BUNDLE_FILE, BUNDLE_PLAN, "analysis"
FORMER_CONFIG_FILE = "config.yaml"  # in bundles of an earlier version; nothing reads it: the record has the config
RUN_FILES = (FORMER_CONFIG_FILE, PREDICTIONS_FILE, RECORD_FILE)  # the record last: it makes the run ended
TABLE_LIMIT = 1024 * MEBIBYTE  # bytes of a Parquet file
BUNDLE_PATH = re.compile(
    rf"{re.escape(PLAN_FILE)}|runs/[0-9a-f]{{16}}/({'|'.join(map(re.escape, RUN_FILES))})"
    rf"|{ANALYSIS_FOLDER}/({re.escape(ABOUT_FILE)}|[A-Za-z0-9_][A-Za-z0-9_-]{{0,99}}\.parquet)"
)
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Manifest(Part):
    """Describe what a bundle holds: ``bundle.json``. Other entries than those named are refused."""

    model_config = ConfigDict(extra="forbid")

    format: Literal[2]
    isobench: Annotated[str, Field(pattern=r"^[0-9A-Za-z.+!_-]{1,64}$")] | None = Field(
        description="the version that wrote the bundle"
    )
    experiment: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")] | None
    created: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$")] = Field(
        description="when the newest run ended, or the analysis's file was written, UTC"
    )
    anonymous: bool = Field(description="whether names of machines, users and folders were taken out of the records")
    license: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+-]{0,63}$")] | None = Field(
        description="SPDX's name of the licence of these results; null if none is stated"
    )
    runs: dict[Digest, Time] = Field(
        description="key -> when the run ended, or its file was written if its record doesn't say it, since 1970"
    )
    files: dict[str, Digest] = Field(description="every other file: path in the bundle -> sha256")

    def list_run_files(self, key: str) -> dict[str, str]:
        """List the files that the bundle has of a run: name -> path in the bundle; the record comes last."""
        paths = {name: f"runs/{run_folder_name(key)}/{name}" for name in RUN_FILES}
        return {name: path for name, path in paths.items() if path in self.files}


def format_manifest(manifest: Manifest) -> bytes:
    content = add_json_checksum(manifest.model_dump())
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def read_manifest(bundle: Path) -> Manifest:
    """Read a bundle's manifest, and check its checksum, its shape, and that its runs and files agree."""
    if not bundle.is_dir():
        raise UserError(f"{bundle} is no folder: name the folder of a bundle")
    if not os.path.lexists(bundle / MANIFEST_FILE):
        raise UserError(f"{bundle} is no bundle: it has no {MANIFEST_FILE}")
    try:
        content = orjson.loads(read_bounded(bundle / MANIFEST_FILE, 64 * MEBIBYTE))  # a hundred thousand runs
        version = content.get("format") if isinstance(content, dict) else None
        if type(version) is int and version > BUNDLE_FORMAT:
            raise UserError(f"{bundle} has format {version} and this isobench reads {BUNDLE_FORMAT}: update isobench")
        manifest = Manifest.model_validate(drop_json_checksum(content))
        _check_paths(manifest)
        return manifest
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))[:80]}: {first['msg']}"
    except (OSError, ValueError, TypeError, RecursionError) as error:
        reason = extract_first_line(error)
    raise UserError(f"{bundle / MANIFEST_FILE} is damaged or was changed: {reason[:200]}")


def _check_paths(manifest: Manifest) -> None:
    """Raise ValueError unless the files are those of the runs, a plan, and of at most one analysis."""
    for path in manifest.files:
        if not BUNDLE_PATH.fullmatch(path):
            raise ValueError(f"it lists the file {path!r}, and a bundle has no such file")
    needed = {PLAN_FILE, *([] if manifest.runs else [f"{ANALYSIS_FOLDER}/{ABOUT_FILE}"])}
    for key in manifest.runs:
        needed.add(f"runs/{run_folder_name(key)}/{RECORD_FILE}")
    if lacking := needed - manifest.files.keys():
        raise ValueError(f"it does not list {min(lacking)}")
    of_runs = {path for key in manifest.runs for path in manifest.list_run_files(key).values()}
    if others := {path for path in manifest.files if path.startswith("runs/")} - of_runs:
        raise ValueError(f"it lists {min(others)}, and no such run")
