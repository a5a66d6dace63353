"""The whitening map: its draws, what is equal by theory, its statistics on made-up changes, and its rows."""

import itertools
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from helpers import WORDS, check_done, make_config, read_analysis_rows, write_parquet
from scipy import stats

from isobench.analyses.rows import group_rows, read_stored_rows
from isobench.analyses.shown import format_estimate
from isobench.frozen.diagnose import WHITENED
from isobench_papers.probe.probe import Draw, LabelledSet, Plan, name_outcomes
from isobench_papers.whitening_map import analysis, finetuned, show, verdicts

LABELS = (4, 8, 16, 1000)
TASKS = {"a": False, "b": False, "c": True, "d": True, "e": True}


def make_changes(change, encoders=("x", "y"), strengths=(0.0, 0.1, 0.9), tasks=TASKS):
    """Rows of changes: ``change(task, encoder, strength, labels)`` in points."""
    rows = []
    for task, held_out in tasks.items():
        for encoder in encoders:
            for labels in LABELS:
                names = {"encoder": encoder, "pooling": "mean", "layer": None, "task": task, "held_out": held_out}
                names |= {"labels_a_class": float(labels), "budget": labels if labels < 1000 else None}
                for z in strengths:
                    whitened = {"method": "zca", "shrinkage": z, "change": change(task, encoder, z, labels)}
                    rows.append(names | verdicts.PRIMARY | whitened)
                other = names | {"shrinkage": None, "change": change(task, encoder, None, labels)}
                rows.append(other | {"classifier": "logistic", "unit_length": "after", "method": "none"})
                rows.append(other | {"classifier": "neighbours", "unit_length": "none", "method": "center"})
    isotropy = [
        {"encoder": encoder, "pooling": "mean", "layer": None, "task": task, "isoscore": 0.1 * i}
        for i, task in enumerate(tasks)
        for encoder in encoders
    ]
    return rows, isotropy


def pick(rows, statement, scope=verdicts.REGISTERED):
    return {row["case"]: row for row in rows if row["statement"] == statement and row["scope"] == scope}


@pytest.fixture(autouse=True)
def resample_less(monkeypatch):
    monkeypatch.setattr(verdicts, "RESAMPLES", 1000)


@pytest.fixture
def judged():
    """Full whitening loses 10 points with 4 labels, soft whitening 2; both approach a gain of 1."""
    rng = np.random.default_rng(0)

    def change(task, encoder, strength, labels):
        loss = {0.0: 11.0, 0.1: 3.0, 0.9: 1.5, None: 0.0}[strength]
        return (1.0 if strength is not None else 0.0) - loss * 4 / labels + rng.normal(0, 0.05)

    return verdicts.judge(*make_changes(change))


@pytest.mark.slow
def test_verdicts_on_losses_that_vanish(judged):
    growth = pick(judged, "the change grows with the labels")
    assert {row["verdict"] for row in growth.values()} == {verdicts.SUPPORTED}
    assert {row["sets"] for row in growth.values()} == {3}
    few = pick(judged, "loses with the fewest labels")
    assert [few[f"shrinkage {z}"]["verdict"] for z in ("0", "0.1")] == [verdicts.SUPPORTED] * 2
    assert all(row["verdict"] == verdicts.SUPPORTED for row in pick(judged, "gains with all labels").values())
    crossing = pick(judged, "stronger whitening needs more labels")["all"]
    assert crossing["value"] == pytest.approx(1)  # in every set: there is no p
    assert crossing["verdict"] == verdicts.SUPPORTED
    soft = pick(judged, "soft whitening is no worse than full whitening")
    assert len(soft) == 2 * len(LABELS)
    assert {row["verdict"] for row in soft.values()} == {verdicts.SUPPORTED}
    harmless = pick(judged, "costs at most half a point")
    assert {row["verdict"] for row in harmless.values()} == {verdicts.SUPPORTED}
    predicted = pick(judged, "other sets predict the change")["all"]
    assert predicted["verdict"] == verdicts.SUPPORTED
    assert predicted["value"] > 0.9


@pytest.mark.slow
def test_the_opposite_is_refuted():
    rng = np.random.default_rng(0)

    def change(task, encoder, strength, labels):
        sign = 1 if TASKS[task] else -1  # the known sets say the opposite
        size = {0.0: 2.0, 0.1: 1.0, 0.9: 0.5, None: -2.0}[strength]
        return sign * size * (4 / labels) ** 0.2 * (1 if strength is not None else sign) + rng.normal(0, 0.02)

    rows = verdicts.judge(*make_changes(change))
    for statement in (
        "the change grows with the labels", "loses with the fewest labels", "costs at most half a point",
        "other sets predict the change",
    ):  # fmt: skip
        assert {row["verdict"] for row in pick(rows, statement).values()} == {verdicts.REFUTED}, statement


@pytest.mark.slow
def test_a_slope_is_student_t_over_sets_of_the_mean_over_encoders():
    rng = np.random.default_rng(1)
    values = {(t, e, n): rng.normal() for t in TASKS for e in "xy" for n in LABELS}
    rows = verdicts.judge(*make_changes(lambda t, e, z, n: values[t, e, n]))
    slopes = [
        stats.linregress(np.log2(LABELS), [np.mean([values[t, e, n] for e in "xy"]) for n in LABELS]).slope
        for t in "cde"
    ]
    expected = stats.ttest_1samp(slopes, 0)
    row = pick(rows, "the change grows with the labels")["shrinkage 0"]
    low, high = expected.confidence_interval()
    np.testing.assert_allclose([row["value"], row["low"], row["high"]], [np.mean(slopes), low, high])
    assert row["p"] == pytest.approx(expected.pvalue)
    assert row["p_holm"] == pytest.approx(min(1, 3 * expected.pvalue))  # all three strengths are alike


def test_a_bound_is_a_one_sided_test():
    values = np.array([-0.4, 0.1, 0.3, -0.2, 0.0])
    (row,) = verdicts.judge_lower_bound("s", {"a": verdicts.average_over_seeds(values)}, -0.5)
    assert row["p"] == pytest.approx(stats.ttest_1samp(values, -0.5, alternative="less").pvalue)
    above = stats.ttest_1samp(values, -0.5, alternative="greater").pvalue < 0.05
    assert (row["verdict"] == verdicts.SUPPORTED) == above
    (same,) = verdicts.judge_lower_bound("s", {"a": verdicts.average_over_seeds(np.zeros(4))}, -0.5)
    assert same["verdict"] == verdicts.SUPPORTED  # no set has a loss
    (one,) = verdicts.judge_lower_bound("s", {"a": verdicts.average_over_seeds(np.zeros(1))}, -0.5)
    assert one["verdict"] == verdicts.OPEN


@pytest.mark.parametrize(
    ("changes", "crossing"),
    [([-2, -1, 0, 2], 3.5), ([1, 2, -0.4, 4], 2), ([-4, 1, -1, -2], 11), ([-1, 2, -3, 1], 4 + 2.5 / 4 * 6)],
)
def test_the_crossing_is_where_losses_end(changes, crossing):
    means = pd.DataFrame({"labels_a_class": (4, 8, 16, 1024), "change": changes})
    assert verdicts.find_crossing(means) == pytest.approx(crossing)


@pytest.mark.parametrize("trained", [40, 60])
def test_every_budget_is_tested_on_the_same_examples(trained):
    labels = np.arange(60) % 3
    labels[:20] = 0  # the rarest class has fewer
    own = LabelledSet([["text"] * 60], labels, list("abc"), trained)
    plans = analysis.plan_budgets(own, [4, 8, 50, None], 3, "logistic", "a")
    most = np.bincount(labels[plans[-1].draws[0].pool]).min()
    assert [plan.budget for plan in plans] == [b for b in (4, 8, 50) if b <= most] + [None]
    assert len({draw.test.tobytes() for plan in plans for draw in plan.draws}) == 1
    assert sorted([*plans[-1].draws[0].train, *plans[-1].draws[0].test]) == list(range(60))


def test_what_diagnose_says_of_whitening_is_in_the_bundle():
    rows = read_stored_rows(Path(__file__).parents[1] / "results/whitening_map/analysis", ["changes"])["changes"]
    whitening = verdicts.select_whitening(rows)
    means = {(cell["shrinkage"], cell["place"]): cell["value"] for cell in show.list_cells(whitening)}
    parts = [show.list_cells(own) for own in group_rows(whitening, *verdicts.ENCODING).values()]
    assert len(parts) == 7
    assert len(WHITENED) == 7
    of_all = {row["task"]: row["labels_a_class"] for row in whitening if row["budget"] is None}
    assert max(WHITENED) == round(sum(of_all.values()) / len(of_all))
    for labels, changes in WHITENED.items():
        place = f"{labels} a class" if labels <= 128 else "all labels"
        cells = [cell for part in parts for cell in part if cell["shrinkage"] == 0.9]
        weak = [cell["value"] for cell in cells if cell["place"] == place]
        assert changes == tuple(round(x, 1) for x in (means[0.0, place], means[0.9, place], min(weak), max(weak)))


def test_fine_tunings_slopes_leave_out_seeds_without_a_score():
    rng = np.random.default_rng(0)
    scores = [
        {"encoder": "e", "task": "t", "method": method, "examples": n, "seed": seed, "constant": False,
         "score": 50 + (0.5 * np.log2(n) + rng.normal(0, 0.1)) * (method != "none")}
        for method in ("none", "whitening_zca") for n in (32, 128, 512) for seed in range(1, 6)
    ]  # fmt: skip
    slopes = []
    for seed in range(2, 6):
        values = [row["score"] - 50 for row in scores if row["seed"] == seed and row["method"] != "none"]
        slopes.append(stats.linregress([5, 7, 9], values).slope)
    scores[0]["score"] = float("nan")  # seed 1, plain
    (row,) = finetuned.judge(finetuned.list_changes(scores))
    assert (row["sets"], row["verdict"]) == (4, verdicts.SUPPORTED)
    assert row["value"] == pytest.approx(np.mean(slopes))
    assert row["p"] == pytest.approx(stats.ttest_1samp(slopes, 0).pvalue)


def test_each_text_is_kept_once_and_never_on_both_sides():
    texts = ["a", "b", "a", "c", "b", "d"]
    own = analysis.keep_distinct(LabelledSet([texts], np.array([0, 1, 0, 1, 0, 1]), ["x", "y"], 4))
    assert own.columns == [["a", "c", "b", "d"]]
    assert own.labels.tolist() == [0, 1, 0, 1]
    assert own.trained == 2


def test_a_cached_outcome_is_of_these_texts_and_classes():
    subject = SimpleNamespace(cfg=make_config("data.cache=/nowhere"))
    labels = np.array([0, 0, 1, 1])
    sets = [
        LabelledSet([list("abcd")], labels, ["x", "y"], 2), LabelledSet([list("abca")], labels, ["x", "y"], 2),
        LabelledSet([list("abac")], labels, ["x", "y"], 2), LabelledSet([list("abcd")], labels, ["x", "y", "z"], 2),
    ]  # fmt: skip
    index = np.arange(2)
    plans = [Plan("logistic", 1, [Draw(0, index, index + 2, index)])]
    names = {name_outcomes(subject, "a", own, plans, ["key"]) for own in sets}
    assert len(names) == len(sets)


@pytest.mark.slow
def test_the_maps_rows(cli, tiny, outputs, tmp_path):
    rng = np.random.default_rng(0)
    for (name, classes), (split, size) in itertools.product(
        (("known", 2), ("new", 3)), (("train", 90), ("test", 150))
    ):
        labels = [f"c{i % classes}" for i in range(size)]
        texts = [f"{WORDS[int(y[1])]} {' '.join(rng.choice(WORDS, 3))}" for y in labels]
        write_parquet(tmp_path / f"probe/{name}/{split}.parquet", {"text": texts, "label": labels})
    experiment = [
        "+experiment=whitening_map", "encoder=local", f"encoder.path={tiny}", "encoder.layer=null",
        "encoder.pooling=mean", f"data.root={tmp_path}", f"data.cache={tmp_path / 'cache'}",
        f"output_dir={outputs}", "tracking=none", "analysis.fitted=[known]", "analysis.held_out=[new]",
        "analysis.budgets=[4,40,null]", "analysis.draws=3", "analysis.limit=100",
    ]  # fmt: skip
    check_done(cli(*experiment))
    rows = read_analysis_rows(outputs, "whitening_map")
    assert {(row["task"], row["isoscore"] < 1) for row in rows["isotropy"]} == {("known", True), ("new", True)}
    methods = 9
    assert len(rows["scores"]) == methods * 3 * (7 + 4)  # logistic twice, neighbours; only "known" has 40 a class
    changes = rows["changes"]
    assert len(changes) == (2 * methods - 1 + methods - 1) * (3 + 2)
    for change in changes[:40]:
        arms = []
        against = ("none" if change["method"] == "none" else change["unit_length"], "none")
        for length, method in ((change["unit_length"], change["method"]), against):
            arms.append([
                row["accuracy"] for row in rows["scores"]
                if all(row[key] == change[key] for key in ("task", "classifier", "budget"))
                and (row["unit_length"], row["method"]) == (length, method)
            ])  # fmt: skip
        assert change["change"] == pytest.approx(np.mean(arms[0]) - np.mean(arms[1]))
    assert {row["test"] for row in rows["scores"]} == {100}  # at most analysis.limit examples
    centred = [row for row in changes if (row["method"], row["classifier"]) == ("center", "logistic")]
    assert all(abs(row["change"]) < 1e-9 for row in centred if row["unit_length"] == "none")
    # What was computed is read again, so that a map that was stopped goes on.
    files = sorted((tmp_path / "cache/probes").iterdir())
    files[0].unlink()
    before = {file: file.stat().st_mtime_ns for file in files[1:]}
    check_done(cli(*experiment))
    assert repr(read_analysis_rows(outputs, "whitening_map")) == repr(rows)
    assert {file: file.stat().st_mtime_ns for file in files[1:]} == before
    assert files[0].exists()


def test_the_pages_tables_have_the_bundles_numbers():
    paper = Path(__file__).parents[1]
    text, page = (" ".join((paper / f"{name}.md").read_text().split()) for name in ("appendix", "README"))
    rows = read_stored_rows(paper / "results/whitening_map/analysis", ["changes", "verdicts"])
    changes = [row for row in rows["changes"] if row["unit_length"] == "none"]
    cells = {(cell["shrinkage"], cell["place"]): cell for cell in show.list_cells(verdicts.select_whitening(changes))}
    for strength in (0, 0.5, 0.9):
        own = [format_estimate(cells[strength, place]) for place in ("4 a class", "32 a class", "all labels")]
        assert f"| {strength:g} | {' | '.join(own)} |" in page
    names = {"minilm": "MiniLM", "mpnet": "MPNet", "glove": "GloVe", "distilbert-quire": "DistilBERT, last layer"}
    for encoder, name in names.items():
        shown = []
        for method in ("center", "whitening_zca shrinkage=0.9"):
            place = (encoder, "mean", None, "neighbours", 4, method)
            keys = ("encoder", "pooling", "layer", "classifier", "budget", "method")
            values = np.array([row["change"] for row in changes if tuple(row[key] for key in keys) == place])
            shown.append(format_estimate(verdicts.list_values(verdicts.average_over_seeds(values))))
        assert f"| {name} | {' | '.join(shown)} |" in page
    columns = show.build_verdicts(rows["verdicts"])[0].columns
    for *words, mean, p in zip(*(column.cells for column in columns), strict=True):
        shown = [*words, str(mean).partition(" (")[0], "< 0.0001" if p == "0.0000" else p]
        assert f"| {' | '.join(shown)} |" in text
    tuned = read_stored_rows(paper / "results/whitening_finetuned/analysis", ["changes", "verdicts"])
    for own in group_rows(tuned["changes"], "task", "examples").values():
        values = np.array([row["change"] for row in own])
        half = stats.t.ppf(0.975, 9) * values.std(ddof=1) / math.sqrt(10)
        assert f" | {values.mean():+.2f} [{values.mean() - half:+.2f}, {values.mean() + half:+.2f}] |" in text
    for row in tuned["verdicts"]:
        assert f": {row['verdict']}**, {row['value']:+.2f}" in text
