"""Judge the claims of the papers by an output folder's runs and analyses: ``isobench report`` prints them."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow
from rich.table import Table

from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import RECORD_LIMIT, read_json, sha256_file
from isobench.common.terminal import make_console
from isobench.common.tidy import read_rows, write_rows
from isobench.report.build import Report, build_report
from isobench.report.claims import NOT_RUN, UNKNOWN, Claim, Outcome, load_claims
from isobench.runs.folder import ABOUT_FILE, report_folder
from isobench.runs.run import check_predictions, print_troubles
from isobench.runs.state import add_states
from isobench.sweep.find_runs import drop_selection, find_runs, read_selection


def judge_claims(arguments: list[str], output_dir: str) -> list[dict[str, Any]]:
    """Judge every claim by what an output folder has; no run and no analysis is started for it.

    Args:
        arguments: the command line's, without an experiment.
        output_dir: the folder with the runs and reports.

    Returns:
        A row for each claim, with its paper, text, outcome, numbers, scale and experiment.

    Raises:
        UserError: there is no such folder.
    """
    if not Path(output_dir).is_dir():
        raise UserError(f"{output_dir} does not exist: nothing was run there; set output_dir=FOLDER")
    build_cached_report = cache(lambda experiment: build_experiment_report(experiment, arguments))
    judged = []
    for claim in load_claims():
        outcome, scale = judge_claim(claim, build_cached_report, report_folder(output_dir, claim.experiment))
        about = {"paper": claim.paper, "claim": claim.text, "outcome": outcome.word, "numbers": outcome.numbers}
        judged.append({**about, "scale": scale, "experiment": claim.experiment})
    return judged


def judge_claim(claim: Claim, find_report: Callable[[str], Report | None], folder: Path) -> tuple[Outcome, str]:
    """Judge one claim by its experiment's report, or by the rows that its analysis wrote.

    Args:
        claim: the claim.
        find_report: takes an experiment's name; returns its report, None if no run has ended.
        folder: the analysis's folder.

    Returns:
        The outcome, and how the runs or the analysis differ from the paper's setting.
    """
    not_run = Outcome(NOT_RUN, claim.command)
    try:
        if not claim.rows_file:
            report = find_report(claim.experiment)
            if report is None:
                return not_run, ""
            outcome = _check(claim, report)
            if outcome.word == NOT_RUN:
                outcome = Outcome(NOT_RUN, f"{outcome.numbers}; the command for this claim: {claim.command}")
            return outcome, "; ".join(report.scale)
        about = read_json(folder / ABOUT_FILE, RECORD_LIMIT)
        rows = read_analysis_rows(folder, claim.rows_file, about)
        return _check(claim, rows), "; ".join(about["scale"]["differs"])
    except FileNotFoundError:
        return not_run, ""
    except UserError as error:
        return Outcome(UNKNOWN, str(error)), ""
    except (OSError, ValueError, TypeError, LookupError, AttributeError, pyarrow.ArrowException) as error:
        return Outcome(UNKNOWN, f"{folder} can't be read: {extract_first_line(error)}; run the analysis again"), ""


def _check(claim: Claim, data: Any) -> Outcome:
    """Carry out a claim's check; raise UserError unless it returns an Outcome."""
    outcome = claim.check(data)
    if not isinstance(outcome, Outcome):
        raise UserError(f"the check of this claim returned {type(outcome).__name__}: return an Outcome")
    return outcome


def read_analysis_rows(folder: Path, name: str, about: dict[str, Any]) -> list[dict[str, Any]]:
    """Read the rows that an analysis wrote, and compare the file's sum with the one that it noted.

    Args:
        folder: the analysis's folder.
        name: of the rows.
        about: the content of the folder's about.json; one of an earlier version has no sums.

    Raises:
        ValueError: the file has other bytes than the analysis wrote.
        OSError, pyarrow.ArrowException: there is no such file, or it can't be read.
    """
    file = f"{name}.parquet"
    noted = about.get("sha256", {}).get(file)
    if noted is not None and noted != sha256_file(folder / file):
        raise ValueError(f"{file} was changed after the analysis wrote it")
    return read_rows(folder, name)


def build_experiment_report(experiment: str, arguments: list[str]) -> Report | None:
    """Build the report of an experiment's runs; None if none of them has ended.

    Raises:
        UserError: the runs can't be found or selected.
    """
    arguments = [f"+experiment={experiment}", *arguments]
    _, rows = find_runs(drop_selection(arguments))
    check_predictions(rows)
    print_troubles(rows)
    named = replace(rows[0].cfg.experiment, selection=read_selection(arguments))
    return build_report(named, add_states(rows), with_pairs=False) if any(row.record for row in rows) else None


def print_claims(claims: list[dict[str, Any]], folder: Path) -> None:
    """Print the judged claims and write them as tidy rows (``claims.parquet``, ``claims.csv``)."""
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
