"""Draw synthetic studies of the shape of isotropy_dial, with the noise of pilot runs, for power.py."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import special

from isobench.config.composing import compose_experiment
from isobench.statistics import seeds
from isobench.statistics.dose_response import fit_slopes, student_t
from isobench.statistics.seeds import ALPHA, POWER
from isobench_papers.isotropy_dial.design import list_design
from isobench_papers.isotropy_dial.rows import DIALS, PLAIN

CHUNK = 1000  # studies at a time, to bound memory
SEED_SD = 1.0  # points; a seed's effect on all its runs, which within-seed statistics don't see
PLANTED = 1.0  # points over a dial's whole range, where coverage is measured with a true effect


@dataclass(frozen=True)
class Noise:
    """Hold the residuals of the pilot runs of an encoder.

    Attributes:
        residuals: scores less the means of their cells and seeds, in points, scaled to the lost degrees of freedom.
        freedom: degrees of freedom of the residuals.
        step: points that one example of the dev set is worth.
        changes: by cell, its mean score less that of plain fine-tuning, in points.
    """

    residuals: np.ndarray
    freedom: int
    step: float
    changes: dict[str, float]

    def draw(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        """Draw noise with the residuals' standard deviation; a little jitter fills the gaps between few values."""
        jitter = rng.normal(scale=0.3 * self.residuals.std(), size=shape)
        return (rng.choice(self.residuals, size=shape) + jitter) / np.sqrt(1 + 0.3**2)

    def estimate_sd(self) -> tuple[float, float, float]:
        """Estimate the standard deviation with its 95% interval, which the chi-square distribution gives."""
        value = float(self.residuals.std())
        low, high = (value * float(np.sqrt(self.freedom / special.chdtri(self.freedom, p))) for p in (0.025, 0.975))
        return value, low, high


def read_pilot(file: Path) -> dict[str, Noise]:
    """Read the pilot runs: columns encoder, cell, seed, score (in percent) and dev_examples."""
    noise = {}
    for encoder, own in pd.read_csv(file, float_precision="round_trip").groupby("encoder", sort=False):
        table = own.pivot_table("score", "seed", "cell").loc[own.seed.unique(), own.cell.unique()]
        scores = np.ascontiguousarray(table)
        rest = scores - scores.mean(0) - scores.mean(1, keepdims=True) + scores.mean()
        freedom = (scores.shape[0] - 1) * (scores.shape[1] - 1)
        means = dict(zip(table.columns, scores.mean(0).tolist(), strict=True))
        changes = {cell: mean - means[PLAIN] for cell, mean in means.items()}
        residuals = np.sqrt(rest.size / freedom) * rest.ravel()
        noise[str(encoder)] = Noise(residuals, freedom, 100 / float(own.dev_examples.iloc[0]), changes)
    return noise


class Design:
    """List the cells of one encoder: plain fine-tuning, then every other dose of every dial.

    Attributes:
        doses: of each dial, by its name.
        turns: of each dial, how far each dose turns it, in shares of its range, with the dose's sign. It is 0 at
            plain fine-tuning. The dial that does not start there is turned fully, to -1, at its lowest dose and not
            at all at its highest, which is nearest to plain fine-tuning.
        columns: of each dial, the cells that its doses are; plain fine-tuning is cell 0.
        cells: number of cells.
        seeds: number of seeds.
    """

    def __init__(self) -> None:
        rows = list_design(compose_experiment("isotropy_dial"))
        self.doses, self.turns, self.columns, self.cells = {}, {}, {}, 1
        self.seeds = max(row["seeds"] for row in rows)
        for dial in DIALS:
            doses = np.array([row["dose"] for row in rows if row["dial"] == dial.name])
            if not len(doses):  # a dial of the second registration
                continue
            is_new = np.ones(len(doses), int) - (dial.starts_plain & (doses == 0))
            self.doses[dial.name] = doses.tolist()
            self.turns[dial.name] = (doses if dial.starts_plain else doses - doses.max()) / np.ptp(doses)
            self.columns[dial.name] = np.where(is_new, self.cells + is_new.cumsum() - 1, 0)
            self.cells += int(is_new.sum())

    def effects(self, points: float | dict[str, float]) -> np.ndarray:
        """Return the cells' true effects if dials move the score evenly by these points over their range. [cells]"""
        effects = np.zeros(self.cells)
        for name, cells in self.columns.items():
            effects[cells] = (points.get(name, 0.0) if isinstance(points, dict) else points) * self.turns[name]
        return effects

    def slopes(self, scores: np.ndarray) -> np.ndarray:
        """Fit every dial's slope, times its range of doses, per seed: [..., cells] -> [..., dials]."""
        own = [
            np.ptp(doses) * fit_slopes(doses, scores[..., self.columns[name]]) for name, doses in self.doses.items()
        ]
        return np.stack(own, axis=-1)


def simulate(rng: np.random.Generator, noise: Noise, effects: np.ndarray, studies: int, repeats: int) -> np.ndarray:
    """Draw scores with independent noise of one size: true effects in points [cells] -> [studies, seeds, cells]."""
    return make_scores(rng, noise, effects + noise.draw(rng, studies, repeats, len(effects)))


def make_scores(rng: np.random.Generator, noise: Noise, values: np.ndarray) -> np.ndarray:
    """Add each seed's own effect to effects with noise, and round to whole examples. [studies, seeds, cells]"""
    scores = values + SEED_SD * rng.normal(size=(*values.shape[:2], 1))
    return np.round(scores / noise.step) * noise.step


def test_seeds(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Average a statistic over seeds: [studies, seeds, n] -> mean, ends of the interval and p, each [studies, n]."""
    return student_t(np.moveaxis(values, 1, -1))


def holm(p: np.ndarray) -> np.ndarray:
    """Adjust the p-values of each study by Holm's method: [studies, tests] -> [studies, tests]."""
    return np.apply_along_axis(seeds.holm, -1, p)


def find_smallest(
    test: Callable[[float], np.ndarray], others: list[np.ndarray], highest: float, step: float
) -> float:
    """Find the smallest effect that 80% of studies find after Holm's correction, by halving.

    Args:
        test: effect -> its p in each study.
        others: p of the family's other tests, [studies] each.
        highest: where the search begins.
        step: its precision.
    """
    low, high = 0.0, highest
    while high - low > step:
        middle = (low + high) / 2
        is_found = holm(np.stack([test(middle), *others], axis=-1))[:, 0] < ALPHA
        low, high = (low, middle) if is_found.mean() >= POWER else (middle, high)
    return high


def chunks(studies: int) -> Iterator[int]:
    while studies > 0:
        yield min(studies, CHUNK)
        studies -= CHUNK
