"""Check the papers' claims that compare the scores of two methods, neither of which has to be plain fine-tuning."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from isobench.report.build import Report
from isobench.report.claim_outcome import FAILS, HOLDS, NOT_RUN, UNDECIDED, Outcome
from isobench.report.tables import CONSTANT_PREDICTOR
from isobench.report.wording import describe_p, format_points
from isobench.runs.grouping import PROTOCOL_SETTINGS
from isobench.statistics.resampling import mean_difference_interval, stratified_permutation_test
from isobench.statistics.seeds import ALPHA, Arms

TidyRows = list[dict[str, Any]]  # of ``Report.runs``, one for each run
Setting = TypeVar("Setting")
Value = TypeVar("Value")
Budgets = set[tuple[int, int]]  # of two methods: how many configurations each was selected from, on each task
UNEVEN_BUDGETS = (
    "the better one was selected from more configurations by the scores that are reported, which favours it: set "
    "experiment.selection.equal_budget=true, or run with task.held_out=0.1"
)


def decide_difference(label: str, tasks: Sequence[Arms], remark: str, budgets: Budgets) -> Outcome:
    """Decide whether the first method of each pair is better than the second, averaged over tasks.

    The outcome is undecided unless the bootstrap interval of the mean difference excludes zero and the permutation
    test is significant. It is undecided also if the better method was selected from more configurations than the
    other by the scores that are reported, because the best of more configurations is better by chance alone.

    Args:
        label: what is compared, for the sentence with the numbers.
        tasks: on each task the scores of both methods, one per seed; each method has two seeds or more.
        remark: what to add to the sentence.
        budgets: from ``find_budgets``.
    """
    mean, p = mean_difference_interval(tasks), stratified_permutation_test(tasks).p
    if math.isnan(mean.low):
        return Outcome(UNDECIDED, f"{label} {format_points(mean.value)} points: no spread over seeds, so no interval")
    limits = f"[{format_points(mean.low)}, {format_points(mean.high)}]"
    numbers = f"{label} {format_points(mean.value)} points {limits}, {describe_p(p)}{remark}"
    if mean.low <= 0 <= mean.high or p >= ALPHA:
        return Outcome(UNDECIDED, numbers)
    if any(ours > theirs if mean.value > 0 else ours < theirs for ours, theirs in budgets):
        return Outcome(UNDECIDED, f"{numbers}; {UNEVEN_BUDGETS}")
    return Outcome(HOLDS if mean.value > 0 else FAILS, numbers)


def is_better_than(method: str, other: str, tasks: Sequence[str] = ()) -> Callable[[Report], Outcome]:
    """Make the check that one method is better than another, averaged over encoders and tasks.

    Runs that predict one class for every example count with their scores: such claims are also about training that
    fails.

    Args:
        method: the method that the paper says is better.
        other: the method that it is compared with.
        tasks: compare on these tasks only; empty for all.
    """

    def check(report: Report) -> Outcome:
        runs = report.runs.to_dict("records")
        arms = collect_score_arms(runs, method, other)
        chosen = {name: pair for name, pair in arms.items() if not tasks or name[1] in tasks}
        if not chosen:
            where = f" on {', '.join(tasks)}" if tasks else ""
            return Outcome(NOT_RUN, f"no task with runs of both {method} and {other}{where}")
        if any(len(arm) < 2 for pair in chosen.values() for arm in pair):
            return Outcome(NOT_RUN, f"{method}, {other}: fewer than two seeds of one of them")
        budgets = find_budgets(runs, method, other, list(chosen))
        remark = describe_runs(runs, list(chosen), method, other) + describe_budgets(budgets)
        return decide_difference(f"{method} less {other}", list(chosen.values()), remark, budgets)

    return check


def read_compared_setting(run: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a run shares with those that it may be compared with: encoder, task, scale, protocol, sources."""
    return tuple(run[name] for name in ("encoder", "task", "scale", *PROTOCOL_SETTINGS, "data", "weights"))


def pair_methods(
    by_setting: Mapping[Setting, Mapping[str, Value]], method: str, other: str
) -> dict[Setting, tuple[Value, Value]]:
    """Pair what two methods have in each compared setting; settings that lack one of them are left out."""
    return {
        setting: (values[method], values[other])
        for setting, values in by_setting.items()
        if method in values and other in values
    }


def collect_score_arms(runs: TidyRows, method: str, other: str) -> dict[tuple[str, ...], Arms]:
    """Collect the scores of two methods: compared setting -> one per seed; only where both have some."""
    scores: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for run in runs:
        is_usable = run["status"] == "finished" and run.get("selected", True) and run["score"] is not None
        if run["method"] in (method, other) and is_usable:
            scores.setdefault(read_compared_setting(run), {}).setdefault(run["method"], []).append(run["score"])
    return pair_methods(scores, method, other)


def find_budgets(runs: TidyRows, method: str, other: str, names: Sequence[tuple[str, ...]] = ()) -> Budgets:
    """Find from how many configurations two methods were selected by the scores that are reported.

    Args:
        runs: tidy rows.
        method: the first method.
        other: the second.
        names: the compared settings; empty for all in which both methods have runs.
    """
    counts: dict[tuple[str, ...], dict[str, int]] = {}
    for run in runs:
        if run["method"] in (method, other) and run.get("selected", True):
            counts.setdefault(read_compared_setting(run), {})[run["method"]] = run["candidates"]
    return {pair for name, pair in pair_methods(counts, method, other).items() if not names or name in names}


def describe_budgets(budgets: Budgets) -> str:
    """Say from how many configurations two methods were selected; empty if from one each."""
    pairs = [f"{ours} and {theirs}" for ours, theirs in sorted(budgets)]
    return "" if budgets <= {(1, 1)} else f"; selected from {' or '.join(pairs)} configurations"


def describe_runs(runs: TidyRows, names: Sequence[tuple[str, ...]], *methods: str) -> str:
    """Name the tasks that are compared, and say how many of the methods' runs predict one class for every example."""
    compared = [run for run in runs if read_compared_setting(run) in names]
    said = [", ".join(dict.fromkeys(name[1] for name in names))]
    for method in methods:
        failures = [run["failure"] for run in compared if run["method"] == method]
        if count := failures.count(CONSTANT_PREDICTOR):
            said.append(f"{count} of {len(failures)} runs of {method} predict one class")
    return f" ({'; '.join(said)})"
