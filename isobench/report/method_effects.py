"""Measure how far every method is from plain fine-tuning over its tasks, and which differences its seeds can show.

An arm is the scores of one method on one task, one for each seed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from isobench.report.baseline_comparison import (
    BaselineComparison,
    ComparisonKey,
    MethodArms,
    MethodKey,
    collect_test_family,
)
from isobench.report.document import Comparison, ReportTable
from isobench.statistics.resampling import (
    PermutationResult,
    mean_difference,
    mean_difference_interval,
    probability_of_improvement,
    smallest_stratified_p,
    stratified_permutation_test,
)
from isobench.statistics.seeds import ALPHA, Arms, Estimate, detectable_difference, holm, pooled_sd


@dataclass(frozen=True)
class MethodEffect:
    """Hold the comparison of one method with plain fine-tuning over all tasks on which both have at least two seeds.

    Attributes:
        columns: the tasks' columns.
        difference: mean over tasks, in points, with its bootstrap interval.
        improvement: probability that a run of the method beats one of plain fine-tuning.
        test: the permutation test within tasks.
        adjusted: the test's p after Holm's correction over all methods.
        fewest_seeds: of the method, or of plain fine-tuning, on one of these tasks.
        single_tasks: column -> difference, for differences that Welch's test finds after Holm's correction over all
            comparisons.
    """

    columns: list[str]
    difference: Estimate
    improvement: Estimate
    test: PermutationResult
    adjusted: float
    fewest_seeds: int
    single_tasks: dict[str, float]

    @property
    def is_shown(self) -> bool:
        """Return True if the difference over all tasks is larger than chance explains."""
        return self.adjusted < ALPHA


@dataclass(frozen=True)
class Effects:
    """Hold all comparisons of methods with plain fine-tuning in a report.

    Attributes:
        runs: the cells of all tables.
        arms: method -> its scores and plain fine-tuning's.
        by_method: method -> its effect; methods without a tested task are left out.
        family: all comparisons with a p, each once; Holm's correction is made over them.
        survivors: method -> column -> difference, for differences that Welch's test finds after this correction.
        single_seeds: method -> mean difference, for methods that can't be tested because they or plain fine-tuning
            have a single seed.
        least_adjusted: the smallest p after Holm's correction over methods that is possible with these numbers of
            seeds and methods, for any effect; 1 without tests.
    """

    runs: BaselineComparison
    arms: dict[MethodKey, MethodArms]
    by_method: dict[MethodKey, MethodEffect]
    family: list[Comparison]
    survivors: dict[MethodKey, dict[str, float]]
    single_seeds: dict[MethodKey, float]
    least_adjusted: float


def measure_effects(tables: Sequence[ReportTable]) -> Effects:
    """Compare all methods of a report's tables with plain fine-tuning.

    Args:
        tables: cells of scores (in percent) have a ``comparison``; other cells have none. Columns of one task
            (``ReportTable.tasks``) show the same runs, so only the first of them counts across tasks.
    """
    runs = BaselineComparison(tables)
    arms = {name: runs.collect_arms(name) for name in runs.methods}
    tested = {name: list(own.tested.values()) for name, own in arms.items() if own.tested}
    tests = {name: stratified_permutation_test(tasks) for name, tasks in tested.items()}
    adjusted = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    family = collect_test_family(tables)
    survivors = find_holm_survivors(family)
    by_method = {}
    for name, tasks in tested.items():
        columns = list(arms[name].tested)
        by_method[name] = MethodEffect(
            columns=columns,
            difference=mean_difference_interval(tasks),
            improvement=probability_of_improvement(tasks),
            test=tests[name],
            adjusted=adjusted[name],
            fewest_seeds=min(len(arm) for pair in tasks for arm in pair),
            single_tasks={c: by for c, by in survivors.get(name, {}).items() if c in columns},
        )
    comparisons = [copies[0] for copies in family.values()]
    single_seeds = {
        name: mean_difference(list(own.single_seed.values()))
        for name, own in arms.items()
        if own.single_seed and not own.tested
    }
    least = min((smallest_stratified_p(tasks) for tasks in tested.values()), default=1.0)
    return Effects(runs, arms, by_method, comparisons, survivors, single_seeds, min(1.0, max(1, len(tested)) * least))


def find_holm_survivors(family: Mapping[ComparisonKey, list[Comparison]]) -> dict[MethodKey, dict[str, float]]:
    """Find differences that are significant after Holm's correction over all comparisons: method -> column -> it.

    Args:
        family: all comparisons of a report, from ``collect_test_family``.
    """
    adjusted = holm([copies[0].welch or 0.0 for copies in family.values()])
    survivors: dict[MethodKey, dict[str, float]] = {}
    for ((group, method, column, _), copies), p in zip(family.items(), adjusted, strict=True):
        if p < ALPHA:
            survivors.setdefault((group, method), {})[column] = copies[0].difference
    return survivors


def find_detectable_differences(arms: Mapping[MethodKey, MethodArms]) -> dict[str, float]:
    """Compute for each column the smallest difference that a test would usually find, in points.

    Columns without spread are left out. Of several groups of runs, such as encoders, the one with the largest
    such difference counts.
    """
    detectable: dict[str, float] = {}
    for (_, column), pairs in group_arms_by_column(arms).items():
        points = column_detectable_difference(pairs)
        if points > 0 and math.isfinite(points):
            detectable[column] = max(points, detectable.get(column, 0.0))
    return detectable


def group_arms_by_column(arms: Mapping[MethodKey, MethodArms]) -> dict[tuple[str, str], list[Arms]]:
    """Group the tested arms of all methods: (group, column) -> one pair of arms for each method."""
    columns: dict[tuple[str, str], list[Arms]] = {}
    for (group, _), own in arms.items():
        for column, pair in own.tested.items():
            columns.setdefault((group, column), []).append(pair)
    return columns


def column_detectable_difference(pairs: Sequence[Arms]) -> float:
    """Compute the smallest difference that a test would usually find in a column.

    It follows from the pooled spread of the column's runs and from the smallest arms.

    Args:
        pairs: for each method its scores and those of plain fine-tuning, which are the same in every pair.
    """
    baseline = pairs[0][1]
    spread = pooled_sd([baseline, *(ours for ours, _ in pairs)])
    return detectable_difference(spread, min(len(ours) for ours, _ in pairs), len(baseline))
