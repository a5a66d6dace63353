"""Pair the runs of two methods by seed and dev example, from the predictions that lie beside their records.

`isobench.statistics.paired_bootstrap` computes what these pairs show.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isobench.common.errors import extract_first_line
from isobench.report.paper_columns import Column
from isobench.runs.layout import PREDICTIONS_FILE
from isobench.runs.row import Row
from isobench.statistics.paired_bootstrap import PairedComparison, compare_predictions, draw_multiplicities
from isobench.statistics.resampled_metrics import RESAMPLED_METRICS

SCORE_TOLERANCE = 1e-3  # in points; a record's score and that of its predictions differ by less, or are not the same


class NotPairedError(Exception):
    """Two methods' runs can't be paired; the message is a short reason."""


@dataclass(frozen=True)
class SplitPredictions:
    """Hold the predictions of one run for one dev split, in the order of the file, each an array of [examples]."""

    index: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray


class ExamplePairs:
    """Compare methods with plain fine-tuning over shared seeds and dev examples.

    Each file is read once, and the bootstrap samples of a number of examples are drawn once.
    """

    def __init__(self) -> None:
        self.predictions: dict[tuple[Path, str], SplitPredictions] = {}
        self.multiplicities: dict[int, np.ndarray] = {}

    def compare(self, ours: list[Row], theirs: list[Row], column: Column) -> PairedComparison:
        """Compare a method's runs with plain fine-tuning's in a column of scores.

        Where that is not possible, the result has the reason. ``isobench.runs.row.check_predictions`` has compared
        the files with their checksums: a run whose file was changed has no record any more.
        """
        try:
            return self._compare(ours, theirs, column)
        except NotPairedError as reason:
            return PairedComparison(reason=str(reason))

    def _compare(self, ours: list[Row], theirs: list[Row], column: Column) -> PairedComparison:
        if ours[0].cfg.task.generation:
            raise NotPairedError("generated texts are not paired")
        metric, split = column.find_metric(ours[0].cfg.task), column.split or ours[0].cfg.task.dev_splits[0]
        if metric not in RESAMPLED_METRICS:
            raise NotPairedError(f"{metric} is not computed on samples of the examples")
        pairs = pair_by_seed(ours, theirs)
        scored = [self._read_scored(row, split) for pair in pairs for row in pair]
        first = scored[0]
        if not all(np.array_equal(own.index, first.index) for own in scored):
            raise NotPairedError("the runs have other dev examples")
        if not all(np.array_equal(own.labels, first.labels, equal_nan=True) for own in scored):
            raise NotPairedError("the labels of the dev examples differ")
        predictions = np.stack([own.predictions for own in scored])
        examples = len(first.labels)
        if metric != "accuracy" and examples not in self.multiplicities:
            self.multiplicities[examples] = draw_multiplicities(examples)
        result = compare_predictions(
            metric, first.labels, predictions[::2], predictions[1::2], self.multiplicities.get(examples)
        )
        values = [[column.read_value(row) or 0.0 for row in own] for own in zip(*pairs, strict=True)]
        recorded = float(np.mean(values[0]) - np.mean(values[1]))
        if not result.reason and not abs(result.difference.value - recorded) < SCORE_TOLERANCE:
            raise NotPairedError("the predictions do not give the recorded scores")
        return result

    def _read_scored(self, row: Row, split: str) -> SplitPredictions:
        file = row.folder.path / PREDICTIONS_FILE
        if (file, split) not in self.predictions:
            self.predictions[file, split] = read_predictions(file, split, row.cfg.seed)
        return self.predictions[file, split]


def pair_by_seed(ours: list[Row], theirs: list[Row]) -> list[tuple[Row, Row]]:
    """Pair runs that have a score by their seeds, in order of the seeds.

    Raises:
        NotPairedError: a seed has several runs of one method, no seed is shared, or two runs had other data.
    """
    scored = [[row for row in rows if row.scored_epoch] for rows in (ours, theirs)]
    for rows in scored:
        seed, count = Counter(row.cfg.seed for row in rows).most_common(1)[0] if rows else (0, 0)
        if count > 1:
            raise NotPairedError(f"seed {seed} has {count} runs of one method")
    mine, other = ({row.cfg.seed: row for row in rows} for rows in scored)
    pairs = [(mine[seed], other[seed]) for seed in sorted(mine.keys() & other.keys())]
    if not pairs:
        raise NotPairedError("no shared seed")
    data = [row.record.data.fingerprint for pair in pairs for row in pair if row.record]
    if any(fingerprint != data[0] for fingerprint in data):
        raise NotPairedError("the runs had other data")
    return pairs


def read_predictions(file: Path, split: str, seed: int) -> SplitPredictions:
    """Read the predictions of a dev split, without the logits.

    Raises:
        NotPairedError: the file is missing, can't be read, or lacks the split; the message names the seed.
    """
    import pyarrow.parquet  # only reports of trained runs need it

    if not file.is_file():
        raise NotPairedError(f"{file.name} of seed {seed} was removed")
    try:
        table = pyarrow.parquet.read_table(file, columns=["split", "index", "label", "prediction"], use_threads=False)
        columns = [table[name].to_numpy() for name in table.column_names]
        chosen = columns[0] == split
        index, labels, predictions = (values[chosen].astype(np.float64) for values in columns[1:])
    except (OSError, ValueError, TypeError, KeyError, pyarrow.ArrowException) as error:
        raise NotPairedError(f"{file.name} of seed {seed} can't be read ({extract_first_line(error)})") from error
    if not len(index):
        raise NotPairedError(f"{file.name} of seed {seed} lacks the split {split}")
    return SplitPredictions(index, labels, predictions)
