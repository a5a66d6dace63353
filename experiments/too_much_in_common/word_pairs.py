"""Word pairs with human similarity scores: the five sets of Too Much in Common, a user's, or two in gensim."""

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isobench.common.errors import UserError, suggest_nearest
from isobench.common.packages import find_packaged_file
from isobench.config.schema import Data
from isobench.data.scored_pairs import ScoredPairs, make_scored_pairs
from isobench.data.tables import read_fields

PAPER_SETS = ("men", "rw", "simlex999", "ws353_sim", "ws353_rel")  # in the order of the paper's Table 3
GENSIM_REQUIREMENT = "gensim==4.4.0"
# By set: its file in gensim/test/test_data and the file's sha256. This WordSim-353 is not divided into similarity
# and relatedness.
EMBEDDED_SETS = {
    "simlex999": ("simlex999.txt", "d5e0501971478a511430ee880bd0121e94ac701ba86d90544d83e6d2ba3db05d"),
    "ws353": ("wordsim353.tsv", "f92a022fc2537793a15bc3a8c162ebcd74990e033a228bb6388cb71e4c0b1e1d"),
}
ALL = ["all"]  # as names: every set that is there
PARQUET_COLUMNS = ("word1", "word2", "score")
PART_OF_SPEECH = re.compile(r"-[njv]$")  # some copies of MEN write "sun-n"


def load_word_pairs(data: Data, names: Sequence[str] | None = None) -> dict[str, ScoredPairs]:
    """Read sets, by name, from ``data.root``, or from gensim if that is null.

    ``names``: None for the paper's five, or gensim's two; ``[all]`` for all that are there.

    Raises:
        UserError: a file or the package is missing, or not what it should be.
    """
    if data.root is None:
        wanted = list(EMBEDDED_SETS) if names in (None, ALL) else names or []
        if unknown := [name for name in wanted if name not in EMBEDDED_SETS]:
            known = ", ".join(EMBEDDED_SETS)
            raise UserError(f"analysis.sets: {unknown[0]} needs data.root=FOLDER; without it there are {known}")
        return {name: read_embedded_set(name) for name in wanted}
    folder = find_wordsim_folder(data.root)
    wanted = sorted(file.stem for file in folder.glob("*.parquet")) if names == ALL else names or PAPER_SETS
    return {name: read_parquet_set(folder, name) for name in wanted}


def read_embedded_set(name: str) -> ScoredPairs:
    """Read one of ``EMBEDDED_SETS`` from gensim's test data; gensim is not imported."""
    file_name, sha256 = EMBEDDED_SETS[name]
    needed_by = f"word similarity without data.root (the set {name})"
    file = find_packaged_file(GENSIM_REQUIREMENT, f"test/test_data/{file_name}", sha256, needed_by)
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.reader((line for line in lines if not line.startswith("#")), delimiter="\t"))
    return ScoredPairs([row[0] for row in rows], [row[1] for row in rows], np.array([float(row[2]) for row in rows]))


def find_wordsim_folder(root: str) -> Path:
    """Return the folder ``<root>/wordsim``, or raise UserError if there is none."""
    folder = Path(root).expanduser() / "wordsim"
    if not folder.is_dir():
        raise UserError(f"data.root: {folder} does not exist; data.root=null uses the installed word pairs")
    return folder


def read_parquet_set(folder: Path, name: str) -> ScoredPairs:
    """Read a set from ``<folder>/<name>.parquet``, which has the columns word1, word2 and score."""
    file = folder / f"{name}.parquet"
    if not file.is_file():
        hint = suggest_nearest(name, (other.stem for other in folder.glob("*.parquet")))
        raise UserError(f"data.root: {file} does not exist; the paper's sets are {', '.join(PAPER_SETS)} ({hint})")
    pairs = make_scored_pairs(read_fields(file, PARQUET_COLUMNS), "word", str(file))
    if name == "men":
        pairs.first, pairs.second = (
            [PART_OF_SPEECH.sub("", word) for word in words] for words in (pairs.first, pairs.second)
        )
    return pairs


def select_single_token_pairs(pairs: ScoredPairs, tokenizer: Any) -> tuple[np.ndarray, np.ndarray]:
    """Keep the pairs whose two words are each one known token of the vocabulary.

    Words keep their capitals. A byte-level tokenizer gets a space before each word, as in running text.

    Returns:
        Token ids [n, 2] and scores [n] of the kept pairs, in the order of ``pairs``.
    """
    space = " " if is_byte_level(tokenizer) else ""
    words = sorted({*pairs.first, *pairs.second})
    tokens = tokenizer([space + word for word in words], add_special_tokens=False)["input_ids"]
    known = {
        word: ids[0]
        for word, ids in zip(words, tokens, strict=True)
        if len(ids) == 1 and ids[0] != tokenizer.unk_token_id
    }
    kept = [i for i in range(len(pairs)) if pairs.first[i] in known and pairs.second[i] in known]
    ids = [[known[pairs.first[i]], known[pairs.second[i]]] for i in kept]
    return np.array(ids, np.int64).reshape(-1, 2), pairs.scores[kept]


def is_byte_level(tokenizer: Any) -> bool:
    """True if tokens include the space before their word, as in the byte-level BPE of GPT-2 and RoBERTa."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return False
    splitter = json.loads(backend.to_str())["pre_tokenizer"] or {}
    return any(part.get("type") == "ByteLevel" for part in splitter.get("pretokenizers", [splitter]))
