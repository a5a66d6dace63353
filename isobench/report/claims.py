"""What papers claim: a paper's claims.py lists its claims, each with the check that judges it on our own runs."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from isobench.common.errors import UserError, extract_first_line
from isobench.papers.folders import find_papers

HOLDS, FAILS, UNDECIDED, NOT_RUN, UNKNOWN = "holds", "does not hold", "undecided", "not run", "unknown"
OUTCOME_SYMBOLS = {HOLDS: "✓", FAILS: "✗", UNDECIDED: "~", NOT_RUN: "\N{EN DASH}", UNKNOWN: "?"}
Rows = list[dict[str, Any]]  # what an analysis computed: column -> value, one dict an observation


class Outcome(NamedTuple):
    """The outcome of one claim.

    Attributes:
        word: one of the five words above; ``unknown`` means that what was run can't be read.
        numbers: the numbers behind it, or why there is no outcome.
    """

    word: str
    numbers: str


@dataclass(frozen=True)
class Claim:
    """A paper's claim, and how it is checked.

    Attributes:
        text: the claim in one sentence, with the place in the paper.
        experiment: the experiment whose runs or analysis are checked.
        check: takes the experiment's ``Report`` (`isobench.report.checks` has checks), or the rows of ``rows_file``.
        rows_file: the name of the analysis's rows that are checked; empty for runs.
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
