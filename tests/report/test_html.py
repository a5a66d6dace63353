"""The report's page: what it says, in which order, of which reports; that it is safe, alone, the same, and fast."""

import re
import time
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise

import pytest
import sample_report

from isobench.report import figures
from isobench.report.document import Cell, Comparison, ReportLine, ReportTable
from isobench.report.html import render_report

VOID = {"meta", "link", "br", "hr", "img", "path", "circle", "use", "wbr"}
EVIL = "<script>alert(1)</script>"


class Page(HTMLParser):
    """A page's elements with their attributes, and its text; an element that is not closed is an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))

    def all(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.elements if name == tag]


def small(**changes):
    return sample_report.sample(**{"encoders": ["bert"], "tasks": ["sst2", "rte"], "epochs": 2, **changes})


def wide():
    return small(tasks=sample_report.TASKS[:6])


@pytest.fixture(scope="module")
def html() -> str:
    return render_report(small())


def test_the_page_says_everything_in_order(html):
    text = Page(html).text
    parts = [
        "glue_calibration", "30 of 30", "3 seeds each", "Reproduces On Isotropy",
        "differs from plain by more than chance", "Not the paper's setting",
        "encoder is not the paper's", "95% bootstrap interval", "Table 1: GLUE", "The seeds of every cell",
        "Against the epoch", "Spearman", "Training time per epoch", "No method beats plain", "diverged in epoch 2",
        "The best epoch on the dev set", "sha256 of the data", "epochs.csv",
    ]  # fmt: skip
    places = [text.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)


def test_its_structure_is_sound(html):
    page = Page(html)
    assert page.all("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert len(page.all("caption")) == len(page.all("table")) == 8  # with overview, comparisons, provenance
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    drawings = [a for a in page.all("svg") if "aria-hidden" not in a]
    assert all(a.get("aria-label") and a["role"] == "img" for a in drawings)
    used = {a["xlink:href"][1:] for a in page.all("use")} | set(re.findall(r"url\(#([^)]+)\)", html))
    assert used <= set(ids)
    assert all(a["href"][1:] in ids for a in page.all("a") if a["href"].startswith("#"))


@pytest.mark.slow
@pytest.mark.parametrize("make", [small, sample_report.hostile, sample_report.empty])
def test_it_needs_nothing_from_outside(make):
    html = render_report(make())
    page = Page(html)
    links = {
        a[name] for _, a in page.elements for name in ("href", "src", "xlink:href", "srcset", "data") if name in a
    }
    files = {"runs.parquet", "runs.csv", "epochs.parquet", "epochs.csv", "report.md", "tables.tex", "data:,"}
    assert all(link in files or link.startswith("#") for link in links)
    assert "@import" not in html
    assert set(re.findall(r"url\((.)", html)) <= {"#"}
    assert not page.all("script")


@pytest.mark.slow
def test_no_text_is_taken_for_markup():
    html = render_report(sample_report.hostile())
    page = Page(html)
    assert not page.all("script")
    assert html.lower().count("</style>") == 1
    assert not any("onload" in attributes for _, attributes in page.elements)
    assert f"RuntimeError: </style>{EVIL}" in page.text
    assert page.text.count(EVIL) > 20
    assert "$x_$" in page.text


@pytest.mark.slow
def test_the_same_report_gives_the_same_page(html):
    assert render_report(small()) == html


def test_a_cell_shows_both_numbers_a_verdict_in_words_marks_and_troubles():
    verdicts = ["above", "below", "not comparable"]
    comparisons = [Comparison(1.0, 0.01, 0.1, 0.03, 2.0, 0.5, 3.5), Comparison(-1.0, 0.04, 0.1, 0.2), None]
    cells = {
        str(number): Cell([1.0, 2.0], [1, 2], f"{number}.50 ± 0.71", "1.20 ± 0.10", "bert", verdict,
                          f"because {verdict}", {"constant_predictor": number + 1}, comparison)
        for number, (verdict, comparison) in enumerate(zip(verdicts, comparisons, strict=True))
    }  # fmt: skip
    report = sample_report.empty()
    report.tables = [ReportTable("t", "T", list(cells), [ReportLine("roberta", "flow", cells)])]
    html = render_report(report)
    body = html[html.index('<table class="results">') : html.index("</tbody>")]
    found = [" ".join(Page(cell).text.split()) for cell in re.findall(r"<td.*?</td>", body, re.DOTALL)]
    assert found == [
        "0.50 ± 0.71 * Holm [1.20 ± 0.10] of bert ▲ above 1 1 constant predictor",
        "1.50 ± 0.71 † [1.20 ± 0.10] of bert ▼ below 2 2 constant predictor",
        "2.50 ± 0.71 [1.20 ± 0.10] of bert \N{EN DASH} not comparable 3 3 constant predictor",
    ]
    assert "because below" in html
    assert "+2.00 [+0.50, +3.50]" in Page(html).text


def test_methods_look_different_by_more_than_colour():
    look = figures.assign_styles(["a", "none", *map(str, range(26))])
    assert look["none"].css == "currentColor"
    assert len({(one.css, one.dash) for one in look.values()}) == len(look) == 28
    assert len({(one.css, one.marker) for one in look.values()}) == 28
    neighbours = list(look.values())
    assert all(one.dash != other.dash and one.marker != other.marker for one, other in pairwise(neighbours[:7]))


def test_an_empty_report_says_what_is_missing():
    text = Page(render_report(sample_report.empty())).text
    for words in (
        "No runs",
        "No table",
        "No curves",
        "no runs to conclude",
        "No time",
        "None on record",
        "Not stated",
    ):
        assert words in text


def test_a_partial_report_says_what_is_missing():
    report = small()
    report.state = {"done": 1, "failed": 1, "missing": 8, "running": 1}
    for run in report.runs[1:]:
        run.update(dict.fromkeys([name for name in run if name not in ("key", "encoder", "method", "task", "seed")]))
    report.runs.append({})
    report.epochs = {name: values[:1] for name, values in report.epochs.items() if name != "seed"}
    line = report.tables[0].lines[1]
    line.cells = {"SST2": Cell(troubles={"missing": 3}), "RTE": Cell([float("nan")], [1], "NaN")}
    del report.tables[0].lines[2].cells["RTE"]
    html = render_report(report)
    text = Page(html).text
    assert "1 of 11 runs done · 1 failed · 8 missing · 1 running" in text
    assert "Incomplete" in text
    assert "no score" in text
    assert "3 missing" in text
    assert "not run" in text
    assert "1 undefined" in text
    assert not re.search(r"\b(nan|inf|None)\b", html.replace("None:", ""))


@pytest.mark.slow
def test_one_seed_gives_no_spread_and_no_test():
    text = Page(render_report(small(seeds=1))).text
    assert "Every cell has one seed: there is no spread and no test." in text
    assert "No test against plain fine-tuning was possible." in text


@pytest.mark.slow
def test_a_line_says_which_configuration_was_chosen_and_figures_that_they_show_all(html):
    all_shown = "All configurations of a method are shown"
    assert all_shown not in html
    report = small()
    report.tables[0].lines[1].settings = "strength <3>"
    page = render_report(report)
    subject = '<span class="method">cosine</span> <span class="settings">strength &lt;3&gt;</span>'
    assert page.count(subject) == 4  # results, a comparison for each of two tasks, seeds
    assert page.count(all_shown) == 3  # curves, both scatters
    report = small()
    report.runs.append(dict(report.runs[0], key="another", selected=False))
    assert all_shown in render_report(report)


def test_it_links_the_tables_files(html):
    assert '<a href="report.md">' in html
    assert '<a href="tables.tex">' in html
    assert "All tables, as Markdown" in html
    assert "They hold no table yet" in render_report(sample_report.empty())


@pytest.mark.slow
def test_runs_of_two_scales_are_told_apart():
    report = small(scale=())
    assert "Not the paper's setting" not in render_report(report)
    for run in report.runs[::2]:
        run["scale"] = "embedded"
    text = Page(render_report(report)).text
    assert "The runs are of several scales, embedded and paper" in text
    assert "sst2, bert (scale embedded)" in text
    assert "sst2, bert (scale paper)" in text


def test_colours_are_readable_in_light_and_dark():
    html = render_report(sample_report.empty())
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


@pytest.mark.slow
def test_two_thousand_runs_are_fast_and_thinned_out_in_words():
    report = sample_report.sample(seeds=23, epochs=10)
    assert len(report.runs) > 2000
    start = time.process_time()
    html = render_report(report)
    assert time.process_time() - start < 20
    text = " ".join(Page(html).text.split())
    assert "A method has up to 23 runs: 10 of them, evenly spaced, are drawn; the means are over all." in text
    assert "of up to 2070 points a panel shows 600, evenly spaced, and the correlations are over all" in text
    assert "n = 2070" in text
    assert len(html) < 8e6


def opened(driver, tmp_path, html, width):
    file = tmp_path / "report.html"
    file.write_text(html, encoding="utf-8")
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(file.as_uri())
    return driver.execute_script


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("make", [wide, sample_report.hostile, sample_report.empty])
def test_a_browser_shows_it(driver, tmp_path, make, width):
    report = make()
    script = opened(driver, tmp_path, render_report(report), width)
    assert [entry for entry in driver.get_log("browser") if entry["level"] != "DEBUG"] == []
    assert script("return innerWidth") == width
    assert script("return document.documentElement.scrollWidth") <= width
    assert script("return [...document.querySelectorAll('details')].filter(e => (e.open = true)).length") > 0
    assert script("return document.documentElement.scrollWidth") <= width  # unfolded too
    assert script("return document.title") == f"{report.experiment}: report"
    assert script("return document.scripts.length") == 0
    assert script("return performance.getEntriesByType('resource').length") == 0
    shown = script(
        "return [...document.querySelectorAll('svg, table')].filter(e => e.getBoundingClientRect().width > 0)"
        ".map(e => e.closest('.panel') ? 'panel' : e.classList[0] || e.tagName)"
    )
    count = Counter(shown)
    if report.runs:
        assert count["results"] == count["seeds"] == len(report.tables)
        assert count["panel"] >= 8
        assert count["strip"] == len(report.configurations) + sum(len(line.cells) for line in report.tables[0].lines)
    else:
        assert not count


def one_task():
    report = small(encoders=["all-MiniLM-L6-v2"], tasks=["rotten_tomatoes"], seeds=5)
    for line in report.overview:
        line.settings, line.candidates = "beta=0.25, lr=2e-05, batch_size=16", 18
    return report


@pytest.mark.parametrize("make", [small, wide, sample_report.sample, one_task])
def test_the_answer_is_on_the_first_screen(driver, tmp_path, make):
    script = opened(driver, tmp_path, render_report(make()), 1280)
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


def test_figures_take_the_pages_colours_in_the_dark(driver, tmp_path, html):
    inks = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        script = opened(driver, tmp_path, html, 1280)
        page, text, label, line = script(
            "const of = (s, p) => getComputedStyle(document.querySelector(s))[p];"
            "return [of('html', 'backgroundColor'), of('body', 'color'), of('.panel text', 'fill'),"
            " of('.panel path[style*=\"--m0\"]', 'stroke')]"
        )
        assert label == text != page
        inks.append((page, text, line))
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert all(light != dark for light, dark in zip(*inks, strict=True))
