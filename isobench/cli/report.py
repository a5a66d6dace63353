"""python -m isobench.report +experiment=NAME: tables, statistics and a page of what was run, finished or not."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from isobench.analyses.analyse import folder_of
from isobench.analyses.names import trains
from isobench.cli import claims as overview
from isobench.cli.guard import run_guarded
from isobench.common.errors import UserError
from isobench.common.files import storage_error, writable, write_atomic
from isobench.common.terminal import console
from isobench.common.tidy import write_rows
from isobench.config.schema import Selection, to_config
from isobench.report.build import build
from isobench.report.html import render, render_claims
from isobench.report.model import Report
from isobench.report.table import print_table
from isobench.report.text import latex, markdown
from isobench.sweep.plan import composed
from isobench.sweep.rows import rows_of

SELECTION = "experiment.selection."


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
    _, rows = rows_of([argument for argument in arguments if not argument.startswith(SELECTION)])
    cfg = rows[0].cfg
    experiment = replace(cfg.experiment, selection=selection_of(arguments))
    folder = folder_of(cfg.output_dir, experiment)
    if cfg.analysis and not trains(cfg.analysis):
        raise UserError(f"{cfg.experiment.name} trains nothing: python -m isobench +experiment={cfg.experiment.name}")
    if not any(row.record for row in rows):
        raise UserError(f"no run of {cfg.experiment.name or 'these'} has ended yet in {cfg.output_dir}: run it first")
    with writable(folder):
        made = build(experiment, rows)
        write(made, folder)
    print_table(experiment, [row for row, run in zip(rows, made.runs, strict=True) if run["selected"]])
    out = console()
    for sentence in made.evidence:
        out.print(f"- {sentence}", highlight=False, markup=False)
    out.print(f"Selection: {made.selection}", highlight=False, markup=False)
    out.print(f"Page: {folder}/report.html; also report.md, tables.tex, runs and epochs (Parquet, CSV)", markup=False)


def selection_of(arguments: Sequence[str]) -> Selection:
    """The experiment's selection rule, with what the command line says of it."""
    with composed(arguments) as (_, base, _):
        return to_config(base).experiment.selection


def report_claims(arguments: list[str]) -> None:
    """What the five papers claim, and what the runs and analyses in this output folder say of it."""
    with composed(arguments) as (_, base, _):
        output_dir = str(base.output_dir)
    claims = overview.overview(arguments, output_dir)
    folder = Path(output_dir) / "reports"
    try:
        with writable(folder):
            overview.show(claims, folder)
        write_atomic(folder / "claims.md", partial(put, overview.markdown(claims)))
        write_atomic(folder / "claims.html", partial(put, render_claims(claims)))
    except OSError as error:
        raise storage_error(error, folder) from error


def write(made: Report, folder: Path) -> None:
    """Write every form of a report, each whole or not at all.

    Raises:
        StorageError: the folder can't be written.
    """
    texts = {"report.md": markdown(made), "tables.tex": latex(made), "report.html": render(made)}
    try:
        for name, rows in (("runs", made.runs), ("epochs", made.epochs)):
            write_rows(folder, name, rows)
        for name, text in texts.items():
            write_atomic(folder / name, partial(put, text))
    except OSError as error:
        raise storage_error(error, folder) from error


def put(text: str, file: Path) -> Any:
    """Write a text."""
    return file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
