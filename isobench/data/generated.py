"""Parallel texts that are made, not read, for no corpus of pairs installs from the package index.

They show that translation and summarisation work and what a method does to them on a small scale, no more. The
stream of examples depends on nothing but the grammar and its version; each source's sha256 decides its split, as in
data/embedded.py, so no split has another's. This module stays light: runs are keyed before torch is imported.
"""

from collections.abc import Callable
from random import Random

from isobench.common.errors import UserError, nearest
from isobench.data import bulletins, captions
from isobench.data.embedded import BOUNDS, position

VERSION = 1  # raised when any example changes
SIZES = {"train": 4000, "validation": 300, "test": 300}
EXAMPLES: dict[str, Callable[[Random], tuple[str, str]]] = {
    "captions": captions.example,
    "bulletins": bulletins.example,
}
GRAMMARS = tuple(EXAMPLES)


def check(grammar: str, split: str) -> None:
    """Raise UserError for a grammar or split that is not here."""
    if grammar not in GRAMMARS:
        raise UserError(f"task.generation.grammar={grammar} is not known: {nearest(grammar, GRAMMARS)}")
    if split not in SIZES:
        raise UserError(f"task.generation.grammar={grammar} has no split {split}: {nearest(split, SIZES)}")


def read(grammar: str, split: str) -> tuple[list[str], list[str]]:
    """Sources and targets of one split, no source twice; the same on every machine.

    Raises:
        UserError: a grammar or split that is not here.
    """
    check(grammar, split)
    low, high = BOUNDS[split]
    rng = Random(f"{grammar} {VERSION}")  # a text as seed is hashed by sha512, not by the process's own hash
    pairs: dict[str, str] = {}
    while len(pairs) < SIZES[split]:
        source, target = EXAMPLES[grammar](rng)
        if low <= position(source) < high:
            pairs[source] = target
    return list(pairs), list(pairs.values())
