"""Check the page's first table (what methods gain, do to the embeddings, and cost) and its configurations."""

import math
import re
import statistics

import pytest
from test_build import BETTER, PLAIN, configurations, experiment, row, runs
from test_html import Page

from isobench.config.schema import Experiment
from isobench.report.html import render_report
from isobench.report.markdown_latex import format_markdown
from isobench.report.old_build import build_report
from isobench.statistics.resampling import bootstrap_coverage

OWN = ("task=rte", "encoder=bert-base-cased", "data.root=null")
NO_PAPER = Experiment("mine")


def shown(html: str, name: str) -> str:
    """Return the HTML of the first table of a class."""
    start = html.index(f'<table class="{name}">')
    return html[start : html.index("</table>", start)]


def cells_of(html: str, name: str) -> list[list[str]]:
    """Return the texts of a table's body, line by line, without the texts in drawings."""
    body = re.sub("<svg.*?</svg>|<wbr>", "", shown(html, name).partition("<tbody>")[2], flags=re.DOTALL)
    lines = re.findall(r"<tr.*?</tr>", body, re.DOTALL)
    cells = [re.findall(r"<t[hd].*?</t[hd]>", line, re.DOTALL) for line in lines]
    return [[" ".join(Page(cell).text.split()) for cell in line] for line in cells]


def test_a_line_has_score_difference_isotropy_and_cost(tmp_path):
    rows = [*runs(tmp_path, "none", PLAIN), *runs(tmp_path, "isobn_paper", BETTER)]
    for number, own in enumerate(rows):
        own.record.best.isotropy.update({"embedding/ev1": 0.1 * number, "embedding/isoscore": 0.01 * number})
    report = build_report(experiment(), rows)
    plain, isobn = report.overview
    assert (plain.score, plain.sd, plain.seeds) == (
        pytest.approx(100 * statistics.fmean(PLAIN)), pytest.approx(100 * statistics.stdev(PLAIN)), [5],
    )  # fmt: skip
    assert (plain.difference, plain.p, isobn.compared, isobn.is_shown) == (None, None, 1, True)
    assert isobn.difference.value == pytest.approx(8.0)
    assert isobn.p == pytest.approx(2 / math.comb(10, 5))
    assert (plain.ev1, isobn.isoscore) == (pytest.approx(0.2), pytest.approx(0.07))
    assert report.verdict.startswith("isobn_paper gains 8.00 points over plain (95% bootstrap interval ")
    html = render_report(report)
    first, second = cells_of(html, "overview")
    assert first == ["plain", "68.50 ± 1.12", "", "", "", "", "0.200", "0.0200", "3.0 s, 1.00x"]
    low, high = (f"{end:+.2f}" for end in isobn.difference[1:])
    assert second == [
        "isobn_paper", "76.50 ± 1.12", "", f"▲ +8.00 [{low}, {high}]", "", ".008", "0.700", "0.0700", "3.0 s, 1.00x",
    ]  # fmt: skip
    assert format_markdown(report).splitlines()[2].startswith("**isobn\\_paper gains 8.00 points over plain")


def test_without_a_paper_no_cell_speaks_of_one(tmp_path):
    rows = [*runs(tmp_path, "none", PLAIN), *runs(tmp_path, "isobn_paper", BETTER)]
    text = Page(render_report(build_report(NO_PAPER, rows))).text
    for words in ("not in the paper", "not comparable", "published", "Reproduces"):
        assert words not in text
    assert 'class="results"' not in render_report(build_report(NO_PAPER, rows))  # the first table shows it all
    several = [*rows, *runs(tmp_path, "none", PLAIN, "task=mrpc")]
    several += runs(tmp_path, "isobn_paper", BETTER, "task=mrpc")
    html = render_report(build_report(NO_PAPER, several))
    assert "not in the paper" not in html
    assert "not comparable" not in html
    assert 'class="results"' in html
    assert cells_of(html, "overview")[0][:2] == ["plain", "68.50"]


def test_a_paper_without_a_cell_of_these_runs_is_not_compared_cell_by_cell(tmp_path):
    rows = [*runs(tmp_path, "none", PLAIN, "task=sst2", "task.name=mine"),
            *runs(tmp_path, "isobn_paper", BETTER, "task=sst2", "task.name=mine")]  # fmt: skip
    html = render_report(build_report(experiment(), rows))
    assert "not in the paper</span>" not in html
    assert "not comparable" not in html


def test_cells_of_another_scale_say_so_once(tmp_path):
    few = "task.train_samples=9"
    rows = [*runs(tmp_path, "none", PLAIN, few), *runs(tmp_path, "isobn_paper", BETTER, few)]
    text = Page(render_report(build_report(experiment(), rows))).text
    assert "not comparable" not in text
    assert text.count("The published cells can't be compared with ours: ") == 1
    assert text.count("scale: at most 9 training examples") == 1
    assert "[67.87 (1.1)]" in text


def test_the_caveat_is_one_line_and_long_ones_are_folded():
    from sample_report import empty

    report = empty()
    report.paper, report.scale = "isobn", ["encoder x is not the paper's", "at most 512 training examples"]
    html = render_report(report)
    assert "<details" not in html.partition("</header>")[0]
    assert "encoder x is not the paper&#39;s; at most 512 training examples." in html
    report.scale = [f"difference {number} of the setting from the paper's one" for number in range(4)]
    header = render_report(report).partition("</header>")[0]
    assert "difference 0 of the setting from the paper&#39;s one and 3 more</summary>" in header
    assert header.count("<li>") == 4


def test_bootstrap_power_and_holm_are_folded(tmp_path):
    rows = [*runs(tmp_path, "none", PLAIN), *runs(tmp_path, "isobn_paper", BETTER)]
    html = render_report(build_report(experiment(), rows))
    outside = re.sub(r"<details.*?</details>", "", html, flags=re.DOTALL)
    for words in ("would usually go unnoticed", "Hedges", "probability of improvement", "chance alone gives"):
        assert words in html
        assert words not in outside
    assert "<details><summary><h2>Statistics</h2></summary>" in html


def test_one_epoch_has_no_chart(tmp_path):
    rows = [*runs(tmp_path, "none", PLAIN), *runs(tmp_path, "isobn_paper", BETTER)]
    assert 'id="training"' in render_report(build_report(experiment(), rows))
    for own in rows:
        own.record = own.record.model_copy(update={"history": own.record.history[-1:]})
    html = render_report(build_report(experiment(), rows))
    assert 'id="training"' not in html
    assert "#training" not in html


def test_every_configuration_stands_in_a_table_with_the_chosen_one(tmp_path):
    report = build_report(experiment(), configurations(tmp_path))
    found = [(line.method, line.settings, line.is_chosen, line.selected_by) for line in report.configurations]
    assert found == [
        ("none", "lr=1e-05", False, pytest.approx(62)), ("none", "lr=2e-05", True, pytest.approx(70)),
        ("isobn_paper", "lr=1e-05", True, pytest.approx(72.5)),
    ]  # fmt: skip
    assert [line.candidates for line in report.overview] == [2, 1]
    html = render_report(report)
    assert [line[0] for line in cells_of(html, "overview")] == ["plain lr=2e-05 (best of 2)", "isobn_paper lr=1e-05"]
    table = cells_of(html, "configurations seeds")
    assert table[0] == ["plain lr=1e-05", "62.00 ± 13.86", "", "62.00", "no"]
    assert table[1] == ["plain lr=2e-05", "70.00 ± 0.00", "", "70.00", "✓ yes"]
    assert "nothing to select" not in html
    assert "best mean over seeds on the set that is reported" in html


def test_selecting_seeds_are_in_no_mean_of_the_configurations(tmp_path):
    report = build_report(experiment(rule="seeds", seeds=[1, 2]), configurations(tmp_path))
    chosen, other, _ = report.configurations
    assert (chosen.is_chosen, chosen.selected_by, chosen.cell.seeds) == (True, pytest.approx(74), [3, 4])
    assert (other.is_chosen, other.selected_by) == (False, pytest.approx(70))
    assert chosen.cell.values == pytest.approx([50, 50])
    assert report.overview[0].seeds == [2]  # not the four that were run
    text = Page(render_report(report)).text
    assert "2 seeds each" in text.partition("Over training")[0]
    assert "of 5 seeds" not in text.partition("In the paper: each cell median and standard deviation of 5 seeds")[0]
    assert not any("5 seeds" in table.title for table in report.tables)
    assert report.overview[0].candidates == 1  # the configuration was selected by other scores than those shown


def test_one_configuration_has_no_table_of_configurations(tmp_path):
    report = build_report(experiment(), runs(tmp_path, "none", PLAIN))
    assert report.configurations == []
    assert 'id="configurations"' not in render_report(report)


def test_scores_of_several_tasks_are_averaged_over_those_that_all_methods_have(tmp_path):
    rows = [
        run
        for task in ("rte", "mrpc")
        for method, scores in (("none", PLAIN), ("isobn_paper", BETTER))
        for run in runs(tmp_path, method, scores, f"task={task}")
    ]
    rows += runs(tmp_path, "none", PLAIN, "task=cola")
    plain, isobn = build_report(NO_PAPER, rows).overview
    assert len(plain.columns) == 2
    assert plain.columns == isobn.columns
    assert (isobn.score, isobn.compared, isobn.sd, isobn.cell) == (pytest.approx(76.5), 2, None, None)
    assert sum(line.score is None for line in (plain, isobn)) == 0


def test_failures_stand_beside_the_score(tmp_path):
    rows = [*runs(tmp_path, "none", PLAIN), *runs(tmp_path, "isobn_paper", [0.75, 0.76]),
            row(tmp_path, 0, *OWN, "calibration=isobn_paper", "seed=3", failed="nan_loss")]  # fmt: skip
    html = render_report(build_report(experiment(), rows))
    assert "75.50 ± 0.71 1 nan loss" in [line[1] for line in cells_of(html, "overview")]


def test_what_intervals_are_said_to_hold_is_of_tested_methods_only(tmp_path):
    rows = [*runs(tmp_path, "none", PLAIN), *runs(tmp_path, "isobn_paper", BETTER),
            *runs(tmp_path, "isobn_released", [0.5, 0.5], constant=True)]  # fmt: skip
    report = build_report(experiment(), rows)
    share = f"{bootstrap_coverage(5):.0%} of cases at best"
    assert share in shown(render_report(report), "overview")
    assert any(share in sentence for sentence in report.evidence)


def test_parts_have_groups_of_their_own(tmp_path):
    rows = [
        run
        for head in ("isobn", "huggingface")
        for method, scores in (("none", PLAIN), ("isobn_paper", BETTER))
        for run in runs(tmp_path, method, scores, f"head={head}")
    ]
    for own in rows:
        shift = 0.5 if own.cfg.head.name == "isobn" else 0.25
        own.record.best.isotropy["embedding/ev1"] = shift
    report = build_report(experiment(), rows)
    groups = {line.group: line.ev1 for line in report.overview}
    assert len(report.overview) == 4
    assert sorted(groups.values()) == [0.25, 0.5]
    assert "head.name=isobn" in Page(render_report(report)).text


def test_a_calibrations_own_texts_are_escaped_everywhere():
    import sample_report

    html = render_report(sample_report.hostile())
    assert "<script" not in html
    assert "onload=x>" not in html.replace("onload=x&gt;", "")


@pytest.mark.slow
def test_pages_stay_small(tmp_path):
    rows = [*runs(tmp_path, "none", PLAIN), *runs(tmp_path, "isobn_paper", BETTER)]
    assert len(render_report(build_report(experiment(), rows))) < 60_000
