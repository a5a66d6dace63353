"""The errata pages: numbered points, one label each, and tests that exist."""

import re

import pytest
from helpers import ROOT

PAGES = sorted(ROOT.glob("experiments/*/errata.md"))


def find_written_tests():
    """Every (file, name) of a test function, the file from the repository's root."""
    return {
        (str(file.relative_to(ROOT)), name)
        for file in [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("experiments/*/tests/test_*.py")]
        for name in re.findall(r"^ *(?:def|class) ((?:test_|Test)\w+)", file.read_text(), re.MULTILINE)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_every_point_has_one_label_and_what_is_proven_names_a_test_that_exists(page):
    written = find_written_tests()
    parts = re.split(r"^(\d+)\. ", page.read_text(), flags=re.MULTILINE)
    assert [int(number) for number in parts[1::2]] == list(range(1, len(parts) // 2 + 1))
    for point in parts[2::2]:
        labels = re.findall(r"\*\*(Proven|Inferred|Ours)\.\*\*", point)
        assert [point.startswith(f"**{label}.** ") for label in labels] == [True], point
        named = re.findall(r"`(?:((?:tests|experiments)/[\w/]+\.py)::)?((?:test_|Test)\w+)`", point)
        assert labels != ["Proven"] or named, point
        for file, name in named:
            places = [place for place, found in written if found == name]
            of_papers = [place for place in places if place.startswith(("tests/papers/", "experiments/"))]
            assert file in places if file else len(of_papers) == 1, name
