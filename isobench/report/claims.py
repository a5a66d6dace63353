"""What papers claim: a paper's claims.py lists its claims, each with the check that judges it on our own runs.

A claim holds, or does not hold, in the paper's own setting alone. Elsewhere it is seen, or not seen, here. Each check
must accept the paper's own numbers and reject broken ones, in which what the claim says is not so (`find_faults`).
This module reads neither runs nor analyses: whoever judges a claim passes it what was found.
"""

import importlib
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow

from isobench.common.environment import format_paper_flags
from isobench.common.errors import UserError, doing, extract_first_line, refuse, suggest_nearest
from isobench.papers.folders import find_paper, find_papers, list_configs

HOLDS, FAILS, UNDECIDED, NOT_RUN, UNKNOWN = "holds", "does not hold", "undecided", "not run", "unknown"
NOT_JUDGED = "not judged"
ELSEWHERE = {HOLDS: "seen here", FAILS: "not seen here", UNDECIDED: "can't tell here"}  # not in the paper's setting
OUTCOME_SYMBOLS = {HOLDS: "✓", FAILS: "✗", UNDECIDED: "~", NOT_RUN: "\u2013", UNKNOWN: "?", NOT_JUDGED: "\u2013"}
OUTCOME_SYMBOLS |= {word: OUTCOME_SYMBOLS[other] for other, word in ELSEWHERE.items()}
MAX_QUOTED_WORDS = 15
CONFIG_GROUPS = {"encoder": "encoder", "task": "task", "method": "calibration"}  # what a claim names -> its configs
Part = tuple[str | None, ...]  # an encoder, task and method that were measured
Rows = list[dict[str, Any]]  # what an analysis computed: column -> value, one dict an observation


class Outcome(NamedTuple):
    """Say what came out of one claim."""

    word: str  # one of the words above; ``unknown`` means that what was run can't be read
    numbers: str  # the numbers behind it, or why there is no outcome


@dataclass(frozen=True)
class Claim:
    """Hold a paper's claim, and how it is checked."""

    quote: str  # the paper's own words, at most 15
    source: str  # where they stand, such as ``Section 5.2, Table 1``
    criterion: str  # when the claim holds, in one sentence
    experiment: str  # whose runs or analysis are checked
    # Takes the experiment's ``Report`` (`isobench.report.checks` has checks), or the rows of ``rows_file``.
    check: Callable[[Any], Outcome]
    # Makes what ``check`` takes of the paper's printed numbers; or the reason why print can't decide.
    printed: Callable[[], Any] | str
    # What is broken -> makes what ``check`` takes of numbers in which what the claim says is not so. The check must
    # reject them. `isobench.report.printed` breaks printed tables. Where print can't decide rows, the first ones have
    # each encoder, task and method that has to be measured in the paper's setting.
    broken: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    contradicted: str = ""  # which of the paper's own numbers contradict the claim: its check must reject print then
    # What the claim is about, and all that its check sees: plain fine-tuning and the rows that name one of them, or
    # none. Without all of them the claim is undecided. Empty: any.
    methods: Sequence[str] = ()
    tasks: Sequence[str] = ()
    encoders: Sequence[str] = ()
    rows_file: str = ""  # the name of the analysis's rows that are checked; empty for runs
    settings: str = ""  # what the experiment's command needs besides, so that its runs can decide the claim
    unstated: str = ""  # what the paper does not state and the outcome depends on: no run has its setting then
    paper: str = ""  # its name; `load_claims` fills it in

    @property
    def named(self) -> dict[str, Sequence[str]]:
        """Return the names that rows of the claim must have, by column; a column that may have any is left out."""
        named = {"method": self.methods, "task": self.tasks, "encoder": self.encoders}
        return {column: names for column, names in named.items() if names}

    @property
    def text(self) -> str:
        return f'"{self.quote}" ({self.source})'

    @property
    def command(self) -> str:
        """The command that carries out what the claim is about, at the embedded scale."""
        flags = shlex.join(format_paper_flags())
        return " ".join(filter(None, ["python -m isobench", flags, f"+experiment={self.experiment}", self.settings]))


def later(make: Callable[..., Any]) -> Callable[..., Callable[[], Any]]:
    """Turn a maker of numbers into one that is called with its arguments first, and then with none, by a claim."""
    return lambda *arguments, **named: partial(make, *arguments, **named)


def describe_multiplicity(count: int) -> str:
    return f"{count} claims, each judged alone: no p is corrected for the others, so some outcomes may be chance."


def load_claims(paper: str | None = None) -> list[Claim]:
    """Load what the papers claim, or one of them: ``CLAIMS`` in the claims.py of a paper's folder."""
    folders = find_papers() if paper is None else {paper: find_paper(paper)}
    papers = {name: folder / "claims.py" for name, folder in folders.items() if (folder / "claims.py").is_file()}
    refuse((paper is not None and not papers, f"paper {paper} has no claims.py"))
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
    """Judge one claim by its experiment's report, or by the rows that its analysis wrote; None: there are none.

    Returns the outcome, and how the runs or the analysis differ from the paper's setting. ``read_analysis`` takes an
    experiment and the name of its rows; it returns them and how their setting differs.
    """
    if misspelling := _find_misspelling(claim):  # runs of that name are a former experiment's, or another paper's
        return misspelling, ""
    try:
        found: Any
        differences: list[str] = []
        if claim.rows_file:
            found, differences = read_analysis(claim.experiment, claim.rows_file) or (None, [])
        else:
            found = find_report(claim.experiment)
        if found is None:
            return Outcome(NOT_RUN, claim.command), ""
        data = select(claim, found)
        if claim.rows_file and found and not data:  # other encoders or tasks were looked at
            return Outcome(NOT_RUN, claim.command), ""
        if not claim.rows_file:  # how other runs differ is not said of those that the claim is about
            differences = (data if len(data.runs) else found).scale
        outcome = _check(claim, lambda: data)
        if outcome.word == NOT_RUN and not claim.rows_file:
            outcome = Outcome(NOT_RUN, f"{outcome.numbers}; the command for this claim: {claim.command}")
        return _say_where(claim, outcome, data, differences)
    except UserError as error:
        return Outcome(UNKNOWN, str(error)), ""
    except (OSError, ValueError, TypeError, LookupError, AttributeError, pyarrow.ArrowException) as error:
        reason = f"what {claim.experiment} wrote can't be read: {extract_first_line(error)}; run the analysis again"
        return Outcome(UNKNOWN, reason), ""


def judge_print(claim: Claim) -> Outcome:
    """Judge a claim by the paper's printed numbers; undecided if it does not print what the check needs."""
    if misspelling := _find_misspelling(claim):
        return misspelling
    if isinstance(claim.printed, str):
        return Outcome(UNDECIDED, f"can't be decided from print: {claim.printed}")
    return _check(claim, claim.printed)


def find_faults(claim: Claim) -> list[str]:
    """List what is wrong with a claim: print that it wrongly rejects or accepts, broken numbers that it accepts,
    no broken numbers, and methods, tasks and encoders that neither its experiment nor print has.
    """
    faults, word = [], FAILS if claim.contradicted else HOLDS
    if (outcome := judge_print(claim)).word != word and not isinstance(claim.printed, str):
        faults.append(f"{'accepts' if claim.contradicted else 'rejects'} print ({outcome.numbers})")
    faults += [] if claim.broken else ["has no broken numbers"]
    for name, make in claim.broken.items():
        if (outcome := _check(claim, make)).word not in (FAILS, UNDECIDED):
            faults.append(f"by broken numbers ({name}) it is {outcome.word!r}: {outcome.numbers}")
    known = _list_known_names(claim)
    for column, names in claim.named.items():
        unknown = [name for name in names if name not in known and not known.issuperset(name.split("+"))]
        faults += [f"{claim.experiment} has no {column} {name}" for name in unknown]
    return faults


def select(claim: Claim, data: Any) -> Any:
    """Select what a claim is about: rows that name one of its methods, tasks and encoders, or name none.

    Of a report's runs those of plain fine-tuning stay too.
    """
    wanted = {column: [*names, "none"] if column == "method" else names for column, names in claim.named.items()}
    if isinstance(data, list):
        return [row for row in data if all(row.get(column) in (None, *names) for column, names in wanted.items())]
    runs, cells = data.runs, data.cells
    for column, names in wanted.items():
        runs, cells = (table[table[column].isin(names)] for table in (runs, cells))
    return replace(data, runs=runs, cells=cells)


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
    differences = [*differences, *([claim.unstated] if claim.unstated else [])]
    if outcome.word in (HOLDS, FAILS) and (missing := _list_missing(claim, data, not differences)):
        outcome = Outcome(UNDECIDED, f"{outcome.numbers}; not measured: {'; '.join(missing)}")
    if differences:
        outcome = outcome._replace(word=ELSEWHERE.get(outcome.word, outcome.word))
    return outcome, "; ".join(differences)


def _list_missing(claim: Claim, data: Any, is_papers_setting: bool) -> list[str]:
    """List what is missing for a claim in ``data``, a report or an analysis's rows.

    First the encoders, tasks and methods that the claim names. If there are all, and the setting is the paper's, the
    cells that the paper prints.
    """
    found = _list_parts(data)
    seen = dict(zip(CONFIG_GROUPS, zip(*found, strict=True), strict=False))  # column -> its names
    lacking = [name for column, names in claim.named.items() for name in names if name not in seen.get(column, ())]
    if lacking:
        return [", ".join(lacking)]
    printed = _list_parts(select(claim, next(_make_data(claim), [])))
    if not is_papers_setting:  # there each of what the claim names, together
        named = [column in claim.named for column in CONFIG_GROUPS]
        kept = [tuple(x if is_named else None for x, is_named in zip(part, named, strict=True)) for part in printed]
        printed = list(dict.fromkeys(kept))
    return [", ".join(filter(None, part)) for part in printed if not _has(found, part)]


def _has(found: Sequence[Part], wanted: Part) -> bool:
    return any(all(x in (None, y) for x, y in zip(wanted, own, strict=True)) for own in found)


def _list_parts(data: Any) -> list[Part]:
    """List the encoders, tasks and methods of a report's finished runs or an analysis's rows; None: not named."""
    if isinstance(data, list):
        parts = dict.fromkeys(tuple(row.get(column) for column in CONFIG_GROUPS) for row in data)
        return [part for part in parts if any(part)]
    runs = data.runs[data.runs["status"] == "finished"]
    return list(dict.fromkeys(zip(*(runs[column] for column in CONFIG_GROUPS), strict=True)))


def _make_data(claim: Claim) -> Iterator[Any]:
    """Yield the report or the rows that print has; where print can't decide rows, those made up in its place."""
    if not isinstance(claim.printed, str):
        yield claim.printed()
    elif claim.rows_file:
        yield from (make() for make in claim.broken.values())


def _list_known_names(claim: Claim) -> set[str | None]:
    """List the methods, tasks and encoders that have a config, or stand in print or in rows made up in its place."""
    known: set[str | None] = {name for group in CONFIG_GROUPS.values() for name in list_configs(group)}
    with suppress(Exception):  # whatever the paper's own code raises; judging it says so
        known |= {name for data in _make_data(claim) for part in _list_parts(data) for name in part}
    return known


def _find_misspelling(claim: Claim) -> Outcome | None:
    """Return the outcome of a claim whose experiment no paper has; None if one has it."""
    experiments = list_configs("experiment")
    if claim.experiment in experiments:
        return None
    nearest = suggest_nearest(claim.experiment, experiments)
    return Outcome(UNKNOWN, f"claims.py of {claim.paper}: there is no experiment {claim.experiment}: {nearest}")


def _check(claim: Claim, make: Callable[[], Any]) -> Outcome:
    """Judge a claim by data that are made for it; unknown if its code fails or returns no Outcome."""
    what = "making numbers for its check"
    try:
        data = select(claim, make())
        what = "its check"
        return Outcome(*claim.check(data))
    except Exception as error:  # whatever the paper's own code raises
        remedy = f"correct it, or run {claim.experiment} again" if claim.rows_file else "correct it"
        name = type(error).__name__
        reason = str(error) if isinstance(error, UserError) else f"{name}: {extract_first_line(error)}"
        return Outcome(UNKNOWN, f"claims.py of {claim.paper}: {what} failed ({reason}): {remedy}")
