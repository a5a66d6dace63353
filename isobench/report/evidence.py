"""What the runs support and what they can't, in sentences. Published numbers have no part in it."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from isobench.common.terminal import format_count
from isobench.report.baseline_comparison import (
    BASE_METHOD,
    CONSTANT_PREDICTOR,
    BaselineComparison,
    MethodArms,
    MethodKey,
)
from isobench.report.document import ReportTable
from isobench.report.effects import ALPHA, POWER, Estimate, detectable_difference, pooled_sd
from isobench.report.resampling import (
    Arms,
    bootstrap_coverage,
    mean_difference,
    mean_difference_interval,
    probability_of_improvement,
    stratified_permutation_test,
)
from isobench.report.seed_statistics import collect_test_family, holm, smallest_p

UNDEFINED_SCORE = "undefined score (NaN)"
UNFINISHED_STATES = ("running", "queued", "interrupted", "missing", "damaged")  # states, not what became of a run
MIN_COVERAGE = 0.94  # a 95% bootstrap interval that covers less is said to be too narrow


def describe_evidence(tables: Sequence[ReportTable], base: str = BASE_METHOD) -> list[str]:
    """Sentences on the comparisons of all methods with ``base``, each with its numbers; nothing beyond them.

    Args:
        tables: with ``comparison`` in the cells of scores (in percent), and of these only. Columns of one task
            (``ReportTable.tasks``) show the same runs: across tasks the first of them counts.
        base: the method that the others are compared with.
    """
    runs = BaselineComparison(tables, base)
    against = {name: runs.collect_arms(name) for name in runs.methods}
    return [
        *describe_uncompared(runs, against),
        *describe_comparisons(runs, tables),
        *describe_across_tasks(runs, against, find_holm_survivors(tables)),
        *describe_single_seeds(runs, against),
        *describe_power_limits(against),
        *describe_repeated_columns(runs),
        *describe_troubles(runs),
    ]


def describe_uncompared(runs: BaselineComparison, against: Mapping[MethodKey, MethodArms]) -> Iterator[str]:
    """What has no counterpart."""
    if not runs.methods:
        yield f"Only {runs.base} was run: there is nothing to compare." if runs.cells else "There are no runs."
    alone = [name for name in runs.methods if not runs.has_base_scores(name)]
    if alone:
        names = " or ".join(runs.format_method(name) for name in alone)
        yield f"No run of {runs.base} has a score to compare with: whether {names} helps can't be said."
    for name, found in against.items():
        if name not in alone and not found.tested and not found.single:
            method = runs.format_method(name)
            yield f"{method}: there is no task on which its runs and those of {runs.base} can be compared."


def describe_comparisons(runs: BaselineComparison, tables: Sequence[ReportTable]) -> Iterator[str]:
    """How many there are, how many are below .05, how many by chance, how many after Holm's correction."""
    tested = [(key, copies[0], copies[0].welch or 0.0) for key, copies in collect_test_family(tables).items()]
    if not tested:
        return
    low = [comparison for _, comparison, p in tested if p < ALPHA]
    better = sum(comparison.difference > 0 for comparison in low)
    yield (
        f"{format_count(len(tested), 'comparison')} with {runs.base}: {len(low)} with p < {ALPHA} (Welch's t-test, "
        f"not corrected; {better} better, {len(low) - better} worse); "
        f"chance alone gives about {ALPHA * len(tested):.2g}."
    )
    if len(tested) > 1:
        left = [
            f"{runs.format_method(name)} on {column} ({format_points(difference)} points)"
            for name, columns in find_holm_survivors(tables).items()
            for column, difference in columns.items()
        ]
        yield f"After Holm's correction over these {len(tested)}, {len(left) or 'none'} remain" + (
            f"{'s' * (len(left) == 1)}: {', '.join(left)}." if left else "s: no single difference is established."
        )


def find_holm_survivors(tables: Sequence[ReportTable]) -> dict[MethodKey, dict[str, float]]:
    """Columns and differences of every method that survive Holm's correction over all comparisons."""
    tested = collect_test_family(tables)
    adjusted = holm([copies[0].welch or 0.0 for copies in tested.values()])
    found: dict[MethodKey, dict[str, float]] = {}
    for ((encoder, method, column, _), copies), p in zip(tested.items(), adjusted, strict=True):
        if p < ALPHA:
            found.setdefault((encoder, method), {})[column] = copies[0].difference
    return found


def describe_across_tasks(
    runs: BaselineComparison, against: Mapping[MethodKey, MethodArms], single: Mapping[MethodKey, Mapping[str, float]]
) -> Iterator[str]:
    """Every method over its tasks; p corrected for the number of methods. ``single``: the ``survivors``."""
    tested = {name: list(found.tested.values()) for name, found in against.items() if found.tested}
    tests = {name: stratified_permutation_test(tasks) for name, tasks in tested.items()}
    adjusted = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    for name, tasks in tested.items():
        test, mean = tests[name], mean_difference_interval(tasks)
        how = "exact" if test.drawn is None else f"{test.drawn:,} random relabellings"
        corrected = f"; {describe_p(adjusted[name])} after Holm over {len(tests)} methods" if len(tests) > 1 else ""
        several = len(tasks) > 1
        columns = {c: by for c, by in single.get(name, {}).items() if c in against[name].tested}
        says = describe_difference(mean_difference(tasks), adjusted[name], columns, several)
        yield (
            f"{runs.format_method(name)} on {format_columns(list(against[name].tested))}: {says}. "
            f"{'Mean difference' if several else 'Difference'} {format_interval(mean, format_points)} points, "
            f"probability of improvement {format_interval(probability_of_improvement(tasks), '{:.2f}'.format)}, "
            f"permutation test{' within tasks' * several} {describe_p(test.p)} ({how}{corrected})."
        )
    fewest = min((len(arm) for tasks in tested.values() for arms in tasks for arm in arms), default=0)
    if tested and bootstrap_coverage(fewest) < MIN_COVERAGE:
        yield (
            f"Brackets: 95% bootstrap intervals, runs drawn within tasks. With {fewest} seeds they are too narrow: "
            f"they hold the truth in {bootstrap_coverage(fewest):.0%} of cases at best."
        )


def describe_difference(difference: float, p: float, single: Mapping[str, float], several: bool) -> str:
    """What a mean difference and its corrected p say, no more.

    ``single``: differences on one task that survive Holm. ``several``: there are more tasks than one.
    """
    if p < ALPHA:
        return "higher than chance explains" if difference > 0 else "does not help here, lower than chance explains"
    if not single:
        return "no difference shown"
    better, worse = ([c for c, by in single.items() if (by > 0) is sign] for sign in (True, False))
    parts = [f"{what} on {', '.join(c)} (after Holm)" for what, c in (("helps", better), ("harms", worse)) if c]
    shown = "no difference shown" if better and worse else f"not shown to {'help' if better else 'harm'}"
    return f"{', '.join(parts)}, {shown} {'over all tasks' if several else 'by the permutation test'}"


def describe_single_seeds(runs: BaselineComparison, against: Mapping[MethodKey, MethodArms]) -> Iterator[str]:
    """Where there is one run in an arm: numbers without a test."""
    for name, found in against.items():
        if found.single:
            mean = "mean " * (len(found.single) > 1)
            yield (
                f"{runs.format_method(name)} on {format_columns(list(found.single))}: one seed in an arm, "
                f"no test is possible; its {mean}difference of "
                f"{format_points(mean_difference(list(found.single.values())))} points may be chance."
            )


def describe_power_limits(against: Mapping[MethodKey, MethodArms]) -> Iterator[str]:
    """What so few seeds can't show: the smallest p, and the least difference that is usually found."""
    columns = group_arms_by_column(against)
    sizes = [(len(ours), len(theirs)) for every in columns.values() for ours, theirs in every]
    if hopeless := [size for size in sizes if smallest_p(*size) >= ALPHA]:
        some = f" ({len(hopeless)} of {len(sizes)} comparisons)" if len(hopeless) < len(sizes) else ""
        least_p = min(smallest_p(*size) for size in hopeless)
        yield (
            f"With {format_seeds_per_arm(hopeless)}{some} no permutation test on one task can reach p < {ALPHA}, "
            f"however large the difference: its smallest possible p is {least_p:.2f}."
        )
    least = {column: column_detectable_difference(every) for (_, column), every in columns.items()}
    if least := {column: points for column, points in least.items() if points > 0}:
        low, high = min(least, key=least.__getitem__), max(least, key=least.__getitem__)
        span = f"about {least[low]:.2g} points" + (f" ({low}) to {least[high]:.2g} ({high})" if low != high else "")
        yield (
            f"With {format_seeds_per_arm(sizes)} a difference under {span} would usually go unnoticed: at the spread "
            f"of these runs, that is what a single t-test at {ALPHA}, not corrected, finds in {POWER:.0%} of cases."
        )


def group_arms_by_column(against: Mapping[MethodKey, MethodArms]) -> dict[tuple[str, str], list[Arms]]:
    """The tested arms of all methods by encoder and column."""
    columns: dict[tuple[str, str], list[Arms]] = {}
    for (encoder, _), found in against.items():
        for column, arms in found.tested.items():
            columns.setdefault((encoder, column), []).append(arms)
    return columns


def column_detectable_difference(every: Sequence[Arms]) -> float:
    """The least difference that one column's runs would show, from their pooled spread and the smallest arms."""
    base = every[0][1]
    spread = pooled_sd([base, *(ours for ours, _ in every)])
    return detectable_difference(spread, min(len(ours) for ours, _ in every), len(base))


def describe_repeated_columns(runs: BaselineComparison) -> Iterator[str]:
    """Columns that show runs which another one shows already."""
    columns = dict.fromkeys(c for cells in runs.cells.values() for c, cell in cells.items() if cell.comparison)
    first: dict[str, str] = {}
    for column in columns:
        if first.setdefault(runs.task(column), column) != column:
            yield f"{column} shows the runs of {first[runs.task(column)]} again: across tasks one of them counts."


def describe_troubles(runs: BaselineComparison) -> Iterator[str]:
    """What went wrong, the base's too, and that it is in no mean."""
    for name, cells in runs.cells.items():
        found: dict[tuple[str, str], tuple[str, int]] = {}  # task, what -> first column, runs
        for column, cell in cells.items():
            undefined = sum(map(math.isnan, cell.values)) - cell.troubles.get(CONSTANT_PREDICTOR, 0)
            for what, number in (cell.troubles | ({UNDEFINED_SCORE: undefined} if undefined > 0 else {})).items():
                found.setdefault((runs.task(column), what), (column, number))
        kinds: dict[str, list[str]] = {}
        for (_, what), (column, number) in found.items():
            named = (
                f"{number} on {column}"
                if what in (CONSTANT_PREDICTOR, UNDEFINED_SCORE)
                else f"{number} {what} on {column}"
            )
            kinds.setdefault(describe_consequence(what), []).append(named)
        for words, where in kinds.items():
            yield f"{runs.format_method(name)}: {words.format(', '.join(where))}."


def describe_consequence(what: str) -> str:
    """A sentence on runs with this trouble, with a place for which."""
    if what == CONSTANT_PREDICTOR:
        return "constant predictors ({}): those tasks are in no mean, though the collapse is a result"
    if what == UNDEFINED_SCORE:
        return "undefined scores, NaN ({}): those tasks are in no mean"
    if what in UNFINISHED_STATES:
        return "runs without a result ({}): in no mean, which may yet change"
    return "failed runs ({}): without a score and in no mean, which is of the others only"


def format_columns(columns: Sequence[str]) -> str:
    """A few by name, many by number."""
    return ", ".join(columns) if len(columns) <= 3 else f"{len(columns)} tasks"


def format_seeds_per_arm(sizes: Sequence[tuple[int, int]]) -> str:
    """How many seeds arms have, in words."""
    low, high = min(map(min, sizes)), max(map(max, sizes))
    return f"{low} seeds an arm" if low == high else f"{low} to {high} seeds an arm"


def format_interval(estimate: Estimate, form: Callable[[float], str]) -> str:
    """A number with its interval, where there is one."""
    shown = form(estimate.value)
    return shown if math.isnan(estimate.low) else f"{shown} [{form(estimate.low)}, {form(estimate.high)}]"


def format_points(difference: float) -> str:
    """A difference with its sign; none has next to nothing."""
    shown = f"{difference:+.2f}"
    return "0.00" if shown in ("+0.00", "-0.00") else shown


def describe_p(p: float) -> str:
    """A p with two digits that count."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}" if p < 0.1 else f"p = {p:.2f}"
