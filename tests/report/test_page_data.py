"""What the report's page derives from rows and cells: seeds on an axis, correlations, overheads."""

import random
from statistics import fmean

import numpy as np
import pytest
import sample_report
from scipy import stats

from isobench.report import page_data
from isobench.report.correlations import Points, collect_points, compute_correlations, compute_spearman
from isobench.report.document import Cell


def test_seeds_stand_on_their_columns_axis_and_the_published_value_only_where_it_compares():
    within = Cell([10.0, 20.0, float("nan")], [1, 2, 3], published="30.00 ± 1.00", verdict="within")
    foreign = Cell([15.0], [1], published="99.00", verdict="not comparable")
    axis = page_data.build_axis([within, foreign])
    assert axis == page_data.Axis(10.0, 30.0)
    first, second = page_data.build_strip_plot(within, axis), page_data.build_strip_plot(foreign, axis)
    assert (first.dots, first.published, first.undefined) == ([0.0, 50.0], 100.0, 1)
    assert (second.dots, second.published) == ([25.0], None)
    assert first.words.startswith("seed 1: 10, seed 2: 20")
    assert page_data.build_strip_plot(foreign, page_data.build_axis([foreign])).dots == [50.0]
    assert page_data.build_axis([Cell()]) is None


def rank_correlation(xs, ys):
    """Pearson's correlation of the ranks, for numbers without ties."""
    ranks = [[sorted(values).index(value) for value in values] for values in (xs, ys)]
    (mx, my), (rx, ry) = map(fmean, ranks), ranks
    top = sum((x - mx) * (y - my) for x, y in zip(rx, ry, strict=True))
    return top / (sum((x - mx) ** 2 for x in rx) * sum((y - my) ** 2 for y in ry)) ** 0.5


def test_correlations_within_tasks_are_not_those_between_them():
    """Tasks that differ in level turn the sign: up over all runs, down within each."""
    noise = [0.0, 0.01, 0.02, 0.04]
    runs = [
        {"encoder": "e", "task": task, "method": "none", "embedding/i1": level + x, "score": 100 * level - 10 * x}
        for task, level in (("a", 0.1), ("b", 0.5), ("c", 0.9))
        for x in noise
    ]
    runs.append({"encoder": "e", "task": "alone", "method": "none", "embedding/i1": 0.99, "score": 99.0})
    runs.append({"encoder": "e", "task": "a", "method": "none", "embedding/i1": None, "score": 50.0})
    runs.append({"encoder": "e", "task": "a", "method": "none", "embedding/i1": float("nan"), "score": 50.0})
    over_all = compute_spearman(collect_points(runs, "embedding/i1"))
    usable = runs[:13]
    expected = rank_correlation([r["embedding/i1"] for r in usable], [r["score"] for r in usable])
    assert over_all.n == 13
    assert over_all.rho == pytest.approx(expected)
    assert over_all.rho > 0.7
    within = compute_spearman(collect_points(runs, "embedding/i1").centre())
    assert within.n == 12  # the task with one run says nothing about its own variation
    assert within.rho < -0.9
    assert compute_spearman(collect_points(runs[:2], "embedding/i1")).rho is None


def test_correlations_with_ties_are_scipys_over_all_runs_and_over_each_methods():
    rng = random.Random(0)
    runs = [
        {
            "encoder": "e",
            "task": task,
            "method": method,
            "embedding/i1": rng.randint(0, 4),
            "score": rng.randint(0, 4),
        }
        for task in "ab"
        for method in ("none", "flow")
        for _ in range(9)
    ]
    found = compute_correlations([collect_points(runs, "embedding/i1")], ["none", "flow"], centred=False)
    for method, (correlation,) in found.items():
        own = [(run["embedding/i1"], run["score"]) for run in runs if method in ("", run["method"])]
        assert correlation.rho == pytest.approx(stats.spearmanr(own).statistic)
        assert correlation.n == len(own)


def test_overheads_are_over_plain_fine_tuning_of_the_same_encoder_and_task():
    def run(method, task, seconds, epochs, memory):
        return {"encoder": "e", "method": method, "task": task, "training_seconds": seconds, "epochs": epochs,
                "peak_memory_mib": memory}  # fmt: skip

    runs = [run("none", "a", 30.0, 3, 100.0), run("none", "a", 24.0, 2, 110.0), run("flow", "a", 60.0, 3, 220.0),
            run("flow", "b", 5.0, 1, None), run("flow", "c", None, None, None)]  # fmt: skip
    found = page_data.compute_overheads(runs)
    assert found["e", "none"] == {"a": page_data.Overhead(10.0, 110.0)}
    assert found["e", "flow"] == {"a": page_data.Overhead(20.0, 220.0, 2.0, 2.0), "b": page_data.Overhead(5.0, None)}


def test_runs_of_different_heads_and_scales_are_not_pooled_on_the_page():
    """Flow took 60 s with its own head; plain fine-tuning's 10 s are with the other head, so there is no ratio."""
    report = sample_report.empty()
    seconds = {("none", "linear", ""): 10.0, ("flow", "linear", ""): 15.0, ("flow", "isobn", ""): 60.0}
    seconds |= {("none", "linear", "fewer examples"): 1.0, ("flow", "linear", "fewer examples"): 4.0}
    report.runs = [
        {"key": str(number), "encoder": "e", "task": "a", "method": method, "head.name": head, "scale": scale,
         "training_seconds": value, "epochs": 1}
        for number, ((method, head, scale), value) in enumerate(seconds.items())
    ]  # fmt: skip
    report.epochs = {"key": ["2", "3"], "encoder": ["e", "e"]}
    labelled = page_data.add_part_to_encoder(report)
    linear, isobn, small = [
        f"e (scale {scale}; head.name={head})"
        for scale, head in (("of the paper", "linear"), ("of the paper", "isobn"), ("fewer examples", "linear"))
    ]
    assert labelled.epochs["encoder"] == [isobn, small]
    overheads = page_data.compute_overheads(labelled.runs)
    ratios = {key: costs["a"].seconds_ratio for key, costs in overheads.items() if key[1] == "flow"}
    assert ratios == {(linear, "flow"): 1.5, (isobn, "flow"): None, (small, "flow"): 4.0}
    report.runs = report.runs[:2]
    assert page_data.add_part_to_encoder(report) is report


def test_scores_that_are_constant_in_each_task_have_no_correlation():
    """Their means are rounded: what is left after centring must not be ranked."""
    generator = np.random.default_rng(1)
    groups = np.repeat(np.arange(4), 7)
    for _ in range(100):
        scores = (generator.integers(1, 277, 4) / 277)[groups]
        points = Points(np.array(["a"] * 28, dtype=object), groups, generator.standard_normal(28), scores)
        assert compute_spearman(points.centre()).rho is None
