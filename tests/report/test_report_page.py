"""The report's page: what it says of which reports; that it is safe, alone, the same, and readable in a browser."""

import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
import sample_report
from browser import open_page
from html_page import Page
from scipy import stats

from isobench.config.schema import Experiment
from isobench.report.output.figures import centre, collect_points, correlate
from isobench.report.output.page import render_report
from isobench.report.tables import CONSTANT_PREDICTOR

EVIL = "<script>alert(1)</script>"


def small(**changes):
    smaller = {"encoders": ["bert"], "methods": ["none", "cosine", "flow"], "tasks": ["sst2", "rte"], "epochs": 2}
    return sample_report.sample(**smaller | changes)


def hostile():
    """Every text of it tries to be markup, and one mathematics."""
    breakout = '"></style><b onload=x>&amp; $x_$'
    report = sample_report.sample(
        [breakout],
        ["none", EVIL],
        ["sst2", EVIL],
        2,
        2,
        message=f"RuntimeError: </style>{EVIL}",
        scale=EVIL,
        machine=breakout,
    )
    return replace(report, experiment=Experiment(EVIL, None), rule=EVIL + breakout, notes=[EVIL + breakout])


@pytest.fixture(scope="module")
def html() -> str:
    return render_report(small())


def test_its_structure_is_sound(html):
    page = Page(html)
    assert page.all("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert len(page.all("caption")) == len(page.all("table"))
    drawings = [a for a in page.all("svg") if "aria-hidden" not in a]
    assert all(a.get("aria-label") and a["role"] == "img" for a in drawings)
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    used = {a["xlink:href"][1:] for a in page.all("use")} | set(re.findall(r"url\(#([^)]+)\)", html))
    assert used <= ids
    assert all(a["href"][1:] in ids for a in page.all("a") if a["href"].startswith("#"))


def test_it_needs_nothing_from_outside_and_is_the_same_again(html):
    page = Page(html)
    links = {a[name] for _, a in page.elements for name in ("href", "src", "srcset", "data") if name in a}
    tables = {f"{name}.{form}" for name in ("runs", "epochs", "cells") for form in ("parquet", "csv")}
    assert all(link in tables | {"report.md", "tables.tex", "data:,"} or link.startswith("#") for link in links)
    assert "@import" not in html
    assert set(re.findall(r"url\((.)", html)) <= {"#"}
    assert not page.all("script")
    assert render_report(small()) == html


def test_no_text_is_taken_for_markup():
    html = render_report(hostile())
    page = Page(html)
    assert not page.all("script")
    assert html.lower().count("</style>") == 1
    assert not any("onload" in attributes for _, attributes in page.elements)
    assert f"RuntimeError: </style>{EVIL}" in page.text
    assert page.text.count(EVIL) > 20
    assert "$x_$" in page.text


def test_the_numbers_of_its_tables_are_those_of_the_cells(html):
    report, text = small(), Page(html).text
    for cell in report.cells.itertuples():
        assert cell.ours in text
        if cell.compared:
            assert f"{cell.difference:+.2f}".replace("-", chr(0x2212)) in text
            assert f"{cell.p:.3f}".removeprefix("0") in text or cell.p < 0.001
    for line in report.methods.itertuples():
        assert f"{line.score:.2f}" in text
    assert not re.search(r"\b(nan|inf|None)\b", text)


def test_a_constant_seed_takes_no_mean_off_the_page():
    runs = small(tasks=["sst2"]).runs.copy()
    of_flow = runs["method"] == "flow"
    runs.loc[of_flow & (runs["seed"] == 1), "failure"] = CONSTANT_PREDICTOR
    report = replace(small(), runs=runs, cells=sample_report.build_cells_of(runs))
    row = next(row for row in Page(render_report(report)).rows if row[0] == "flow")
    assert row[1].startswith(f"{runs.loc[of_flow, 'score'].mean():.2f} ")
    assert row[1].strip().endswith("1 constant predictor")


def test_correlations_are_scipys_over_all_runs_and_within_tasks():
    runs = small(seeds=6).runs
    points = collect_points(runs, "embedding/i1")
    expected = stats.spearmanr(runs["embedding/i1"].astype(float), runs["score"].astype(float)).statistic
    assert correlate(points) == (pytest.approx(expected), len(runs))
    less = [
        runs[c].astype(float) - runs.groupby("task")[c].transform("mean").astype(float)
        for c in ("embedding/i1", "score")
    ]
    assert correlate(centre(points)) == (pytest.approx(stats.spearmanr(*less).statistic, abs=1e-9), len(runs))


def test_a_partial_report_says_what_is_missing():
    report = small()
    runs = report.runs.copy()
    runs.loc[1:, ["status", "score", "epoch", "validation/accuracy", "training_seconds"]] = ["missing", *[None] * 4]
    cells = sample_report.build_cells_of(runs)
    text = Page(render_report(replace(report, runs=runs, epochs=report.epochs[:1], cells=cells))).text
    assert "1 of 18 runs done · 17 missing" in text
    assert "Incomplete" in text
    assert "3 missing" in text
    assert not re.search(r"\b(nan|inf|None)\b", text)


def test_colours_are_readable_in_light_and_dark():
    html = render_report(small(seeds=1, epochs=1))
    schemes = [dict(re.findall(r"--([\w-]+): (#\w{6})", part)) for part in html.split(":root {")[1:3]]
    assert len(schemes) == 2
    for scheme in schemes:
        for name, colour in scheme.items():
            least = {"ink": 7, "soft": 4.5, "link": 4.5, "good": 4.5, "bad": 4.5}.get(
                name, 3 if name[0] == "m" else 0
            )
            assert contrast(colour, scheme["paper"]) >= least, name
        assert contrast(scheme["ink"], scheme["warn-paper"]) >= 7
        assert contrast(scheme["soft"], scheme["tint"]) >= 4.5


def contrast(one: str, other: str) -> float:
    """WCAG 2's contrast ratio."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("make", [small, hostile])
def test_a_browser_shows_it(driver, tmp_path, make, width):
    report = make()
    script = open_page(driver, tmp_path, render_report(report), width)
    assert [entry for entry in driver.get_log("browser") if entry["level"] != "DEBUG"] == []
    assert script("return innerWidth") == width
    assert script("return document.documentElement.scrollWidth") <= width
    assert script("return [...document.querySelectorAll('details')].filter(e => (e.open = true)).length") > 0
    assert script("return document.documentElement.scrollWidth") <= width  # unfolded too
    assert script("return document.title") == f"{report.name}: report"
    assert script("return document.scripts.length") == 0
    assert script("return performance.getEntriesByType('resource').length") == 0
    shown = script(
        "return [...document.querySelectorAll('svg, table')].filter(e => e.getBoundingClientRect().width > 0)"
        ".map(e => e.closest('.panel') ? 'panel' : e.classList[0] || e.tagName)"
    )
    count = Counter(shown)
    assert count["results"] == 1
    assert count["panel"] >= 8


def one_task(**changes):
    report = small(encoders=["all-MiniLM-L6-v2"], tasks=["rotten_tomatoes"], seeds=5, **changes)
    settings = "beta=0.25, lr=2e-05, batch_size=16"
    return replace(report, cells=report.cells.assign(settings=settings), runs=report.runs.assign(candidates=18))


@pytest.mark.parametrize("make", [small, sample_report.sample, one_task])
def test_the_answer_is_on_the_first_screen(driver, tmp_path, make):
    script = open_page(driver, tmp_path, render_report(make(scale="at most 9 training examples")), 1280)
    ends = script(
        "return ['.answer', '.scale', '.overview'].map(s => document.querySelector(s).getBoundingClientRect().bottom)"
    )
    assert sorted(ends) == ends
    assert ends[-1] < 800
    box, table, caveat = script(
        "const of = s => document.querySelector(s).getBoundingClientRect();"
        "return [of('.scroll').width, of('.overview').width, of('.scale').height]"
    )
    assert table <= box  # the whole table is visible without scrolling
    assert table > 1100  # it uses the full width
    assert caveat < 40  # one line
    overflowing = script(
        "return [...document.querySelectorAll('.overview :is(th, td)')]"
        ".filter(cell => cell.scrollWidth > cell.clientWidth).map(cell => cell.textContent)"
    )
    assert overflowing == []  # no text runs into the next cell
