"""What becomes of a claim."""

from typing import NamedTuple

HOLDS, FAILS, UNDECIDED, NOT_RUN, UNKNOWN = "holds", "does not hold", "undecided", "not run", "unknown"


class Outcome(NamedTuple):
    """One of the five words above, and the numbers that say so, or what went wrong."""

    word: str
    numbers: str
