"""Read what the analysis of trained runs left in a report's folder, to show it on the report's page."""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isobench.common.checksums import read_json
from isobench.common.reading import RECORD_LIMIT, read_bounded
from isobench.runs.layout import ABOUT_FILE, run_folder_name

TABLES_FILE = "tables.txt"
ENDED = ("finished", "failed")  # the statuses of runs with a record


@dataclass
class AnalysisOutcome:
    """Hold the tables and figures of an analysis.

    Attributes:
        text: its tables and notes.
        figures: name -> the figure, an SVG as a data URI. A browser runs no script of an image.
    """

    text: str
    figures: dict[str, str]


def read_outcome(folder: Path, statuses: Mapping[str, str]) -> AnalysisOutcome | None:
    """Read the tables and figures in a report's folder; None without an analysis, or if about.json vouches for none.

    Every file is compared with its sha256 in about.json: a changed one makes the whole outcome None. So does an
    analysis of other runs, or one that was made when fewer of them had ended.

    Args:
        folder: the report's folder.
        statuses: name of a run's folder -> its status, of all runs that the page reports on.
    """
    try:
        about = read_json(folder / ABOUT_FILE, RECORD_LIMIT)
        if not is_about_runs(about, statuses):
            return None
        digests: dict[str, str] = about["sha256"]
        names = [TABLES_FILE, *(name for name in digests if name.endswith(".svg") and name == Path(name).name)]
        files = {name: read_vouched(folder / name, digests[name]) for name in names}
        text = files.pop(TABLES_FILE).decode("utf-8")
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # it is absent, damaged or another's
        return None
    prefix = "data:image/svg+xml;base64,"
    figures = {Path(name).stem: prefix + base64.b64encode(content).decode() for name, content in files.items()}
    return AnalysisOutcome(text, figures)


def is_about_runs(about: Mapping[str, Any], statuses: Mapping[str, str]) -> bool:
    """Return True if an analysis had these runs, or those of them that finished, and none has ended since.

    Args:
        about: the content of about.json; one that an earlier version wrote does not list the ended runs.
        statuses: name of a run's folder -> its status.
    """
    analysed = {run_folder_name(key) for key in about["keys"]}
    ended = {name for name, status in statuses.items() if status in ENDED}
    finished = {name for name, status in statuses.items() if status == "finished"}
    had_ended = {run_folder_name(key) for key in about.get("ended", about["keys"])}
    return analysed in (set(statuses), finished) and had_ended == analysed & ended


def read_vouched(file: Path, digest: str) -> bytes:
    """Read a file; raise ValueError if its sha256 is another one."""
    content = read_bounded(file, RECORD_LIMIT)
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(f"{file} was changed")
    return content
