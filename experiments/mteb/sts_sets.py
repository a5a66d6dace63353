"""The sets of sentence pairs with human similarity scores: STS 2012 to 2016, STS Benchmark, SICK-R, BIOSSES."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from isobench.common.errors import UserError
from isobench.config.schema import Data
from isobench.data import hub
from isobench.data.scored_pairs import ScoredPairs, make_scored_pairs
from isobench.data.tables import has_column, read_fields

COLUMNS = ("sentence1", "sentence2", "score")
PART = "source"  # a further column: the sub-set of a pair


@dataclass(frozen=True)
class StsSet:
    """Hold where a set is: ``split`` of ``hub`` at ``revision``, or the files below ``data.root``, read together.

    ``pairs`` counts its pairs.
    """

    hub: str
    revision: str
    files: tuple[str, ...]
    pairs: int
    split: str = "test"


# The commits are those that MTEB's tasks name, and its result files.
SETS = {
    "sts12": StsSet("mteb/sts12-sts", "a0d554a64d88156834ff5ae9920b964011b16384", ("sts/sts12.parquet",), 3108),
    "sts13": StsSet("mteb/sts13-sts", "7e90230a92c190f1bf69ae9002b8cea547a64cca", ("sts/sts13.parquet",), 1500),
    "sts14": StsSet("mteb/sts14-sts", "6031580fec1f6af667f0bd2da0a551cf4f0b2375", ("sts/sts14.parquet",), 3750),
    "sts15": StsSet("mteb/sts15-sts", "ae752c7c21bf194d8b67fd573edf7ae58183cbe3", ("sts/sts15.parquet",), 3000),
    "sts16": StsSet("mteb/sts16-sts", "4d8694f8f0e0100860b497b999b3dbed754a0513", ("sts/sts16.parquet",), 1186),
    "stsb": StsSet(
        "mteb/stsbenchmark-sts", "b0fddb56ed78048fa8b90373c8a3cfc37b684831", ("sts/stsb_test_labelled.parquet",), 1379
    ),
    "stsb_dev": StsSet(
        "mteb/stsbenchmark-sts", "b0fddb56ed78048fa8b90373c8a3cfc37b684831",
        ("probe/stsbenchmark/validation.parquet",), 1500, "validation",
    ),
    "sickr": StsSet(
        "mteb/sickr-sts", "20a6d6f312dd54037fe07a32d58e5e168867909d",
        ("probe/sick/train.parquet", "probe/sick/validation.parquet", "probe/sick/test.parquet"), 9927,
    ),
    "biosses": StsSet(
        "mteb/biosses-sts", "d3fb88f8f02e40887cd149695127462bbcf29b4a", ("probe/biosses/test.parquet",), 100
    ),
}  # fmt: skip


def load_sentence_pairs(data: Data, names: Iterable[str]) -> dict[str, ScoredPairs]:
    """Read these sets, by name: from files below ``data.root``, or at the pinned commits of the hub if it is null."""
    root = None if data.root is None else Path(data.root).expanduser()
    missing = [file for name in names for file in SETS[name].files if root and not (root / file).is_file()]
    if missing:
        raise UserError(
            f"data.root: {root} lacks {', '.join(missing)} (columns {', '.join(COLUMNS)}); put them there, or set "
            "data.root=null to read the hub"
        )
    return {name: _read_files(root, SETS[name].files) if root else _read_hub_set(name) for name in names}


def _read_hub_set(name: str) -> ScoredPairs:
    source = SETS[name]
    advice = f"set data.root=FOLDER to a folder with {', '.join(source.files)}"
    rows = hub.load_hub_dataset(source.hub, None, source.revision, source.split, f"the sentence pairs {name}", advice)
    return make_scored_pairs((list(rows[column][:]) for column in COLUMNS), "sentence", source.hub)


def _read_files(root: Path, files: Sequence[str]) -> ScoredPairs:
    """Read pairs from Parquet files with the columns sentence1, sentence2 and score, one file after the other."""
    columns = zip(*(read_fields(root / file, COLUMNS) for file in files), strict=True)
    joined = [[value for own in column for value in own] for column in columns]
    pairs = make_scored_pairs(joined, "sentence", f"{root}: {', '.join(files)}")
    if all(has_column(root / file, PART) for file in files):
        pairs.parts = [value for file in files for value in read_fields(root / file, [PART])[0]]
    return pairs
