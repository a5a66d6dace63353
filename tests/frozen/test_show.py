"""A diagnosis as it is shown: its numbers, its sentences, its safety, and whether a browser can show it."""

import math
import re
from dataclasses import replace

import pytest
from browser import open_page
from html_page import Page
from made_up_diagnosis import make

from isobench.common.terminal import PlainConsole
from isobench.frozen.diagnosis import Finding
from isobench.frozen.show import print_diagnosis, render_page, render_tables, summarise

EVIL = '"></style><script>alert(1)</script><b onload=x>$x_$ [bold]'
NOTHING = "\N{EN DASH}"


def read(text: str) -> float:
    return float(text.replace("\N{MINUS SIGN}", "-").replace(",", "")) if text != NOTHING else math.nan


def is_about(shown: str, value: float, step: float) -> bool:
    """Return True if a shown number is the value, rounded to a multiple of ``step``; a dash is NaN."""
    return math.isnan(read(shown)) if math.isnan(value) else abs(read(shown) - value) <= step / 2 * 1.001


@pytest.mark.parametrize("render", [render_page, render_tables])
def test_its_tables_show_its_numbers(render):
    diagnosis = make()
    rows = [row for row in Page(render(diagnosis)).rows if row[0] not in ("measure", "method")]
    ends = len(diagnosis.findings), len(diagnosis.findings) + len(diagnosis.effects)
    findings, effects, levels = rows[: ends[0]], rows[ends[0] : ends[1]], rows[ends[1] :]
    for (name, _, median, *tails, related), level in zip(levels, diagnosis.levels, strict=True):
        assert (name, read(median), related) == (level.method, level.quantiles[2], NOTHING)
        assert [tuple(map(float, re.findall(r"[\d.]+", tail))) for tail in tails] == [
            level.one_percent, level.one_per_mille,
        ]  # fmt: skip
    for (name, value, normal, sentence), finding in zip(findings, diagnosis.findings, strict=True):
        assert (name, sentence) == (finding.measure, finding.sentence)
        assert is_about(value, finding.value, abs(finding.value) * 1e-3)
        ends = [float(end) for end in re.findall(r"[\d.]+", normal)]
        assert ends == list(finding.normal or ())
    for (name, *numbers, change), effect in zip(effects, diagnosis.effects, strict=True):
        assert name == effect.method
        expected = [effect.isoscore, effect.ev1, effect.average_cosine]
        assert all(is_about(*pair, 1e-3) for pair in zip(numbers[:3], expected, strict=True))
        assert is_about(numbers[3], 100 * effect.score, 1e-2)
        shown = re.findall(r"[-+\N{MINUS SIGN}]?\d+\.\d+", change)
        expected = [100 * effect.change, 100 * effect.low, 100 * effect.high]
        assert all(is_about(*pair, 1e-2) for pair in zip(shown, expected, strict=True))


@pytest.mark.parametrize("width", [80, 140])
def test_a_terminal_shows_all_of_every_number_and_word(width, capsys):
    console = PlainConsole(width=width)
    print_diagnosis(make(), console)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    assert out.isascii() or set(out) - set(map(chr, range(128))) <= {"\N{BOX DRAWINGS LIGHT HORIZONTAL}"}
    for text in ("0.9375", "12,345", "78.10", "+3.10 [+1.20, +5.00]", "-2.00 [-3.00, -1.00]", "rank 63 of 64"):
        assert text in out
    assert out.splitlines()[0].startswith("Most unusual is ")


def test_what_is_not_a_number_is_a_dash(capsys):
    nothing = dict.fromkeys(("isoscore", "ev1", "average_cosine", "score", "change", "low", "high"))
    diagnosis = make()
    diagnosis = replace(
        diagnosis,
        findings=[Finding("a", value, (0, 1), "b") for value in (None, math.nan, math.inf)],
        effects=[replace(effect, **nothing) for effect in diagnosis.effects],
        variances=[math.nan] * 64, norms=[], levels=[],
    )  # fmt: skip
    rows = [row for row in Page(render_page(diagnosis)).rows if row[0] not in ("measure", "method")]
    assert [row[1] for row in rows[:3]] == [NOTHING] * 3
    assert all(text == NOTHING for row in rows[3:] for text in row[1:])
    print_diagnosis(diagnosis)
    assert not re.search(r"\b(nan|inf|None)\b", capsys.readouterr().out + Page(render_page(diagnosis)).text)


def test_it_names_the_measure_that_is_farthest_from_normal():
    def most_unusual(*findings):
        first = summarise(replace(make(), findings=[Finding(*finding, "") for finding in findings]))[0]
        return [name for name in "abc" if f"is {name}:" in first]

    assert most_unusual(("a", 2, (0, 1)), ("b", -3, (0, 1)), ("c", 3, (0, 2))) == ["b"]  # 1, 3 and 0.5 widths
    assert most_unusual(("a", 5, (50, 400)), ("b", 430, (50, 400))) == ["a"]  # a factor of 10, and one of 1.1
    assert most_unusual(("a", 1, (0, 1)), ("b", 9, None), ("c", math.nan, (0, 1))) == []


@pytest.mark.parametrize(
    ("changes", "words", "absent"),
    [
        ({"x": (0.02, 0.01, 0.03), "y": (0.05, -0.1, 0.2)}, "x helps most", "y"),  # y may be chance
        ({"x": (-0.02, -0.03, -0.01), "y": (0.05, -0.1, 0.2)}, "No method's interval is above 0", "y"),
        ({"x": (0.02, 0.0, 0.03)}, "Every method's interval for accuracy holds 0", "x"),
    ],
)
def test_only_what_is_larger_than_chance_helps(changes, words, absent):
    sentence = summarise(make(changes))[1]
    assert sentence.startswith(words)
    assert not re.search(rf"\b{absent}\b", sentence)
    assert "helps most" not in summarise(make(changes, score=None))[1]  # IsoScore alone is no help


def test_a_method_that_drops_components_does_not_count_as_raising_isoscore():
    diagnosis = make(score=None)
    *others, pca = diagnosis.effects  # with the highest IsoScore
    sentence = summarise(replace(diagnosis, effects=[*others, replace(pca, components=21)]))[1]
    assert sentence.startswith("ZCA whitening raises IsoScore most")


def test_printing_it_shows_no_long_list():
    assert len(repr(make())) < 3000


def test_no_text_is_taken_for_markup(capsys):
    diagnosis = make({EVIL: (0.02, 0.01, 0.03)}, source=EVIL + "\udcff", notes=[EVIL])
    diagnosis = replace(diagnosis, findings=[Finding(EVIL, 1.0, (2.0, 3.0), EVIL)])
    html = render_page(diagnosis)
    page = Page(html)
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "b"})
    assert not any("onload" in attributes for _, attributes in page.elements)
    assert page.text.count(EVIL) >= 6
    html.encode()  # half a character would fail
    print_diagnosis(diagnosis, PlainConsole(width=400))
    assert capsys.readouterr().out.count(EVIL) >= 6


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_it_without_scrolling_sideways(driver, tmp_path, width):
    name = "a method with a rather long name, of one's own"
    changes = {name: (0.02, 0.01, 0.03), "ZCA": (-0.112, -0.151, -0.1)}
    html = render_page(make(changes, score="spearman", source="v" * 300))
    script = open_page(driver, tmp_path, html, width)
    assert [entry for entry in driver.get_log("browser") if entry["level"] != "DEBUG"] == []
    assert script("return document.documentElement.scrollWidth") <= width
    tables = script("return [...document.querySelectorAll('.scroll')].map(e => e.scrollWidth - e.clientWidth)")
    assert tables == [0, 0]
    assert script("return performance.getEntriesByType('resource').length + document.scripts.length") == 0
    assert script("return [...document.querySelectorAll('.panel svg')].filter(e => e.clientWidth > 200).length") == 6
