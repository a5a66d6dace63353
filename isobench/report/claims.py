"""Check what papers claim on our own runs or analyses: a paper's claims.py names the claims and their checks."""

import importlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from isobench.common.errors import UserError, extract_first_line
from isobench.papers.folders import find_papers
from isobench.report.build import Report
from isobench.report.claim_outcome import FAILS, HOLDS, NOT_RUN, UNDECIDED, UNKNOWN, Outcome
from isobench.report.cost_claims import costs_between, costs_times
from isobench.report.methods import column_detectable_difference, group_tested_arms, list_arms, list_score_cells
from isobench.report.run_claims import collapses, isotropy_is_unrelated
from isobench.report.score_claims import (
    Budgets,
    TidyRows,
    decide_difference,
    describe_budgets,
    find_budgets,
    is_better_than,
)
from isobench.report.sentences import list_comparisons, name_method
from isobench.report.tables import BASE_METHOD
from isobench.statistics.seeds import ALPHA, holm

__all__ = [
    "FAILS", "HOLDS", "NOT_RUN", "OUTCOME_SYMBOLS", "UNDECIDED", "UNKNOWN", "Claim", "Outcome", "TidyRows",
    "collapses", "costs_between", "costs_times", "improves", "is_better_than", "isotropy_is_unrelated", "judge_among",
    "judge_cases", "load_claims", "nothing_improves",
]  # fmt: skip
OUTCOME_SYMBOLS = {HOLDS: "✓", FAILS: "✗", UNDECIDED: "~", NOT_RUN: "\N{EN DASH}", UNKNOWN: "?"}
RELEVANT_GAIN = 1.0  # points; runs that could not have shown a gain of this size don't support "no gain"


@dataclass(frozen=True)
class Claim:
    """A paper's claim, and how it is checked.

    Attributes:
        text: the claim in one sentence, with the place in the paper.
        experiment: the experiment whose runs or analysis are checked.
        check: takes the experiment's ``Report``, or the rows of ``rows_file`` if there is one.
        rows_file: which file of the analysis's numbers is checked, without its suffix; empty for runs.
        settings: what the experiment's command needs besides, so that its runs can decide the claim.
        paper: the paper's name; `load_claims` fills it in.
    """

    text: str
    experiment: str
    check: Callable[[Any], Outcome]
    rows_file: str = ""
    settings: str = ""
    paper: str = ""

    @property
    def command(self) -> str:
        """The command that carries out what the claim is about, at the embedded scale."""
        return f"python -m isobench +experiment={self.experiment} {self.settings}".strip()


def improves(*methods: str) -> Callable[[Report], Outcome]:
    """Make the check that each of the methods is better than plain fine-tuning, averaged over encoders and tasks."""

    def check(report: Report) -> Outcome:
        runs = report.runs.to_dict("records")
        outcomes = [judge_improvement(report, name, find_budgets(runs, name, BASE_METHOD)) for name in methods]
        missing = [outcome.numbers for outcome in outcomes if outcome.word == NOT_RUN]
        if missing:
            return Outcome(NOT_RUN, "; ".join(missing))
        word = outcomes[0].word if len({outcome.word for outcome in outcomes}) == 1 else UNDECIDED
        return Outcome(word, "; ".join(outcome.numbers for outcome in outcomes))

    return check


def judge_among(check: Callable[[Report], Outcome], *methods: str) -> Callable[[Report], Outcome]:
    """Make a check that knows only these methods and plain fine-tuning, because the paper has no others."""

    def check_among(report: Report) -> Outcome:
        known = (BASE_METHOD, *methods)
        cells, runs = (table[table["method"].isin(known)] for table in (report.cells, report.runs))
        return check(replace(report, cells=cells, runs=runs))

    return check_among


def judge_improvement(report: Report, method: str, budgets: Budgets) -> Outcome:
    """Compare one method with plain fine-tuning; `decide_difference` decides."""
    scores = list_score_cells(report.cells)
    own = scores[scores["method"] == method]
    undefined = own[own["compared"] & own["difference"].isna()]["column"].unique()
    if len(undefined):
        return Outcome(UNDECIDED, f"{method}: undefined score (NaN) on {', '.join(undefined)}")
    lines = report.methods[report.methods["method"] == method]
    constant = list(dict.fromkeys(task for tasks in lines["constant_tasks"] for task in tasks))
    left_out = f" (left out, constant predictors: {', '.join(constant)})" if constant else ""
    arms = [pair for cell in own.itertuples() for pair in list_arms([cell]).items()]
    tasks = [pair for _, pair in arms]
    if constant and not tasks:
        return Outcome(UNDECIDED, f"{method}: no task can be compared{left_out}")
    if not tasks or any(min(map(len, pair)) < 2 for pair in tasks):
        return Outcome(NOT_RUN, f"{method}: fewer than two seeds of it or of plain fine-tuning{left_out}")
    columns = ", ".join(dict.fromkeys(column for column, _ in arms))
    return decide_difference(f"{method} on {columns}", tasks, left_out + describe_budgets(budgets), budgets)


def nothing_improves(report: Report) -> Outcome:
    """Check that no method's gain on a task survives Holm's correction.

    It is undecided if constant predictors or undefined scores leave nothing to test.
    If no gain survives, the claim holds only if the runs would have shown a gain of ``RELEVANT_GAIN`` points on every
    task; else it is undecided.
    """
    family = list_comparisons(report.cells)
    compared = report.cells[report.cells["compared"]].drop_duplicates(["part", "encoder", "method", "column"])
    constant = [
        f"{name_method(report.methods, line)} on {task}"
        for line in report.methods.itertuples()
        for task in line.constant_tasks
        if line.method != BASE_METHOD
    ]
    left_out = f"; left out, constant predictors: {', '.join(constant)}" if constant else ""
    if family.empty and (constant or compared["difference"].isna().any()):
        return Outcome(UNDECIDED, f"every score is undefined or of a constant predictor{left_out}")
    if family.empty:
        return Outcome(NOT_RUN, "no comparison of two or more seeds")
    adjusted = holm(list(family["p"]))  # over these methods, which may be fewer than the report's
    gains = [
        f"{cell.method} on {cell.column}"
        for cell, p in zip(family.itertuples(), adjusted, strict=True)
        if p < ALPHA and cell.difference > 0
    ]
    columns = ", ".join(family["column"].unique())
    numbers = f"{len(gains)} of {len(family)} comparisons on {columns} are gains that survive Holm"
    if gains:
        return Outcome(FAILS, f"{numbers}: {', '.join(gains)}{left_out}")
    least = max(map(column_detectable_difference, group_tested_arms(report.cells).values()), default=math.inf)
    numbers += f"; differences under {least:.2g} points would usually go unnoticed{left_out}"
    if untested := int(compared["p"].isna().sum()):
        return Outcome(UNDECIDED, f"{numbers}; {untested} more can't be tested")
    return Outcome(HOLDS if least <= RELEVANT_GAIN else UNDECIDED, numbers)


def judge_cases(holds: Iterable[bool], numbers: str) -> Outcome:
    """Return the outcome: holds in every case, in none, or undecided; ``holds`` has one truth value a case."""
    cases = list(holds)
    if not cases:
        return Outcome(NOT_RUN, "nothing to compare")
    return Outcome(HOLDS if all(cases) else UNDECIDED if any(cases) else FAILS, numbers)


def load_claims() -> list[Claim]:
    """Load what the papers claim: ``CLAIMS`` in the claims.py of each paper's folder.

    Raises:
        UserError: a claims.py can't be imported, or has no list of claims.
    """
    claims: list[Claim] = []
    for name, folder in find_papers().items():
        file = folder / "claims.py"
        if not file.is_file():
            continue
        try:
            own = importlib.import_module(f"isobench_papers.{name}.claims").CLAIMS
        except Exception as error:  # whatever the file's own code raises
            raise UserError(f"{file}: {extract_first_line(error)}: correct the file") from error
        if not isinstance(own, list) or not all(isinstance(claim, Claim) for claim in own):
            raise UserError(f"{file}: CLAIMS must be a list of isobench.report.claims.Claim")
        claims += [replace(claim, paper=name) for claim in own]
    return claims
