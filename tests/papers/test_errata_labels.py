"""The errata pages: numbered points, one label each, and tests that exist."""

import re

import pytest
from helpers import ROOT

PAGES = sorted(ROOT.glob("experiments/*/errata.md"))
LABELS = ("Proven", "Inferred", "Ours")


def split_points(text):
    """(number, text) of every numbered point of a page."""
    parts = re.split(r"^(\d+)\. ", text, flags=re.MULTILINE)
    return list(zip(map(int, parts[1::2]), parts[2::2], strict=True))


def find_labels(point):
    return re.findall(rf"\*\*({'|'.join(LABELS)})\.\*\*", point)


def find_named_tests(point):
    """(file or "", name) of every test that a point names in backquotes."""
    return re.findall(r"`(?:((?:tests|experiments)/[\w/]+\.py)::)?((?:test_|Test)\w+)`", point)


def find_written_tests():
    """Every (file, name) of a test function or test class, the file from the repository's root."""
    return {
        (str(file.relative_to(ROOT)), name)
        for file in [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("experiments/*/tests/test_*.py")]
        for name in re.findall(r"^ *(?:def|class) ((?:test_|Test)\w+)", file.read_text(), re.MULTILINE)
    }


def test_every_paper_has_its_page():
    papers = {file.parent for file in ROOT.glob("experiments/*/published.yaml")}
    assert {page.parent for page in PAGES} == papers | {ROOT / "experiments" / "istar"}  # whose method alone is here


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_every_point_has_one_label_and_what_is_proven_names_a_test(page):
    points = split_points(page.read_text())
    assert [number for number, _ in points] == list(range(1, len(points) + 1))
    for number, point in points:
        assert len(find_labels(point)) == 1, number
        assert point.startswith(f"**{find_labels(point)[0]}.** "), number
        assert find_labels(point) != ["Proven"] or find_named_tests(point), number


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_every_named_test_exists_in_the_named_file_or_here(page):
    written = find_written_tests()
    for file, name in find_named_tests(page.read_text()):
        places = [place for place, found in written if found == name]
        of_papers = [place for place in places if place.startswith(("tests/papers/", "experiments/"))]
        assert file in places if file else len(of_papers) == 1, name
