"""The ledger: draws and correlations from their definitions; published scores that are hit; recipes that miss."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import make_config
from scipy import stats
from statsmodels.stats.multitest import multipletests

from isobench.analyses.rows import select_rows
from isobench.papers.published import count_numbers
from isobench_papers.mteb import ledger
from isobench_papers.mteb.tasks import find_tasks
from isobench_papers.probe.recipes import draw_examples, score_few_shot


def test_draws_go_on_from_the_order_of_the_draw_before():
    labels = np.array(list("abcabcabcaab"))
    order = np.arange(12)
    for drawn in draw_examples(labels, 2, draws=3):
        np.random.RandomState(42).shuffle(order)
        expected = []
        for index in order:
            if sum(labels[other] == labels[index] for other in expected) < 2:
                expected.append(index)
        assert drawn.tolist() == expected


def test_scores_are_those_of_the_definitions():
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(40, 5)), rng.normal(size=(300, 5))
    labels, expected = (train[:, 0] > 0).astype(int), (test[:, 0] + 0.7 * rng.normal(size=300) > 0).astype(int)
    scores = score_few_shot(train, labels, test, expected)

    from sklearn.linear_model import LogisticRegression

    predicted = LogisticRegression(random_state=42, max_iter=100).fit(train, labels).predict(test)
    confusion = np.array([[((expected == i) & (predicted == j)).sum() for j in (0, 1)] for i in (0, 1)])
    f1 = 2 * confusion.diagonal() / (confusion.sum(0) + confusion.sum(1))
    precision, recall = confusion[1, 1] / confusion[:, 1].sum(), confusion[1, 1] / confusion[1].sum()
    assert scores["accuracy"] == pytest.approx((predicted == expected).mean(), abs=1e-15)
    assert scores["f1"] == pytest.approx(f1.mean(), abs=1e-15)
    assert scores["f1_weighted"] == pytest.approx(np.average(f1, weights=confusion.sum(1)), abs=1e-15)
    # Of predicted labels the curve has two points: recall at this precision, then all at the base rate.
    assert scores["ap"] == pytest.approx(recall * precision + (1 - recall) * expected.mean(), abs=1e-12)


def test_correlations_are_scipys():
    rng = np.random.default_rng(1)
    vectors, scores = rng.normal(1, 1, (60, 7)), rng.uniform(0, 5, 30)
    found = ledger.correlate(torch.tensor(vectors), scores)
    left, right = vectors[:30], vectors[30:]
    expected = {
        "cosine": (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1),
        "euclidean": -np.linalg.norm(left - right, axis=1),
        "manhattan": -np.abs(left - right).sum(1),
    }
    for name, values in expected.items():
        assert found[f"{name}_spearman"] == pytest.approx(stats.spearmanr(values, scores).statistic, abs=1e-12)
        assert found[f"{name}_pearson"] == pytest.approx(stats.pearsonr(values, scores).statistic, abs=1e-9)


def test_a_score_is_hit_within_1e_4_and_a_miss_says_why():
    row = {"task": "STS12", "published": 0.5}
    assert [ledger.compare(row, ledger.MTEB, 0.5 + off)["hit"] for off in (9e-5, -9e-5, 2e-4)] == [True, True, False]
    (biosses,) = find_tasks(["BIOSSES"])
    missed = ledger.compare(row | {"task": "BIOSSES"}, ledger.MTEB, 0.6, biosses)
    assert (missed["reason"], missed["difference"]) == (biosses.misses, pytest.approx(0.1))


def test_every_published_score_has_a_place_where_its_data_are():
    cells = ledger.read_published()
    places = {tuple(row[key] for key in ("encoder", "task", "subset", "split", "metric")) for row in cells}
    assert len(cells) == count_numbers("mteb") == len(places)
    shipped = {(task.name, task.subset, split) for task in find_tasks(None) for split in task.splits}
    assert {(row["task"], row["subset"], row["split"]) for row in cells} == shipped
    assert all(-1 <= row["published"] <= 1 for row in cells)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "subset", "split"),
    [("STS16", "default", "test"), ("AmazonCounterfactualClassification", "en", "validation")],
)
def test_published_scores_are_hit_and_wrong_recipes_miss(sentence_pairs, cache, task, subset, split):
    cfg = make_config("encoder=minilm", "encoder.pooling=mean", f"data.root={sentence_pairs}", f"data.cache={cache}")
    names = {"encoder": "minilm", "task": task, "subset": subset, "split": split}
    published = select_rows(ledger.read_published(), names)
    (found_task,) = [one for one in find_tasks([task]) if one.subset == subset]
    found = dict(ledger.score_task(cfg, found_task, split, controls=True))
    for recipe, scores in found.items():
        rows = [ledger.compare(row, recipe, scores[row["metric"]]) for row in published if row["metric"] in scores]
        assert len(rows) >= 4
        hits = sum(row["hit"] for row in rows)
        assert hits == (len(rows) if recipe == ledger.MTEB else 0), (recipe, rows)
    assert len(found) == (2 if task == "STS16" else 3)


FOLDER = Path(__file__).parents[1]


def test_the_page_says_how_many_neighbours_differ():
    table = pd.read_csv(FOLDER / "leaderboard.csv", index_col=0)
    table = table.loc[table.mean(axis=1).sort_values(ascending=False, kind="stable").index]
    assert table.shape[1] == 41
    assert table.notna().all(axis=None)
    differences = table.to_numpy()[:-1] - table.to_numpy()[1:]
    is_same = (np.abs(differences) < 1e-9).all(1)  # two names of one model
    p = stats.ttest_1samp(differences[~is_same], 0, axis=1).pvalue
    after = multipletests(p, method="holm")[1]
    found = [len(table), len(differences), is_same.sum(), (p < 0.05).sum(), (after < 0.05).sum()]

    draws = np.random.default_rng(0).integers(0, 41, (10_000, 41))
    lower_ends = [np.quantile(difference[draws].mean(1), 0.025) for difference in differences]
    assert sum(end > 0 for end in lower_ends) == 180 - 176  # as the issue finds by its own bootstrap

    section = " ".join((FOLDER / "README.md").read_text().partition("## Neighbours on the leaderboard")[2].split())
    said = r"of (\d+) pairs of neighbours among (\d+) models, (\d+) differ .*? (\d+) after .*? (\d+) pairs have the"
    numbers = re.search(said, section)
    pairs, models, differ, after, same = map(int, numbers.groups())
    assert [models, pairs, same, differ, after] == found
    lead = np.median(differences[~is_same].mean(1))
    assert float(re.search(r"median of ([\d.]+) points", section)[1]) == round(100 * lead, 1)
