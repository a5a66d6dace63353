"""Write an experiment's report into its folder: the page, Markdown, LaTeX, and the tables as Parquet and CSV."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isobench.common.environment import collect_garbage_rarely
from isobench.common.files import make_storage_error, require_writable, write_text
from isobench.common.tidy import write_table
from isobench.report.build import Report
from isobench.report.output.appendix import format_appendix
from isobench.report.output.page import render_report
from isobench.report.output.text import format_latex, format_markdown
from isobench.report.tables import set_types
from isobench.runs.folder import report_folder
from isobench.runs.run import Run

PAGE_FILE, APPENDIX_FILE = "report.html", "appendix.tex"


@collect_garbage_rarely()
def write_report(
    report: Report, rows: Sequence[Run], folder: Path | None = None, outcome: Any = None, appendix: bool = False
) -> Path:
    """Write every form of a report, each file whole or not at all, and return the page's path.

    Args:
        report: of these runs.
        rows: the runs, at least one.
        folder: where the files go; None stands for the experiment's folder in the runs' output folder.
        outcome: of an analysis of the runs (`isobench.analyses.shown.Shown`), which the page shows.
        appendix: write the section for a paper's appendix too.

    Raises:
        StorageError: the folder can't be written.
    """
    folder = folder or report_folder(rows[0].cfg.output_dir, report.experiment.name)
    texts = {"report.md": format_markdown(report), "tables.tex": format_latex(report)}
    texts |= {APPENDIX_FILE: format_appendix(report, rows)} if appendix else {}
    with require_writable(folder):
        try:
            for name in ("runs", "epochs", "cells"):
                write_table(folder, name, set_types(getattr(report, name)))
            for name, text in (texts | {PAGE_FILE: render_report(report, outcome)}).items():
                write_text(folder / name, text)
        except OSError as error:
            raise make_storage_error(error, folder) from error
    return folder / PAGE_FILE
