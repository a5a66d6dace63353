"""Check the five papers' claims on what was run in an output folder: which hold, which don't, which were not run."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet
from rich.table import Table

from isobench.common.errors import UserError, extract_first_line
from isobench.common.terminal import make_console
from isobench.common.tidy import write_rows
from isobench.report.build import build_report
from isobench.report.claims import CLAIMS, NOT_RUN, UNKNOWN, Claim, Outcome
from isobench.report.document import Report
from isobench.runs.state import add_states
from isobench.sweep.rows import find_sweep_rows


def judge_claims(arguments: list[str], output_dir: str) -> list[dict[str, Any]]:
    """Check every claim on the runs and analyses in this output folder; nothing new is run.

    Args:
        arguments: of the command line, without an experiment.
        output_dir: the folder of runs and reports.

    Returns:
        One tidy row a claim: paper, claim, outcome, numbers, scale, experiment.

    Raises:
        UserError: there is no such folder.
    """
    if not Path(output_dir).is_dir():
        raise UserError(f"{output_dir} does not exist: nothing was run there; set output_dir=FOLDER")
    load_report = cache(lambda experiment: build_experiment_report(experiment, arguments))
    rows = []
    for claim in CLAIMS:
        outcome, scale = judge_claim(claim, load_report, Path(output_dir) / "reports" / claim.experiment)
        row = {"paper": claim.paper, "claim": claim.text, "outcome": outcome.word, "numbers": outcome.numbers}
        rows.append({**row, "scale": scale, "experiment": claim.experiment})
    return rows


def judge_claim(claim: Claim, load_report: Callable[[str], Report | None], folder: Path) -> tuple[Outcome, str]:
    """Check one claim.

    Args:
        claim: the claim.
        load_report: returns an experiment's report, or None if no run of it has ended.
        folder: where the claim's analysis, if it is about one, wrote its numbers.

    Returns:
        The outcome, and how the setting differs from the paper's; empty if it doesn't.
    """
    not_run = Outcome(NOT_RUN, f"python -m isobench +experiment={claim.experiment}")
    try:
        if not claim.rows_file:
            report = load_report(claim.experiment)
            return (claim.check(report), "; ".join(report.scale)) if report else (not_run, "")
        about = json.loads((folder / "about.json").read_text())
        rows = pyarrow.parquet.read_table(folder / f"{claim.rows_file}.parquet").to_pylist()
    except FileNotFoundError:
        return not_run, ""
    except UserError as error:
        return Outcome(UNKNOWN, str(error)), ""
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        return Outcome(UNKNOWN, f"{folder} can't be read: {extract_first_line(error)}"), ""
    return claim.check(rows), "; ".join(about["scale"]["differs"])


def build_experiment_report(experiment: str, arguments: list[str]) -> Report | None:
    """Build the report of an experiment's runs; None if no run has ended.

    Raises:
        UserError: a file of the runs can't be read, or the selection rule can't be applied to them.
    """
    _, rows = find_sweep_rows([f"+experiment={experiment}", *arguments])
    return build_report(rows[0].cfg.experiment, add_states(rows)) if any(row.record for row in rows) else None


def print_claims(claims: list[dict[str, Any]], folder: Path) -> None:
    """Print the claims as a table, and write them as Parquet and CSV."""
    table = Table(title="What the papers claim, and what was found here", title_justify="left", header_style="bold")
    for name in ("paper", "claim", "here", "numbers"):
        table.add_column(name, overflow="fold")
    for claim in claims:
        table.add_row(claim["paper"], claim["claim"], claim["outcome"], claim["numbers"], end_section=True)
    out = make_console()
    out.print(table)
    for scale in dict.fromkeys(claim["scale"] for claim in claims if claim["scale"]):
        out.print(f"NOT the paper's setting: {scale}.", highlight=False, markup=False)
    write_rows(folder, "claims", claims)
    out.print(f"Written to {folder}/: claims (Parquet, CSV, Markdown), claims.html", highlight=False, markup=False)
