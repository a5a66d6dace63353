"""What papers claim: a paper's claims.py lists its claims, each with the check that judges it on our own runs.

A claim holds, or does not hold, in the paper's own setting alone. Elsewhere it is seen, or not seen, here. Each check
must accept the paper's own numbers (`judge_print`) and reject broken ones, in which what the claim says is not so
(`judge_broken`). This module reads neither runs nor analyses: whoever judges a claim passes it what was found.
"""

import importlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow

from isobench.common.environment import format_paper_flags
from isobench.common.errors import UserError, doing, extract_first_line, refuse, suggest_nearest
from isobench.papers.folders import find_config, find_papers, list_configs, read_config_file

HOLDS, FAILS, UNDECIDED, NOT_RUN, UNKNOWN = "holds", "does not hold", "undecided", "not run", "unknown"
NOT_JUDGED = "not judged"
WORDS = (HOLDS, FAILS, UNDECIDED, NOT_RUN, UNKNOWN, NOT_JUDGED)
ELSEWHERE = {HOLDS: "seen here", FAILS: "not seen here", UNDECIDED: "can't tell here"}  # not in the paper's setting
OUTCOME_SYMBOLS = {HOLDS: "✓", FAILS: "✗", UNDECIDED: "~", NOT_RUN: "\N{EN DASH}", UNKNOWN: "?"}
OUTCOME_SYMBOLS[NOT_JUDGED] = OUTCOME_SYMBOLS[NOT_RUN]
OUTCOME_SYMBOLS |= {word: OUTCOME_SYMBOLS[other] for other, word in ELSEWHERE.items()}
MAX_QUOTED_WORDS = 15
Rows = list[dict[str, Any]]  # what an analysis computed: column -> value, one dict an observation


class Outcome(NamedTuple):
    """The outcome of one claim.

    Attributes:
        word: one of the words above; ``unknown`` means that what was run can't be read.
        numbers: the numbers behind it, or why there is no outcome.
    """

    word: str
    numbers: str


@dataclass(frozen=True)
class Claim:
    """A paper's claim, and how it is checked.

    Attributes:
        quote: the paper's own words, at most 15.
        source: where they stand, such as ``Section 5.2, Table 1``.
        criterion: when the claim holds, in one sentence.
        experiment: the experiment whose runs or analysis are checked.
        check: takes the experiment's ``Report`` (`isobench.report.checks` has checks), or the rows of ``rows_file``.
        printed: makes what ``check`` takes of the paper's printed numbers; or the reason why print can't decide.
        broken: what is broken -> makes what ``check`` takes of numbers in which what the claim says is not so. The
            check must reject them. `isobench.report.printed` breaks printed tables. Where print can't decide rows,
            the first ones have each encoder, task and method that has to be measured in the paper's setting.
        contradicted: which of the paper's own numbers contradict the claim. Its check must reject print then.
        methods, tasks, encoders: what the claim is about, and all that its check sees: plain fine-tuning and the rows
            that name one of them, or none. Without all of them the claim is undecided. Empty: any.
        rows_file: the name of the analysis's rows that are checked; empty for runs.
        settings: what the experiment's command needs besides, so that its runs can decide the claim.
        unstated: what the paper does not state and the outcome depends on; no run has the paper's setting then.
        paper: the paper's name; `load_claims` fills it in.
    """

    quote: str
    source: str
    criterion: str
    experiment: str
    check: Callable[[Any], Outcome]
    printed: Callable[[], Any] | str
    broken: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    contradicted: str = ""
    methods: Sequence[str] = ()
    tasks: Sequence[str] = ()
    encoders: Sequence[str] = ()
    rows_file: str = ""
    settings: str = ""
    unstated: str = ""
    paper: str = ""

    @property
    def text(self) -> str:
        return f'"{self.quote}" ({self.source})'

    @property
    def command(self) -> str:
        """The command that carries out what the claim is about, at the embedded scale."""
        flags = shlex.join(format_paper_flags())
        return " ".join(filter(None, ["python -m isobench", flags, f"+experiment={self.experiment}", self.settings]))


def describe_multiplicity(count: int) -> str:
    return (
        f"{count} claims, each judged alone: no p is corrected for the other claims, so some outcomes may be chance."
    )


def load_claims(paper: str | None = None) -> list[Claim]:
    """Load what the papers claim, or one of them: ``CLAIMS`` in the claims.py of a paper's folder."""
    papers = {name: folder / "claims.py" for name, folder in find_papers().items()}
    papers = {name: file for name, file in papers.items() if file.is_file()}
    if paper is not None:
        papers = {paper: papers[paper]}
    claims: list[Claim] = []
    for name, file in papers.items():
        with doing(str(file)):
            found: list[Claim] = importlib.import_module(f"isobench_papers.{name}.claims").CLAIMS
            for quote in (claim.quote for claim in found):
                is_long = len(quote.split()) > MAX_QUOTED_WORDS
                refuse((is_long, f"{file}: quote at most {MAX_QUOTED_WORDS} words of the paper: {quote}"))
        claims += [replace(claim, paper=name) for claim in found]
    return claims


def judge_claim(
    claim: Claim,
    find_report: Callable[[str], Any],
    read_analysis: Callable[[str, str], tuple[Rows, list[str]] | None],
) -> tuple[Outcome, str]:
    """Judge one claim by its experiment's report, or by the rows that its analysis wrote.

    Args:
        find_report: experiment -> its ``Report``, None if no run has ended.
        read_analysis: experiment, name of rows -> the rows and how their setting differs from the paper's, None if
            the analysis was not carried out.

    Returns:
        The outcome, and how the runs or the analysis differ from the paper's setting.
    """
    try:
        found: Any
        differences: list[str] = []
        if claim.rows_file:
            found, differences = read_analysis(claim.experiment, claim.rows_file) or (None, [])
        else:
            found = find_report(claim.experiment)
        if found is None:
            return _find_misspelling(claim) or Outcome(NOT_RUN, claim.command), ""
        data = select(claim, found)
        if claim.rows_file and found and not data:  # other encoders or tasks were looked at
            return Outcome(NOT_RUN, claim.command), ""
        if not claim.rows_file:  # how other runs differ is not said of those that the claim is about
            differences = (data if len(data.runs) else found).scale
        outcome = _check(claim, data)
        if outcome.word == NOT_RUN and not claim.rows_file:
            outcome = Outcome(NOT_RUN, f"{outcome.numbers}; the command for this claim: {claim.command}")
        return _say_where(claim, outcome, data, differences)
    except UserError as error:
        return Outcome(UNKNOWN, str(error)), ""
    except (OSError, ValueError, TypeError, LookupError, AttributeError, pyarrow.ArrowException) as error:
        reason = f"what {claim.experiment} wrote can't be read: {extract_first_line(error)}; run the analysis again"
        return _find_misspelling(claim) or Outcome(UNKNOWN, reason), ""


def judge_print(claim: Claim) -> Outcome:
    """Judge a claim by the paper's printed numbers; undecided if it does not print what the check needs."""
    if misspelling := _find_misspelling(claim):
        return misspelling
    if isinstance(claim.printed, str):
        return Outcome(UNDECIDED, f"can't be decided from print: {claim.printed}")
    return _judge_made(claim, claim.printed)


def judge_broken(claim: Claim) -> dict[str, Outcome]:
    """Judge a claim by each of its broken numbers: what is broken -> the outcome. A sound check rejects them all."""
    return {name: _judge_made(claim, make) for name, make in claim.broken.items()}


def find_faults(claim: Claim) -> list[str]:
    """List what is wrong with a claim: print that it wrongly rejects or accepts, broken numbers that it accepts,
    no broken numbers, and methods, tasks and encoders that neither its experiment nor print has.
    """
    faults, word = [], FAILS if claim.contradicted else HOLDS
    if (outcome := judge_print(claim)).word != word and not isinstance(claim.printed, str):
        faults.append(f"{'accepts' if claim.contradicted else 'rejects'} print ({outcome.numbers})")
    faults += [] if claim.broken else ["has no broken numbers"]
    for name, outcome in judge_broken(claim).items():
        if outcome.word not in (FAILS, UNDECIDED):
            faults.append(f"by broken numbers ({name}) it is {outcome.word!r}: {outcome.numbers}")
    known = _list_known_names(claim)
    for group, names in (("method", claim.methods), ("task", claim.tasks), ("encoder", claim.encoders)):
        faults += [f"{claim.experiment} has no {group} {name}" for name in names if name not in known[group]]
    return faults


def select(claim: Claim, data: Any) -> Any:
    """Select what a claim is about: rows that name one of its methods, tasks and encoders, or name none.

    Of a report's runs those of plain fine-tuning stay too.
    """
    wanted = {"method": claim.methods, "task": claim.tasks, "encoder": claim.encoders}
    wanted = {column: [*names, "none"] if column == "method" else names for column, names in wanted.items() if names}
    if isinstance(data, list):
        return [row for row in data if all(row.get(column) in (None, *names) for column, names in wanted.items())]
    runs, cells = data.runs, data.cells
    for column, names in wanted.items():
        runs, cells = (table[table[column].isin(names)] for table in (runs, cells))
    return replace(data, runs=runs, cells=cells)


def _judge_made(claim: Claim, make: Callable[[], Any]) -> Outcome:
    """Judge a claim by numbers that are made for it."""
    try:
        made = make()
    except Exception as error:  # whatever the paper's own code raises
        return _blame_code(claim, "making numbers for its check failed", error)
    return _check(claim, select(claim, made))


def _say_where(claim: Claim, outcome: Outcome, data: Any, differences: Sequence[str]) -> tuple[Outcome, str]:
    """Choose the words for our setting if it differs from the paper's; return them and how it differs.

    Data that lack a part of what the claim names decide nothing, and in the paper's setting a part of what the paper
    prints. Nothing is judged by a model that was not pretrained, because the papers' models are.
    """
    if any(phrase.endswith("is randomly initialised") for phrase in differences):
        reason = f"the model is untrained, and the paper's is not; the command for this claim: {claim.command}"
        return Outcome(NOT_JUDGED, reason), "; ".join(differences)
    if outcome.word == NOT_RUN:
        return outcome, ""
    if outcome.word in (HOLDS, FAILS) and (missing := _list_missing(claim, data)):
        outcome = Outcome(UNDECIDED, f"{outcome.numbers}; not measured: {', '.join(missing)}")
    differences = [*differences, *([claim.unstated] if claim.unstated else [])]
    if differences:
        return outcome._replace(word=ELSEWHERE.get(outcome.word, outcome.word)), "; ".join(differences)
    if outcome.word in (HOLDS, FAILS) and (missing := _list_unmeasured(claim, data)):
        outcome = Outcome(UNDECIDED, f"{outcome.numbers}; not measured: {'; '.join(missing)}")
    return outcome, ""


def _list_unmeasured(claim: Claim, data: Any) -> list[str]:
    """List what print has, or the rows made up in its place, and data lack: encoders with a task and method."""
    make = claim.printed
    if isinstance(make, str):
        make = next(iter(claim.broken.values()), list) if claim.rows_file else list
    have, wanted = _list_parts(data), _list_parts(select(claim, make()))
    missing = (p for p in wanted if not any(all(x in (None, y) for x, y in zip(p, own, strict=True)) for own in have))
    return [", ".join(filter(None, part)) for part in missing]


def _list_parts(data: Any) -> list[tuple[str | None, ...]]:
    """List the encoders, tasks and methods of a report's finished runs or an analysis's rows; None: not named."""
    columns = ("encoder", "task", "method")
    if isinstance(data, list):
        parts = dict.fromkeys(tuple(row.get(column) for column in columns) for row in data)
        return [part for part in parts if any(part)]
    runs = data.runs[data.runs["status"] == "finished"]
    return list(dict.fromkeys(zip(*(runs[column] for column in columns), strict=True)))


def _list_missing(claim: Claim, data: Any) -> list[str]:
    """List the methods, tasks and encoders that a claim names and that data lack."""
    found = _list_names(data)
    named = {"method": claim.methods, "task": claim.tasks, "encoder": claim.encoders}
    return [name for column, names in named.items() for name in names if name not in found[column]]


def _list_names(data: Any) -> dict[str, set[Any]]:
    """List the methods, tasks and encoders of finished runs, or of an analysis's rows."""
    columns = ("method", "task", "encoder")
    if isinstance(data, list):
        return {column: {row.get(column) for row in data} for column in columns}
    runs = data.runs[data.runs["status"] == "finished"]
    return {column: set(runs[column]) for column in columns}


def _list_known_names(claim: Claim) -> dict[str, set[str]]:
    """List the methods, tasks and encoders of a claim's experiment, at any scale, of its settings and of print.

    Where print can't decide, those of the rows that are made up in its place.
    """
    known: dict[str, set[Any]] = {column: set() for column in ("method", "task", "encoder")}
    made = (claim.broken.values() if claim.rows_file else ()) if isinstance(claim.printed, str) else [claim.printed]
    for make in made:
        with suppress(Exception):  # whatever the paper's own code raises; judging it says so
            known = {column: known[column] | names for column, names in _list_names(make()).items()}
    file = find_config("experiment", claim.experiment)
    grids = (read_config_file(file)["experiment"].get("grid") or {}) if file else {}
    for sub_grid in (sub_grid for grid in grids.values() for sub_grid in grid):
        for column, setting in (("method", "calibration"), ("task", "task"), ("encoder", "encoder")):
            known[column] |= set(sub_grid.get(setting, ()))
    for text in shlex.split(claim.settings):
        setting, _, values = text.partition("=")
        if (column := {"calibration": "method"}.get(setting, setting)) in known:
            chains = re.findall(r"\[([^\]]*)\]", values)
            known[column] |= {*re.sub(r"\[[^\]]*\]", "", values).split(","), *(c.replace(",", "+") for c in chains)}
    return known


def _find_misspelling(claim: Claim) -> Outcome | None:
    """Return the outcome of a claim whose experiment no paper has; None if one has it."""
    experiments = list_configs("experiment")
    if claim.experiment in experiments:
        return None
    nearest = suggest_nearest(claim.experiment, experiments)
    return Outcome(UNKNOWN, f"claims.py of {claim.paper}: there is no experiment {claim.experiment}: {nearest}")


def _check(claim: Claim, data: Any) -> Outcome:
    """Carry out a claim's check; unknown if its code fails or does not return a whole Outcome."""
    try:
        outcome = claim.check(data)
    except Exception as error:  # whatever the paper's own code raises
        return _blame_code(claim, "its check failed", error)
    if not isinstance(outcome, Outcome) or outcome.word not in WORDS or not isinstance(outcome.numbers, str):
        problem = f"its check returned {outcome!r}: return an Outcome, one of the words and a text"
        return Outcome(UNKNOWN, f"claims.py of {claim.paper}: {problem}")
    return outcome


def _blame_code(claim: Claim, what: str, error: Exception) -> Outcome:
    remedy = f"correct it, or run {claim.experiment} again" if claim.rows_file else "correct it"
    reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {extract_first_line(error)}"
    return Outcome(UNKNOWN, f"claims.py of {claim.paper}: {what} ({reason}): {remedy}")
