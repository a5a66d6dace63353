"""One page for the five papers: which claims hold in what was run here, which don't, which were not run."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow
from rich.table import Table

from isobench.common.errors import UserError, extract_first_line
from isobench.common.terminal import make_console
from isobench.common.tidy import read_rows, write_rows
from isobench.report.build import build_report
from isobench.report.claims import CLAIMS, NOT_RUN, UNKNOWN, Claim, Outcome
from isobench.report.document import Report
from isobench.runs.layout import ABOUT_FILE, report_folder
from isobench.runs.state import add_states
from isobench.sweep.rows import find_sweep_rows


def judge_claims(arguments: list[str], output_dir: str) -> list[dict[str, Any]]:
    """Every claim with its outcome in this output folder; nothing is computed that was not run.

    Args:
        arguments: of the command line, without an experiment.
        output_dir: where runs and reports lie.

    Raises:
        UserError: there is no such folder.
    """
    if not Path(output_dir).is_dir():
        raise UserError(f"{output_dir} does not exist: nothing was run there; set output_dir=FOLDER")
    report_of = cache(lambda experiment: build_experiment_report(experiment, arguments))
    found = []
    for claim in CLAIMS:
        outcome, scale = judge_claim(claim, report_of, report_folder(output_dir, claim.experiment))
        about = {"paper": claim.paper, "claim": claim.text, "outcome": outcome.word, "numbers": outcome.numbers}
        found.append({**about, "scale": scale, "experiment": claim.experiment})
    return found


def judge_claim(claim: Claim, report_of: Any, folder: Path) -> tuple[Outcome, str]:
    """A claim's outcome, and how what it rests on is not the paper's setting."""
    nothing = Outcome(NOT_RUN, f"python -m isobench +experiment={claim.experiment}")
    try:
        if not claim.rows_file:
            report: Report | None = report_of(claim.experiment)
            return (claim.check(report), "; ".join(report.scale)) if report else (nothing, "")
        about = json.loads((folder / ABOUT_FILE).read_text())
        rows = read_rows(folder, claim.rows_file)
    except FileNotFoundError:
        return nothing, ""
    except UserError as error:
        return Outcome(UNKNOWN, str(error)), ""
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        return Outcome(UNKNOWN, f"{folder} can't be read: {extract_first_line(error)}"), ""
    return claim.check(rows), "; ".join(about["scale"]["differs"])


def build_experiment_report(experiment: str, arguments: list[str]) -> Report | None:
    """The report of an experiment's runs; None if none has ended.

    Raises:
        UserError: what was run can't be read, or its selection can't be made.
    """
    _, rows = find_sweep_rows([f"+experiment={experiment}", *arguments])
    return build_report(rows[0].cfg.experiment, add_states(rows)) if any(row.record for row in rows) else None


def print_claims(claims: list[dict[str, Any]], folder: Path) -> None:
    """Print the claims, write them as a table and as Markdown, say where."""
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
