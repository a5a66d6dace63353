"""Checks that judge claims: each reads an experiment's report and returns holds, does not hold or undecided.

A function of a report is a check; any other makes one. `judge_cases` helps a paper's checks of analyses. A check that
takes no methods is about all that the report has, which are those that its claim names.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import pandas as pd

from isobench.report.build import Report
from isobench.report.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED, Outcome
from isobench.report.methods import count_seeds, list_arms, list_comparisons, list_score_cells, name_method
from isobench.report.tables import BASE_METHOD, CONSTANT_PREDICTOR, is_scored
from isobench.report.wording import describe_p, format_points
from isobench.runs.grouping import PROTOCOL_SETTINGS, SOURCE_SETTINGS
from isobench.statistics.seeds import ALPHA, Arm, Arms, compare_runs, holm
from isobench.tasks.kind import list_scored

Check = Callable[[Report], Outcome]
RELEVANT_GAIN = 1.0  # points; runs whose intervals include a gain of this size don't support "no gain"
WIDEST = 1.0  # points; a wider interval of a gain does not support a gain of a given size
# Columns of ``runs`` that two runs share if their scores may be compared.
COMPARED = ["encoder", "task", "scale", *PROTOCOL_SETTINGS, *SOURCE_SETTINGS]
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


def improves(
    *methods: str, share: float = 0.0, statistic: Callable[[list[float]], float] = statistics.fmean
) -> Check:
    """Make the check that most of the methods are better than plain fine-tuning, averaged over encoders and tasks.

    The claim holds if more than half of the methods are better by more than chance, and none worse. With ``share``,
    they must also be above plain fine-tuning by ``statistic`` in at least this share of the cells. It is undecided if
    a method predicts one class, and plain fine-tuning no more often: such runs are in no mean. It fails if more than
    half are worse by more than chance.
    """

    def check(report: Report) -> Outcome:
        outcomes = [_judge_improvement(report, method) for method in methods]
        numbers = "; ".join(outcome.numbers for outcome in outcomes)
        counts = Counter(outcome.word for outcome in outcomes)
        if counts[NOT_RUN]:
            return Outcome(NOT_RUN, numbers)
        cells = report.cells[report.cells["method"].isin(methods) & report.cells["compared"]]
        pairs = zip(cells["values"], cells["base"], strict=True)
        above = sum(statistic(ours) > statistic(base) for ours, base in pairs)
        if share:
            name = "median" if statistic is statistics.median else "mean"
            numbers += f"; {name} above plain fine-tuning's in {above} of {len(cells)} cells"
        if counts[HOLDS] > len(methods) / 2 and not counts[FAILS]:
            collapses = list_collapses(report, *methods)
            is_met = above >= share * len(cells) and not collapses
            return Outcome(HOLDS if is_met else UNDECIDED, "; ".join([numbers, *collapses]))
        return Outcome(FAILS if counts[FAILS] > len(methods) / 2 else UNDECIDED, numbers)

    return check


def gains(low: float, high: float, *methods: str) -> Check:
    """Make the check that each method gains ``low`` to ``high`` points over plain fine-tuning, averaged over tasks.

    Each gain's 95% interval must be no wider than ``WIDEST``, and be above 0. The claim fails if no interval overlaps
    this range. It is undecided if a method was selected from more configurations than plain fine-tuning,
    or predicts one class.
    """

    def check(report: Report) -> Outcome:
        estimates, budgets = {}, list[tuple[int, int]]()
        for method in methods:
            arms = [pair for _, pair in _collect_arms(report, method)]
            if not arms or min(map(count_seeds, arms)) < 2:
                return Outcome(NOT_RUN, f"{method}: fewer than two seeds of it or of plain fine-tuning")
            estimates[method] = compare_runs(arms)
            budgets += _list_budgets(_pair_runs(report.runs, method, BASE_METHOD))
        numbers = "; ".join(
            f"{method} {format_points(x.value)} [{format_points(x.low)}, {format_points(x.high)}]"
            for method, x in estimates.items()
        )
        if not any(x.low <= high and low <= x.high for x in estimates.values()):
            return Outcome(FAILS, numbers)
        if any(ours > theirs for ours, theirs in budgets):
            return Outcome(UNDECIDED, f"{numbers}; {UNEVEN_BUDGETS}")
        if collapses := list_collapses(report, *methods):
            return Outcome(UNDECIDED, "; ".join([numbers, *collapses]))
        is_clear = all(low <= x.value <= high and x.low > 0 and x.high - x.low <= WIDEST for x in estimates.values())
        return Outcome(HOLDS if is_clear else UNDECIDED, numbers)

    return check


def _collect_arms(report: Report, method: str) -> list[tuple[str, Arms]]:
    """Collect each encoder's columns with the scores of a method and of plain fine-tuning, where both have some."""
    cells = list_score_cells(report.cells)
    groups = cells[cells["method"] == method].groupby("group", sort=False)
    return [column for _, of_group in groups for column in list_arms(of_group.itertuples()).items()]


def _judge_improvement(report: Report, method: str) -> Outcome:
    cells = list_score_cells(report.cells)
    cells = cells[cells["method"] == method]
    if undefined := list(cells[cells["compared"] & cells["difference"].isna()]["column"].unique()):
        return Outcome(UNDECIDED, f"{method}: undefined score (NaN) on {', '.join(undefined)}")
    constant = ", ".join(dict.fromkeys(task for _, task in _list_constant_tasks(report, method)))
    left_out = f" (left out, constant predictors: {constant})" if constant else ""
    collected = _collect_arms(report, method)
    arms = [pair for _, pair in collected]
    if constant and not arms:
        return Outcome(UNDECIDED, f"{method}: no task can be compared{left_out}")
    if not arms or min(map(count_seeds, arms)) < 2:
        return Outcome(NOT_RUN, f"{method}: fewer than two seeds of it or of plain fine-tuning{left_out}")
    pairs = _pair_runs(report.runs, method, BASE_METHOD)
    return _decide_difference(f"{method} on {', '.join(dict(collected))}", arms, left_out, pairs)


def is_better_than(method: str, other: str) -> Check:
    """Make the check that ``method`` is better than ``other``, averaged over encoders and tasks.

    Runs that predict one class for every example count with their scores: such claims are also about training that
    fails.
    """

    def check(report: Report) -> Outcome:
        pairs = _pair_runs(report.runs[is_scored(report.runs)], method, other)
        if not pairs:
            return Outcome(NOT_RUN, f"no task with runs of both {method} and {other}")
        arms = [(read_arm(ours), read_arm(theirs)) for ours, theirs in pairs]
        if min(map(count_seeds, arms)) < 2:
            return Outcome(NOT_RUN, f"{method}, {other}: fewer than two seeds of one of them")
        remarks = [", ".join(dict.fromkeys(ours["task"].iloc[0] for ours, _ in pairs))]
        for name, of_tasks in zip((method, other), zip(*pairs, strict=True), strict=True):  # pairs -> ours, theirs
            failures = pd.concat(of_tasks)["failure"]
            if count := int((failures == CONSTANT_PREDICTOR).sum()):
                remarks.append(f"{count} of {len(failures)} runs of {name} predict one class")
        return _decide_difference(f"{method} less {other}", arms, f" ({'; '.join(remarks)})", pairs)

    return check


def read_arm(runs: pd.DataFrame) -> Arm:
    return Arm(list(runs["score"]), list(runs["seed"]))


def _pair_runs(runs: pd.DataFrame, method: str, other: str) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    """Pair the selected runs of two methods: one pair for each encoder, task and setting in which both have some."""
    chosen = runs[runs["selected"].astype(bool) & runs["method"].isin([method, other])]
    pairs = []
    compared = COMPARED + [name for name in list_scored() if name in chosen]
    for _, both in chosen.groupby(compared, sort=False, dropna=False):
        ours, theirs = both[both["method"] == method], both[both["method"] == other]
        if len(ours) and len(theirs):
            pairs.append((ours, theirs))
    return pairs


def _decide_difference(
    label: str, arms: Sequence[Arms], remark: str, pairs: Sequence[tuple[pd.DataFrame, pd.DataFrame]]
) -> Outcome:
    """Decide whether the first method of each pair is better than the second, averaged over tasks.

    It is undecided unless `compare_runs` finds a difference. It is undecided also if the better method was selected
    from more configurations by the scores that are reported, because the best of more configurations is better by
    chance alone. ``pairs`` are the runs, which say from how many; each method has two seeds or more in ``arms``.
    """
    mean = compare_runs(arms)
    if math.isnan(mean.p):
        return Outcome(UNDECIDED, f"{label} {format_points(mean.value)} points: no spread over seeds, so no interval")
    budgets = _list_budgets(pairs)
    limits = f"[{format_points(mean.low)}, {format_points(mean.high)}]"
    numbers = f"{label} {format_points(mean.value)} points {limits}, {describe_p(mean.p)}{remark}"
    if budgets not in ([], [(1, 1)]):
        counts = " or ".join(f"{ours} and {theirs}" for ours, theirs in budgets)
        numbers += f"; selected from {counts} configurations"
    if mean.p >= ALPHA:
        return Outcome(UNDECIDED, numbers)
    if any(ours > theirs if mean.value > 0 else ours < theirs for ours, theirs in budgets):
        return Outcome(UNDECIDED, f"{numbers}; {UNEVEN_BUDGETS}")
    return Outcome(HOLDS if mean.value > 0 else FAILS, numbers)


def _list_budgets(pairs: Sequence[tuple[pd.DataFrame, pd.DataFrame]]) -> list[tuple[int, int]]:
    """List from how many configurations the two methods of each pair were selected, each combination once."""
    return sorted({(int(ours["candidates"].iloc[0]), int(theirs["candidates"].iloc[0])) for ours, theirs in pairs})


def nothing_improves(report: Report) -> Outcome:
    """Check that no method gains on a task.

    The claim does not hold if a gain survives Holm's correction. It holds if no gain has a p below ``ALPHA`` without
    it, and the 95% interval of every difference ends below ``RELEVANT_GAIN`` points. That each of them does is shown
    without a correction (an intersection-union test). Else the claim is undecided, as it is if constant predictors or
    undefined scores leave nothing to test.
    """
    tested = list_comparisons(report.cells)
    constant = ", ".join(f"{method} on {task}" for method, task in _list_constant_tasks(report))
    left_out = f"; left out, constant predictors: {constant}" if constant else ""
    compared = list_score_cells(report.cells).query("compared")
    if tested.empty:
        if constant or compared["difference"].isna().any():
            return Outcome(UNDECIDED, f"no task is left to test: scores are undefined or of single seeds{left_out}")
        return Outcome(NOT_RUN, "no comparison of two or more seeds")
    tested = tested.assign(p=tested["p"] * tested["trials"])
    gains = tested.assign(p_holm=holm(list(tested["p"]))).query("p < @ALPHA and difference > 0")
    surviving = gains[gains["p_holm"] < ALPHA]
    numbers = f"{len(surviving)} of {len(tested)} comparisons on {', '.join(tested['column'].unique())} are gains"
    numbers += " that survive Holm"
    if len(surviving):
        named = ", ".join(f"{cell.method} on {cell.column}" for cell in surviving.itertuples())
        return Outcome(FAILS, f"{numbers}: {named}{left_out}")
    highest = tested["high"].max()
    numbers += f", {len(gains)} without it; the intervals end at {format_points(highest)} points or below{left_out}"
    if untested := int(compared["p"].isna().sum()):
        return Outcome(UNDECIDED, f"{numbers}; {untested} more can't be tested")
    return Outcome(UNDECIDED if len(gains) or highest >= RELEVANT_GAIN else HOLDS, numbers)


def group_pairs(report: Report) -> dict[tuple[str, str], list[tuple[pd.DataFrame, pd.DataFrame]]]:
    """Group the runs of each method and encoder in pairs with plain fine-tuning's, one for each task and setting."""
    runs = report.runs[is_scored(report.runs)]
    groups: dict[tuple[str, str], list[tuple[pd.DataFrame, pd.DataFrame]]] = {}
    for method in runs.loc[runs["method"] != BASE_METHOD, "method"].unique():
        for pair in _pair_runs(runs, method, BASE_METHOD):
            groups.setdefault((method, pair[0]["encoder"].iloc[0]), []).append(pair)
    return groups


def list_collapses(report: Report, *methods: str) -> list[str]:
    """List, in words, where runs of a method predict one class, and not fewer than of plain fine-tuning."""
    found = []
    for (method, encoder), pairs in group_pairs(report).items():
        for pair in pairs:
            ours, plain = ((runs["failure"] == CONSTANT_PREDICTOR).mean() for runs in pair)
            if method in methods and ours and ours >= plain:
                found.append(f"{method} predicts one class on {pair[0]['task'].iloc[0]} ({encoder})")
    return found


def _list_constant_tasks(report: Report, method: str | None = None) -> Iterator[tuple[str, str]]:
    """Yield methods with the tasks on which a run of them or of plain fine-tuning is a constant predictor."""
    for row in report.methods.itertuples():
        if row.method != BASE_METHOD and method in (None, row.method):
            label = name_method(report.methods, row)
            yield from ((label, task) for task in row.constant_tasks)
