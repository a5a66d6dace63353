"""Write a run's predictions or hypotheses, one row an example, as Parquet."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from isobench.common.files import sha256_file, write_whole
from isobench.runs.record import Predictions


def write_hypotheses(file: Path, outputs: dict[str, dict[str, list[str]]]) -> Predictions:
    """Write the reported epoch's hypotheses beside their references; ``outputs``: dev split -> both, texts [N]."""
    columns = {
        split: {"reference": output["references"], "hypothesis": output["hypotheses"]}
        for split, output in outputs.items()
    }
    return _write_examples(file, columns)


def write_predictions(file: Path, outputs: dict[str, dict[str, np.ndarray]]) -> Predictions:
    """Write the reported epoch's predictions with labels and logits; a label is null where the test split has none.

    ``outputs``: dev split -> ``labels`` [N], ``predictions`` [N] and ``logits`` [N, c].
    """
    columns = {
        split: {
            "label": [None if label != label else label for label in output["labels"].astype(float).tolist()],
            "prediction": output["predictions"].astype(float).tolist(),
            "logits": output["logits"].tolist(),
        }
        for split, output in outputs.items()
    }
    return _write_examples(file, columns)


def _write_examples(file: Path, outputs: dict[str, dict[str, list[Any]]]) -> Predictions:
    """Write columns of examples, dev split -> column -> values [N], after the columns ``split`` and ``index``."""
    columns: dict[str, list[Any]] = {"split": [], "index": []}
    for split, output in outputs.items():
        count = len(next(iter(output.values())))
        columns["split"] += [split] * count
        columns["index"] += range(count)
        for name, values in output.items():
            columns.setdefault(name, []).extend(values)
    table = pyarrow.table(columns)
    with write_whole(file) as temporary:
        pyarrow.parquet.write_table(table, temporary)
    return Predictions(file=file.name, sha256=sha256_file(file))
