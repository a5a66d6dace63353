"""Corpora of running text, to count words in; read in batches, so that they need not fit into memory."""

import csv
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from isobench.common.errors import UserError, doing, refuse, suggest_nearest
from isobench.common.progress import track_progress
from isobench.config.schema import Data
from isobench.data import hub
from isobench.data.packaged import movie_reviews
from isobench.data.sources import check_texts
from isobench.data.tables import require_columns

TEXTS_PER_BATCH = 256
LINE_BREAK = "<br />"  # markup in the film reviews
# Corpus -> its folder in data.root, the column with its texts, and name, subset and commit of a data set on the hub.
CORPORA: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "movie_reviews": ("", "text", ()),  # a package
    "cnn_dailymail": (
        "cnn_dailymail", "article", ("abisee/cnn_dailymail", "3.0.0", "96df5e686bee6baa90b8bee7c28b81fa3fa6223d"),
    ),
    "wikitext": ("corpus", "text", ()),
}  # fmt: skip
PAPER_CORPUS, PAPER_TEXTS = "cnn_dailymail", 311_971  # Too Much in Common's, and how many texts it has
Read = Callable[[], Iterator[list[str]]]  # starts a new pass over all texts, in batches


@dataclass
class Corpus:
    """A corpus of which ``text_count`` texts are read; ``read`` reads all."""

    name: str
    text_count: int
    read: Read

    def iter_batches(self) -> Iterator[list[str]]:
        """Yield the first ``text_count`` texts in their order, at most ``TEXTS_PER_BATCH`` at a time."""
        left = self.text_count
        for batch in self.read():
            yield batch[:left]
            left -= len(batch)
            if left <= 0:
                return

    def track(self, what: str) -> Iterator[list[str]]:
        """Do the same with a progress bar labelled ``what``."""
        return track_progress(self.iter_batches(), what, total=-(-self.text_count // TEXTS_PER_BATCH))


def open_corpus(name: str, data: Data, limit: int | None = None) -> Corpus:
    """Open a corpus; its first ``limit`` texts, or all of them if that is None.

    ``movie_reviews`` is all texts of the package: Rotten Tomatoes sentences and IMDb reviews, with a blank for each
    ``<br />``. The others are all Parquet files of their folder in ``data.root``, sorted by name, or all splits on
    the hub if ``data.root`` is null.
    """
    refuse((name not in CORPORA, f"analysis.corpus={name} is not known: {suggest_nearest(name, CORPORA)}"))
    if name == "movie_reviews":
        count, read = sum(map(len, _read_reviews())), _read_reviews
    else:
        count, read = _open_parquet(name, Path(data.root).expanduser()) if data.root else _open_hub(name)
    refuse((not count, f"analysis.corpus={name} has no texts; choose another corpus"))
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


def _open_parquet(name: str, root: Path) -> tuple[int, Read]:
    """Return how many texts a corpus's files have, and what reads them."""
    import pyarrow.parquet

    folder, column, on_hub = CORPORA[name]
    files = sorted((root / folder).glob("*.parquet"))
    other = "; data.root=null takes it from the hub" if on_hub else ""
    refuse((not files, f"analysis.corpus={name} needs {root / folder}/*.parquet with a column {column}{other}"))
    count = 0
    for file in files:
        with doing(f"{file} can't be read as Parquet"):
            opened = pyarrow.parquet.ParquetFile(file)
        require_columns(opened.schema_arrow, [column], str(file))
        count += opened.metadata.num_rows

    def read() -> Iterator[list[str]]:
        for file in files:
            for batch in pyarrow.parquet.ParquetFile(file).iter_batches(TEXTS_PER_BATCH, columns=[column]):
                yield check_texts(batch.column(0).to_pylist(), column, str(file), blank="skipped")

    return count, read


def _open_hub(name: str) -> tuple[int, Read]:
    """Return how many texts a corpus has on the hub, all splits, and what reads them."""
    folder, column, on_hub = CORPORA[name]
    advice = f"set data.root=FOLDER with FOLDER/{folder}/*.parquet"
    if not on_hub:
        raise UserError(f"analysis.corpus={name} is read from files: {advice} (column {column})")
    advice += ", or analysis.corpus=movie_reviews"
    splits = hub.load_hub_dataset(*on_hub, None, f"analysis.corpus={name}", advice)
    import datasets

    rows = datasets.concatenate_datasets(list(splits.values())).select_columns([column])

    def read() -> Iterator[list[str]]:
        for batch in rows.iter(TEXTS_PER_BATCH):
            yield check_texts(batch[column], column, on_hub[0], blank="skipped")

    return len(rows), read
