"""One page for the five papers: which claims hold in what was run here, which don't, which were not run."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet
from rich.table import Table

from isobench.errors import UserError
from isobench.report.build import build
from isobench.report.claims import CLAIMS, MISSING, Claim, Outcome
from isobench.report.model import Report
from isobench.report.table import console
from isobench.report.text import pipe
from isobench.report.tidy import write_rows
from isobench.status import rows_of


def overview(arguments: list[str], output_dir: str) -> list[dict[str, Any]]:
    """Every claim with its outcome in this output folder; nothing is computed that was not run.

    Args:
        arguments: of the command line, without an experiment.
        output_dir: where runs and reports lie.
    """
    report_of = cache(lambda experiment: of_runs(experiment, arguments))
    found = []
    for claim in CLAIMS:
        outcome, scale = judged(claim, report_of, Path(output_dir) / "reports" / claim.experiment)
        about = {"paper": claim.paper, "claim": claim.text, "outcome": outcome.word, "numbers": outcome.numbers}
        found.append({**about, "scale": scale, "experiment": claim.experiment})
    return found


def judged(claim: Claim, report_of: Any, folder: Path) -> tuple[Outcome, str]:
    """A claim's outcome, and how what it rests on is not the paper's setting."""
    try:
        if not claim.rows:
            report: Report = report_of(claim.experiment)
            return claim.check(report), "; ".join(report.scale)
        about = json.loads((folder / "about.json").read_text())
        rows = pyarrow.parquet.read_table(folder / f"{claim.rows}.parquet").to_pylist()
    except UserError as error:
        return Outcome(MISSING, str(error)), ""
    except (OSError, ValueError, pyarrow.ArrowException):
        return Outcome(MISSING, f"python -m isobench +experiment={claim.experiment}"), ""
    return claim.check(rows), "; ".join(about["scale"]["differs"])


def of_runs(experiment: str, arguments: list[str]) -> Report:
    """The report of an experiment's runs.

    Raises:
        UserError: none has ended.
    """
    _, rows = rows_of([f"+experiment={experiment}", *arguments])
    if not any(row.record for row in rows):
        raise UserError(f"python -m isobench +experiment={experiment}")
    return build(rows[0].cfg.experiment, rows)


def show(claims: list[dict[str, Any]], folder: Path) -> None:
    """Print the claims, write them as a table and as Markdown, say where."""
    table = Table(title="What the papers claim, and what was found here", title_justify="left", header_style="bold")
    for name in ("paper", "claim", "here", "numbers"):
        table.add_column(name, overflow="fold")
    for claim in claims:
        table.add_row(claim["paper"], claim["claim"], claim["outcome"], claim["numbers"], end_section=True)
    out = console()
    out.print(table)
    for scale in dict.fromkeys(claim["scale"] for claim in claims if claim["scale"]):
        out.print(f"NOT the paper's setting: {scale}.", highlight=False, markup=False)
    write_rows(folder, "claims", claims)
    out.print(f"Written to {folder}/: claims (Parquet, CSV, Markdown), claims.html", highlight=False, markup=False)


def markdown(claims: list[dict[str, Any]]) -> str:
    """The claims as a Markdown table."""
    head = ("paper", "claim", "outcome", "numbers", "scale", "experiment")
    rows = [head, ("---",) * len(head), *(tuple(pipe(str(claim[name])) for name in head) for claim in claims)]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"# What the papers claim, and what was found here\n\n{lines}\n"
