"""Checks that judge claims: each reads an experiment's report and returns holds, does not hold or undecided.

``improves``, ``is_better_than``, ``collapses``, ``costs_times``, ``costs_between`` and ``judge_among`` make a check;
``nothing_improves`` and ``isotropy_is_unrelated`` are checks. `judge_cases` helps a paper's checks of analyses.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from isobench.papers.published import load_tables
from isobench.report.build import Report
from isobench.report.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED, Outcome
from isobench.report.methods import column_detectable_difference, group_tested_arms, list_arms, list_score_cells
from isobench.report.sentences import list_comparisons
from isobench.report.tables import (
    BASE_METHOD,
    CONSTANT_PREDICTOR,
    SPEED_SETTINGS,
    is_scored,
    label_method,
    read_numbers,
)
from isobench.report.wording import describe_p, format_points
from isobench.runs.grouping import PROTOCOL_SETTINGS, SOURCE_SETTINGS
from isobench.statistics.resampling import mean_difference_interval, stratified_permutation_test
from isobench.statistics.seeds import ALPHA, Arms, holm

Check = Callable[[Report], Outcome]
RELEVANT_GAIN = 1.0  # points; runs that could not have shown a gain of this size don't support "no gain"
NO_RELATION = 0.3  # the pooled correlation's interval must lie within plus and minus this to support "no relation"
TOLERANCE = 1.25  # our choice: our factor of time agrees with a printed one if it is at most a quarter off
# Columns of ``runs`` that two runs share if their scores may be compared, and if their times may be.
COMPARED = ["encoder", "task", "scale", *PROTOCOL_SETTINGS, *SOURCE_SETTINGS]
TIMED = ["encoder", "task", "scale", "machine", "share", "threads", "torch", *SPEED_SETTINGS, *SOURCE_SETTINGS]
UNEVEN_BUDGETS = (
    "the better one was selected from more configurations by the scores that are reported, which favours it: set "
    "experiment.selection.equal_budget=true, or run with task.held_out=0.1"
)


def judge_cases(holds: Iterable[bool], numbers: str) -> Outcome:
    """Return the outcome: holds in every case, in none, or undecided; ``holds`` has one truth value a case."""
    cases = list(holds)
    if not cases:
        return Outcome(NOT_RUN, "nothing to compare")
    return Outcome(HOLDS if all(cases) else UNDECIDED if any(cases) else FAILS, numbers)


def judge_among(check: Check, *methods: str) -> Check:
    """Make a check that knows only these methods and plain fine-tuning, because the paper has no others."""
    known = [BASE_METHOD, *methods]

    def check_among(report: Report) -> Outcome:
        runs, cells = (table[table["method"].isin(known)] for table in (report.runs, report.cells))
        return check(replace(report, runs=runs, cells=cells))

    return check_among


def improves(*methods: str) -> Check:
    """Make the check that each of the methods is better than plain fine-tuning, averaged over encoders and tasks."""

    def check(report: Report) -> Outcome:
        outcomes = [_judge_improvement(report, method) for method in methods]
        if missing := [outcome.numbers for outcome in outcomes if outcome.word == NOT_RUN]:
            return Outcome(NOT_RUN, "; ".join(missing))
        word = outcomes[0].word if len({outcome.word for outcome in outcomes}) == 1 else UNDECIDED
        return Outcome(word, "; ".join(outcome.numbers for outcome in outcomes))

    return check


def _judge_improvement(report: Report, method: str) -> Outcome:
    scores = list_score_cells(report.cells)
    own = scores[scores["method"] == method]
    if undefined := list(own[own["compared"] & own["difference"].isna()]["column"].unique()):
        return Outcome(UNDECIDED, f"{method}: undefined score (NaN) on {', '.join(undefined)}")
    constant = ", ".join(dict.fromkeys(task for _, task in _list_constant_tasks(report, method)))
    left_out = f" (left out, constant predictors: {constant})" if constant else ""
    arms = [pair for _, cells in own.groupby("group", sort=False) for pair in list_arms(cells.itertuples()).items()]
    if constant and not arms:
        return Outcome(UNDECIDED, f"{method}: no task can be compared{left_out}")
    if not arms or any(min(map(len, pair)) < 2 for _, pair in arms):
        return Outcome(NOT_RUN, f"{method}: fewer than two seeds of it or of plain fine-tuning{left_out}")
    pairs = _pair_runs(report.runs, method, BASE_METHOD)
    columns = ", ".join(dict.fromkeys(column for column, _ in arms))
    return _decide_difference(f"{method} on {columns}", [pair for _, pair in arms], left_out, pairs)


def is_better_than(method: str, other: str, tasks: Sequence[str] = ()) -> Check:
    """Make the check that one method is better than another, averaged over encoders and tasks.

    Runs that predict one class for every example count with their scores: such claims are also about training that
    fails.

    Args:
        method: the method that the paper says is better.
        other: the method that it is compared with.
        tasks: compare on these tasks only; empty for all.
    """

    def check(report: Report) -> Outcome:
        runs = report.runs[report.runs["task"].isin(tasks)] if tasks else report.runs
        pairs = _pair_runs(runs[is_scored(runs)], method, other)
        if not pairs:
            where = f" on {', '.join(tasks)}" if tasks else ""
            return Outcome(NOT_RUN, f"no task with runs of both {method} and {other}{where}")
        arms = [(list(ours["score"]), list(theirs["score"])) for ours, theirs in pairs]
        if any(len(arm) < 2 for pair in arms for arm in pair):
            return Outcome(NOT_RUN, f"{method}, {other}: fewer than two seeds of one of them")
        said = [", ".join(dict.fromkeys(ours["task"].iloc[0] for ours, _ in pairs))]
        for name, own in zip((method, other), zip(*pairs, strict=True), strict=True):
            failures = pd.concat(own)["failure"]
            if count := int((failures == CONSTANT_PREDICTOR).sum()):
                said.append(f"{count} of {len(failures)} runs of {name} predict one class")
        return _decide_difference(f"{method} less {other}", arms, f" ({'; '.join(said)})", pairs)

    return check


def _pair_runs(runs: pd.DataFrame, method: str, other: str) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    """Pair the selected runs of two methods: one pair for each encoder, task and setting in which both have some."""
    chosen = runs[runs["selected"].astype(bool) & runs["method"].isin([method, other])]
    pairs = []
    for _, own in chosen.groupby(COMPARED, sort=False, dropna=False):
        ours, theirs = own[own["method"] == method], own[own["method"] == other]
        if len(ours) and len(theirs):
            pairs.append((ours, theirs))
    return pairs


def _decide_difference(
    label: str, arms: Sequence[Arms], remark: str, pairs: Sequence[tuple[pd.DataFrame, pd.DataFrame]]
) -> Outcome:
    """Decide whether the first method of each pair is better than the second, averaged over tasks.

    The outcome is undecided unless the bootstrap interval of the mean difference excludes zero and the permutation
    test is significant. It is undecided also if the better method was selected from more configurations than the
    other by the scores that are reported, because the best of more configurations is better by chance alone.

    Args:
        label: what is compared, for the sentence with the numbers.
        arms: on each task the scores of both methods, one per seed; each method has two seeds or more.
        remark: what to add to the sentence.
        pairs: the runs of both methods, which say from how many configurations they were selected.
    """
    mean, p = mean_difference_interval(arms), stratified_permutation_test(arms).p
    if math.isnan(mean.low):
        return Outcome(UNDECIDED, f"{label} {format_points(mean.value)} points: no spread over seeds, so no interval")
    budgets = sorted({(int(ours["candidates"].iloc[0]), int(theirs["candidates"].iloc[0])) for ours, theirs in pairs})
    limits = f"[{format_points(mean.low)}, {format_points(mean.high)}]"
    numbers = f"{label} {format_points(mean.value)} points {limits}, {describe_p(p)}{remark}"
    if budgets not in ([], [(1, 1)]):
        counts = " or ".join(f"{ours} and {theirs}" for ours, theirs in budgets)
        numbers += f"; selected from {counts} configurations"
    if mean.low <= 0 <= mean.high or p >= ALPHA:
        return Outcome(UNDECIDED, numbers)
    if any(ours > theirs if mean.value > 0 else ours < theirs for ours, theirs in budgets):
        return Outcome(UNDECIDED, f"{numbers}; {UNEVEN_BUDGETS}")
    return Outcome(HOLDS if mean.value > 0 else FAILS, numbers)


def nothing_improves(report: Report) -> Outcome:
    """Check that no method's gain on a task survives Holm's correction.

    It is undecided if constant predictors or undefined scores leave nothing to test.
    If no gain survives, the claim holds only if the runs would have shown a gain of ``RELEVANT_GAIN`` points on every
    task; else it is undecided.
    """
    tested = list_comparisons(report.cells)
    constant = ", ".join(f"{method} on {task}" for method, task in _list_constant_tasks(report))
    left_out = f"; left out, constant predictors: {constant}" if constant else ""
    compared = list_score_cells(report.cells).query("compared")
    if tested.empty:
        if constant or compared["difference"].isna().any():
            return Outcome(UNDECIDED, f"no task is left to test: scores are undefined or of single seeds{left_out}")
        return Outcome(NOT_RUN, "no comparison of two or more seeds")
    gains = tested[(tested["p_holm"] < ALPHA) & (tested["difference"] > 0)]
    numbers = f"{len(gains)} of {len(tested)} comparisons on {', '.join(tested['column'].unique())} are gains"
    numbers += " that survive Holm"
    if len(gains):
        named = ", ".join(f"{cell.method} on {cell.column}" for cell in gains.itertuples())
        return Outcome(FAILS, f"{numbers}: {named}{left_out}")
    least = max(map(column_detectable_difference, group_tested_arms(report.cells).values()), default=math.inf)
    numbers += f"; differences under {least:.2g} points would usually go unnoticed{left_out}"
    if untested := int(compared["p"].isna().sum()):
        return Outcome(UNDECIDED, f"{numbers}; {untested} more can't be tested")
    return Outcome(HOLDS if least <= RELEVANT_GAIN else UNDECIDED, numbers)


def _list_constant_tasks(report: Report, method: str | None = None) -> Iterator[tuple[str, str]]:
    """Yield methods with the tasks on which a run of them or of plain fine-tuning is a constant predictor."""
    several = report.methods["group"].nunique() > 1
    for row in report.methods.itertuples():
        if row.method != BASE_METHOD and row.method == (method or row.method):
            label = f"{label_method(row.method)} ({row.group})" if several else label_method(row.method)
            yield from ((label, task) for task in row.constant_tasks)


def isotropy_is_unrelated(report: Report) -> Outcome:
    """Check that I1 of the embeddings does not correlate with the score over the runs of any task and encoder.

    By Spearman's correlation with Holm's correction over tasks and encoders that have six runs or more. Runs of
    different scales, heads or reported epochs are correlated apart. That none is significant supports the claim only
    if the pooled correlation's interval lies within ``NO_RELATION``, and the correlations do not differ by Cochran's
    test.
    """
    from scipy import stats

    runs = report.runs.assign(i1=read_numbers(report.runs, "embedding/i1"), y=read_numbers(report.runs, "score"))
    usable = runs[runs["failure"].isna() & runs["i1"].notna() & runs["y"].notna()]
    groups = {name: own for name, own in usable.groupby(COMPARED, sort=False, dropna=False) if len(own) >= 6}
    varied = {name: own for name, own in groups.items() if own["i1"].nunique() > 1 and own["y"].nunique() > 1}
    constant = "; ".join(f"{name[1]}, {name[0]}" for name in groups if name not in varied)
    left_out = f"; left out, I1 or score is constant: {constant}" if constant else ""
    if not varied:
        word = UNDECIDED if constant else NOT_RUN
        return Outcome(word, f"no task and encoder with six runs that differ{left_out}")
    tests = [stats.spearmanr(own["i1"], own["y"]) for own in varied.values()]
    related = sum(p < ALPHA for p in holm([float(test.pvalue) for test in tests]))
    sizes = [len(own) for own in varied.values()]
    rho = ", ".join(f"{name[1]} {test.statistic:+.2f}" for name, test in zip(varied, tests, strict=True))
    tested = f"{related} of {len(tests)} with p < {ALPHA} after Holm"
    numbers = f"Spearman's correlation with I1: {rho} ({sum(sizes)} runs); {tested}"
    if related:
        return Outcome(FAILS, numbers + left_out)
    low, pooled, high, p_equal = pool_correlations([test.statistic for test in tests], sizes)
    unrelated = max(-low, high) < NO_RELATION and p_equal >= ALPHA
    numbers += f"; pooled {pooled:+.2f} [{low:+.2f}, {high:+.2f}]{left_out}"
    return Outcome(HOLDS if unrelated else UNDECIDED, numbers)


def pool_correlations(correlations: Sequence[float], sizes: Sequence[int]) -> tuple[float, float, float, float]:
    """Pool Spearman's correlations, each between -1 and 1, of groups of runs.

    By Fisher's z, whose variance is 1.06 / (n - 3) for Spearman's correlation (Fieller, Hartley and Pearson 1957),
    which is good for correlations near 0. It takes runs as independent. Runs of one seed are not quite, so the
    interval is somewhat too narrow. A group's weight is n - 3.

    Returns:
        The pooled correlation between the ends of its 95% interval (low, pooled, high), and Cochran's p for the
        hypothesis that all groups have the same correlation.
    """
    from scipy import stats

    weights = np.array(sizes) - 3
    z = np.arctanh(correlations)
    mean = np.average(z, weights=weights)
    margin = float(stats.norm.ppf(0.975)) * math.sqrt(1.06 / sum(weights))
    p_equal = stats.chi2.sf(float(weights @ (z - mean) ** 2) / 1.06, len(z) - 1) if len(z) > 1 else 1.0
    return math.tanh(mean - margin), math.tanh(mean), math.tanh(mean + margin), float(p_equal)


def collapses(largest_i2: float, *methods: str) -> Check:
    """Make the check that runs whose head is as isotropic as printed predict one class for every example.

    Only runs of these methods with an I2 of at most ``largest_i2`` decide. The claim holds if one of them predicts
    one class, and fails if none does. Runs on a task where plain fine-tuning predicts one class too are left out,
    because there the method is not the reason.
    """

    def check(report: Report) -> Outcome:
        ended = report.runs[report.runs["status"] == "finished"]
        is_constant, is_plain = ended["failure"] == CONSTANT_PREDICTOR, ended["method"] == BASE_METHOD
        setting = ended[COMPARED].astype(str).agg("|".join, axis=1) if len(ended) else ended["task"]
        hopeless = setting[is_constant & is_plain]
        own = ended[ended["method"].isin(methods)]
        runs = own[~setting[own.index].isin(hopeless)]
        tasks = ", ".join(ended["task"][hopeless.index].unique())
        left_out = f"; left out, plain fine-tuning predicts one class too: {tasks}" if tasks else ""
        if runs.empty:
            return Outcome(UNDECIDED if len(own) else NOT_RUN, f"no such run{left_out}")
        isotropic = runs[read_numbers(runs, "head/i2_printed") <= largest_i2]
        if isotropic.empty:
            numbers = f"none of {len(runs)} runs has an I2 of at most {largest_i2}"
            return Outcome(UNDECIDED, f"{numbers}: run calibration=spectrum_polynomial_collapsed{left_out}")
        constant = int(is_constant[isotropic.index].sum())
        numbers = f"{constant} of {len(isotropic)} runs with an I2 of at most {largest_i2} predict one class"
        return Outcome(HOLDS if constant else FAILS, numbers + left_out)

    return check


def costs_times(table: str, gpu: str, factor: float, method: str) -> Check:
    """Make the check that a method takes ``factor`` times plain fine-tuning's training time, on average over tasks.

    Args:
        table: PAPER/TABLE, whose tasks and encoders the claim is about.
        gpu: on which the paper measured its times.
        factor: as the text prints it; our factor has to be within ``TOLERANCE`` of it.
        method: the calibration's name.
    """

    def check(report: Report) -> Outcome:
        times, missing = _select_times(report.runs, table, method)
        factors = {method: [time.arms for time in times.itertuples()]}
        return _judge_factors(factors, times, missing, factor / TOLERANCE, factor * TOLERANCE, gpu)

    return check


def costs_between(table: str, gpu: str, low: float, high: float, *methods: str) -> Check:
    """Make the check that each method takes ``low`` to ``high`` times plain fine-tuning's training time on each task.

    Args:
        table: PAPER/TABLE, whose tasks and encoders the claim is about.
        gpu: on which the paper measured its times.
        low: the smallest factor that the paper prints.
        high: the largest.
        methods: names of calibrations.
    """

    def check(report: Report) -> Outcome:
        selected = {method: _select_times(report.runs, table, method) for method in methods}
        factors = {
            f"{method} on {time.task}": [time.arms]
            for method, (times, _) in selected.items()
            for time in times.itertuples()
        }
        missing = [name for _, lacking in selected.values() for name in lacking]
        return _judge_factors(factors, pd.concat([times for times, _ in selected.values()]), missing, low, high, gpu)

    return check


def _select_times(runs: pd.DataFrame, table: str, method: str) -> tuple[pd.DataFrame, list[str]]:
    """Select the settings in which to compare training times: those of the paper's table, or all if there is none.

    Both methods train on the same examples, so the ratio of their seconds per example is that of their minutes per
    epoch. Only runs that share all of ``TIMED`` are compared.

    Returns:
        A row for each setting: encoder, task, scale, machine, and ``arms``, the logarithms of the seconds per example
        of the method and of plain fine-tuning. Then the names of the method's tasks in the table that have no times
        in the paper's setting.
    """
    usable = runs[runs["selected"].astype(bool) & (runs["status"] == "finished")]
    seconds = read_numbers(usable, "training_seconds") / read_numbers(usable, "examples")
    usable = usable.assign(log_seconds=np.log(np.where(seconds > 0, seconds, np.nan))).dropna(subset="log_seconds")
    settings = []
    for _, own in usable.groupby(TIMED, sort=False, dropna=False):
        arms = tuple(list(own[own["method"] == name]["log_seconds"]) for name in (method, BASE_METHOD))
        if all(arms):
            settings.append((*(own[name].iloc[0] for name in TIMED[:4]), arms))
    times = pd.DataFrame(settings, columns=[*TIMED[:4], "arms"])
    paper, _, name = table.partition("/")
    content = load_tables(paper)[name]
    row = content.methods[method]
    printed = dict.fromkeys(
        (encoder, content.columns[title].task)
        for encoder, rows in content.cells.items()
        for title in rows.get(row, {})
    )
    is_printed = np.array([pair in printed for pair in zip(times["encoder"], times["task"], strict=True)], bool)
    of_paper = times[(times["scale"] == "") & is_printed]
    found = set(zip(of_paper["encoder"], of_paper["task"], strict=True))
    missing = [f"{method} on {task} ({encoder})" for encoder, task in printed if (encoder, task) not in found]
    return of_paper if len(of_paper) else times[times["scale"] != ""], missing


def _judge_factors(
    factors: dict[str, list[Any]], times: pd.DataFrame, missing: list[str], low: float, high: float, gpu: str
) -> Outcome:
    """Judge factors by their 95% intervals against the range in which they agree with the paper.

    The claim is about the paper's encoders, data and GPU. Runs with other encoders or data therefore decide nothing.
    With the paper's encoders and data, the claim holds if every interval is inside the range. It fails if an interval
    is wholly outside and the GPU is the paper's. On another GPU, other factors do not contradict the paper.

    Args:
        factors: label -> logarithms of training times, the method's and plain fine-tuning's, one pair per task. A
            factor is the geometric mean over these tasks.
        times: where the times were measured.
        missing: methods and tasks of the claim that have no times in the paper's setting.
        low: the smallest factor that agrees with the paper.
        high: the largest.
        gpu: the paper's.
    """
    if times.empty:
        return Outcome(
            NOT_RUN, "no training times of the method and of plain fine-tuning on one machine, in the claim's setting"
        )
    intervals = {label: mean_difference_interval(arms) for label, arms in factors.items() if arms}
    estimates = {label: [math.exp(x) for x in interval] for label, interval in intervals.items()}
    machines = list(times["machine"].astype(str).unique())
    numbers = "; ".join(f"{label} {value:.2f}x [{a:.2f}, {b:.2f}]" for label, (value, a, b) in estimates.items())
    numbers += f", on {', '.join(machines)}; agrees from {low:.3g}x to {high:.3g}x"
    if any(math.isnan(a) for _, a, _ in estimates.values()):
        return Outcome(NOT_RUN, f"{numbers}; no interval: fewer than two seeds, or equal times")
    if (times["scale"] != "").any():
        return Outcome(UNDECIDED, f"{numbers}; the claim is about the paper's encoder and data, which these are not")
    if missing:
        return Outcome(UNDECIDED, f"{numbers}; not measured: {', '.join(missing)}")
    if all(low <= a and b <= high for _, a, b in estimates.values()):
        return Outcome(HOLDS, numbers)
    if not any(b < low or a > high for _, a, b in estimates.values()):
        return Outcome(UNDECIDED, numbers)
    if all(gpu.upper() in machine.upper() for machine in machines):
        return Outcome(FAILS, numbers)
    return Outcome(UNDECIDED, f"{numbers}; the paper's times are of another machine, {gpu}")
