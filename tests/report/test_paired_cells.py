"""Pairs of runs in reports, from predictions beside made-up records: what is compared, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import make_ended_run

from isobench.config.schema import Experiment
from isobench.report.build import build_report
from isobench.runs.folder import RunFolder, write_predictions
from isobench.runs.run import Run
from isobench.statistics.paired_bootstrap import compare_predictions

EXAMPLES = 200
LABELS = np.arange(EXAMPLES) % 2


def predict(method: str, seed: int) -> np.ndarray:
    """Predicted classes: the same difficult examples for both methods, and some that differ by method and seed."""
    rng = np.random.default_rng([len(method), seed])
    wrong = np.arange(EXAMPLES) % 5 == 0
    return np.where(wrong ^ (rng.random(EXAMPLES) < (0.05 if method == "none" else 0.02)), 1 - LABELS, LABELS)


def make_row(outputs, method: str, seed: int, predictions=None, labels=LABELS, fingerprint="b", score=None) -> Run:
    predictions = predict(method, seed) if predictions is None else predictions
    run = make_ended_run(
        float(np.mean(predictions == labels)) if score is None else score,
        *("task=rte", "encoder=bert-base-cased", f"calibration={method}", f"seed={seed}"),
        output_dir=outputs,
        data={"fingerprint": {"validation": fingerprint}},
    )
    run.folder.path.mkdir(parents=True)
    arrays = {"label": labels, "prediction": predictions, "logits": np.zeros((len(labels), 2))}
    other = {"label": labels[:5], "prediction": labels[:5], "logits": np.zeros((5, 2))}
    written = write_predictions(run.folder.path / "predictions.parquet", {"validation": arrays, "test": other})
    record = run.record.model_copy(update={"predictions": written})
    return replace(run, record=record, state="done")


def make_rows(outputs, seeds=(1, 2, 3, 4), **parts) -> list[Run]:
    plain = [make_row(outputs, "none", seed) for seed in seeds]
    return [*plain, *(make_row(outputs, "isobn_paper", seed, **parts) for seed in seeds)]


def build(rows: list[Run]):
    """The report, and the cell of the method."""
    report = build_report(Experiment("glue_isobn", "isobn", ["table1"]), rows)
    cells = {cell.method: cell for cell in report.cells[report.cells["column"] == "RTE"].itertuples()}
    return report, cells["isobn_paper"]


def read_pair(cell):
    return [cell.paired_difference, cell.paired_low, cell.paired_high, cell.paired_p]


def test_a_report_compares_the_pairs(tmp_path):
    _, cell = build(make_rows(tmp_path))
    ours, theirs = (np.stack([predict(name, s) for s in (1, 2, 3, 4)]) for name in ("isobn_paper", "none"))
    expected = compare_predictions("accuracy", LABELS, ours, theirs)
    assert read_pair(cell) == list(expected[:4])  # ours less plain's: the sign is the vectors'
    assert np.sign(cell.paired_difference) == np.sign(cell.difference)
    assert (cell.paired_seeds, cell.paired_examples, cell.paired_reason) == (4, EXAMPLES, "")


def test_pairs_are_made_by_seed_whatever_the_order_of_the_runs(tmp_path):
    rows = make_rows(tmp_path)
    _, pair = build(rows)
    _, shuffled = build([*reversed(rows[:4]), *rows[4:]])
    assert read_pair(shuffled) == pytest.approx(read_pair(pair), rel=1e-12)
    _, fewer = build(rows[1:])  # plain fine-tuning lacks seed 1
    assert (fewer.paired_seeds, fewer.paired_reason) == (3, "")


@pytest.mark.parametrize("content", [None, b"PAR1 no table"])
def test_a_file_that_is_missing_or_broken_leaves_the_comparison_out(tmp_path, content):
    rows = make_rows(tmp_path)
    file = rows[-1].folder.path / "predictions.parquet"
    file.write_bytes(content) if content else file.unlink()
    assert "predictions.parquet of seed 4" in build(rows)[1].paired_reason


@pytest.mark.parametrize(
    "parts",
    [
        {"labels": 1 - LABELS}, {"labels": LABELS[:150], "predictions": LABELS[:150]}, {"fingerprint": "c"},
        {"score": 0.5},
    ],
)  # fmt: skip
def test_other_examples_are_not_compared(tmp_path, parts):
    cell = build(make_rows(tmp_path, **parts))[1]
    assert cell.paired_reason
    assert cell.paired_p != cell.paired_p


def test_seeds_that_are_not_shared_or_not_single_are_not_compared(tmp_path):
    rows = make_rows(tmp_path / "a", seeds=(1, 2))
    others = [make_row(tmp_path / "b", "none", seed) for seed in (5, 6)]
    twice = replace(rows[0], folder=RunFolder(str(tmp_path), "f" * 64))
    for own in (rows, [*rows[2:], *others], [*rows, twice]):
        assert build(own)[1].paired_reason
