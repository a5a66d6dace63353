"""Neighbours on MTEB's leaderboard: what the page says of leaderboard.csv, computed again with scipy alone."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

FOLDER = Path(__file__).parents[1]


def correct_by_holm(p):
    order, adjusted = np.argsort(p), np.empty(len(p))
    adjusted[order] = np.maximum.accumulate((len(p) - np.arange(len(p))) * np.sort(p))
    return np.minimum(adjusted, 1)


def test_the_page_says_how_many_neighbours_differ():
    table = pd.read_csv(FOLDER / "leaderboard.csv", index_col=0)
    table = table.loc[table.mean(axis=1).sort_values(ascending=False, kind="stable").index]
    assert table.shape[1] == 41
    assert table.notna().all(axis=None)
    differences = table.to_numpy()[:-1] - table.to_numpy()[1:]
    is_same = (np.abs(differences) < 1e-9).all(1)  # two names of one model
    p = stats.ttest_1samp(differences[~is_same], 0, axis=1).pvalue
    found = [len(table), len(differences), is_same.sum(), (p < 0.05).sum(), (correct_by_holm(p) < 0.05).sum()]

    draws = np.random.default_rng(0).integers(0, 41, (10_000, 41))
    lower_ends = [np.quantile(difference[draws].mean(1), 0.025) for difference in differences]
    assert sum(end > 0 for end in lower_ends) == 180 - 176  # as the issue finds by its own bootstrap

    section = " ".join((FOLDER / "README.md").read_text().partition("## Neighbours on the leaderboard")[2].split())
    numbers = re.search(
        r"of (\d+) pairs of neighbours among (\d+) models, (\d+) differ .*? (\d+) after .*? (\d+) pairs have the",
        section,
    )
    pairs, models, differ, after, same = map(int, numbers.groups())
    assert [models, pairs, same, differ, after] == found
    lead = np.median(differences[~is_same].mean(1))
    assert float(re.search(r"median of ([\d.]+) points", section)[1]) == round(100 * lead, 1)
