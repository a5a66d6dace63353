"""Compare in_transformers.py, and transformers' own modules, with isobench; hold the page's differences."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import (
    build_parts,
    check_difference_from_script,
    load_script,
    review_columns,
    save_tiny,
    tiny_overrides,
    train_run,
    write_parquet,
)
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import isobench
from isobench.data.batches.tokens import list_epoch_order

STUDY = Path(__file__).parents[1]
LR = 8e-3  # the tiny encoder learns with it
METHODS = {"plain": "none", "isobn_released": "isobn_released"}


def take_head(layer, head):
    if layer.out_features == 2 and not layer.weight.is_meta:  # all other layers have the encoder's weights
        layer.load_state_dict(head)


def write_study(folder, dropout):
    """Write a tiny encoder and made-up data for CoLA; returns their places and the overrides of a run."""
    encoder, cache, outputs = folder / "encoder", folder / "cache", folder / "outputs"
    save_tiny(encoder, dropout=dropout)
    for seed, (split, n) in enumerate({"train": 150, "validation": 60}.items()):
        write_parquet(folder / "glue" / "cola" / f"{split}.parquet", review_columns(n, seed))
    own = tiny_overrides(str(encoder), str(folder), str(cache), outputs)[1:-3]  # without its task and optimisation
    experiment = ["+experiment=glue_isobn", "scale=laptop", "task=cola", "encoder.pooling=pooler"]
    return encoder, folder / "glue", [*experiment, *own, f"optimization.lr={LR}"]


@pytest.mark.parametrize(("method", "name"), METHODS.items())
def test_without_dropout_the_script_gives_the_scores_of_a_run(method, name, tmp_path, monkeypatch):
    """In one order, from one head: data, batches, schedule, optimiser, layer and the choice of the epoch are one."""
    encoder, glue, overrides = write_study(tmp_path, dropout=0.0)
    overrides += [f"calibration={name}"]
    parts = build_parts(*overrides)
    head = {name: value.clone() for name, value in parts.module.head.state_dict().items()}
    orders = iter([list_epoch_order(150, parts.loaders.sampler.seed, epoch) for epoch in range(10)])
    best = train_run(*overrides)[0]["best"]

    script = load_script(STUDY / "in_transformers.py")
    monkeypatch.setattr(script, "LR", LR)
    monkeypatch.setattr(torch, "randperm", lambda n: torch.from_numpy(next(orders)))
    monkeypatch.setattr(torch.nn.Linear, "reset_parameters", lambda layer: take_head(layer, head))
    matthews, epoch, ev1 = script.train(encoder, glue, method, 1)
    assert best["epoch"] == epoch
    np.testing.assert_allclose([matthews / 100, ev1], [best["score"], best["isotropy"]["embedding/ev1"]], rtol=1e-4)


def measure_gradients(bert, compute_logits, labels, passes):
    """Return the mean gradient of BERT's layers over dropout's masks, in float64, and the variance of that mean."""
    parameters = [*bert.embeddings.parameters(), *bert.encoder.parameters()]
    rows = []
    for _ in range(passes):
        loss = torch.nn.functional.cross_entropy(compute_logits(), labels)
        rows.append(torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, parameters)]).double())
    gradients = torch.stack(rows)
    return gradients.mean(0), gradients.var(0).sum() / passes


def test_dropout_gives_gradients_of_the_same_mean_and_spread_as_transformers(tmp_path):
    encoder, glue, overrides = write_study(tmp_path, dropout=0.1)
    parts = build_parts(*overrides)
    ours, theirs = parts.module, AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=2)
    theirs.classifier.load_state_dict(ours.head.state_dict())
    batch = next(iter(parts.loaders.train))
    texts = pd.read_parquet(glue / "cola" / "train.parquet")["sentence"].iloc[batch["index"].tolist()].tolist()
    inputs = AutoTokenizer.from_pretrained(encoder)(texts, padding=True, return_tensors="pt")
    computed_by = {
        ours.encoder.model: lambda: ours.head(ours.dropout(ours.embed(batch))),
        theirs.train().bert: lambda: theirs(**inputs).logits,
    }
    torch.manual_seed(0)
    (mean, variance), (own_mean, own_variance) = (
        measure_gradients(bert, compute, batch["labels"], passes=200) for bert, compute in computed_by.items()
    )
    assert (mean - own_mean).square().sum() / (variance + own_variance) == pytest.approx(1, abs=0.3)
    assert variance / own_variance == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize(
    ("row", "bundle", "name"),
    [
        ("plain, seeds 1 to 5", "glue_isobn_laptop", "none"),
        ("plain, seeds 6 to 10", "fresh_seeds", "none"),
        ("`isobn_released`", "glue_isobn_laptop", "isobn_released"),
    ],
)
def test_the_pages_differences_from_the_script_are_those_of_the_runs(row, bundle, name):
    script = pd.read_csv(STUDY / "in_transformers.csv").set_index("method").loc[row.split(",")[0].strip("`")]
    runs = isobench.load_runs(STUDY / "results" / bundle)
    runs = runs[(runs["task"] == "cola") & (runs["method"] == name)]
    check_difference_from_script(STUDY / "laptop.md", f"{row} | Matthews x 100", script["matthews"], runs["score"])
