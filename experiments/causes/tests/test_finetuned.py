"""Causes in fine-tuning: the chosen learning rates, the paired changes, the verdicts."""

import math
from pathlib import Path

import numpy as np
import pytest
from helpers import read_experiment
from scipy import stats

from isobench_papers.causes import causes, finetuned

STUDY = Path(__file__).parents[1]
CAUSES = ("coupled_adam", "sgd", "adafactor")


def make_runs(gain):
    rng = np.random.default_rng(0)
    return [
        {
            "task": task, "cause": cause, "lr": lr, "seed": seed, "state": "finished", "cosine": 0.1,
            "loss": 30 - 5 * (lr == 0.001) - gain * ((task, cause) == ("trec", "coupled_adam")) + rng.normal(0, 0.5),
        }
        for task in ("rotten_tomatoes", "trec")
        for cause in ("base", *CAUSES, "untrained")
        for lr in (0.0003, 0.001)
        for seed in range(1, 11)
    ]  # fmt: skip


def analyse(runs):
    levels = finetuned.choose_levels(runs)
    return levels, finetuned.compare(runs, levels)


def test_the_grids_are_the_registered_design():
    models = read_experiment("causes_models")["experiment"]["grid"]["embedded"]
    tuned = read_experiment("causes_finetuned")["experiment"]["grid"]["embedded"]
    names = [name for part in models for name in part["encoder.name"]]
    assert names == [causes.BASE, *CAUSES, finetuned.UNTRAINED]
    assert all(part["seed"] == list(range(1, 11)) for part in [*models, *tuned])
    assert all(part["encoder.name"] == names and len(part["optimization.lr"]) == 2 for part in tuned)
    assert [part.get("task.name", part["task"]) for part in tuned] == [["rotten_tomatoes"], ["trec"]]
    assert len(CAUSES) * len(tuned) == finetuned.TESTS


@pytest.mark.parametrize(("gain", "verdict"), [(5, "supported"), (-5, "refuted"), (0, "can't tell")])
def test_changes_are_paired_and_corrected_over_causes_and_tasks(gain, verdict):
    runs = make_runs(gain)
    levels, changes = analyse(runs)
    assert {level["lr"] for level in levels} == {0.001}
    (row,) = (row for row in changes if (row["task"], row["cause"]) == ("trec", "coupled_adam"))
    losses = {
        cause: [r["loss"] for r in runs if (r["task"], r["cause"], r["lr"]) == ("trec", cause, 0.001)]
        for cause in ("base", "coupled_adam")
    }
    expected = stats.ttest_rel(losses["base"], losses["coupled_adam"])
    assert row["value"] == pytest.approx(np.mean(losses["base"]) - np.mean(losses["coupled_adam"]))
    assert row["p"] == pytest.approx(expected.pvalue)
    assert row["verdict"] == verdict
    if gain:
        assert row["p_holm"] == pytest.approx(6 * row["p"])
        fewer = analyse([run for run in runs if run["cause"] != "sgd"])[1]  # a test without a result counts too
        assert row["p_holm"] in [other["p_holm"] for other in fewer]
    untrained = [row for row in changes if row["cause"] == finetuned.UNTRAINED]
    assert [(row["verdict"], math.isnan(row["p_holm"])) for row in untrained] == [("", True)] * 2
