"""Parallel texts that are made, not read, for no corpus of pairs installs from the package index.

They show that translation and summarisation work and what a method does to them on a small scale, no more. The
stream of examples depends on nothing but the grammar and its version; each source's sha256 decides its split, as in
data/embedded.py, so no split has another's. This module stays light: runs are keyed before torch is imported.
"""

from collections.abc import Callable
from random import Random

from isobench.common.errors import UserError, suggest_nearest
from isobench.data import bulletin_grammar, caption_grammar
from isobench.data.movie_reviews import SPLIT_BOUNDS, hash_to_fraction

VERSION = 1  # raised when any example changes
SPLIT_SIZES = {"train": 4000, "validation": 300, "test": 300}
EXAMPLE_GENERATORS: dict[str, Callable[[Random], tuple[str, str]]] = {
    "captions": caption_grammar.generate_example,
    "bulletins": bulletin_grammar.generate_example,
}
GRAMMARS = tuple(EXAMPLE_GENERATORS)


def check_grammar_and_split(grammar: str, split: str) -> None:
    """Raise UserError for a grammar or split that is not here."""
    if grammar not in GRAMMARS:
        raise UserError(f"task.generation.grammar={grammar} is not known: {suggest_nearest(grammar, GRAMMARS)}")
    if split not in SPLIT_SIZES:
        raise UserError(
            f"task.generation.grammar={grammar} has no split {split}: {suggest_nearest(split, SPLIT_SIZES)}"
        )


def generate_pairs(grammar: str, split: str) -> tuple[list[str], list[str]]:
    """Sources and targets of one split, no source twice; the same on every machine.

    Raises:
        UserError: a grammar or split that is not here.
    """
    check_grammar_and_split(grammar, split)
    low, high = SPLIT_BOUNDS[split]
    rng = Random(f"{grammar} {VERSION}")  # a text as seed is hashed by sha512, not by the process's own hash
    pairs: dict[str, str] = {}
    while len(pairs) < SPLIT_SIZES[split]:
        source, target = EXAMPLE_GENERATORS[grammar](rng)
        if low <= hash_to_fraction(source) < high:
            pairs[source] = target
    return list(pairs), list(pairs.values())
