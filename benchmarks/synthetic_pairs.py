"""Make up the answers of two methods that share seeds and dev examples, for benchmarks/power_pairs.py."""

from dataclasses import dataclass

import numpy as np
from scipy import special

from isobench.statistics.paired_bootstrap import CORRELATIONS, resample_metric

RUN_ERROR_SD = 0.02  # of the factor by which a run's errors of scores are larger or smaller
PLANTED_ERROR = 0.9  # the second method's errors of scores, relative to the first's, where a difference is planted


@dataclass(frozen=True)
class Setting:
    """Variances of the normal variables, and the share of correct answers of plain fine-tuning."""

    accuracy: float
    difficulty: float
    seed: float
    seed_example: float
    method_seed: float
    method_example: float
    method_seed_example: float
    planted: float  # points
    examples: tuple[int, ...] = (100, 300)

    @property
    def sd(self) -> float:
        own = self.method_seed + self.method_example + self.method_seed_example
        return (self.difficulty + self.seed + self.seed_example + own) ** 0.5

    @property
    def threshold(self) -> float:
        return float(special.ndtri(self.accuracy)) * self.sd

    @property
    def planted_shift(self) -> float:
        return float(special.ndtri(self.accuracy + self.planted / 100)) * self.sd - self.threshold


SETTINGS = {
    "measured": Setting(0.763, 0.94, 7e-4, 0.055, 1.6e-4, 3e-4, 3e-3, planted=1, examples=(100, 300, 1000)),
    "methods differ more": Setting(0.7, 0.85, 2e-3, 0.05, 2e-3, 0.02, 0.07, planted=3),
    "seeds matter most": Setting(0.7, 0.85, 2e-3, 0.05, 2e-2, 0.01, 0.05, planted=5),
    "examples matter most": Setting(0.7, 0.85, 2e-3, 0.05, 2e-4, 0.07, 0.03, planted=3),
}


def draw_latents(rng: np.random.Generator, studies: int, seeds: int, examples: int, s: Setting) -> tuple:
    """Draw what both methods have in common, and half of what the second has beyond the first. [studies, n, m] each.

    With variances u in common and e of each method's own, mean and half difference have the variances u + e / 2 and
    e / 2, and are independent.
    """

    def draw(variance: float, *shape: int) -> np.ndarray:
        return np.float32(variance**0.5) * rng.standard_normal((studies, *shape), dtype=np.float32)

    common = draw(s.seed_example + s.method_seed_example / 2, seeds, examples)
    common += draw(s.difficulty + s.method_example / 2, 1, examples)
    common += draw(s.seed + s.method_seed / 2, seeds, 1)
    half = draw(s.method_seed_example / 2, seeds, examples)
    half += draw(s.method_example / 2, 1, examples)
    half += draw(s.method_seed / 2, seeds, 1)
    return common, half


def draw_predictions(rng: np.random.Generator, metric: str, seeds: int, examples: int, planted: bool) -> tuple:
    """Draw labels, [examples], and both methods' predictions, [seeds, examples], for a metric other than accuracy.

    All have the variances of ``methods differ more``. Classes: a quarter of the labels is 1, and a prediction is
    correct if a sum of normal variables is above a threshold, as for accuracy; a planted difference moves it.
    Scores: a prediction is a standard normal label plus an error, which is such a sum. As no correlation sees that
    all of a run's scores are shifted, each run's error is also made larger or smaller, by a factor with a standard
    deviation of ``RUN_ERROR_SD``. A planted difference makes all errors of the second method smaller.
    """
    setting = SETTINGS["methods differ more"]
    ((common,), (half,)) = draw_latents(rng, 1, seeds, examples, setting)
    if metric in CORRELATIONS:
        labels = rng.standard_normal(examples)
        factors = 1 + RUN_ERROR_SD * rng.standard_normal((2, seeds, 1))
        smaller = PLANTED_ERROR if planted else 1.0
        return labels, labels + smaller * factors[0] * (common + half), labels + factors[1] * (common - half)
    labels = (rng.random(examples) < 0.25).astype(np.float64)
    shift = setting.planted_shift if planted else 0.0
    ours, theirs = common + half > -setting.threshold - shift, common - half > -setting.threshold
    return labels, np.where(ours, labels, 1 - labels), np.where(theirs, labels, 1 - labels)


def find_true_difference(metric: str) -> float:
    """Find the planted difference of a metric in points, from 20 times 50 seeds with 10,000 examples."""
    rng = np.random.default_rng(1)
    differences = []
    for _ in range(20):
        labels, ours, theirs = draw_predictions(rng, metric, 50, 10_000, planted=True)
        ours, theirs = (resample_metric(metric, labels, runs, np.ones((1, 10_000))) for runs in (ours, theirs))
        differences.append(float(np.mean(ours - theirs)))
    return 100 * float(np.mean(differences))
