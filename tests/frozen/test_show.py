"""A diagnosis as it is shown: its numbers, its sentences, its safety."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from html_page import Page

from isobench.common.terminal import PlainConsole
from isobench.frozen.diagnosis import Diagnosis, Effect, Finding, Level, Retrieval
from isobench.frozen.show import print_diagnosis, render_page, render_tables, summarise

EVIL = '"></style><script>alert(1)</script><b onload=x>$x_$ [bold]'
NOTHING = "\N{EN DASH}"
CHANGES = {"centring": (0.004, -0.006, 0.014), "ZCA whitening": (0.031, 0.012, 0.05), "PCA": (-0.02, -0.03, -0.01)}


def make(changes=CHANGES, score="accuracy", source="vectors.npy", notes=("The matrix has rank 63 of 64.",)):
    """Make a diagnosis of 500 vectors in 64 coordinates; ``changes``: method -> its change, low and high."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(500, 64)) * np.geomspace(1, 0.05, 64) + 1.5
    vectors[:, 7] *= 8
    centred = vectors - vectors.mean(0)
    variances = np.linalg.svd(centred, compute_uv=False) ** 2
    findings = [
        Finding("EV1", 0.5125, (0.03, 0.25), "One direction holds half of the variance."),
        Finding("average cosine", 0.9375, (0.01, 0.6), "All vectors point in about the same direction, so that "
                "every similarity is high, whatever the texts."),
        Finding("effective rank", 12.5, (10.0, 400.0), "The vectors use about 12 directions."),
        Finding("duplicates", 12345.0, None, "No two vectors should be equal."),
        Finding("alignment", float("nan"), (0.1, 0.2), "There are no pairs."),
    ]  # fmt: skip
    plain = Effect("none", 0.0625, 0.5125, 0.9375, 0.75, 0.0, 0.0, 0.0, 64)
    others = [
        Effect(name, 0.1 + 0.25 * k, 0.4 / (k + 1), float("nan"), 0.75 + change[0], *change, 64)
        for k, (name, change) in enumerate(changes.items())
    ]
    levels = [
        Level(effect.method, "random pairs", [0.1, 0.2, 0.3, 0.4, 0.5], (0.52, 0.5, 0.54), (0.6, 0.55, 0.65))
        for effect in [plain, *others]
    ]
    coordinates = centred.var(0)
    return Diagnosis(
        source, 500, 64, findings, (variances / variances.sum()).tolist(),
        np.sort(np.linalg.norm(vectors, axis=1)).tolist(), (coordinates / coordinates.sum()).tolist(),
        [plain, *others], score, list(notes), levels=levels,
    )  # fmt: skip


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
    for (name, median, *tails, related), level in zip(levels, diagnosis.levels, strict=True):
        assert (name, read(median), related) == (level.method, level.quantiles[2], NOTHING)
        shown = [tuple(map(float, re.findall(r"[\d.]+", tail))) for tail in tails]
        assert shown == [level.one_percent, level.one_per_mille]
    for (name, value, normal, sentence), finding in zip(findings, diagnosis.findings, strict=True):
        assert (name, sentence) == (finding.measure, finding.sentence)
        assert is_about(value, finding.value, abs(finding.value) * 1e-3)
        assert [float(end) for end in re.findall(r"[\d.]+", normal)] == list(finding.reference or ())
    for (name, *numbers, change), effect in zip(effects, diagnosis.effects, strict=True):
        assert name == effect.method
        expected = [effect.isoscore, effect.ev1, effect.average_cosine]
        assert all(is_about(*pair, 1e-3) for pair in zip(numbers[:3], expected, strict=True))
        assert is_about(numbers[3], 100 * effect.score, 1e-2)
        shown = re.findall(r"[-+\N{MINUS SIGN}]?\d+\.\d+", change)
        expected = [100 * effect.change, 100 * effect.low, 100 * effect.high]
        assert all(is_about(*pair, 1e-2) for pair in zip(shown, expected, strict=True))


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


def test_a_search_gains_by_a_method_only_if_p_after_holm_says_so():
    plain = Retrieval("none", 0.4, 0.1, 0.2, 0.3, 0.0, math.nan, math.nan, math.nan, 1.0, 0.1)
    better = replace(plain, method="x", ndcg_10=0.5, change=0.1, low=0.02, high=0.2)

    def sentence(p):
        diagnosis = replace(make(score=None), retrieval=[plain, replace(better, p=p)])
        return summarise(diagnosis)[1]

    assert sentence(0.01) == "x helps most: it changes nDCG@10 by +10.00 [+2.00,\N{NO-BREAK SPACE}+20.00], to 50.00."
    assert "helps" not in sentence(0.2)


@pytest.mark.parametrize(
    ("changes", "words", "absent"),
    [
        ({"x": (0.02, 0.01, 0.03), "y": (0.05, -0.1, 0.2)}, "x helps most", "y"),  # y may be chance
        ({"x": (-0.02, -0.03, -0.01), "y": (0.05, -0.1, 0.2)}, "No method raises accuracy beyond chance", "y"),
        ({"x": (0.02, 0.0, 0.03)}, "No method changes accuracy beyond chance", "x"),
    ],
)
def test_only_what_is_larger_than_chance_helps(changes, words, absent):
    sentence = summarise(make(changes))[1]
    assert sentence.startswith(words)
    assert not re.search(rf"\b{absent}\b", sentence)
    assert "helps most" not in summarise(make(changes, score=None))[1]  # IsoScore alone is no help


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
