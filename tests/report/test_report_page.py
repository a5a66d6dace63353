"""The report's page: what it says of which reports; that it is safe, alone, the same, and readable in a browser."""

import re
from collections import Counter
from dataclasses import replace

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
    texts = {"message": f"RuntimeError: </style>{EVIL}", "scale": EVIL, "machine": breakout}
    report = sample_report.sample([breakout], ["none", EVIL], ["sst2", EVIL], 2, 2, **texts)
    return replace(report, experiment=Experiment(EVIL, None), rule=EVIL + breakout, notes=[EVIL + breakout])


@pytest.fixture(scope="module")
def html() -> str:
    return render_report(small())


def test_it_needs_nothing_from_outside_and_is_the_same_again(html):
    page = Page(html)
    links = {a[name] for _, a in page.elements for name in ("href", "src", "srcset", "data") if name in a}
    assert not any("//" in link for link in links)
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
    runs = report.runs.copy()
    runs.loc[1:, ["status", "score", "epoch", "validation/accuracy", "training_seconds"]] = ["missing", *[None] * 4]
    cells = sample_report.build_cells_of(runs)
    partial = Page(render_report(replace(report, runs=runs, epochs=report.epochs[:1], cells=cells))).text
    assert "1 of 18 runs done · 17 missing" in partial
    assert not re.search(r"\b(nan|inf|None)\b", text + partial)


def test_a_constant_seed_takes_no_mean_off_the_page():
    runs = small(tasks=["sst2"]).runs.copy()
    of_flow = runs["method"] == "flow"
    runs.loc[of_flow & (runs["seed"] == 1), "failure"] = CONSTANT_PREDICTOR
    report = replace(small(), runs=runs, cells=sample_report.build_cells_of(runs))
    row = next(row for row in Page(render_report(report)).rows if row[0] == "flow")
    assert row[1].startswith(f"{runs.loc[of_flow, 'score'].mean():.2f} ")
    assert row[1].strip().endswith("1 constant predictor")


def test_correlations_are_scipys_over_all_runs_and_within_tasks():
    runs, names = small(seeds=6).runs, ["embedding/i1", "score"]
    points, numbers = collect_points(runs, "embedding/i1"), runs[names].astype(float)
    less = numbers - numbers.groupby(runs["task"]).transform("mean")
    for own, table in ((points, numbers), (centre(points), less)):
        expected = stats.spearmanr(*(table[name] for name in names)).statistic
        assert correlate(own) == (pytest.approx(expected, abs=1e-9), len(runs))


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
    box, table = script("return ['.scroll', '.overview'].map(s => document.querySelector(s).offsetWidth)")
    assert table <= box + 1  # the whole table is visible without scrolling
