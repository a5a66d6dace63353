"""Pairs of texts with human similarity scores, and the sets of sentence pairs: STS 2012 to 2016, STS Benchmark."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isobench.common.errors import UserError
from isobench.config.schema import Data
from isobench.data import hub
from isobench.data.sources import check_texts
from isobench.data.tables import read_columns, read_field


@dataclass
class ScoredPairs:
    """N pairs: the first texts, the second texts and the human scores, [N] float64."""

    first: list[str]
    second: list[str]
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)


def make_scored_pairs(columns: Iterable[list[Any]], kind: str, where: str) -> ScoredPairs:
    """Make pairs of three columns (first texts, second texts, scores), and check them.

    ``kind``: what a text is, such as ``word``; ``where``: the file or data set. Error messages name both.
    """
    first, second, scores = columns
    first, second = (check_texts(texts, kind, where) for texts in (first, second))
    try:
        numbers = np.asarray(scores, np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where} has a score that is not a number") from error
    if not len(numbers) or not np.isfinite(numbers).all():
        raise UserError(f"{where} has {'a score that is not a finite number' if len(numbers) else 'no rows'}")
    return ScoredPairs(first, second, numbers)


COLUMNS = ("sentence1", "sentence2", "score")
SPLIT = "test"


@dataclass(frozen=True)
class StsSet:
    """Hold where a set is: ``hub`` at ``revision``, or ``<data.root>/sts/<file>``; ``pairs`` counts its pairs."""

    hub: str
    revision: str
    file: str
    pairs: int


# The commits are those that MTEB's tasks name, and its result files.
SETS = {
    "sts12": StsSet("mteb/sts12-sts", "a0d554a64d88156834ff5ae9920b964011b16384", "sts12.parquet", 3108),
    "sts13": StsSet("mteb/sts13-sts", "7e90230a92c190f1bf69ae9002b8cea547a64cca", "sts13.parquet", 1500),
    "sts14": StsSet("mteb/sts14-sts", "6031580fec1f6af667f0bd2da0a551cf4f0b2375", "sts14.parquet", 3750),
    "sts15": StsSet("mteb/sts15-sts", "ae752c7c21bf194d8b67fd573edf7ae58183cbe3", "sts15.parquet", 3000),
    "sts16": StsSet("mteb/sts16-sts", "4d8694f8f0e0100860b497b999b3dbed754a0513", "sts16.parquet", 1186),
    "stsb": StsSet(
        "mteb/stsbenchmark-sts", "b0fddb56ed78048fa8b90373c8a3cfc37b684831", "stsb_test_labelled.parquet", 1379
    ),
}


def load_sentence_pairs(data: Data, names: Iterable[str]) -> dict[str, ScoredPairs]:
    """Read these sets, by name: from ``<data.root>/sts/``, or from the hub at the pinned commits if that is null."""
    if data.root is None:
        return {name: _read_hub_set(name) for name in names}
    folder = Path(data.root).expanduser() / "sts"
    missing = [SETS[name].file for name in names if not (folder / SETS[name].file).is_file()]
    if missing:
        raise UserError(
            f"data.root: {folder} lacks {', '.join(missing)} (columns {', '.join(COLUMNS)}); put them there, or set "
            "data.root=null to read the hub"
        )
    return {name: read_parquet_set(folder / SETS[name].file) for name in names}


def _read_hub_set(name: str) -> ScoredPairs:
    source = SETS[name]
    advice = f"set data.root=FOLDER to a folder with sts/{source.file}"
    rows = hub.load_hub_dataset(source.hub, None, source.revision, SPLIT, f"the sentence pairs {name}", advice)
    return make_scored_pairs((list(rows[column][:]) for column in COLUMNS), "sentence", source.hub)


def read_parquet_set(file: Path) -> ScoredPairs:
    """Read a set from a Parquet file with the columns sentence1, sentence2 and score."""
    table = read_columns(file, COLUMNS)
    return make_scored_pairs((read_field(table, column) for column in COLUMNS), "sentence", str(file))
