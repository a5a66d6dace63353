"""Evaluation after some epochs only: which are scored, that nothing else changes, resuming, users' mistakes."""

import signal

import pyarrow.parquet
import pytest
from helpers import tiny_overrides, train_run
from killed_runs import outcome, start

pytestmark = pytest.mark.slow


def run(*overrides):
    record, folder, _ = train_run(*overrides)
    return record, pyarrow.parquet.read_table(folder.path / "predictions.parquet")


def test_evaluating_less_often_changes_nothing_else(small):
    long = [*small, "optimization.epochs=5", "optimization.patience=null", "calibration=isobn_paper"]
    last = [*long, "optimization.report=last"]
    (often, table), (second, _) = run(*last), run(*long, "evaluation.every=2")
    once, other = run(*last, "evaluation.every=last")
    by_epoch = {epoch["epoch"]: epoch for epoch in often["history"]}
    assert list(by_epoch) == [1, 2, 3, 4, 5]
    assert second["history"] == [by_epoch[2], by_epoch[4], by_epoch[5]]
    assert second["best"]["score"] == max(epoch["score"] for epoch in second["history"])
    assert once["history"] == [by_epoch[5]]
    assert once["best"] == by_epoch[5]
    assert other.equals(table)
    assert once["cost"]["examples"] == often["cost"]["examples"] == 5 * 160
    assert len({result["key"] for result in (often, second, once)}) == 3


@pytest.mark.parametrize(("every", "patience", "evaluated"), [(1, 2, [1, 2, 3]), (2, 2, [2, 4]), (2, 3, [2, 4, 6])])
def test_patience_counts_epochs_and_ends_at_an_evaluation(small, every, patience, evaluated):
    """A run that learns nothing: its first epoch is the best, and that it predicts one class is in the record."""
    stop = ["optimization.lr=1e-9", "optimization.epochs=9", f"optimization.patience={patience}"]
    result, _ = run(*small, *stop, f"evaluation.every={every}")
    best = result["best"]
    assert [epoch["epoch"] for epoch in result["history"]] == evaluated
    assert best["epoch"] == evaluated[0]
    assert best["validation"]["constant_predictor"] is True
    assert best["score"] == best["validation"]["accuracy"]


def long_run(tiny, reviews, cache, outputs):
    every = ["evaluation.every=2", "optimization.epochs=3", "optimization.patience=2", "checkpoint.steps=3"]
    return [*tiny_overrides(tiny, reviews, cache, outputs), *every, "trainer.threads=1"]


# Checkpoints are made every three steps, so that each kill in training goes on from another one: 3, 9, 12, 18, 27.
@pytest.mark.parametrize(
    ("target", "call", "when"),
    [("Classifier.training_step", call, "before") for call in (5, 11, 15, 21, 30)]
    + [("Classifier.validation_step", call, "after") for call in (1, 2)],
)
def test_killed_in_any_epoch_it_is_evaluated_after_the_same_epochs(
    processes, tiny, reviews, tmp_path, target, call, when, undisturbed
):
    arguments = long_run(tiny, reviews, str(tmp_path / "cache"), tmp_path / "outputs")
    place = f"isobench.kinds.classification.module.{target}"
    assert start(processes, arguments, place, call, when) == -signal.SIGKILL
    assert start(processes, arguments) == 0
    assert outcome(tmp_path / "outputs") == undisturbed


@pytest.fixture(scope="module")
def undisturbed(processes, tiny, reviews, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert start(processes, long_run(tiny, reviews, str(folder / "cache"), folder / "outputs")) == 0
    found = outcome(folder / "outputs")
    assert [epoch["epoch"] for epoch in found[0]] == [2, 3]
    return found
