"""Draw synthetic studies of the shape of isotropy_dial, with the noise of pilot runs, for benchmarks/power.py."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isobench.report.dose_response import fit_slopes

SEED_SD = 1.0  # points; a seed's effect on all its runs, which within-seed statistics don't see


@dataclass(frozen=True)
class Noise:
    """Residuals of the pilot runs of an encoder.

    Attributes:
        residuals: scores less the means of their cells and seeds, in points, scaled to the lost degrees of freedom.
        step: points that one example of the dev set is worth.
    """

    residuals: np.ndarray
    step: float

    def draw(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        """Draw noise with the residuals' standard deviation; a little jitter fills the gaps between few values."""
        spread = self.residuals.std()
        jitter = rng.normal(scale=0.3 * spread, size=shape)
        return (rng.choice(self.residuals, size=shape) + jitter) / np.sqrt(1 + 0.3**2)


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
        scale = np.sqrt(rest.size / ((len(seeds) - 1) * (len(cells) - 1)))
        noise[encoder] = Noise(scale * rest.ravel(), 100 / float(own[0]["dev_examples"]))
    return noise


def simulate(rng: np.random.Generator, noise: Noise, effects: np.ndarray, studies: int, seeds: int) -> np.ndarray:
    """Draw scores, rounded to whole examples: true effects in points [cells] -> [studies, seeds, cells]."""
    scores = effects + noise.draw(rng, studies, seeds, len(effects)) + SEED_SD * rng.normal(size=(studies, seeds, 1))
    return np.round(scores / noise.step) * noise.step


class Design:
    """The cells of one encoder: plain fine-tuning, then every other dose of every dial.

    Attributes:
        names: of the dials.
        doses: of each dial.
        columns: of each dial, the cells that its doses are, plain fine-tuning's as dose 0 where it is one.
        cells: number of cells.
    """

    def __init__(self, dials: dict[str, list[float]], from_plain: dict[str, bool]) -> None:
        self.names, self.doses, self.columns = list(dials), list(dials.values()), list[list[int]]()
        self.cells = 1
        for name, doses in dials.items():
            places = []
            for dose in doses:
                is_plain = dose == 0 and from_plain[name]
                places.append(0 if is_plain else self.cells)
                self.cells += not is_plain
            self.columns.append(places)

    def effects(self, dial: int, points: float) -> np.ndarray:
        """Return the cells' true effects if one dial moves the score by ``points`` over its range. [cells]"""
        doses = np.array(self.doses[dial], dtype=float)
        effects = np.zeros(self.cells)
        effects[self.columns[dial]] = points * doses / np.ptp(doses)
        return effects

    def slopes(self, scores: np.ndarray) -> np.ndarray:
        """Fit every dial's slope over its whole range, per seed: [..., cells] -> [..., dials]."""
        pairs = zip(self.doses, self.columns, strict=True)
        return np.stack([np.ptp(doses) * fit_slopes(doses, scores[..., own]) for doses, own in pairs], axis=-1)

    def entries(self) -> tuple[list[int], np.ndarray, np.ndarray]:
        """List the (dial, dose) pairs: their cells, their dials as columns of 0 and 1, their doses scaled to 0..1."""
        cells = [cell for own in self.columns for cell in own]
        dials = np.repeat(np.eye(len(self.names)), [len(own) for own in self.columns], axis=0)
        doses = np.concatenate([(np.array(d) - min(d)) / np.ptp(d) for d in self.doses])
        return cells, dials, doses
