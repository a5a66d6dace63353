"""Write, in sentences, what the runs support and what they can't. Published numbers have no part in it.

An arm is the scores of one method on one task, one a seed. The baseline is plain fine-tuning.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from isobench.common.terminal import format_count
from isobench.report.baseline_comparison import BaselineComparison, MethodArms, MethodKey
from isobench.report.method_effects import Effects, find_detectable_differences, group_arms_by_column
from isobench.report.trouble_notes import describe_troubles
from isobench.statistics.resampling import bootstrap_coverage, mean_difference, smallest_p
from isobench.statistics.seeds import ALPHA, POWER, Estimate

BASELINE = "plain fine-tuning"
MIN_COVERAGE = 0.94  # 95% bootstrap intervals that contain the true value less often are said to be too narrow


def describe_evidence(effects: Effects) -> list[str]:
    """Write sentences on the comparisons of all methods with plain fine-tuning, each with its numbers."""
    runs, arms = effects.runs, effects.arms
    return [
        *describe_uncompared(runs, arms),
        *describe_comparisons(effects),
        *describe_across_tasks(effects),
        *describe_single_seeds(runs, arms),
        *describe_power_limits(arms),
        *describe_repeated_columns(runs),
        *describe_troubles(runs),
    ]


def describe_uncompared(runs: BaselineComparison, arms: Mapping[MethodKey, MethodArms]) -> Iterator[str]:
    """Name the methods that can be compared with nothing."""
    if not runs.methods:
        yield f"Only {BASELINE} was run: there is nothing to compare." if runs.cells else "There are no runs."
    alone = [name for name in runs.methods if not runs.has_baseline_scores(name)]
    if alone:
        names = " or ".join(runs.format_method(name) for name in alone)
        yield f"No run of {BASELINE} has a score to compare with, so whether {names} helps can't be said."
    for name, own in arms.items():
        if name not in alone and not own.tested and not own.single_seed:
            yield f"{runs.format_method(name)}: its runs can't be compared with those of {BASELINE} on any task."


def describe_comparisons(effects: Effects) -> Iterator[str]:
    """Count the comparisons: how many there are, are significant, are expected by chance, and survive Holm."""
    tested = effects.family
    if not tested:
        return
    significant = [comparison for comparison in tested if (comparison.welch or 0.0) < ALPHA]
    better = sum(comparison.difference > 0 for comparison in significant)
    yield (
        f"{format_count(len(tested), 'comparison')} with {BASELINE}: {len(significant)} with p < {ALPHA} (Welch's "
        f"t-test, not corrected; {better} better, {len(significant) - better} worse); "
        f"chance alone gives about {ALPHA * len(tested):.2g}."
    )
    if len(tested) > 1:
        survivors = [
            f"{effects.runs.format_method(name)} on {column} ({format_points(difference)} points)"
            for name, columns in effects.survivors.items()
            for column, difference in columns.items()
        ]
        left = f"{len(survivors)} remain{'s' * (len(survivors) == 1)}: {', '.join(survivors)}"
        yield f"After Holm's correction over these {len(tested)}, {left if survivors else 'no difference is left'}."


def describe_across_tasks(effects: Effects) -> Iterator[str]:
    """Compare every method with plain fine-tuning over all its tasks; p is corrected for the number of methods."""
    methods = len(effects.by_method)
    for name, effect in effects.by_method.items():
        test = effect.test
        how = "exact" if test.drawn is None else f"{test.drawn:,} random relabellings"
        corrected = f"; {describe_p(effect.adjusted)} after Holm over {methods} methods" if methods > 1 else ""
        several = len(effect.columns) > 1
        verdict = describe_difference(effect.difference.value, effect.adjusted, effect.single_tasks, several)
        yield (
            f"{effects.runs.format_method(name)} on {format_columns(effect.columns)}: {verdict}. "
            f"{'Mean difference' if several else 'Difference'} {format_interval(effect.difference, format_points)} "
            f"points, probability of improvement {format_interval(effect.improvement, '{:.2f}'.format)}, "
            f"permutation test{' within tasks' * several} {describe_p(test.p)} ({how}{corrected})."
        )
    fewest = min((effect.fewest_seeds for effect in effects.by_method.values()), default=0)
    if fewest and bootstrap_coverage(fewest) < MIN_COVERAGE:
        yield (
            f"Brackets are 95% bootstrap intervals, which resample the runs of each task. With {fewest} seeds they "
            f"are too narrow: they contain the true value in {bootstrap_coverage(fewest):.0%} of cases at best."
        )


def describe_difference(difference: float, p: float, survivors: Mapping[str, float], several: bool) -> str:
    """Say what a mean difference and its corrected p show, and no more.

    Args:
        difference: mean over tasks, in points.
        p: of the test over all tasks, corrected for the number of methods.
        survivors: column -> difference, for single tasks whose difference survives Holm's correction.
        several: True if there is more than one task.
    """
    if p < ALPHA:
        return "higher than chance explains" if difference > 0 else "does not help here, lower than chance explains"
    if not survivors:
        return "no difference shown"
    better, worse = ([c for c, by in survivors.items() if (by > 0) is sign] for sign in (True, False))
    parts = [f"{verb} on {', '.join(c)} (after Holm)" for verb, c in (("helps", better), ("harms", worse)) if c]
    overall = "no difference shown" if better and worse else f"not shown to {'help' if better else 'harm'}"
    return f"{', '.join(parts)}, {overall} {'over all tasks' if several else 'by the permutation test'}"


def describe_single_seeds(runs: BaselineComparison, arms: Mapping[MethodKey, MethodArms]) -> Iterator[str]:
    """Give the differences that rest on a single seed, and say that no test is possible."""
    for name, own in arms.items():
        if own.single_seed:
            mean = "mean " * (len(own.single_seed) > 1)
            difference = format_points(mean_difference(list(own.single_seed.values())))
            yield (
                f"{runs.format_method(name)} on {format_columns(list(own.single_seed))}: it or {BASELINE} has a "
                f"single seed, so no test is possible; its {mean}difference of {difference} points may be chance."
            )


def describe_power_limits(arms: Mapping[MethodKey, MethodArms]) -> Iterator[str]:
    """Say what so few seeds can't show: the smallest possible p, and the least difference that is usually found."""
    columns = group_arms_by_column(arms)
    sizes = [(len(ours), len(theirs)) for pairs in columns.values() for ours, theirs in pairs]
    if hopeless := [size for size in sizes if smallest_p(*size) >= ALPHA]:
        some = f" ({len(hopeless)} of {len(sizes)} comparisons)" if len(hopeless) < len(sizes) else ""
        least_p = min(smallest_p(*size) for size in hopeless)
        yield (
            f"With {format_seeds_per_method(hopeless)}{some} no permutation test on one task can reach p < {ALPHA}, "
            f"however large the difference: its smallest possible p is {least_p:.2f}."
        )
    if detectable := find_detectable_differences(arms):
        low, high = min(detectable, key=detectable.__getitem__), max(detectable, key=detectable.__getitem__)
        span = f"about {detectable[low]:.2g} points"
        span += f" ({low}) to {detectable[high]:.2g} ({high})" if low != high else ""
        yield (
            f"With {format_seeds_per_method(sizes)} a difference under {span} would usually go unnoticed: at the "
            f"spread of these runs, a single t-test at {ALPHA}, not corrected, finds one as large in {POWER:.0%} of "
            "cases."
        )


def describe_repeated_columns(runs: BaselineComparison) -> Iterator[str]:
    """Name the columns that show the same runs as an earlier one."""
    columns = dict.fromkeys(c for cells in runs.cells.values() for c, cell in cells.items() if cell.comparison)
    first: dict[str, str] = {}  # task -> its first column
    for column in columns:
        earlier = first.setdefault(runs.find_task(column), column)
        if earlier != column:
            yield f"{column} shows the runs of {earlier} again: across tasks only {earlier} counts."


def format_columns(columns: Sequence[str]) -> str:
    """Name up to three columns; of more, give the number."""
    return ", ".join(columns) if len(columns) <= 3 else f"{len(columns)} tasks"


def format_seeds_per_method(sizes: Sequence[tuple[int, int]]) -> str:
    """Say how many seeds each of two compared methods has: ``5 seeds per method``, or ``2 against 5 seeds``."""
    pairs = dict.fromkeys((min(pair), max(pair)) for pair in sizes)
    if len(pairs) > 3:
        return f"{min(map(min, sizes))} to {max(map(max, sizes))} seeds per method"
    if all(few == many for few, many in pairs):
        return f"{' or '.join(str(few) for few, _ in sorted(pairs))} seeds per method"
    return f"{' or '.join(f'{few} against {many}' for few, many in sorted(pairs))} seeds"


def format_interval(estimate: Estimate, form: Callable[[float], str]) -> str:
    """Write a number, followed by its interval in brackets if it has one."""
    value = form(estimate.value)
    return value if math.isnan(estimate.low) else f"{value} [{form(estimate.low)}, {form(estimate.high)}]"


def format_points(difference: float) -> str:
    """Write a difference with its sign and two decimals; zero has no sign."""
    text = f"{difference:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text


def describe_p(p: float) -> str:
    """Write a p-value with two significant digits, or two decimals from 0.1 on."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}" if p < 0.1 else f"p = {p:.2f}"
