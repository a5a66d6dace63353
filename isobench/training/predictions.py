"""Write a run's predictions or hypotheses, one row an example, as Parquet."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from isobench.common.files import sha256_file, write_atomic
from isobench.runs.record import Predictions


def write_hypotheses(file: Path, outputs: dict[str, dict[str, list[str]]]) -> Predictions:
    """Write the reported epoch's hypotheses beside their references.

    Args:
        file: the Parquet file to write.
        outputs: dev split -> ``references`` and ``hypotheses``, a text for each example.

    Returns:
        The file's name and sha256, for the record.
    """
    columns: dict[str, list[Any]] = {"split": [], "index": [], "reference": [], "hypothesis": []}
    for split, output in outputs.items():
        n = len(output["references"])
        columns["split"] += [split] * n
        columns["index"] += list(range(n))
        columns["reference"] += output["references"]
        columns["hypothesis"] += output["hypotheses"]
    return write_parquet(file, columns)


def write_predictions(file: Path, outputs: dict[str, dict[str, np.ndarray]]) -> Predictions:
    """Write the reported epoch's dev predictions with labels and logits.

    Args:
        file: the Parquet file to write.
        outputs: dev split -> ``labels`` [N], ``predictions`` [N] and ``logits`` [N, c].

    Returns:
        The file's name and sha256, for the record.
    """
    columns: dict[str, list[Any]] = {"split": [], "index": [], "label": [], "prediction": [], "logits": []}
    for split, output in outputs.items():
        n = len(output["labels"])
        columns["split"] += [split] * n
        columns["index"] += list(range(n))
        columns["label"] += output["labels"].astype(float).tolist()
        columns["prediction"] += output["predictions"].astype(float).tolist()
        columns["logits"] += output["logits"].tolist()
    return write_parquet(file, columns)


def write_parquet(file: Path, columns: dict[str, list[Any]]) -> Predictions:
    """Write a Parquet file, whole or not at all; returns its name and sha256."""
    table = pyarrow.table(columns)
    write_atomic(file, lambda temporary: pyarrow.parquet.write_table(table, temporary))
    return Predictions(file=file.name, sha256=sha256_file(file))
