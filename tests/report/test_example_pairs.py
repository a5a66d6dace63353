"""Pairs of runs in reports, from predictions beside made-up records: what is compared, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import make_config, make_record

from isobench.config.schema import Experiment
from isobench.report.example_pairs import ExamplePairs
from isobench.report.html import render_report
from isobench.report.markdown_latex import format_markdown
from isobench.report.old_build import build_report
from isobench.runs.folder import RunFolder
from isobench.runs.identity import identify
from isobench.runs.row import Row
from isobench.statistics.paired_bootstrap import compare_predictions
from isobench.training.predictions import write_predictions

EXAMPLES = 200
LABELS = np.arange(EXAMPLES) % 2


def predict(method: str, seed: int) -> np.ndarray:
    """Predicted classes: the same difficult examples for both methods, and some that differ by method and seed."""
    rng = np.random.default_rng([len(method), seed])
    wrong = np.arange(EXAMPLES) % 5 == 0
    return np.where(wrong ^ (rng.random(EXAMPLES) < (0.05 if method == "none" else 0.02)), 1 - LABELS, LABELS)


def make_row(outputs, method: str, seed: int, predictions=None, labels=LABELS, fingerprint="b", score=None) -> Row:
    cfg = make_config(
        f"output_dir={outputs}", "task=rte", "encoder=bert-base-cased", "data.root=null", f"calibration={method}",
        f"seed={seed}",
    )  # fmt: skip
    predictions = predict(method, seed) if predictions is None else predictions
    folder = RunFolder(str(outputs), identify(cfg).key)
    folder.path.mkdir(parents=True)
    arrays = {"labels": labels, "predictions": predictions, "logits": np.zeros((len(labels), 2))}
    other = {"labels": labels[:5], "predictions": labels[:5], "logits": np.zeros((5, 2))}
    written = write_predictions(folder.path / "predictions.parquet", {"validation": arrays, "test": other})
    score = float(np.mean(predictions == labels)) if score is None else score
    metrics = {"validation": {"accuracy": score, "constant_predictor": False}}
    best = {"epoch": 1, "step": 10, "score": score, "selection": score, **metrics}
    record = make_record(
        cfg, best=best, history=[best], data={"fingerprint": {"validation": fingerprint}},
        predictions=written.model_dump(),
    )  # fmt: skip
    return Row(cfg, folder, record, state="done")


def make_rows(outputs, seeds=(1, 2, 3, 4), **parts) -> list[Row]:
    plain = [make_row(outputs, "none", seed) for seed in seeds]
    return [*plain, *(make_row(outputs, "isobn_paper", seed, **parts) for seed in seeds)]


def build(rows: list[Row]):
    report = build_report(Experiment("glue_isobn", "isobn", ["table1"]), rows, ExamplePairs())
    cells = {line.method: line.cells["RTE"] for line in report.tables[0].lines}
    return report, cells["isobn_paper"].comparison.paired


def test_a_report_compares_the_pairs_and_shows_it_everywhere(tmp_path):
    report, pair = build(make_rows(tmp_path))
    ours, theirs = (np.stack([predict(name, s) for s in (1, 2, 3, 4)]) for name in ("isobn_paper", "none"))
    assert pair == compare_predictions("accuracy", LABELS, ours, theirs)
    assert (pair.seeds, pair.examples, pair.reason) == (4, EXAMPLES, "")
    numbers = f"{pair.difference.value:+.2f} [{pair.difference.low:+.2f}, {pair.difference.high:+.2f}]"
    (sentence,) = (text for text in report.evidence if text.startswith("Paired with plain fine-tuning"))
    assert numbers in sentence
    assert "(4 seeds, 200 examples)" in sentence
    markdown = format_markdown(report)
    assert "## Pairs of seeds and dev examples" in markdown
    assert numbers.replace("[", r"\[").replace("]", r"\]") in markdown
    page = render_report(report)
    assert '<th scope="col">Paired difference</th><th scope="col">Paired p</th>' in page
    assert f"<td>{numbers.replace('-', chr(0x2212))}</td>" in page


def test_the_verdict_and_the_other_tests_stay_as_they_are(tmp_path):
    rows = make_rows(tmp_path)
    without = build_report(Experiment("glue_isobn", "isobn", ["table1"]), rows)
    report, _ = build(rows)
    assert report.verdict == without.verdict
    assert report.evidence[: len(without.evidence)] == without.evidence
    assert "Pairs of seeds" not in format_markdown(without)
    assert "Paired" not in render_report(without)


def test_pairs_are_made_by_seed_whatever_the_order_of_the_runs(tmp_path):
    rows = make_rows(tmp_path)
    _, pair = build(rows)
    _, shuffled = build([*reversed(rows[:4]), *rows[4:]])
    assert shuffled == pair
    _, fewer = build(rows[1:])  # plain fine-tuning lacks seed 1
    assert (fewer.seeds, fewer.reason) == (3, "")


def remove(row: Row) -> None:
    (row.folder.path / "predictions.parquet").unlink()


def damage(row: Row) -> None:
    (row.folder.path / "predictions.parquet").write_bytes(b"PAR1 no table")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (remove, "predictions.parquet of seed 4 was removed"),
        (damage, "predictions.parquet of seed 4 can't be read"),
    ],
)
def test_a_file_that_is_missing_or_broken_leaves_the_comparison_out(tmp_path, change, reason):
    rows = make_rows(tmp_path)
    change(rows[-1])
    report, pair = build(rows)
    assert pair.reason.startswith(reason)
    assert any(
        f"Not tested for new seeds and new examples: 1 difference ({reason}" in text for text in report.evidence
    )
    assert reason in format_markdown(report)
    assert reason in render_report(report).replace("&#39;", "'")


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"labels": 1 - LABELS}, "the labels of the dev examples differ"),
        ({"labels": LABELS[:150], "predictions": LABELS[:150]}, "the runs have other dev examples"),
        ({"fingerprint": "c"}, "the runs had other data"),
        ({"score": 0.5}, "the predictions do not give the recorded scores"),
    ],
)
def test_other_examples_are_refused(tmp_path, parts, reason):
    assert build(make_rows(tmp_path, **parts))[1].reason == reason


def test_seeds_that_are_not_shared_or_not_single_are_refused(tmp_path):
    rows = make_rows(tmp_path / "a", seeds=(1, 2))
    assert build(rows)[1].reason == "2 shared seeds, fewer than 3"
    others = [make_row(tmp_path / "b", "none", seed) for seed in (5, 6)]
    assert build([*rows[2:], *others])[1].reason == "no shared seed"
    twice = replace(rows[0], folder=RunFolder(str(tmp_path), "f" * 64))
    assert build([*rows, twice])[1].reason == "seed 1 has 2 runs of one method"
