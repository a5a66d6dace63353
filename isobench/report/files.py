"""Write an experiment's report into its folder: the page, Markdown, LaTeX, and the tidy rows."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from isobench.common.checksums import add_json_checksum
from isobench.common.files import make_storage_error, require_writable, write_atomic, write_json
from isobench.common.garbage import collect_garbage_rarely
from isobench.common.provenance import read_git_state, read_package_version
from isobench.common.tidy import write_columns, write_rows
from isobench.config.schema import Experiment
from isobench.report.analysis_outcome import read_outcome
from isobench.report.document import Report
from isobench.report.example_pairs import ExamplePairs
from isobench.report.html import render_report
from isobench.report.markdown_latex import format_latex, format_markdown
from isobench.report.old_build import build_report
from isobench.runs.layout import REPORT_FILE, report_folder
from isobench.runs.row import Row

PAGE_FILE = "report.html"


@collect_garbage_rarely()
def write_report(
    experiment: Experiment, rows: list[Row], folder: Path | None = None, notes: Sequence[str] = ()
) -> tuple[Report, Path]:
    """Build the report of an experiment's runs and write its files; return the report and the page's path.

    Args:
        experiment: its name, paper, tables and selection rule.
        rows: the runs with their states (`isobench.runs.state.add_states`), at least one.
        folder: where the files go; None stands for the experiment's folder in the runs' output folder.
        notes: what the page also says, such as why the analysis was not carried out.

    Raises:
        UserError: the selection rule can't be applied to these runs.
        StorageError: the folder can't be written.
    """
    folder = folder or report_folder(rows[0].cfg.output_dir, experiment.name)
    with require_writable(folder):
        report = build_report(experiment, rows, ExamplePairs())
        report.notes += notes
        write_report_files(report, folder)
        write_origin(experiment, folder, notes)
    return report, folder / PAGE_FILE


def write_report_files(report: Report, folder: Path) -> None:
    """Write every form of a report, each file whole or not at all; the page shows an analysis of these runs.

    Raises:
        StorageError: the folder can't be written.
    """
    texts = {
        "report.md": format_markdown(report),
        "tables.tex": format_latex(report),
        PAGE_FILE: render_report(report, read_outcome(folder, list_statuses(report))),
    }
    try:
        write_rows(folder, "runs", report.runs)
        write_columns(folder, "epochs", report.epochs)
        for name, text in texts.items():
            write_atomic(folder / name, partial(write_text, text))
    except OSError as error:
        raise make_storage_error(error, folder) from error


def list_statuses(report: Report) -> dict[str, str]:
    """List the status of each run of a report by the name of its folder."""
    return {run["key"]: run["status"] for run in report.runs}


def write_origin(experiment: Experiment, folder: Path, notes: Sequence[str]) -> None:
    """Write what a report was made with beside it: the experiment's settings, added notes, the version of the code.

    ``isobench verify`` makes the report again from it.

    Raises:
        StorageError: the folder can't be written.
    """
    content = {"experiment": asdict(experiment)} | ({"notes": list(notes)} if notes else {})
    code = {"isobench": read_package_version("isobench"), "git": read_git_state()}
    try:
        write_json(folder / REPORT_FILE, add_json_checksum({**content, "code": code}))
    except OSError as error:
        raise make_storage_error(error, folder) from error


def write_text(text: str, file: Path) -> Any:
    """Write a text to a file."""
    return file.write_text(text, encoding="utf-8")
