"""Measure, on made-up studies, how far the report's comparison over shared seeds and dev examples can be trusted.

    python benchmarks/power_pairs.py [--studies 10000] [--resampled 2000]

A study has two methods with the same seeds and dev examples. An answer is correct if a sum of normal variables is
above a threshold: an example's difficulty, a seed's effect, seed and example together (all three the same for both
methods), and three of each method's own: on a seed, on an example, and on both together. True differences of
accuracy therefore follow from the normal distribution. ``measured`` has variances like those of 15 runs of
``make demo`` (MiniLM, Rotten Tomatoes, 840 dev examples, IsoBN and plain fine-tuning): accuracy 76%; two methods with
one seed disagree on 2% of the examples, two seeds of one method on 8%; differences have a standard deviation of about
0.5 points over seeds and of 1.4 points over examples, beside 14 points that are left. The other settings are ours.

It counts studies with a true difference of 0 where p < .05, and studies whose 95% interval holds the true difference;
``planted`` is another true difference, in points, and power the share of such studies with p < .05. The same of the
published percentile interval, from 2,000 of the studies and 1,000 resamples. At last, F1, Matthews, Pearson and
Spearman without a difference: fewer studies, each with 200 bootstrap samples of the examples.
"""

import argparse
import time
from dataclasses import asdict, dataclass

from common import write_result

import numpy as np
from scipy import special

from isobench.report.paired_bootstrap import (
    ALPHA,
    MIN_DISAGREEMENTS,
    PairedTest,
    average_covariance,
    compare_predictions,
    draw_multiplicities,
    judge_differences,
)

CELLS = 1_000_000  # of seed and example, that are made at a time
PERCENTILE_STUDIES, PERCENTILE_RESAMPLES = 2_000, 1_000


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
SEEDS = (2, 3, 5, 10, 20)
METRICS = ("f1", "matthews", "pearson", "spearman")
METRIC_SHAPES = ((3, 100), (5, 300), (10, 300))  # seeds, examples
METRIC_RESAMPLES = 200


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


def compare_studies(changes: np.ndarray) -> PairedTest:
    """Compare the methods of many studies, in points; NaN where the report says nothing.

    Args:
        changes: correctness of the second method less that of the first, [studies, seeds, examples].
    """
    covariance = average_covariance(changes.swapaxes(1, 2)) / changes.shape[2]
    test = judge_differences(100 * changes.mean(2), 1e4 * covariance)
    enough = np.abs(changes).sum((1, 2)) >= MIN_DISAGREEMENTS
    return PairedTest(*(np.where(enough, part, np.nan) for part in test))


def bootstrap_percentiles(changes: np.ndarray, rng: np.random.Generator) -> PairedTest:
    """Compute the published interval: quantiles of the difference over resampled seeds and examples.

    All studies share the resamples. The interval is given by its middle and half its width; p is 0 if it excludes 0.
    """
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


def simulate_metric(metric: str, seeds: int, examples: int, studies: int) -> dict[str, float]:
    """Simulate studies of a metric that needs bootstrap samples, without a difference.

    Classes: a quarter of the labels is 1, and correctness is that of ``measured``. Scores: a label is predicted with
    an error of normal variables as above, with the variances of ``methods differ more``.
    """
    rng = np.random.default_rng([seeds, examples, studies])
    is_score = metric in ("pearson", "spearman")
    setting = SETTINGS["methods differ more"]
    multiplicities = draw_multiplicities(examples, METRIC_RESAMPLES)
    p_values = []
    for _ in range(studies):
        ((common,), (half,)) = draw_latents(rng, 1, seeds, examples, setting)
        if is_score:
            labels = rng.standard_normal(examples)
            ours, theirs = labels + common + half, labels + common - half
        else:
            labels = (rng.random(examples) < 0.25).astype(np.float64)
            ours, theirs = (
                np.where(x > -setting.threshold, labels, 1 - labels) for x in (common + half, common - half)
            )
        p_values.append(compare_predictions(metric, labels, ours, theirs, multiplicities).p)
    p = np.array(p_values)
    return {"said": float(np.mean(~np.isnan(p))), "below": float(np.mean(p[~np.isnan(p)] < ALPHA))}


def format_line(row: dict, planted: float) -> str:
    """Write a line of the table."""
    kinds = ("null/below", "null/coverage", "planted/coverage", "planted/below")
    ours, published = ([row[f"{who}/{kind}"] for kind in kinds] for who in ("ours", "percentile"))
    return (
        f"{row['setting']:20} {row['seeds']:2} {row['examples']:5} {row['ours/null/said']:4.0%} "
        f"{ours[0]:5.1%} {published[0]:5.1%}   {ours[1]:5.1%} {ours[2]:6.1%} {published[1]:6.1%}  "
        f"{ours[3]:5.1%} {published[3]:5.1%} ({planted:g})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=10_000)
    parser.add_argument("--resampled", type=int, default=2_000, help="studies of each metric that needs resamples")
    options = parser.parse_args()
    start, rows = time.process_time(), []
    print("                              false positives     coverage            power")
    print("setting               n     m said  ours perc.   ours 0/planted perc.  ours perc. (points planted)")
    for name, setting in SETTINGS.items():
        for seeds in SEEDS:
            for examples in setting.examples:
                r = simulate(setting, seeds, examples, options.studies, PERCENTILE_STUDIES)
                rows.append({"setting": name, "seeds": seeds, "examples": examples, **r})
                print(format_line(rows[-1], setting.planted), flush=True)
    metrics = []
    for metric in METRICS:
        for seeds, examples in METRIC_SHAPES:
            own = simulate_metric(metric, seeds, examples, options.resampled)
            metrics.append({"metric": metric, "seeds": seeds, "examples": examples, **own})
            print(f"{metric:20} {seeds:2} {examples:5} {own['said']:4.0%} {own['below']:5.1%}", flush=True)
    seconds = time.process_time() - start
    print(f"{options.studies:,} studies of each shape, {seconds:.0f} s of processor time")
    settings = {name: asdict(setting) for name, setting in SETTINGS.items()}
    result = {"studies": options.studies, "settings": settings, "shapes": rows, "metrics": metrics}
    write_result("power_pairs", {**result, "processor_seconds": seconds})


if __name__ == "__main__":
    main()
