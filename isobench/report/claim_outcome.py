"""The outcome of checking a paper's claim on our own runs and analyses."""

from typing import NamedTuple

HOLDS, FAILS, UNDECIDED, NOT_RUN, UNKNOWN = "holds", "does not hold", "undecided", "not run", "unknown"


class Outcome(NamedTuple):
    """The outcome of one claim.

    Attributes:
        word: one of the five words above; ``unknown`` means that what was run can't be read.
        numbers: the numbers behind it, or why there is no outcome.
    """

    word: str
    numbers: str
