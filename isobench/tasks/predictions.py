"""The columns of a file of predictions, and how a split's rows are read; a stranger may have written the file."""

import hashlib
from dataclasses import dataclass
from typing import Any

# Columns -> what a row has in them. Of texts, the label is called reference and the prediction hypothesis.
NUMBER_COLUMNS = {"label": "number", "prediction": "number", "logits": "numbers"}
TEXT_COLUMNS = {"reference": "text", "hypothesis": "text"}


@dataclass
class PredictedSplit:
    """The predictions of one split's N examples, in the data's order."""

    labels: Any  # classes or scores [N], NaN where a test split has none, or N reference texts
    predictions: Any  # classes or scores [N], or N hypotheses
    logits: Any = None  # [N, c]; None for texts
    units: Any = 1.0  # [N, 1] or one number: what logits are divided by to compare two runs

    def hash_labels(self) -> str:
        """Compute the sha256 of the labels, to compare them with another run's."""
        if not isinstance(self.labels, list):
            return hashlib.sha256(self.labels.tobytes()).hexdigest()
        digest = hashlib.sha256()
        for text in self.labels:
            digest.update(b"%d:" % len(text.encode()) + text.encode())
        return digest.hexdigest()


def read_texts(rows: Any) -> PredictedSplit:
    """Read references and hypotheses from a ``pyarrow.Table``."""
    references, hypotheses = (rows[name].to_pylist() for name in TEXT_COLUMNS)
    if not all(isinstance(text, str) for text in (*references, *hypotheses)):
        raise ValueError("a reference or a hypothesis is not a text")
    return PredictedSplit(references, hypotheses)


def read_numbers(rows: Any, width: int, split: str, may_lack_labels: bool = False) -> PredictedSplit:
    """Read labels and predictions [N] and logits [N, width]; the predictions must follow from the logits."""
    import numpy as np
    import pyarrow.compute as pc

    labels, predictions = (np.array(rows[column].to_numpy(), np.float64) for column in ("label", "prediction"))
    lists = rows["logits"].combine_chunks()
    values = lists.flatten().to_numpy(zero_copy_only=False)
    widths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    if lists.null_count or not (widths == width).all() or not np.isfinite(values).all():
        raise ValueError(f"the logits of {split} are not {width} finite numbers for each example")
    logits = values.reshape(len(rows), width)
    expected = logits[:, 0] if width == 1 else logits.argmax(1)
    if not np.array_equal(predictions, expected):
        wrong = int(np.flatnonzero(predictions != expected)[0])
        raise ValueError(f"the prediction of example {wrong} of {split} is not the one that its logits give")
    if not may_lack_labels and not np.isfinite(labels).all():
        raise ValueError(f"an example of {split} has no label")
    return PredictedSplit(labels, predictions if width == 1 else expected, logits)
