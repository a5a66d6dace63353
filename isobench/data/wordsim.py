"""Word pairs with human scores: the five sets of Too Much in Common, or the two inside the package ``gensim``."""

import csv
import json
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from isobench.common.errors import UserError, extract_first_line, suggest_nearest
from isobench.common.files import sha256_file
from isobench.config.schema import Data

PAPER_SETS = ("men", "rw", "simlex999", "ws353_sim", "ws353_rel")  # in the order of the paper's Table 3
GENSIM_REQUIREMENT = "gensim==4.4.0"
# Set -> file in gensim/test/test_data, its sha256. Its WordSim-353 is not divided into similarity and relatedness.
EMBEDDED_SETS = {
    "simlex999": ("simlex999.txt", "d5e0501971478a511430ee880bd0121e94ac701ba86d90544d83e6d2ba3db05d"),
    "ws353": ("wordsim353.tsv", "f92a022fc2537793a15bc3a8c162ebcd74990e033a228bb6388cb71e4c0b1e1d"),
}
PARQUET_COLUMNS = ("word1", "word2", "score")
PART_OF_SPEECH = re.compile(r"-[njv]$")  # MEN's "sun-n", where a copy has it


@dataclass
class WordPairs:
    """One set: words as they are written, [N] each, and scores, [N]."""

    first: list[str]
    second: list[str]
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)


def load_word_pairs(data: Data) -> dict[str, WordPairs]:
    """Every set: the five from ``data.root``, or without it the embedded two.

    Raises:
        UserError: a file or a package that is not there or not what it should be.
    """
    if data.root is None:
        return {name: read_embedded_set(name) for name in EMBEDDED_SETS}
    return {name: read_parquet_set(find_wordsim_folder(data.root), name) for name in PAPER_SETS}


def read_embedded_set(name: str) -> WordPairs:
    """A set from gensim's own test data, checked against the pinned sha256 (the package is not imported)."""
    file_name, sha256 = EMBEDDED_SETS[name]
    spec = find_spec("gensim")
    if spec is None or spec.origin is None:
        raise UserError(f"the embedded word pairs need the package gensim: pip install {GENSIM_REQUIREMENT}")
    file = Path(spec.origin).parent / "test" / "test_data" / file_name
    if not file.is_file() or sha256_file(file) != sha256:
        raise UserError(f"{file} is not the pinned data: pip install --force-reinstall {GENSIM_REQUIREMENT}")
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.reader((line for line in lines if not line.startswith("#")), delimiter="\t"))
    return WordPairs([row[0] for row in rows], [row[1] for row in rows], np.array([float(row[2]) for row in rows]))


def find_wordsim_folder(root: str) -> Path:
    """``<root>/wordsim``."""
    found = Path(root).expanduser() / "wordsim"
    if not found.is_dir():
        raise UserError(f"data.root: {found} does not exist; data.root=null takes the word pairs that are installed")
    return found


def read_parquet_set(where: Path, name: str) -> WordPairs:
    """A set from ``<where>/<name>.parquet`` with the columns word1, word2, score."""
    file = where / f"{name}.parquet"
    if not file.is_file():
        hint = suggest_nearest(name, (other.stem for other in where.glob("*.parquet")))
        raise UserError(f"data.root: {file} does not exist; the five sets are {', '.join(PAPER_SETS)} ({hint})")
    columns = read_columns(file)
    first, second = (clean_words(columns[key], name, file) for key in PARQUET_COLUMNS[:2])
    try:
        scores = np.asarray(columns["score"], np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{file} has a score that is not a number") from error
    if not len(scores) or not np.isfinite(scores).all():
        raise UserError(f"{file} has {'a score that is not a finite number' if len(scores) else 'no rows'}")
    return WordPairs(first, second, scores)


def read_columns(file: Path) -> dict[str, list[Any]]:
    """The three columns of a Parquet file."""
    import pyarrow
    import pyarrow.parquet

    try:
        names = pyarrow.parquet.read_schema(file).names
        missing = [name for name in PARQUET_COLUMNS if name not in names]
        if missing:
            raise UserError(f"{file} lacks the column {', '.join(missing)}; it has: {', '.join(names)}")
        table = pyarrow.parquet.read_table(file, columns=list(PARQUET_COLUMNS))
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{file} can't be read as Parquet: {extract_first_line(error)}") from error
    return {name: table[name].to_pylist() for name in PARQUET_COLUMNS}


def clean_words(column: list[Any], name: str, file: Path) -> list[str]:
    """A column of words, MEN's without a part of speech."""
    if not all(isinstance(word, str) for word in column):
        raise UserError(f"{file} has a row whose word is not text")
    return [PART_OF_SPEECH.sub("", word) for word in column] if name == "men" else column


def select_single_token_pairs(pairs: WordPairs, tokenizer: Any) -> tuple[np.ndarray, np.ndarray]:
    """Token ids [n, 2] and scores [n] of the pairs whose words are both one known token, in their order.

    Words are taken as they are written, after a space for a byte-level tokenizer.
    """
    space = " " if is_byte_level(tokenizer) else ""
    written = sorted({*pairs.first, *pairs.second})
    tokens = tokenizer([space + word for word in written], add_special_tokens=False)["input_ids"]
    known = {
        word: ids[0]
        for word, ids in zip(written, tokens, strict=True)
        if len(ids) == 1 and ids[0] != tokenizer.unk_token_id
    }
    counted = [i for i in range(len(pairs)) if pairs.first[i] in known and pairs.second[i] in known]
    ids = [[known[pairs.first[i]], known[pairs.second[i]]] for i in counted]
    return np.array(ids, np.int64).reshape(-1, 2), pairs.scores[counted]


def is_byte_level(tokenizer: Any) -> bool:
    """Whether a token holds the space before its word, as in GPT-2's and RoBERTa's byte-level BPE."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return False
    splitter = json.loads(backend.to_str())["pre_tokenizer"] or {}
    return any(part.get("type") == "ByteLevel" for part in splitter.get("pretokenizers", [splitter]))
