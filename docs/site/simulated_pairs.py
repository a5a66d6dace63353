"""Measure, on made-up studies, how far the report's comparison over shared seeds and dev examples can be trusted.

    python docs/site/simulated_pairs.py [--studies 10000] [--resampled 2000] [--only accuracy|metrics]

A study has two methods with the same seeds and dev examples. An answer is correct if a sum of normal variables is
above a threshold: an example's difficulty, a seed's effect, seed and example together (all three the same for both
methods), and three of each method's own: on a seed, on an example, and on both together. True differences of
accuracy therefore follow from the normal distribution. ``measured`` has variances like those of 15 runs of
``make demo`` (MiniLM, Rotten Tomatoes, 840 dev examples, IsoBN and plain fine-tuning): accuracy 76%; two methods with
one seed disagree on 2% of the examples, two seeds of one method on 8%; differences have a standard deviation of about
0.5 points over seeds and of 1.4 points over examples, beside 14 points that are left. The other settings are ours.

It counts studies with a true difference of 0 where p < .05, and studies whose 95% interval holds the true difference;
``planted`` is another true difference, in points, and power the share of such studies with p < .05. The same of the
published percentile interval, from 2,000 of the studies and 1,000 resamples. At last the same of the other metrics:
F1, Matthews, Pearson, Spearman, and the means of accuracy and F1 and of Pearson and Spearman. They have fewer
studies, each with 200 bootstrap samples of the examples, and the variances of ``methods differ more``.
"""

import argparse
from dataclasses import dataclass

import numpy as np
from scipy import special

from isobench.statistics.paired_bootstrap import (
    ALPHA,
    CORRELATIONS,
    MIN_DISAGREEMENTS,
    PairedTest,
    average_covariance,
    compare_predictions,
    draw_multiplicities,
    judge_differences,
    resample_metric,
)

CELLS = 1_000_000  # of seed and example, that are made at a time
PERCENTILE_STUDIES, PERCENTILE_RESAMPLES = 2_000, 1_000
SEEDS = (2, 3, 5, 10, 20)
METRICS = ("f1", "matthews", "accuracy_f1", "pearson", "spearman", "pearson_spearman")
METRIC_SHAPES = ((3, 100), (5, 300), (10, 300))  # seeds, examples
METRIC_RESAMPLES = 200
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
        """Return the standard deviation of the sum that decides an answer."""
        own = self.method_seed + self.method_example + self.method_seed_example
        return (self.difficulty + self.seed + self.seed_example + own) ** 0.5

    @property
    def threshold(self) -> float:
        """Return the level that the sum exceeds in a correct answer."""
        return float(special.ndtri(self.accuracy)) * self.sd

    @property
    def planted_shift(self) -> float:
        """Return how much the better method's sum is raised, to plant the difference."""
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


def compare_studies(changes: np.ndarray) -> PairedTest:
    """Compare methods by the change of correctness, [studies, seeds, examples]; NaN where the report says nothing."""
    covariance = average_covariance(changes.swapaxes(1, 2)) / changes.shape[2]
    test = judge_differences(100 * changes.mean(2), 1e4 * covariance)
    enough = np.abs(changes).sum((1, 2)) >= MIN_DISAGREEMENTS
    return PairedTest(*(np.where(enough, part, np.nan) for part in test))


def bootstrap_percentiles(changes: np.ndarray, rng: np.random.Generator) -> PairedTest:
    """The published interval, quantiles over resampled seeds and examples: its middle and half its width."""
    studies, seeds, examples = changes.shape
    by_example = draw_multiplicities(examples, PERCENTILE_RESAMPLES, seed=1).astype(np.float32)
    by_seed = rng.multinomial(seeds, np.full(seeds, 1 / seeds), PERCENTILE_RESAMPLES).astype(np.float32)
    sums = (changes.reshape(-1, examples) @ by_example.T).reshape(studies, seeds, -1)
    resampled = 100 / (seeds * examples) * (sums * by_seed.T).sum(1)
    low, high = np.quantile(resampled, [ALPHA / 2, 1 - ALPHA / 2], axis=1)
    return PairedTest((low + high) / 2, (high - low) / 2, np.where((low > 0) | (high < 0), 0.0, 1.0))


def simulate(setting: Setting, seeds: int, examples: int, studies: int, percentile_studies: int) -> dict[str, float]:
    """Simulate the studies of one shape, without a difference and with the planted one, and count outcomes."""
    rng = np.random.default_rng([seeds, examples])
    results: dict[tuple[str, float], list[PairedTest]] = {}
    for start in range(0, studies, step := max(1, CELLS // (seeds * examples))):
        common, half = draw_latents(rng, min(step, studies - start), seeds, examples, setting)
        first = common - half > -setting.threshold
        for planted, shift in ((0.0, 0.0), (setting.planted, setting.planted_shift)):
            second = common + half > -setting.threshold - np.float32(shift)
            changes = second.astype(np.float32) - first
            results.setdefault(("ours", planted), []).append(compare_studies(changes))
            if start < percentile_studies:
                results.setdefault(("percentile", planted), []).append(bootstrap_percentiles(changes, rng))
    counts: dict[str, float] = {}
    for (name, planted), parts in results.items():
        value, margin, p = (np.concatenate(part) for part in zip(*parts, strict=True))
        said = ~np.isnan(p)
        case = "planted" if planted else "null"
        counts[f"{name}/{case}/said"] = float(said.mean())
        counts[f"{name}/{case}/coverage"] = float(np.mean(np.abs(value - planted)[said] <= margin[said]))
        counts[f"{name}/{case}/below"] = float(np.mean(p[said] < ALPHA))
    return counts


def simulate_metric(metric: str, seeds: int, examples: int, studies: int, planted: float) -> dict[str, float]:
    """Simulate studies of a metric that needs bootstrap samples; ``planted``: from ``find_true_difference``."""
    rng = np.random.default_rng([seeds, examples, studies])
    multiplicities = draw_multiplicities(examples, METRIC_RESAMPLES)
    counts: dict[str, float] = {}
    for case, truth in (("null", 0.0), ("planted", planted)):
        found = []
        for _ in range(studies):
            labels, ours, theirs = draw_predictions(rng, metric, seeds, examples, planted=case == "planted")
            pair = compare_predictions(metric, labels, ours, theirs, multiplicities)
            found.append((pair.p, pair.low <= truth <= pair.high))
        p, covered = np.array(found, dtype=float).T
        said = ~np.isnan(p)
        counts[f"{case}/said"] = float(np.mean(said))
        counts[f"{case}/coverage"] = float(np.mean(covered[said]))
        counts[f"{case}/below"] = float(np.mean(p[said] < ALPHA))
    return counts


def simulate_accuracy(studies: int) -> None:
    """Print the rows of accuracy."""
    print("setting n m said; ours and percentile: false positives, coverage 0, coverage planted, power; planted")
    for name, setting in SETTINGS.items():
        for seeds in SEEDS:
            for examples in setting.examples:
                row = simulate(setting, seeds, examples, studies, PERCENTILE_STUDIES)
                kinds = ("null/below", "null/coverage", "planted/coverage", "planted/below")
                cells = [f"{row[f'{who}/{kind}']:6.1%}" for kind in kinds for who in ("ours", "percentile")]
                print(f"{name:20} {seeds:2} {examples:5} {row['ours/null/said']:4.0%} ", *cells, setting.planted)


def simulate_metrics(studies: int) -> None:
    """Print the rows of the other metrics."""
    print("metric                n     m said  false positives  coverage 0/planted  power (points planted)")
    for metric in METRICS:
        planted = find_true_difference(metric)
        for seeds, examples in METRIC_SHAPES:
            r = simulate_metric(metric, seeds, examples, studies, planted)
            cells = [
                f"{r[kind]:7.1%}" for kind in ("null/below", "null/coverage", "planted/coverage", "planted/below")
            ]
            print(f"{metric:20} {seeds:2} {examples:5} {r['null/said']:4.0%}", *cells, f"({planted:.1f})", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=10_000)
    parser.add_argument("--resampled", type=int, default=2_000, help="studies of each metric that needs resamples")
    parser.add_argument("--only", choices=("accuracy", "metrics"), help="simulate only one of the two parts")
    options = parser.parse_args()
    if options.only != "metrics":
        simulate_accuracy(options.studies)
    if options.only != "accuracy":
        simulate_metrics(options.resampled)


if __name__ == "__main__":
    main()
