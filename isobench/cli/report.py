"""python -m isobench.report +experiment=NAME: tables, statistics and a page of what was run, finished or not."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from isobench.analyses.names import needs_training
from isobench.cli import claims
from isobench.cli.guard import run_guarded
from isobench.common.errors import UserError
from isobench.common.files import make_storage_error, require_writable, write_atomic
from isobench.common.terminal import make_console
from isobench.common.tidy import write_rows
from isobench.config.schema import Selection, to_config
from isobench.report.build import build_report
from isobench.report.document import Report
from isobench.report.html import render_claims, render_report
from isobench.report.markdown_latex import format_claims_markdown, format_latex, format_markdown
from isobench.report.sweep_table import print_table
from isobench.runs.layout import report_folder, reports_folder
from isobench.runs.state import add_states
from isobench.sweep.plan import compose_sweep
from isobench.sweep.rows import find_sweep_rows

SELECTION_PREFIX = "experiment.selection."


def main() -> None:
    """The command line; exit codes as for ``python -m isobench``."""
    parser = argparse.ArgumentParser(
        prog="python -m isobench.report",
        description="What an experiment's runs say: give it the sweep's own arguments, or +experiment=NAME alone "
        "(and output_dir=...) for every run that commands with this experiment asked for; "
        "experiment.selection.rule=dev|seeds|held_out chooses among configurations. Without anything: the papers' "
        "claims, and which hold in what was run.",
        allow_abbrev=False,
    )
    _, arguments = parser.parse_known_args()
    run_guarded(lambda: report(arguments))


def report(arguments: Sequence[str]) -> None:
    """Print the tables and the evidence, write every file, say where they are; without an experiment, the claims."""
    if all(argument.startswith(("output_dir=", "data.")) for argument in arguments):
        report_claims(list(arguments))
        return
    _, rows = find_sweep_rows([argument for argument in arguments if not argument.startswith(SELECTION_PREFIX)])
    cfg = rows[0].cfg
    experiment = replace(cfg.experiment, selection=read_selection(arguments))
    folder = report_folder(cfg.output_dir, experiment.name)
    if cfg.analysis and not needs_training(cfg.analysis):
        raise UserError(f"{cfg.experiment.name} trains nothing: python -m isobench +experiment={cfg.experiment.name}")
    if not any(row.record for row in rows):
        raise UserError(f"no run of {cfg.experiment.name or 'these'} has ended yet in {cfg.output_dir}: run it first")
    with require_writable(folder):
        rows = add_states(rows)
        made = build_report(experiment, rows)
        write_report_files(made, folder)
    print_table(experiment, [row for row, run in zip(rows, made.runs, strict=True) if run["selected"]])
    out = make_console()
    for sentence in made.evidence:
        out.print(f"- {sentence}", highlight=False, markup=False)
    out.print(f"Selection: {made.selection}", highlight=False, markup=False)
    out.print(f"Page: {folder}/report.html; also report.md, tables.tex, runs and epochs (Parquet, CSV)", markup=False)


def read_selection(arguments: Sequence[str]) -> Selection:
    """The experiment's selection rule, with what the command line says of it."""
    with compose_sweep(arguments) as (_, base, _):
        return to_config(base).experiment.selection


def report_claims(arguments: list[str]) -> None:
    """What the five papers claim, and what the runs and analyses in this output folder say of it."""
    with compose_sweep(arguments) as (_, base, _):
        output_dir = str(base.output_dir)
    judged = claims.judge_claims(arguments, output_dir)
    folder = reports_folder(output_dir)
    try:
        with require_writable(folder):
            claims.print_claims(judged, folder)
        write_atomic(folder / "claims.md", partial(write_text, format_claims_markdown(judged)))
        write_atomic(folder / "claims.html", partial(write_text, render_claims(judged)))
    except OSError as error:
        raise make_storage_error(error, folder) from error


def write_report_files(made: Report, folder: Path) -> None:
    """Write every form of a report, each whole or not at all.

    Raises:
        StorageError: the folder can't be written.
    """
    texts = {"report.md": format_markdown(made), "tables.tex": format_latex(made), "report.html": render_report(made)}
    try:
        for name, rows in (("runs", made.runs), ("epochs", made.epochs)):
            write_rows(folder, name, rows)
        for name, text in texts.items():
            write_atomic(folder / name, partial(write_text, text))
    except OSError as error:
        raise make_storage_error(error, folder) from error


def write_text(text: str, file: Path) -> Any:
    """Write a text."""
    return file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
