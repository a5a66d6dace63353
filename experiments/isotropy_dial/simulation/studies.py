"""Draw synthetic studies of the shape of isotropy_dial, with the noise of pilot runs, for power.py."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import special

from isobench.statistics.dose_response import fit_slopes

CHUNK = 1000  # studies at a time, to bound memory
PLAIN = "none"  # plain fine-tuning's name in the pilot's file
SEED_SD = 1.0  # points; a seed's effect on all its runs, which within-seed statistics don't see


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
        spread = self.residuals.std()
        jitter = rng.normal(scale=0.3 * spread, size=shape)
        return (rng.choice(self.residuals, size=shape) + jitter) / np.sqrt(1 + 0.3**2)

    def estimate_sd(self) -> tuple[float, float, float]:
        """Estimate the standard deviation with its 95% interval, which the chi-square distribution gives."""
        value = float(self.residuals.std())
        low, high = (value * float(np.sqrt(self.freedom / special.chdtri(self.freedom, p))) for p in (0.025, 0.975))
        return value, low, high


def read_pilot(file: Path) -> dict[str, Noise]:
    """Read the pilot runs: columns encoder, cell, seed, score (in percent) and dev_examples."""
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    noise = {}
    for encoder in dict.fromkeys(row["encoder"] for row in rows):
        own = [row for row in rows if row["encoder"] == encoder]
        cells, seeds = (list(dict.fromkeys(row[name] for row in own)) for name in ("cell", "seed"))
        scores = np.full((len(seeds), len(cells)), np.nan)
        for row in own:
            scores[seeds.index(row["seed"]), cells.index(row["cell"])] = float(row["score"])
        if np.isnan(scores).any() or min(scores.shape) < 2:
            raise SystemExit(f"{file}: {encoder} needs two cells and two seeds or more, each cell with each seed")
        rest = scores - scores.mean(0) - scores.mean(1, keepdims=True) + scores.mean()
        freedom = (len(seeds) - 1) * (len(cells) - 1)
        means = dict(zip(cells, scores.mean(0), strict=True))
        changes = {cell: float(mean - means[PLAIN]) for cell, mean in means.items()}
        residuals = np.sqrt(rest.size / freedom) * rest.ravel()
        noise[encoder] = Noise(residuals, freedom, 100 / float(own[0]["dev_examples"]), changes)
    return noise


def simulate(rng: np.random.Generator, noise: Noise, effects: np.ndarray, studies: int, seeds: int) -> np.ndarray:
    """Draw scores with independent noise of one size: true effects in points [cells] -> [studies, seeds, cells]."""
    return make_scores(rng, noise, effects + noise.draw(rng, studies, seeds, len(effects)))


def make_scores(rng: np.random.Generator, noise: Noise, values: np.ndarray) -> np.ndarray:
    """Add each seed's own effect to effects with noise, and round to whole examples. [studies, seeds, cells]"""
    scores = values + SEED_SD * rng.normal(size=(*values.shape[:2], 1))
    return np.round(scores / noise.step) * noise.step


def holm(p: np.ndarray) -> np.ndarray:
    """Adjust p-values by Holm's method along the last axis, for many studies at a time."""
    count = p.shape[-1]
    order = np.argsort(p, axis=-1)
    stepped = np.take_along_axis(p, order, -1) * np.arange(count, 0, -1)
    adjusted = np.minimum(np.maximum.accumulate(stepped, axis=-1), 1)
    result = np.empty_like(adjusted)
    np.put_along_axis(result, order, adjusted, -1)
    return result


def chunks(studies: int) -> Iterator[int]:
    """Split the studies into chunks."""
    while studies > 0:
        yield min(studies, CHUNK)
        studies -= CHUNK


class Design:
    """List the cells of one encoder: plain fine-tuning, then every other dose of every dial.

    Attributes:
        names: of the dials.
        doses: of each dial.
        from_plain: of each dial, whether its dose 0 is plain fine-tuning.
        columns: of each dial, the cells that its doses are; plain fine-tuning is cell 0.
        cells: number of cells.
    """

    def __init__(self, dials: dict[str, list[float]], from_plain: dict[str, bool]) -> None:
        self.names, self.doses, self.columns = list(dials), list(dials.values()), list[list[int]]()
        self.from_plain = [from_plain[name] for name in dials]
        self.cells = 1
        for name, doses in dials.items():
            places = []
            for dose in doses:
                is_plain = dose == 0 and from_plain[name]
                places.append(0 if is_plain else self.cells)
                self.cells += not is_plain
            self.columns.append(places)

    def turn(self, dial: int) -> np.ndarray:
        """Return how far each dose turns a dial, in shares of its range, with the dose's sign. [doses]

        It is 0 at plain fine-tuning. The dial that does not start there is turned fully, to -1, at its lowest dose
        and not at all at its highest, which is nearest to plain fine-tuning.
        """
        doses = np.array(self.doses[dial], dtype=float)
        return (doses if self.from_plain[dial] else doses - doses.max()) / np.ptp(doses)

    def effects(self, *points: float) -> np.ndarray:
        """Return the cells' true effects if each dial moves the score evenly by these points over its range."""
        effects = np.zeros(self.cells)
        for dial, own in enumerate(points):
            effects[self.columns[dial]] = own * self.turn(dial)
        return effects

    def slopes(self, scores: np.ndarray) -> np.ndarray:
        """Fit every dial's slope, times its range of doses, per seed: [..., cells] -> [..., dials]."""
        pairs = zip(self.doses, self.columns, strict=True)
        return np.stack([np.ptp(doses) * fit_slopes(doses, scores[..., own]) for doses, own in pairs], axis=-1)

    def entries(self) -> tuple[list[int], np.ndarray, np.ndarray]:
        """List the (dial, dose) pairs: their cells, their dials as columns of 0 and 1, how far they are turned."""
        cells = [cell for own in self.columns for cell in own]
        dials = np.repeat(np.eye(len(self.names)), [len(own) for own in self.columns], axis=0)
        return cells, dials, np.concatenate([self.turn(dial) for dial in range(len(self.names))])
