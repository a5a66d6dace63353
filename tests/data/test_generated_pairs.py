"""Generated texts: the same everywhere, splits apart, German that agrees, summaries by their rule."""

import hashlib
import re

import pytest

from isobench.kinds.generation import grammars as generated_pairs

SHA256 = {
    ("captions", "train"): "c37921cd24c5f4f0c365ca0e9e73341f76cb2b2226f8006610a66514fdaeffa1",
    ("captions", "validation"): "47a1fc685ab3515697ce1c83d1a42f3d042f24207a675a623a64e214ec6b62d4",
    ("captions", "test"): "7705a8b6e2dd4c83243e35051006cfe6e8bdcc57ed4fec69cc757273ebdf9b55",
    ("bulletins", "train"): "877e5844ee15ba1f94dc40d3a8cf8061e03f3ab6f9e208c2372af972a7d79f38",
    ("bulletins", "validation"): "9a97171d70edbbc46fe2072cff625d5db5908cd11d7d430523f8daec2b7d24ed",
    ("bulletins", "test"): "705ed95e3a561dc20277fda84af090455015a8caacb0c463d25add0c1a2bd2c3",
}


@pytest.fixture(scope="module")
def texts():
    return {(grammar, split): generated_pairs.generate_pairs(grammar, split) for grammar, split in SHA256}


@pytest.mark.parametrize("grammar", generated_pairs.EXAMPLE_GENERATORS)
def test_the_examples_are_these_and_no_source_is_there_twice(texts, grammar):
    sources = [source for split in generated_pairs.SPLIT_SIZES for source in texts[grammar, split][0]]
    assert len(set(sources)) == len(sources) == 4600
    for split, size in generated_pairs.SPLIT_SIZES.items():
        lines = "".join(f"{source}\t{target}\n" for source, target in zip(*texts[grammar, split], strict=True))
        # If they change, so must generated_pairs.VERSION.
        assert hashlib.sha256(lines.encode()).hexdigest() == SHA256[grammar, split]
        assert len(texts[grammar, split][0]) == size


WHO = {"Anna": "She", "Clara": "She", "Maria": "She", "David": "He", "Peter": "He", "Simon": "He"}


def summary(source: str) -> str:
    deed = r"(?:(\w+) )?([A-Z]\w+) ((?:\w+ed|bought|sold) the \w+ \w+)"
    sentences = [match.groups() for match in map(re.compile(deed).search, source.split(". ")) if match]
    first, last, _ = sentences[0]
    deeds = [what for _, who, what in sentences if who == last]
    return f"{first} {last} {deeds[0]}. {WHO[first]} also {' and '.join(deeds[1:])}."


@pytest.mark.parametrize("split", generated_pairs.SPLIT_SIZES)
def test_summaries_follow_their_rule(texts, split):
    for source, target in zip(*texts["bulletins", split], strict=True):
        assert 4 <= source.count(".") <= 7
        assert target == summary(source)
