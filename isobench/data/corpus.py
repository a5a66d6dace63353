"""Running text for counting: read in batches, never all in memory."""

import csv
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isobench.common.errors import UserError, extract_first_line, suggest_nearest
from isobench.config.schema import Data
from isobench.data import hub, movie_reviews

TEXTS_PER_BATCH = 256  # texts
LINE_BREAK = "<br />"  # markup that stands in the film reviews


@dataclass(frozen=True)
class CorpusSource:
    """Where a corpus's texts are: Parquet files in a folder of ``data.root``, or the hub.

    ``texts``: how many the whole corpus has, where that is known.
    """

    folder: str
    column: str
    hub: str | None = None
    subset: str | None = None
    revision: str | None = None
    texts: int | None = None


CORPUS_SOURCES = {
    "cnn_dailymail": CorpusSource(
        "cnn_dailymail",
        "article",
        "abisee/cnn_dailymail",
        "3.0.0",
        "96df5e686bee6baa90b8bee7c28b81fa3fa6223d",
        311_971,
    ),
    "wikitext": CorpusSource("corpus", "text"),
}
CORPUS_NAMES = ("movie_reviews", *CORPUS_SOURCES)
PAPER_CORPUS = "cnn_dailymail"  # Too Much in Common's


@dataclass
class Corpus:
    """``texts`` in number, read again by every call of ``batches``; ``differs`` says how it is not the paper's."""

    name: str
    texts: int
    read: Callable[[], Iterator[list[str]]]
    differs: list[str]

    def batches(self) -> Iterator[list[str]]:
        """The texts in their order, at most ``BATCH`` at a time."""
        left = self.texts
        for batch in self.read():
            yield batch[:left]
            left -= len(batch)
            if left <= 0:
                return


def open_corpus(name: str, data: Data, limit: int | None = None) -> Corpus:
    """A corpus by its name; ``limit`` keeps the first so many texts.

    ``movie_reviews``: all texts of the package, Rotten Tomatoes sentences and IMDb reviews, line breaks' markup made
    blank. The others: all Parquet files of their folder in ``data.root`` in order of their names; without
    ``data.root`` all splits on the hub.

    Raises:
        UserError: an unknown name, a limit below 1, or texts that are not there.
    """
    if name not in CORPUS_NAMES:
        raise UserError(f"analysis.corpus={name} is not known: {suggest_nearest(name, CORPUS_NAMES)}")
    if limit is not None and limit < 1:
        raise UserError(f"analysis.texts={limit} must be at least 1")
    if name == "movie_reviews":
        texts, read = sum(map(len, _read_reviews())), _read_reviews
    elif data.root:
        texts, read = _open_parquet(name, CORPUS_SOURCES[name], Path(data.root).expanduser())
    else:
        texts, read = _open_hub(name, CORPUS_SOURCES[name])
    if not texts:
        raise UserError(f"analysis.corpus={name} has no texts")
    kept = min(texts, limit or texts)
    whole = CORPUS_SOURCES[PAPER_CORPUS].texts or 0
    differs = [] if name == PAPER_CORPUS else [f"corpus {name} is not the paper's"]
    if name == PAPER_CORPUS and kept < whole:
        differs = [f"{kept:,} of the {whole:,} texts of {name}"]
    return Corpus(name, kept, read, differs)


def _read_reviews() -> Iterator[list[str]]:
    with movie_reviews.find_csv().open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        while batch := [row["text"].replace(LINE_BREAK, " ") for row in itertools.islice(rows, TEXTS_PER_BATCH)]:
            yield batch


def _open_parquet(name: str, source: CorpusSource, root: Path) -> tuple[int, Callable[[], Iterator[list[str]]]]:
    import pyarrow
    import pyarrow.parquet

    files = sorted((root / source.folder).glob("*.parquet"))
    if not files:
        other = "; data.root=null takes it from the hub" if source.hub else ""
        raise UserError(
            f"analysis.corpus={name} needs {root / source.folder}/*.parquet with a column {source.column}{other}"
        )
    texts = 0
    for file in files:
        try:
            opened = pyarrow.parquet.ParquetFile(file)
        except (pyarrow.ArrowException, OSError) as error:
            raise UserError(f"{file} can't be read as Parquet: {extract_first_line(error)}") from error
        if source.column not in opened.schema_arrow.names:
            names = ", ".join(opened.schema_arrow.names)
            raise UserError(f"{file} lacks the column {source.column}; it has: {names}")
        texts += opened.metadata.num_rows

    def read() -> Iterator[list[str]]:
        for file in files:
            for batch in pyarrow.parquet.ParquetFile(file).iter_batches(TEXTS_PER_BATCH, columns=[source.column]):
                yield _check_texts(batch.column(0).to_pylist(), source.column, str(file))

    return texts, read


def _open_hub(name: str, source: CorpusSource) -> tuple[int, Callable[[], Iterator[list[str]]]]:
    if source.hub is None:
        raise UserError(
            f"analysis.corpus={name} is read from files: set data.root=FOLDER with FOLDER/{source.folder}/*.parquet "
            f"(column {source.column})"
        )
    there = hub.is_reachable()
    import datasets
    import huggingface_hub

    if not there:  # transformers may have imported it before the hub was asked for
        huggingface_hub.constants.HF_HUB_OFFLINE = True
    datasets.disable_progress_bars()
    try:
        splits = datasets.load_dataset(source.hub, source.subset, revision=source.revision)
        rows: Any = datasets.concatenate_datasets(list(splits.values())).select_columns([source.column])
    except Exception as error:  # the client raises many kinds; all mean the same to the user
        if there:
            raise UserError(f"the hub did not give {source.hub}: {extract_first_line(error)}") from error
        raise UserError(
            f"analysis.corpus={name}: the hub can't be reached and {source.hub} is not in its cache; set "
            f"data.root=FOLDER with FOLDER/{source.folder}/*.parquet, or analysis.corpus=movie_reviews"
        ) from error

    def read() -> Iterator[list[str]]:
        for batch in rows.iter(TEXTS_PER_BATCH):
            yield _check_texts(batch[source.column], source.column, str(source.hub))

    return len(rows), read


def _check_texts(texts: list[Any], column: str, where: str) -> list[str]:
    if not all(isinstance(text, str) for text in texts):
        raise UserError(f"{where} has a row whose {column} is not text")
    return texts
