"""Generate sources and targets for translation and summarisation, because no such corpus is on the package index.

They show that translation and summarisation work and how a method acts on a small scale, no more. The examples depend
on the grammar and its version only. The sha256 of a source decides its split, as in movie_reviews.py, so no source is
in two splits. This module imports nothing heavy, because runs are keyed before torch is imported.
"""

from collections.abc import Callable
from random import Random

from isobench.common.errors import UserError, suggest_nearest
from isobench.data import bulletin_grammar, caption_grammar
from isobench.data.movie_reviews import SPLIT_BOUNDS, hash_to_fraction

VERSION = 1  # raise it when any example changes
SPLIT_SIZES = {"train": 4000, "validation": 300, "test": 300}
EXAMPLE_GENERATORS: dict[str, Callable[[Random], tuple[str, str]]] = {
    "captions": caption_grammar.generate_example,
    "bulletins": bulletin_grammar.generate_example,
}
GRAMMARS = tuple(EXAMPLE_GENERATORS)


def check_grammar_and_split(grammar: str, split: str) -> None:
    """Raise UserError for an unknown grammar or split."""
    if grammar not in GRAMMARS:
        raise UserError(f"task.generation.grammar={grammar} is not known: {suggest_nearest(grammar, GRAMMARS)}")
    if split not in SPLIT_SIZES:
        raise UserError(
            f"task.generation.grammar={grammar} has no split {split}: {suggest_nearest(split, SPLIT_SIZES)}"
        )


def generate_pairs(grammar: str, split: str) -> tuple[list[str], list[str]]:
    """Generate the sources and targets of one split, no source twice, the same on every machine.

    Raises:
        UserError: an unknown grammar or split.
    """
    check_grammar_and_split(grammar, split)
    low, high = SPLIT_BOUNDS[split]
    rng = Random(f"{grammar} {VERSION}")  # Random hashes a text by sha512, alike in every process
    pairs: dict[str, str] = {}
    while len(pairs) < SPLIT_SIZES[split]:
        source, target = EXAMPLE_GENERATORS[grammar](rng)
        if low <= hash_to_fraction(source) < high:
            pairs[source] = target
    return list(pairs), list(pairs.values())
