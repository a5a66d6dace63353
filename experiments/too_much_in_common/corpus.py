"""Corpora of running text, to count words in; read in batches, so that they need not fit into memory."""

import csv
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isobench.common.errors import UserError, suggest_nearest
from isobench.common.files import require_regular_file
from isobench.config.schema import Data
from isobench.data import hub
from isobench.data.packaged import movie_reviews
from isobench.data.sources import check_texts
from isobench.data.tables import name_file_in_errors, require_columns

TEXTS_PER_BATCH = 256
LINE_BREAK = "<br />"  # markup in the film reviews


@dataclass(frozen=True)
class CorpusSource:
    """Where the texts of a corpus are: Parquet files in a folder of ``data.root``, or a data set on the hub.

    ``column`` holds the texts.
    """

    folder: str
    column: str
    hub: str | None = None
    subset: str | None = None
    revision: str | None = None


CORPUS_SOURCES = {
    "cnn_dailymail": CorpusSource(
        "cnn_dailymail",
        "article",
        "abisee/cnn_dailymail",
        "3.0.0",
        "96df5e686bee6baa90b8bee7c28b81fa3fa6223d",
    ),
    "wikitext": CorpusSource("corpus", "text"),
}
CORPUS_NAMES = ("movie_reviews", *CORPUS_SOURCES)
PAPER_CORPUS, PAPER_TEXTS = "cnn_dailymail", 311_971  # Too Much in Common's, and how many texts it has


@dataclass
class Corpus:
    """A corpus of which ``text_count`` texts are read; ``read`` starts a new pass over all its texts, in batches."""

    name: str
    text_count: int
    read: Callable[[], Iterator[list[str]]]

    def iter_batches(self) -> Iterator[list[str]]:
        """Yield the first ``text_count`` texts in their order, at most ``TEXTS_PER_BATCH`` at a time."""
        left = self.text_count
        for batch in self.read():
            yield batch[:left]
            left -= len(batch)
            if left <= 0:
                return


def open_corpus(name: str, data: Data, limit: int | None = None) -> Corpus:
    """Open a corpus; its first ``limit`` texts, or all of them if that is None.

    ``movie_reviews`` is all texts of the package: Rotten Tomatoes sentences and IMDb reviews, with a blank for each
    ``<br />``. The others are all Parquet files of their folder in ``data.root``, sorted by name, or all splits on
    the hub if ``data.root`` is null.
    """
    if name not in CORPUS_NAMES:
        raise UserError(f"analysis.corpus={name} is not known: {suggest_nearest(name, CORPUS_NAMES)}")
    if name == "movie_reviews":
        count, read = sum(map(len, _read_reviews())), _read_reviews
    elif data.root:
        count, read = _open_parquet(name, CORPUS_SOURCES[name], Path(data.root).expanduser())
    else:
        count, read = _open_hub(name, CORPUS_SOURCES[name])
    if not count:
        raise UserError(f"analysis.corpus={name} has no texts; choose another corpus")
    return Corpus(name, min(count, limit or count), read)


def find_corpus_differences(name: str, text_count: int) -> list[str]:
    """List how a corpus of which so many texts were read differs from the paper's."""
    if name != PAPER_CORPUS:
        return [f"corpus {name} is not the paper's"]
    return [f"{text_count:,} of the {PAPER_TEXTS:,} texts of {name}"] if text_count < PAPER_TEXTS else []


def _read_reviews() -> Iterator[list[str]]:
    with movie_reviews.find_csv("analysis.corpus=movie_reviews").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        while batch := [row["text"].replace(LINE_BREAK, " ") for row in itertools.islice(rows, TEXTS_PER_BATCH)]:
            yield batch


def _open_parquet(name: str, source: CorpusSource, root: Path) -> tuple[int, Callable[[], Iterator[list[str]]]]:
    """Return how many texts the corpus's files have, and a function that reads them in batches."""
    import pyarrow.parquet

    files = sorted((root / source.folder).glob("*.parquet"))
    if not files:
        other = "; data.root=null takes it from the hub" if source.hub else ""
        raise UserError(
            f"analysis.corpus={name} needs {root / source.folder}/*.parquet with a column {source.column}{other}"
        )
    count = 0
    for file in files:
        require_regular_file(file)
        with name_file_in_errors(file):
            opened = pyarrow.parquet.ParquetFile(file)
        require_columns(opened.schema_arrow, [source.column], str(file))
        count += opened.metadata.num_rows

    def read() -> Iterator[list[str]]:
        for file in files:
            for batch in pyarrow.parquet.ParquetFile(file).iter_batches(TEXTS_PER_BATCH, columns=[source.column]):
                yield check_texts(batch.column(0).to_pylist(), source.column, str(file), blank="skipped")

    return count, read


def _open_hub(name: str, source: CorpusSource) -> tuple[int, Callable[[], Iterator[list[str]]]]:
    """Return how many texts the corpus has on the hub, all splits, and a function that reads them in batches."""
    if source.hub is None:
        raise UserError(
            f"analysis.corpus={name} is read from files: set data.root=FOLDER with FOLDER/{source.folder}/*.parquet "
            f"(column {source.column})"
        )
    advice = f"set data.root=FOLDER with FOLDER/{source.folder}/*.parquet, or analysis.corpus=movie_reviews"
    setting = f"analysis.corpus={name}"
    splits = hub.load_hub_dataset(source.hub, source.subset, source.revision, None, setting, advice)
    import datasets

    rows: Any = datasets.concatenate_datasets(list(splits.values())).select_columns([source.column])

    def read() -> Iterator[list[str]]:
        for batch in rows.iter(TEXTS_PER_BATCH):
            yield check_texts(batch[source.column], source.column, str(source.hub), blank="skipped")

    return len(rows), read
