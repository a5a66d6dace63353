"""Compare two spaces of the same texts: another model, a quantised one, another server."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from isobench.common.errors import refuse
from isobench.common.files import replace_non_finite
from isobench.common.linalg import Array, divide_by_length
from isobench.frozen.matrix import describe_missing, find_first_rows, read_rows
from isobench.metrics.retrieval import NEIGHBOURS, find_neighbours
from isobench.metrics.similarity import correlate_ranks, linear_cka

ROWS, ANCHORS, MOVED = 4_000, 500, 10  # drawn at random, those whose order is compared, and those that are named
SEED = 0
HIGH = 0.9  # cosines, if 95% of the random pairs are above it
FEW, NEARLY_ALL = 0.5, 0.9  # of the neighbours


@dataclass(frozen=True)
class Comparison:
    """Hold how alike two spaces are, A and B, by a sample of their rows.

    Attributes:
        verdict: in words.
        rows: how many were compared.
        cka: linear CKA (Kornblith et al. 2019): 1 if the spaces are equal but for a rotation and a factor.
        neighbours: the share of the 10 nearest rows by cosine that are the same, and that by chance.
        agreement: Spearman's correlation of a row's cosines with 500 others in A and B, the mean over rows.
        cosines: 5, 50 and 95% quantiles of the cosines of random pairs in A, and in B.
        moved: row number, its agreement and its share of kept neighbours, of the rows that agree least.
        notes: what a reader must know.
    """

    verdict: str
    rows: int
    cka: float
    neighbours: tuple[float, float]
    agreement: float
    cosines: tuple[list[float], list[float]]
    moved: list[tuple[int, float, float]]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return plain values for strict JSON; a number that is not finite becomes None."""
        plain: dict[str, Any] = replace_non_finite(asdict(self))
        return plain

    def __str__(self) -> str:
        moved = ", ".join(f"{row} ({agreement:.4f})" for row, agreement, _ in self.moved)
        spaces = [" / ".join(f"{value:.3f}" for value in part) for part in self.cosines]
        lines = [
            self.verdict, "",
            f"linear CKA                 {self.cka:.4f}",
            f"10 nearest rows kept       {self.neighbours[0]:.1%} (by chance {self.neighbours[1]:.1%})",
            f"agreement of rankings      {self.agreement:.4f}",
            f"cosines of random pairs    A {spaces[0]}, B {spaces[1]} (5, 50 and 95% quantiles)",
            f"rows that moved most       {moved} (from 0, with their agreement)", *self.notes,
        ]  # fmt: skip
        return "\n".join(lines)


def compare_spaces(a: Array, b: Array) -> Comparison:
    """Compare vectors [N, d] and [N, e] of the same texts, in the same order."""
    refuse((len(a) != len(b), f"A has {len(a):,} rows and B has {len(b):,}: both must be of the same texts"))
    rng = np.random.default_rng(SEED)
    drawn, spaces, notes = _draw_rows(a, b, rng)
    refuse((len(drawn) < 3, "fewer than three different rows can be compared"))
    count = min(NEIGHBOURS, len(drawn) - 2)
    units = [divide_by_length(torch.from_numpy(x)).numpy() for x in spaces]
    nearest = [find_neighbours(unit, count) for unit in units]
    shared = np.array([len(np.intersect1d(*pair)) / count for pair in zip(*nearest, strict=True)])
    anchors = rng.choice(len(drawn), min(len(drawn), ANCHORS), replace=False)
    cosines = [unit @ unit[anchors].T for unit in units]  # [n, anchors] each
    itself = np.arange(len(drawn))[:, None] == anchors
    for part in cosines:
        part[itself] = 1  # exactly: first in both
    agreement = correlate_ranks(*cosines)
    quantiles_a, quantiles_b = (np.quantile(part[~itself], (0.05, 0.5, 0.95)).tolist() for part in cosines)
    found = float(shared.mean())
    verdict = _judge(found, count, quantiles_a[0], quantiles_b[0])
    order = np.argsort(np.nan_to_num(agreement, nan=-2), kind="stable")[:MOVED]  # undefined ones come first
    moved = [(int(drawn[row]), float(agreement[row]), float(shared[row])) for row in order]
    defined = agreement[np.isfinite(agreement)]
    return Comparison(
        verdict, len(drawn), linear_cka(*spaces), (found, count / (len(drawn) - 1)),
        float(defined.mean()) if len(defined) else np.nan, (quantiles_a, quantiles_b), moved, notes,
    )  # fmt: skip


def _draw_rows(a: Array, b: Array, rng: np.random.Generator) -> tuple[np.ndarray, list[np.ndarray], list[str]]:
    """Draw rows that are finite in both spaces, and once in A: their numbers [n], [n, d] and [n, e], and notes."""
    drawn = np.sort(rng.choice(len(a), min(len(a), ROWS), replace=False))
    spaces = [read_rows(vectors, drawn).astype(np.float64) for vectors in (a, b)]  # [n, d] and [n, e]
    kept = np.asarray(np.isfinite(np.concatenate(spaces, 1)).all(1))
    notes = [f"Of those drawn, {describe_missing(~kept)}"] if not kept.all() else []
    if len(drawn) < len(a):
        notes.append(f"{len(drawn):,} of {len(a):,} rows were drawn at random (seed {SEED}).")
    drawn, spaces = drawn[kept], [x[kept] for x in spaces]
    once = find_first_rows(spaces[0])
    if repeated := len(drawn) - len(once):
        notes.append(f"Rows of A that repeat another are left out: {repeated:,}.")
    return drawn[once], [x[once] for x in spaces], notes


def _judge(found: float, count: int, low_a: float, low: float) -> str:
    """Say in words whether B is like A; ``low_a``, ``low``: 5% quantiles of the cosines in A, and in B."""
    said = f"{found:.0%} of the {count} nearest rows are the same"
    if found >= FEW:
        return f"A and B agree {'nearly everywhere' if found >= NEARLY_ALL else 'in part'}: {said}."
    if low > HIGH and low > low_a:
        return f"B has collapsed: 95% of random pairs have a cosine above {low:.2f} (A: {low_a:.2f}), and {said}."
    return f"A and B disagree: {said}."
