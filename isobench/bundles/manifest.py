"""A bundle's manifest, ``bundle.json``: what the bundle is of, and the checksum of each of its files.

BUNDLE/plan.json, records.parquet, predictions.parquet    its runs (isobench.runs.bundled)
BUNDLE/analysis/    the rows of the experiment's analysis (Parquet), and about.json, which says of what they are
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

import orjson
from pydantic import ConfigDict, Field

from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import BUNDLE_FILE, BUNDLE_PLAN, add_json_checksum, drop_json_checksum, read_bounded
from isobench.runs.bundled import MANIFEST_LIMIT, RECORDS_FILE, TABLE_LIMIT
from isobench.runs.folder import ABOUT_FILE
from isobench.runs.record import Part, Time, make_damage_error

BUNDLE_FORMAT: Final = 3  # raise it when the shape of bundle.json or the layout changes
MANIFEST_FILE, PLAN_FILE, ANALYSIS_FOLDER = BUNDLE_FILE, BUNDLE_PLAN, "analysis"
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Name = Annotated[  # no other path can leave the bundle's folder or the one that it is imported into
    str,
    Field(
        pattern=r"^(plan\.json|(records|predictions(_[0-9]{1,3})?|analysis/[A-Za-z0-9_][A-Za-z0-9_-]{0,99})\.parquet|analysis/about\.json)$"
    ),
]


class Manifest(Part):
    """Describe what a bundle holds: ``bundle.json``. Other entries than those named are refused."""

    model_config = ConfigDict(extra="forbid")

    format: Literal[3]
    isobench: Annotated[str, Field(pattern=r"^[0-9A-Za-z.+!_-]{1,64}$")] | None = Field(
        description="the version that wrote the bundle"
    )
    experiment: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")] | None
    created: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$")] = Field(
        description="when the newest run ended, or the analysis's file was written, UTC"
    )
    anonymous: bool = Field(description="whether what names machines, users and folders was left out of the records")
    license: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+-]{0,63}$")] | None = Field(
        description="SPDX's name of the licence of these results; null if none is stated"
    )
    runs: dict[Digest, Time] = Field(
        description="key -> when the run ended, or its file was written if its record doesn't say it, since 1970"
    )
    files: dict[Name, Digest] = Field(description="every other file: path in the bundle -> sha256")


def find_changes(bundle: Path, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield the path of each file that a bundle lacks, has also, or has with other bytes, and what is wrong."""
    for path, sha256 in manifest.files.items():
        try:
            if hashlib.sha256(read_bounded(bundle / path, TABLE_LIMIT)).hexdigest() != sha256:
                yield path, f"it is not the file that {MANIFEST_FILE} lists"
        except OSError as error:
            yield path, extract_first_line(error)
    others = list_files(bundle) - manifest.files.keys() - {MANIFEST_FILE}
    yield from ((path, "the manifest does not name it") for path in sorted(others))


def list_files(bundle: Path) -> set[str]:
    """List what is in a bundle by its path there, links too, but no folders."""
    found = (path for path in bundle.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(bundle).as_posix() for path in found}


def format_manifest(manifest: Manifest) -> bytes:
    content = add_json_checksum(manifest.model_dump())
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def read_manifest(bundle: Path) -> Manifest:
    """Read a bundle's manifest, and check its checksum, its shape, and that it has the files that its runs need."""
    if not (bundle / MANIFEST_FILE).exists():
        what = f"bundle: no {MANIFEST_FILE}" if bundle.is_dir() else "folder"
        raise UserError(f"{bundle} is no {what}")
    try:
        content = orjson.loads(read_bounded(bundle / MANIFEST_FILE, MANIFEST_LIMIT))
        version = content.get("format")
        if type(version) is int and version != BUNDLE_FORMAT:
            raise UserError(
                f"{bundle} has format {version}, and this isobench reads {BUNDLE_FORMAT}: take another one"
            )
        manifest = Manifest.model_validate(drop_json_checksum(content))
        needed = RECORDS_FILE if manifest.runs else f"{ANALYSIS_FOLDER}/{ABOUT_FILE}"
        if lacking := {PLAN_FILE, needed} - manifest.files.keys():
            raise ValueError(f"it does not list {min(lacking)}")
        return manifest
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise make_damage_error(bundle / MANIFEST_FILE, error) from error
