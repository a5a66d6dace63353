"""Compare in_transformers.py with isobench on made-up data; hold the page's differences."""

from pathlib import Path

import pandas as pd
import pytest
import torch
from helpers import (
    build_parts,
    check_difference_from_script,
    check_script_row,
    compare_by_welch,
    load_script,
    review_columns,
    save_tiny,
    tiny_overrides,
    train_run,
    write_parquet,
)
from scipy import stats

import isobench
from isobench.data.batches.tokens import list_epoch_order

STUDY = Path(__file__).parents[1]
LR = 8e-3  # the tiny encoder learns with it


@pytest.mark.parametrize(("method", "name"), [("plain", "none"), ("l2", "fixed_norm_l2")])
def test_without_dropout_the_script_gives_the_scores_of_a_run(method, name, tmp_path, monkeypatch):
    """In one order, from one head: data, batches, schedule, optimiser, layer and the choice of the epoch are one."""
    save_tiny(tmp_path / "encoder", dropout=0.0)
    for seed, (split, n) in enumerate({"train": 150, "validation": 60}.items()):
        columns = review_columns(n, seed)
        texts = columns.pop("sentence")
        columns |= {"sentence1": texts, "sentence2": texts[::-1]}
        write_parquet(tmp_path / "glue" / "rte" / f"{split}.parquet", columns)
    own = tiny_overrides(str(tmp_path / "encoder"), str(tmp_path), str(tmp_path / "cache"), tmp_path / "outputs")
    overrides = ["+experiment=glue_adaptation", "scale=laptop", "task=rte", *own[1:-3], f"optimization.lr={LR}"]
    overrides += [f"calibration={name}"]
    parts = build_parts(*overrides)
    head = {key: value.clone() for key, value in parts.module.head.state_dict().items()}
    orders = iter([list_epoch_order(150, parts.loaders.sampler.seed, epoch) for epoch in range(10)])
    best = train_run(*overrides)[0]["best"]

    script = load_script(STUDY / "in_transformers.py")
    monkeypatch.setattr(script, "LR", LR)
    monkeypatch.setattr(script, "LENGTH", 40)  # the tiny encoder's
    monkeypatch.setattr(torch, "randperm", lambda n: torch.from_numpy(next(orders)))
    load = script.AutoModelForSequenceClassification.from_pretrained

    def load_with_head(*args, **settings):
        model = load(*args, **settings)
        model.classifier.load_state_dict(head)
        return model

    monkeypatch.setattr(script.AutoModelForSequenceClassification, "from_pretrained", load_with_head)
    accuracy, epoch = script.train(tmp_path / "encoder", tmp_path / "glue", method, 1)
    assert best["epoch"] == epoch
    assert accuracy / 100 == pytest.approx(best["score"], abs=1e-9)


def test_the_pages_differences_from_the_script_are_those_of_the_runs():
    page = STUDY / "laptop.md"
    script = pd.read_csv(STUDY / "in_transformers.csv").pivot(index="seed", columns="method", values="accuracy")
    runs = isobench.load_runs(STUDY / "results" / "glue_adaptation_laptop").query("task == 'rte'")
    ours = runs.pivot(index="seed", columns="method", values="score")
    check_difference_from_script(page, "plain", script["plain"], ours["none"])
    check_difference_from_script(page, "L2", script["l2"], ours["fixed_norm_l2"])
    gains = script["l2"] - script["plain"], ours["fixed_norm_l2"] - ours["none"]
    intervals = [x for gain in gains for x in (gain.mean(), *stats.ttest_1samp(gain, 0).confidence_interval())]
    check_script_row(page, "L2's gain over plain", [*intervals, *compare_by_welch(*gains)])
