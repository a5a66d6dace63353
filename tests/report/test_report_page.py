"""The report's page: what it says of which reports; that it is alone, the same, and readable in a browser."""

import random
import re
from dataclasses import replace

import pytest
from browser import open_page
from helpers import make_ended_run
from html_page import Page
from scipy import stats

from isobench.config.schema import Experiment
from isobench.report.build import build_report
from isobench.report.output.figures import centre, collect_points, correlate
from isobench.report.output.page import render_report


def build(seeds=3, ended=None, tasks=("sst2", "rte"), **experiment):
    """Report on made-up runs of three methods; without a record of those after the first ``ended``."""
    rng = random.Random(0)
    runs = [
        make_ended_run(
            rng.uniform(0.7, 0.9), f"task={task}", f"calibration={method}", f"seed={seed}", epochs=2,
            isotropy={name: rng.random() for name in ("embedding/ev1", "embedding/i1", "embedding/isoscore")},
        )
        for task in tasks for method in ("none", "cosine", "flow") for seed in range(1, seeds + 1)
    ]  # fmt: skip
    shown = [run if ended is None or n < ended else replace(run, record=None) for n, run in enumerate(runs)]
    return build_report(Experiment("glue_calibration", **experiment), shown, with_pairs=False)


@pytest.fixture(scope="module")
def html() -> str:
    return render_report(build())


def test_it_needs_nothing_from_outside_and_is_the_same_again(html):
    page = Page(html)
    links = {a[name] for _, a in page.elements for name in ("href", "src", "srcset", "data") if name in a}
    assert not any("//" in link for link in links)
    assert "@import" not in html
    assert set(re.findall(r"url\((.)", html)) <= {"#"}
    assert "script" not in dict(page.elements)
    assert render_report(build()) == html


def test_the_numbers_of_its_tables_are_those_of_the_cells(html):
    report, text = build(), Page(html).text
    for cell in report.cells.itertuples():
        assert cell.ours in text
        assert f"<strong>{cell.mean:.2f}</strong>" in html
        if cell.compared:
            assert f"{cell.difference:+.2f}".replace("-", chr(0x2212)) in text
            assert f"{cell.p:.3f}".removeprefix("0") in text or cell.p < 0.001
    of_one_task = build(tasks=["rte"])
    scores = Page(render_report(of_one_task)).text
    assert all(f"{line.score:.2f}" in scores for line in of_one_task.methods.itertuples())
    partial = Page(render_report(build(ended=1))).text
    assert "1 of 18 runs done · 17 missing" in partial
    assert not re.search(r"\b(nan|inf|None)\b", text + partial)


def test_a_papers_gain_stands_beside_ours(html):
    of_paper = Page(render_report(build(tasks=["rte"], paper="isotropy_calibration", tables=["table1"]))).text
    assert f"print {chr(0x2212)}2.54, bert-base-cased" in of_paper  # cosine's 56.43 less plain's 58.97
    assert "bert-base-cased" not in Page(html).text


def test_correlations_are_scipys_over_all_runs_and_within_tasks():
    runs, names = build(seeds=6).runs, ["embedding/i1", "score"]
    points, numbers = collect_points(runs, "embedding/i1"), runs[names].astype(float)
    less = numbers - numbers.groupby(runs["task"]).transform("mean")
    for own, table in ((points, numbers), (centre(points), less)):
        expected = stats.spearmanr(*(table[name] for name in names)).statistic
        assert correlate(own) == (pytest.approx(expected, abs=1e-9), len(runs))


@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_it(driver, tmp_path, width):
    report = build()
    script = open_page(driver, tmp_path, render_report(report), width)
    assert [entry for entry in driver.get_log("browser") if entry["level"] != "DEBUG"] == []
    assert script("return innerWidth") == width
    assert script("return document.documentElement.scrollWidth") <= width
    assert script("return [...document.querySelectorAll('details')].filter(e => (e.open = true)).length") > 0
    assert script("return document.documentElement.scrollWidth") <= width  # unfolded too
    assert script("return document.title") == f"{report.name}: report"
    assert script("return document.scripts.length") == 0
    assert script("return performance.getEntriesByType('resource').length") == 0
