"""Pair the runs of two methods by seed and dev example, from the predictions that lie beside their records.

`isobench.statistics.paired_bootstrap` computes what these pairs show.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from isobench.common.errors import UserError, extract_first_line, refuse
from isobench.report.cells import Column
from isobench.report.tables import is_scored
from isobench.runs.folder import PREDICTIONS_FILE, RunFolder
from isobench.runs.run import Run
from isobench.statistics.paired_bootstrap import RESAMPLED_METRICS, PairedComparison, compare_predictions
from isobench.tasks.predictions import PredictedSplit

ROUNDING = 1e-9  # of a share in percent
SCORE_TOLERANCE = 1e-3  # in points; a record's score and that of its predictions differ by less, or are not the same


class NotPairedError(Exception):
    """Two methods' runs can't be paired; the message is a short reason."""


require_pairs = partial(refuse, error=NotPairedError)


Read = Callable[[str, str, int], PredictedSplit]  # of a run's key, a split and the run's seed


def compare_pairs(read: Read, runs: pd.DataFrame, base_runs: pd.DataFrame, column: Column) -> dict[str, Any]:
    """Compare a method with plain fine-tuning over shared seeds and dev examples: a score's values of ``paired_*``.

    ``isobench.runs.run.check_predictions`` has compared the files with their checksums: a run whose file was changed
    has no record any more.
    """
    try:
        return _compare_examples(read, runs, base_runs, column)._asdict()
    except NotPairedError as reason:
        return PairedComparison(reason=str(reason))._asdict()


def _compare_examples(read: Read, runs: pd.DataFrame, base_runs: pd.DataFrame, column: Column) -> PairedComparison:
    split, _, metric = column.source.rpartition("/")
    require_pairs((metric not in RESAMPLED_METRICS, f"{metric} is not computed on samples of the examples"))
    ours, theirs = _pair_by_seed(runs, base_runs)
    by_run = [read(run.key, split, run.seed) for run in (*ours.itertuples(), *theirs.itertuples())]
    first = by_run[0]
    has_same_labels = all(np.array_equal(of_run.labels, first.labels, equal_nan=True) for of_run in by_run)
    require_pairs((not has_same_labels, "the labels of the dev examples differ"))
    predictions = np.stack([of_run.predictions for of_run in by_run])
    result = compare_predictions(metric, first.labels, predictions[: len(ours)], predictions[len(ours) :])
    recorded = np.mean(column.read_values(ours)[0]) - np.mean(column.read_values(theirs)[0])
    is_near = abs(result.difference - recorded) < SCORE_TOLERANCE
    require_pairs((not result.reason and not is_near, "the predictions do not give the recorded scores"))
    return result


def _pair_by_seed(ours: pd.DataFrame, theirs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs of two methods that have a score and a seed that both share, in the order of the seeds."""
    scored = [runs[is_scored(runs)].sort_values("seed") for runs in (ours, theirs)]
    for runs in scored:
        seed, count = Counter(runs["seed"]).most_common(1)[0] if len(runs) else (0, 0)
        require_pairs((count > 1, f"seed {seed} has {count} runs of one method"))
    shared = set(scored[0]["seed"]) & set(scored[1]["seed"])
    require_pairs((not shared, "no shared seed"))
    ours, theirs = (runs[runs["seed"].isin(shared)] for runs in scored)
    is_other = pd.concat([ours["data"], theirs["data"]]).nunique(dropna=False) > 1
    require_pairs((is_other, "the runs had other data"))
    return ours, theirs


def find_unlearned(runs: Iterable[Run], table: pd.DataFrame) -> list[str]:
    """Name the tasks on which no method's mean is above the largest class alone; ``table``: of the runs."""
    scored, names = table[table["selected"].astype(bool) & is_scored(table)], []
    for task, top in find_majorities(runs).items():
        means = scored[scored["task"] == task].groupby(["encoder", "method"])["score"].mean()
        if len(means) and means.max() < top + ROUNDING:
            names.append(f"{task} ({top:.2f})")
    return names


def find_majorities(runs: Iterable[Run]) -> dict[str, float]:
    """Find what the largest class alone scores in percent, of each task with accuracy that had one dev set."""
    found: dict[str, dict[str, float]] = {}  # task -> its data -> score
    for run in runs:
        task, record = run.cfg.task, run.record
        if task.primary != "accuracy" or not record or not record.predictions:
            continue
        scores, data = found.setdefault(task.name, {}), f"{record.data.fingerprint} {task.dev_samples}"
        if data not in scores:
            with contextlib.suppress(NotPairedError):
                labels = read_predictions(run.folder, task.dev_splits[0], run.cfg.seed).labels
                scores[data] = 100 * np.unique(labels, return_counts=True)[1].max() / len(labels)
    return {task: max(scores.values()) for task, scores in found.items() if len(scores) == 1}


def read_predictions(folder: RunFolder, split: str, seed: int) -> PredictedSplit:
    """Read the predictions of a dev split, without the logits; raise NotPairedError if that is impossible."""
    import pyarrow  # only reports of trained runs need it

    try:
        table = folder.read_predictions(["split", "label", "prediction"])
        if table is None:
            raise NotPairedError(f"{PREDICTIONS_FILE} of seed {seed} was removed")
        columns = [table[name].to_numpy() for name in table.column_names]
        chosen = columns[0] == split
        labels, predictions = (values[chosen].astype(np.float64) for values in columns[1:])
    except (OSError, ValueError, TypeError, KeyError, pyarrow.ArrowException, UserError) as error:
        reason = extract_first_line(error)
        raise NotPairedError(f"{PREDICTIONS_FILE} of seed {seed} can't be read ({reason})") from error
    require_pairs((not len(labels), f"{PREDICTIONS_FILE} of seed {seed} lacks the split {split}"))
    return PredictedSplit(labels, predictions)
