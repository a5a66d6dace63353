"""Read what the analysis of trained runs left in a report's folder, to show it on the report's page."""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

from isobench.common.checksums import read_json
from isobench.common.reading import RECORD_LIMIT, read_bounded
from isobench.runs.layout import ABOUT_FILE

TABLES_FILE = "tables.txt"


@dataclass
class AnalysisOutcome:
    """Hold the tables and figures of an analysis.

    Attributes:
        text: its tables and notes.
        figures: name -> the figure, an SVG as a data URI. A browser runs no script of an image.
    """

    text: str
    figures: dict[str, str]


def read_outcome(folder: Path) -> AnalysisOutcome | None:
    """Read the tables and figures in a report's folder; None without an analysis, or if about.json vouches for none.

    Every file is compared with its sha256 in about.json: a changed one makes the whole outcome None.
    """
    try:
        digests: dict[str, str] = read_json(folder / ABOUT_FILE, RECORD_LIMIT)["sha256"]
        names = [TABLES_FILE, *(name for name in digests if name.endswith(".svg") and name == Path(name).name)]
        files = {name: read_vouched(folder / name, digests[name]) for name in names}
        text = files.pop(TABLES_FILE).decode("utf-8")
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
    ):  # about.json is absent, damaged or another's
        return None
    prefix = "data:image/svg+xml;base64,"
    figures = {Path(name).stem: prefix + base64.b64encode(content).decode() for name, content in files.items()}
    return AnalysisOutcome(text, figures)


def read_vouched(file: Path, digest: str) -> bytes:
    """Read a file; raise ValueError if its sha256 is another one."""
    content = read_bounded(file, RECORD_LIMIT)
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(f"{file} was changed")
    return content
