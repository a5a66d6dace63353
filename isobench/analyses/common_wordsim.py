"""Too Much in Common (Bis et al. 2021), Tables 2 and 3: word similarity, raw and without what is common."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

from isobench.analyses.findings import Findings, Line, beside_published, column
from isobench.analyses.settings import ROUNDINGS, without_calibration
from isobench.analyses.subject import Subject, each, notes
from isobench.calibration import all_but_the_top, center, center_scaled
from isobench.common.errors import UserError
from isobench.common.linalg import float64
from isobench.data import wordsim
from isobench.metrics.task import METRICS

PAPER = "too_much_in_common"
METHODS = ("raw", "centered", "centered_scaled", "post_process")  # the paper's rows
RELEASED = 2  # the released code's D
LEAST = 3  # pairs for a correlation: two always lie on a line
Rows = list[dict[str, Any]]


def analyse(subjects: list[Subject], removed: int | str) -> Findings:
    """How human scores of word pairs correlate with cosine and inner product, by encoder, method and set.

    Args:
        subjects: encoders.
        removed: D, the principal components that post-processing removes: a number, or ``ceil`` or ``floor`` of
            d / 100.

    Raises:
        UserError: word pairs that are not there, a D that can't be, a calibration.
    """
    if removed not in ROUNDINGS and (type(removed) is not int or removed < 0):
        raise UserError(f"analysis.removed={removed} must be ceil, floor or a whole number, at least 0")
    without_calibration(subjects)
    first = subjects[0].cfg
    if first.scale == "paper" and first.data.root is None:
        raise UserError(
            "the paper's word pairs are on no hub: set data.root=FOLDER to a folder with wordsim/, or scale=embedded"
        )
    sets = wordsim.load(first.data)
    rows: Rows = []
    for subject in each(subjects, "word similarity"):
        tokens = {name: wordsim.single_tokens(pairs, subject.tokenizer) for name, pairs in sets.items()}
        matrix = float64(subject.vocabulary())
        count = directions(removed, matrix.shape[1])
        subject.release()  # the rest of the encoder is not needed, and large
        for method in METHODS:
            vectors = transformed(matrix, method, count)
            for name, (ids, scores) in tokens.items():
                about = {"encoder": subject.encoder, "method": method, "set": name, "pairs_in_set": len(sets[name])}
                rows += [{**about, **found} for found in correlations(vectors, ids, scores)]
    means = averages(rows)
    labels = ("encoder", "method")
    return Findings(
        numbers={"word_similarity": rows, "averages": means},
        tables=[
            counts(rows),
            beside_published("Table 3: Pearson x 100, inner/cosine", labels, by_set(rows), PAPER, "table3"),
            beside_published("Table 2: averages of Table 3", labels, by_mean(means), PAPER, "table2"),
        ],
        notes=explained(rows, means, removed),
        differs=[*notes(subjects, "encoder"), *other_setting(sets, removed)],
    )


def directions(removed: int | str, dim: int) -> int:
    """D for embeddings of width ``dim``."""
    count = ROUNDINGS[removed](dim / 100) if isinstance(removed, str) and removed in ROUNDINGS else removed
    if type(count) is not int or not 0 <= count <= dim:
        raise UserError(f"analysis.removed={removed} must be ceil, floor or a number from 0 to {dim}")
    return count


def transformed(matrix: Tensor, method: str, count: int) -> Tensor:
    """The embedding matrix, [V, d], under one of ``METHODS``; ``count`` is D (Sections 5.1 and 5.2)."""
    if method == "raw":
        return matrix
    if method == "centered":
        return center(matrix)
    return center_scaled(matrix) if method == "centered_scaled" else all_but_the_top(matrix, count)


def correlations(vectors: Tensor, ids: np.ndarray, scores: np.ndarray) -> Iterator[dict[str, Any]]:
    """Pearson's and Spearman's correlation x 100 with inner product and cosine; NaN for fewer than three pairs.

    Args:
        vectors: [V, d], float64.
        ids: the rows of each pair's words, [n, 2].
        scores: [n].
    """
    left, right = (vectors[torch.from_numpy(ids[:, side])] for side in (0, 1))  # (n, d)
    similarities = {"inner": (left * right).sum(1), "cosine": torch.cosine_similarity(left, right)}
    for name, values in similarities.items():
        found = dict.fromkeys(("pearson", "spearman"), math.nan)
        if len(scores) >= LEAST:
            found = {kind: 100 * METRICS[kind](scores, values.numpy()) for kind in found}
        yield {"similarity": name, "pairs": len(scores), **found}


def averages(rows: Rows) -> Rows:
    """Means over the sets that have a number, by encoder, method and similarity."""
    groups: dict[tuple[str, ...], Rows] = {}
    for row in rows:
        if not math.isnan(row["pearson"]):
            groups.setdefault((row["encoder"], row["method"], row["similarity"]), []).append(row)
    return [
        {
            **dict(zip(("encoder", "method", "similarity"), key, strict=True)),
            "sets": ", ".join(row["set"] for row in found),
            **{kind: float(np.mean([row[kind] for row in found])) for kind in ("pearson", "spearman")},
        }
        for key, found in groups.items()
    ]


def by_set(rows: Rows) -> dict[Line, dict[str, str]]:
    """Table 3's cells, inner/cosine."""
    cells: dict[Line, dict[str, str]] = {}
    for row in rows:
        line, name = cells.setdefault((row["encoder"], row["method"]), {}), printed(row["set"])
        line[name] = f"{line[name]}/{row['pearson']:.2f}" if name in line else f"{row['pearson']:.2f}"
    return cells


def by_mean(means: Rows) -> dict[Line, dict[str, str]]:
    """Table 2's cells, the cosine first as there."""
    cells: dict[Line, dict[str, str]] = {}
    for row in reversed(means):
        name = column(PAPER, "table2", "word_similarity", row["similarity"])
        cells.setdefault((row["encoder"], row["method"]), {})[name] = f"{row['pearson']:.2f}"
    return dict(reversed(cells.items()))


def counts(rows: Rows) -> Table:
    """How many pairs count: a line an encoder, a column a set."""
    shown = Table(title="Pairs that count: both words one known token", title_justify="left", header_style="bold")
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        cells.setdefault(row["encoder"], {})[printed(row["set"])] = f"{row['pairs']} of {row['pairs_in_set']}"
    shown.add_column("encoder", overflow="fold")
    for name in next(iter(cells.values())):
        shown.add_column(name, justify="right", no_wrap=True)
    for encoder, found in cells.items():
        shown.add_row(encoder, *found.values())
    return shown


def printed(name: str) -> str:
    """The paper's name of a set."""
    return column(PAPER, "table3", name, "pearson")


def explained(rows: Rows, means: Rows, removed: int | str) -> list[str]:
    """What has to be known to read the tables."""
    found = [
        f"analysis.removed={removed} is how many principal components post_process takes away: 2 in the released "
        "code; the text has floor(d / 100), Table 1's caption ceil."
    ]
    averaged = {row["encoder"]: row["sets"] for row in means}
    found += [f"Table 2, {encoder}: the average of {names}." for encoder, names in averaged.items()]
    few = {(row["encoder"], row["set"]): row["pairs"] for row in rows if row["pairs"] < LEAST}
    found += [
        f"{encoder}: only {number} pairs of {name} count: no number." for (encoder, name), number in few.items()
    ]
    if any(row["set"] == "men" for row in rows):
        found.append("MEN is taken in its lemma form.")
    return found


def other_setting(sets: Iterable[str], removed: int | str) -> list[str]:
    """How data and D are not the paper's."""
    found = []
    if tuple(sets) != wordsim.SETS:
        found.append("SimLex-999 and the undivided WordSim-353 instead of five sets")
    return found if removed == RELEASED else [*found, f"D = {removed}, not {RELEASED}"]
