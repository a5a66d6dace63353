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
from isobench.report.sentences import list_comparisons, name_method
from isobench.report.tables import (
    BASE_METHOD,
    CONSTANT_PREDICTOR,
    SPEED_SETTINGS,
    is_scored,
    read_numbers,
)
from isobench.report.wording import describe_p, format_points
from isobench.runs.grouping import PROTOCOL_SETTINGS, SOURCE_SETTINGS
from isobench.statistics.resampling import mean_difference_interval, stratified_permutation_test
from isobench.statistics.seeds import ALPHA, Arms, Estimate, holm

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
    """Judge a claim about several cases: it holds in all, in none, or is undecided."""
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
    cells = list_score_cells(report.cells)
    cells = cells[cells["method"] == method]
    if undefined := list(cells[cells["compared"] & cells["difference"].isna()]["column"].unique()):
        return Outcome(UNDECIDED, f"{method}: undefined score (NaN) on {', '.join(undefined)}")
    constant = ", ".join(dict.fromkeys(task for _, task in _list_constant_tasks(report, method)))
    left_out = f" (left out, constant predictors: {constant})" if constant else ""
    columns, arms = list[str](), list[Arms]()
    for _, of_group in cells.groupby("group", sort=False):
        arms_by_column = list_arms(of_group.itertuples())
        columns += arms_by_column
        arms += arms_by_column.values()
    if constant and not arms:
        return Outcome(UNDECIDED, f"{method}: no task can be compared{left_out}")
    if not arms or any(len(scores) < 2 for pair in arms for scores in pair):
        return Outcome(NOT_RUN, f"{method}: fewer than two seeds of it or of plain fine-tuning{left_out}")
    pairs = _pair_runs(report.runs, method, BASE_METHOD)
    return _decide_difference(f"{method} on {', '.join(dict.fromkeys(columns))}", arms, left_out, pairs)


def is_better_than(method: str, other: str, tasks: Sequence[str] = ()) -> Check:
    """Make the check that ``method`` is better than ``other``, averaged over encoders and tasks.

    Runs that predict one class for every example count with their scores: such claims are also about training that
    fails. Without ``tasks`` all are compared.
    """

    def check(report: Report) -> Outcome:
        runs = report.runs[report.runs["task"].isin(tasks)] if tasks else report.runs
        pairs = _pair_runs(runs[is_scored(runs)], method, other)
        if not pairs:
            where = f" on {', '.join(tasks)}" if tasks else ""
            return Outcome(NOT_RUN, f"no task with runs of both {method} and {other}{where}")
        arms = [(list(ours["score"]), list(theirs["score"])) for ours, theirs in pairs]
        if any(len(scores) < 2 for pair in arms for scores in pair):
            return Outcome(NOT_RUN, f"{method}, {other}: fewer than two seeds of one of them")
        remarks = [", ".join(dict.fromkeys(ours["task"].iloc[0] for ours, _ in pairs))]
        for name, runs_by_pair in zip((method, other), zip(*pairs, strict=True), strict=True):
            failures = pd.concat(runs_by_pair)["failure"]
            if count := int((failures == CONSTANT_PREDICTOR).sum()):
                remarks.append(f"{count} of {len(failures)} runs of {name} predict one class")
        return _decide_difference(f"{method} less {other}", arms, f" ({'; '.join(remarks)})", pairs)

    return check


def _pair_runs(runs: pd.DataFrame, method: str, other: str) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    """Pair the selected runs of two methods: one pair for each encoder, task and setting in which both have some."""
    chosen = runs[runs["selected"].astype(bool) & runs["method"].isin([method, other])]
    pairs = []
    for _, both in chosen.groupby(COMPARED, sort=False, dropna=False):
        ours, theirs = both[both["method"] == method], both[both["method"] == other]
        if len(ours) and len(theirs):
            pairs.append((ours, theirs))
    return pairs


def _decide_difference(
    label: str, arms: Sequence[Arms], remark: str, pairs: Sequence[tuple[pd.DataFrame, pd.DataFrame]]
) -> Outcome:
    """Decide whether the first method of each pair is better than the second, averaged over tasks.

    It is undecided unless the bootstrap interval of the mean difference excludes zero and the permutation test is
    significant. It is undecided also if the better method was selected from more configurations by the scores that
    are reported, because the best of more configurations is better by chance alone.

    Args:
        label: what is compared, for the sentence with the numbers.
        arms: on each task the scores of both methods; each method has two seeds or more.
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

    If no gain survives, the claim holds only if the runs would have shown a gain of ``RELEVANT_GAIN`` points on every
    task. Else it is undecided, as it is if constant predictors or undefined scores leave nothing to test.
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
    for row in report.methods.itertuples():
        if row.method != BASE_METHOD and row.method == (method or row.method):
            label = name_method(report.methods, row)
            yield from ((label, task) for task in row.constant_tasks)


def isotropy_is_unrelated(report: Report) -> Outcome:
    """Check that I1 of the embeddings does not correlate with the score over the runs of any task and encoder.

    Spearman's correlation, with Holm's correction over tasks and encoders that have six runs or more; runs of
    different scales, heads or reported epochs are correlated apart. If none is significant, the claim holds only if
    the pooled correlation's interval lies within ``NO_RELATION`` and Cochran's test finds no difference between them.
    """
    from scipy import stats

    runs = report.runs.assign(i1=read_numbers(report.runs, "embedding/i1"), y=read_numbers(report.runs, "score"))
    usable = runs[runs["failure"].isna() & runs["i1"].notna() & runs["y"].notna()]
    varied, constants = list[tuple[str, pd.DataFrame]](), list[str]()
    for (encoder, task, *_), group in usable.groupby(COMPARED, sort=False, dropna=False):
        if len(group) < 6:
            continue
        if group["i1"].nunique() > 1 and group["y"].nunique() > 1:
            varied.append((task, group))
        else:
            constants.append(f"{task}, {encoder}")
    constant = "; ".join(constants)
    left_out = f"; left out, I1 or score is constant: {constant}" if constant else ""
    if not varied:
        word = UNDECIDED if constant else NOT_RUN
        return Outcome(word, f"no task and encoder with six runs that differ{left_out}")
    tests = [stats.spearmanr(group["i1"], group["y"]) for _, group in varied]
    related = sum(p < ALPHA for p in holm([float(test.pvalue) for test in tests]))
    sizes = [len(group) for _, group in varied]
    rho = ", ".join(f"{task} {test.statistic:+.2f}" for (task, _), test in zip(varied, tests, strict=True))
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
    which is good for correlations near 0; a group's weight is n - 3. Runs of one seed are not quite independent, so
    the interval is somewhat too narrow.

    Returns:
        Lower end of the 95% interval, pooled correlation, upper end, and Cochran's p for the hypothesis that all
        groups have the same correlation.
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

    Runs of these methods with an I2 of at most ``largest_i2`` decide: the claim holds if one predicts one class, and
    fails if none does. Runs on a task where plain fine-tuning predicts one class too are left out, because there the
    method is not the reason.
    """

    def check(report: Report) -> Outcome:
        ended = report.runs[report.runs["status"] == "finished"]
        is_constant, is_plain = ended["failure"] == CONSTANT_PREDICTOR, ended["method"] == BASE_METHOD
        setting = ended[COMPARED].astype(str).agg("|".join, axis=1) if len(ended) else ended["task"]
        hopeless = setting[is_constant & is_plain]
        of_methods = ended[ended["method"].isin(methods)]
        runs = of_methods[~setting[of_methods.index].isin(hopeless)]
        tasks = ", ".join(ended["task"][hopeless.index].unique())
        left_out = f"; left out, plain fine-tuning predicts one class too: {tasks}" if tasks else ""
        if runs.empty:
            return Outcome(UNDECIDED if len(of_methods) else NOT_RUN, f"no such run{left_out}")
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

    ``table`` and ``gpu`` are as in `costs_times`.
    """

    def check(report: Report) -> Outcome:
        factors, tables, missing = dict[str, list[Any]](), [], list[str]()
        for method in methods:
            times, missing_tasks = _select_times(report.runs, table, method)
            factors |= {f"{method} on {time.task}": [time.arms] for time in times.itertuples()}
            tables.append(times)
            missing += missing_tasks
        return _judge_factors(factors, pd.concat(tables), missing, low, high, gpu)

    return check


def _select_times(runs: pd.DataFrame, table: str, method: str) -> tuple[pd.DataFrame, list[str]]:
    """Select the settings in which to compare training times: those of the paper's table, or all if there is none.

    Both methods train on the same examples, so the ratio of their seconds per example is that of their minutes per
    epoch. Only runs that share all of ``TIMED`` are compared.

    Returns:
        A row for each setting: encoder, task, scale, machine, and ``arms``, the logarithms of the seconds per example
        of the method and of plain fine-tuning. Then the method's tasks in the table without times in the paper's
        setting.
    """
    usable = runs[runs["selected"].astype(bool) & (runs["status"] == "finished")]
    seconds = read_numbers(usable, "training_seconds") / read_numbers(usable, "examples")
    usable = usable.assign(log_seconds=np.log(np.where(seconds > 0, seconds, np.nan))).dropna(subset="log_seconds")
    settings = []
    for _, of_setting in usable.groupby(TIMED, sort=False, dropna=False):
        ours, theirs = (
            list(of_setting[of_setting["method"] == name]["log_seconds"]) for name in (method, BASE_METHOD)
        )
        if ours and theirs:
            settings.append((*of_setting[TIMED[:4]].iloc[0], (ours, theirs)))
    times = pd.DataFrame(settings, columns=[*TIMED[:4], "arms"])
    paper, _, name = table.partition("/")
    content = load_tables(paper)[name]
    printed: dict[tuple[str, str], None] = {}  # encoder, task: in the table's order, each once
    for encoder, rows in content.cells.items():
        for title in rows.get(content.methods[method], {}):
            printed[encoder, content.columns[title].task] = None
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
        low, high: the smallest and the largest factor that agree with the paper.
        gpu: the paper's.
    """
    if times.empty:
        return Outcome(
            NOT_RUN, "no training times of the method and of plain fine-tuning on one machine, in the claim's setting"
        )
    intervals = {label: mean_difference_interval(arms) for label, arms in factors.items() if arms}
    estimates = {label: Estimate(*map(math.exp, interval)) for label, interval in intervals.items()}
    machines = list(times["machine"].astype(str).unique())
    numbers = "; ".join(f"{label} {x.value:.2f}x [{x.low:.2f}, {x.high:.2f}]" for label, x in estimates.items())
    numbers += f", on {', '.join(machines)}; agrees from {low:.3g}x to {high:.3g}x"
    if any(math.isnan(factor.low) for factor in estimates.values()):
        return Outcome(NOT_RUN, f"{numbers}; no interval: fewer than two seeds, or equal times")
    if (times["scale"] != "").any():
        return Outcome(UNDECIDED, f"{numbers}; the claim is about the paper's encoder and data, which these are not")
    if missing:
        return Outcome(UNDECIDED, f"{numbers}; not measured: {', '.join(missing)}")
    if all(low <= factor.low and factor.high <= high for factor in estimates.values()):
        return Outcome(HOLDS, numbers)
    if not any(factor.high < low or factor.low > high for factor in estimates.values()):
        return Outcome(UNDECIDED, numbers)
    if all(gpu.upper() in machine.upper() for machine in machines):
        return Outcome(FAILS, numbers)
    return Outcome(UNDECIDED, f"{numbers}; the paper's times are of another machine, {gpu}")
