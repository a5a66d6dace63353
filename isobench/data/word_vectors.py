"""Word vectors, one for each word: GloVe's in a package, or a user's file in the text or binary word2vec format.

A text file has a line for each word: the word, then its numbers, with single blanks between them; word2vec's begins
with a line ``V d`` (words and numbers of each), GloVe's does not. In a binary file each word is followed by a blank
and d float32. Files are read in pieces, so memory holds the words but never all vectors. Nothing is unpickled.
"""

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from isobench.common.errors import UserError, doing, refuse
from isobench.common.files import MEBIBYTE, cache_dir, explain_cache_errors, shorten_digest
from isobench.config.schema import Encoder
from isobench.data import tables, weights
from isobench.data.cache import make_checked_folder
from isobench.data.packaged import encoders

if TYPE_CHECKING:  # late: a command line is read without it
    import numpy as np

VERSION = 1  # of the converted folder: raise it when its content changes
GLOVE_FILES = ("glove_6B_index.parquet", "glove_6B_50d_emb.npy")  # words (column index) and vectors
FILES = ("words.json", "vectors.f32")  # of the converted folder
LONGEST_WORD = 1000  # bytes; the longest of well-known files has some hundred
PEEK = 2 * MEBIBYTE  # bytes that tell the format
BLOCK = 16 * MEBIBYTE  # bytes of text read at once; no line may be longer
ROWS = 4096  # vectors of a binary file read at once

Piece = tuple[list[str], "np.ndarray"]  # n words and their vectors, [n, d] float32


def open_word_vectors(encoder: Encoder, cache: str | None) -> tuple[list[str], "np.ndarray"]:
    """Return an encoder's words and its vectors, [V, d] float32, memory-mapped; changes to them stay in memory.

    A user's file is converted once and kept in the cache. Of a word that it has twice, the first vector counts.
    """
    import numpy as np

    file = weights.find_word_vectors(encoder)
    folder = cache_dir(cache) / "encoders"
    with explain_cache_errors(folder):
        if not encoder.path:
            words, vectors = (encoders.make_package_folder(encoder, folder) / name for name in GLOVE_FILES)
            return tables.read_field(tables.read_columns(words, ["index"]), "index"), np.load(vectors, mmap_mode="c")
        digest = shorten_digest(weights.fingerprint_encoder(encoder)["word_vectors"])
        made = make_checked_folder(folder / f"word_vectors-{digest}-v{VERSION}", lambda work: _convert(file, work))
        names = orjson.loads((made / FILES[0]).read_bytes())
        return names, np.memmap(made / FILES[1], "<f4", "c").reshape(len(names), -1)


def _convert(file: Path, folder: Path) -> None:
    """Write a file's words, each once, as JSON, and their vectors [V, d] as float32: the two ``FILES``."""
    import numpy as np

    promised, dim, binary = _read_layout(file)
    words: dict[str, int] = {}  # word -> its first row in the file
    rows = 0
    with (folder / FILES[1]).open("wb") as stream:
        for names, vectors in _read_binary(file, promised or 0, dim) if binary else _read_text(file, promised, dim):
            if not (finite := np.isfinite(vectors).all(1)).all():
                raise UserError(f"{file}: the vector of word {rows + finite.argmin() + 1:,} has NaN or infinity")
            new = [words.setdefault(name, row) == row for row, name in enumerate(names, rows)]
            stream.write(np.ascontiguousarray(vectors[new], "<f4").tobytes())
            rows += len(names)
    if not rows or promised not in (None, rows):
        raise UserError(f"{file} has {rows:,} words, but its first line says {promised}: copy it again")
    (folder / FILES[0]).write_bytes(orjson.dumps(list(words)))


def _read_layout(file: Path) -> tuple[int | None, int, bool]:
    """Read the words that a file's header promises (None without a header), d, and whether the file is binary."""
    with file.open("rb") as stream:
        first, _, rest = stream.read(PEEK).removeprefix(codecs.BOM_UTF8).partition(b"\n")
    fields, second = first.split(), rest.partition(b"\n")[0]
    promised: int | None = None
    if len(fields) != 2 or not all(field.isdigit() and len(field) < 10 for field in fields):
        dim, binary = len(fields) - 1, False
    else:
        promised, dim, binary = int(fields[0]), int(fields[1]), not _holds_numbers(second)
    refuse((dim < 1, f"{file} is no file of word vectors: a line must be a word and numbers"))
    return promised, dim, binary


def _holds_numbers(line: bytes) -> bool:
    """Return whether a line is a word and numbers."""
    try:
        return bool([float(number) for number in line.split()[1:]])
    except ValueError:
        return False


def _read_text(file: Path, promised: int | None, dim: int) -> Iterator[Piece]:
    import numpy as np
    import pyarrow
    from pyarrow import csv

    header = promised is not None
    with file.open("rb") as stream:  # word2vec's own program ends each line with a blank
        ends_with_blank = [stream.readline(PEEK) for _ in range(1 + header)][-1].rstrip(b"\r\n").endswith(b" ")
    columns: dict[str, Any] = {"word": pyarrow.string()} | {str(i): pyarrow.float32() for i in range(dim)}
    columns |= {"end": pyarrow.string()} if ends_with_blank else {}
    options = (
        csv.ReadOptions(use_threads=False, block_size=BLOCK, skip_rows=int(header), column_names=list(columns)),
        csv.ParseOptions(delimiter=" ", quote_char=False),
        csv.ConvertOptions(column_types=columns, null_values=[]),
    )
    has_other_line = doing(f"{file} has a line that is not a word and {dim} numbers in UTF-8")
    with has_other_line, file.open("rb") as stream, csv.open_csv(stream, *options) as batches:
        for batch in batches:
            if batch.num_rows:
                numbers = [batch.column(str(i)).to_numpy() for i in range(dim)]
                yield batch.column("word").to_pylist(), np.stack(numbers, 1)


def _read_binary(file: Path, promised: int, dim: int) -> Iterator[Piece]:
    """Yield the words and vectors after a binary file's first line, ``ROWS`` at a time."""
    import mmap

    import numpy as np

    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        position, names, rows = content.find(b"\n") + 1, [], []
        for number in range(1, promised + 1):
            end = content.find(b" ", position, position + LONGEST_WORD + 2)  # of the word, which \n may precede
            stop = end + 1 + 4 * dim  # of its vector
            if end < 0 or stop > len(content):
                where = f"cut short at word {number:,} of the {promised:,} that its first line says"
                raise UserError(f"{file}, read as binary as its second line is no text of numbers, is {where}")
            with doing(f"{file}, word {number:,}"):
                names.append(content[position:end].lstrip(b"\n").decode())
            rows.append(content[end + 1 : stop])
            position = stop
            if len(rows) == ROWS or number == promised:
                yield names, np.frombuffer(b"".join(rows), "<f4").reshape(-1, dim)
                names, rows = [], []
        if content[position : position + 2].strip(b"\n"):
            raise UserError(f"{file} goes on after the {promised:,} words that its first line says: copy it again")
