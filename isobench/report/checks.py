"""Checks that judge claims: each reads an experiment's report and returns holds, does not hold or undecided.

A function of a report is a check; any other makes one. `judge_cases` helps a paper's checks of analyses. A check that
takes no methods is about all that the report has, which are those that its claim names.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
import pandas as pd

from isobench.report.build import Report
from isobench.report.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED, Outcome
from isobench.report.methods import count_seeds, list_arms, list_comparisons, list_score_cells, name_method
from isobench.report.tables import BASE_METHOD, CONSTANT_PREDICTOR, is_scored, read_numbers
from isobench.report.wording import describe_p, format_points
from isobench.runs.grouping import PROTOCOL_SETTINGS, SOURCE_SETTINGS
from isobench.statistics.seeds import ALPHA, Arm, Arms, Comparison, Estimate, compare_runs, holm

Check = Callable[[Report], Outcome]
Statistic = Callable[[list[float]], float]
RELEVANT_GAIN = 1.0  # points; runs whose intervals include a gain of this size don't support "no gain"
MOST_TASKS = 0.75  # share of the tasks on which a method must be above plain fine-tuning, or change little
MAX_CORRELATION = 0.99  # of a group of runs, when it is pooled: Fisher's z of 1 is infinite
# Of the output matrix, as we infer that the paper which prints them computed them.
HEAD_ISOTROPY = {"I1": "head/i1_printed", "I2": "head/i2_printed"}
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


def improves(*methods: str, share: float = 0.0, statistic: Statistic = statistics.fmean) -> Check:
    """Make the check that most of the methods are better than plain fine-tuning, averaged over encoders and tasks.

    The claim holds if more than half of the methods are better by more than chance, and none worse. With ``share``,
    they must also be above plain fine-tuning by ``statistic`` in at least this share of the cells. It is undecided if
    a method predicts one class where plain fine-tuning does not: such runs are in no mean. It fails if more than half
    are worse by more than chance.
    """

    def check(report: Report) -> Outcome:
        outcomes = [_judge_improvement(report, method) for method in methods]
        numbers = "; ".join(outcome.numbers for outcome in outcomes)
        counts = Counter(outcome.word for outcome in outcomes)
        if counts[NOT_RUN]:
            return Outcome(NOT_RUN, numbers)
        cells = report.cells[report.cells["method"].isin(methods) & report.cells["compared"]]
        above = sum(
            statistic(ours) > statistic(base) for ours, base in zip(cells["values"], cells["base"], strict=True)
        )
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
    or predicts one class where plain fine-tuning does not.
    """

    def check(report: Report) -> Outcome:
        estimates, is_favoured = {}, False
        for method in methods:
            arms = [pair for _, pair in _collect_arms(report, method)]
            if not arms or min(map(count_seeds, arms)) < 2:
                return Outcome(NOT_RUN, f"{method}: fewer than two seeds of it or of plain fine-tuning")
            estimates[method] = compare_runs(arms)
            budgets = _list_budgets(_pair_runs(report.runs, method, BASE_METHOD))
            is_favoured |= any(ours > theirs for ours, theirs in budgets)
        numbers = "; ".join(
            f"{method} {format_points(x.value)} [{format_points(x.low)}, {format_points(x.high)}]"
            for method, x in estimates.items()
        )
        overlaps = [x.low <= high and low <= x.high for x in estimates.values()]
        if not any(overlaps):
            return Outcome(FAILS, numbers)
        is_clear = all(low <= x.value <= high and x.low > 0 and x.high - x.low <= WIDEST for x in estimates.values())
        if is_favoured:
            return Outcome(UNDECIDED, f"{numbers}; {UNEVEN_BUDGETS}")
        if collapses := list_collapses(report, *methods):
            return Outcome(UNDECIDED, "; ".join([numbers, *collapses]))
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
        arms = [(_read_arm(ours), _read_arm(theirs)) for ours, theirs in pairs]
        if min(map(count_seeds, arms)) < 2:
            return Outcome(NOT_RUN, f"{method}, {other}: fewer than two seeds of one of them")
        remarks = [", ".join(dict.fromkeys(ours["task"].iloc[0] for ours, _ in pairs))]
        for name, runs_by_pair in zip((method, other), zip(*pairs, strict=True), strict=True):
            failures = pd.concat(runs_by_pair)["failure"]
            if count := int((failures == CONSTANT_PREDICTOR).sum()):
                remarks.append(f"{count} of {len(failures)} runs of {name} predict one class")
        return _decide_difference(f"{method} less {other}", arms, f" ({'; '.join(remarks)})", pairs)

    return check


def _read_arm(runs: pd.DataFrame) -> Arm:
    return Arm(list(runs["score"]), list(runs["seed"]))


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


def nothing_improves_consistently(report: Report) -> Outcome:
    """Check that no method is above plain fine-tuning on most tasks of an encoder by more than chance.

    Most are ``MOST_TASKS``. In the test all tasks weigh alike, so no collapse on one of them hides gains on the rest
    (Stouffer's method, with Holm's correction over methods and encoders). Runs that predict one class count with
    their scores. Undecided if a method is above on most tasks and chance could explain it. A method needs two tasks.
    """
    found, numbers = [], []
    for (method, encoder), pairs in _group_pairs(report).items():
        arms = [(_read_arm(ours), _read_arm(theirs)) for ours, theirs in pairs]
        tests = [compare_runs([pair]) for pair in arms if count_seeds(pair) > 1]
        if len(tests) > 1:
            above = sum(test.value > 0 for test in tests)
            found.append((above / len(tests), _combine_gains(tests)))
            numbers.append(f"{method} ({encoder}) {above} of {len(tests)}")
    if not found:
        return Outcome(NOT_RUN, "no method with two seeds on each of two tasks")
    corrected = holm([p for _, p in found])
    is_shown = any(share >= MOST_TASKS and p < ALPHA for (share, _), p in zip(found, corrected, strict=True))
    word = FAILS if is_shown else UNDECIDED if any(share >= MOST_TASKS for share, _ in found) else HOLDS
    return Outcome(word, f"tasks with a mean above plain fine-tuning's: {'; '.join(numbers)}")


def _combine_gains(tests: Sequence[Comparison]) -> float:
    """Combine tests of one method into the two-sided p of a gain, by Stouffer's method; no spread is no evidence."""
    from scipy import stats

    scores = [math.copysign(stats.norm.isf(test.p / 2), test.value) for test in tests if test.p > 0]
    return min(1.0, float(2 * stats.norm.sf(sum(scores) / math.sqrt(len(tests)))))


def gains_are_few(report: Report) -> Outcome:
    """Check that no more gains are significant than chance gives, by Student's two-sample test of each score.

    The test is the calibration paper's, without a correction. Chance gives ``ALPHA`` / 2 of the comparisons, and with
    a probability of 95% at most the binomial quantile. It is undecided if more than half of the means are above plain
    fine-tuning's. Runs that predict one class count if their score is defined.
    """
    from scipy import stats

    scores = report.cells[report.cells["kind"] == "score"].drop_duplicates(["group", "method", "column"])
    plain = {(c.group, c.column): c.values for c in scores[scores["method"] == BASE_METHOD].itertuples()}
    gained, above, count = [], 0, 0
    for cell in scores[scores["method"] != BASE_METHOD].itertuples():
        arms = cell.values, plain.get((cell.group, cell.column), [])
        if min(map(len, arms)) < 2 or any(map(math.isnan, chain(*arms))) or max(map(np.ptp, arms)) == 0:
            continue
        test = stats.ttest_ind_from_stats(*chain(*((statistics.fmean(x), statistics.stdev(x), len(x)) for x in arms)))
        count += 1
        above += test.statistic > 0
        if test.pvalue < ALPHA and test.statistic > 0:
            gained.append(f"{cell.method} on {cell.column} ({cell.group})")
    if not count:
        return Outcome(NOT_RUN, "no comparison of two or more seeds")
    most = int(stats.binom.ppf(1 - ALPHA, count, ALPHA / 2))
    numbers = f"{len(gained)} of {count} comparisons are gains with p < {ALPHA} ({', '.join(gained) or 'none'}); "
    numbers += f"chance alone gives up to {most}; {above} means are above plain fine-tuning's"
    return Outcome(FAILS if len(gained) > most else UNDECIDED if above > count / 2 else HOLDS, numbers)


def most_degrade(report: Report) -> Outcome:
    """Check that most methods are below plain fine-tuning, averaged over tasks, and one by more than chance.

    No method may be above by more than chance.
    """
    rows = [row for row in report.methods.itertuples() if row.method != BASE_METHOD and row.compared]
    if not rows:
        return Outcome(NOT_RUN, "no comparison with plain fine-tuning")
    numbers = "; ".join(f"{row.method} {format_points(row.difference)}, {describe_p(row.p)}" for row in rows)
    for word, sign in ((HOLDS, -1), (FAILS, 1)):
        moved = [row for row in rows if sign * row.difference > 0]
        against = [row for row in rows if sign * row.difference < 0 and row.p < ALPHA]
        if len(moved) > len(rows) / 2 and any(row.p < ALPHA for row in moved) and not against:
            return Outcome(word, numbers)
    return Outcome(UNDECIDED, numbers)


def loses_more(points: Mapping[str, float]) -> Check:
    """Make the check that each method loses more than so many points on each task; ``points``: task -> points."""

    def check(report: Report) -> Outcome:
        cells = list_score_cells(report.cells).query("compared")
        losses = [(cell, -cell.difference > points[cell.task]) for cell in cells.itertuples() if cell.task in points]
        numbers = "; ".join(f"{cell.method} on {cell.column} {format_points(cell.difference)}" for cell, _ in losses)
        return judge_cases((is_more for _, is_more in losses), numbers)

    return check


def raises_isotropy(report: Report) -> Outcome:
    """Check that on ``MOST_TASKS`` of an encoder a method's head goes half of the way to isotropy or more.

    That is from plain fine-tuning's I1 to 1, and from its I2 to 0.
    """
    cases, numbers = [], []
    for (method, encoder), pairs in _group_pairs(report).items():
        means = np.array([[_average(runs, *HEAD_ISOTROPY.values()) for runs in pair] for pair in pairs])
        left = np.abs(means - [1, 0])  # task, ours or plain, I1 or I2
        reached = (2 * left[:, 0] <= left[:, 1] + 1e-9) & (left[:, 0] < left[:, 1])
        cases.append(bool((reached.sum(axis=0) >= MOST_TASKS * len(pairs)).all()))
        ours, plain = means.mean(axis=0)
        changes = (f"{name} {x:.3f} to {y:.3f}" for name, x, y in zip(HEAD_ISOTROPY, plain, ours, strict=True))
        shares = ", ".join(f"{count} of {len(pairs)}" for count in reached.sum(axis=0))
        numbers.append(f"{method} ({encoder}) {', '.join(changes)}; half of the way on {shares} tasks")
    return judge_cases(cases, f"the head's isotropy: {'; '.join(numbers)}")


def changes_little(
    points: float | None = None, isotropy: float | None = None, median_points: float = math.inf
) -> Check:
    """Make the check that methods change scores by ``points`` at most, and I1 and I2 of the head by ``isotropy``.

    Judged is the size of the mean difference from plain fine-tuning: on ``MOST_TASKS`` of an encoder's tasks it must
    be within the limit, so a task whose seeds fail, or a misprint, does not decide. What is None is not judged. The
    median over tasks of a score's change is ``median_points`` at most.
    """
    limits = {"score": ("score", points)} | {name: (column, isotropy) for name, column in HEAD_ISOTROPY.items()}

    def check(report: Report) -> Outcome:
        cases, numbers = [], []
        for (method, encoder), pairs in _group_pairs(report).items():
            for name, (column, limit) in limits.items():
                sizes = [abs(float(_average(ours, column)[0] - _average(plain, column)[0])) for ours, plain in pairs]
                if limit is not None and (sizes := [size for size in sizes if not math.isnan(size)]):
                    within = sum(size <= limit + 1e-9 for size in sizes)
                    median = statistics.median(sizes)
                    cases.append(within >= MOST_TASKS * len(sizes) and (name != "score" or median <= median_points))
                    numbers.append(f"{name} by {method} ({encoder}) {within} of {len(sizes)}, median {median:.3f}")
        return judge_cases(cases, f"tasks that change little: {'; '.join(numbers)}")

    return check


def prevents_learning(report: Report) -> Outcome:
    """Check that on each task and encoder every run of a method predicts one class, and not every plain one does."""
    cases, numbers = [], []
    for (method, encoder), pairs in _group_pairs(report).items():
        for ours, plain in pairs:
            is_constant, is_plain = (runs["failure"] == CONSTANT_PREDICTOR for runs in (ours, plain))
            cases.append(bool(is_constant.all() and not is_plain.all()))
            numbers.append(f"{method} on {ours['task'].iloc[0]} ({encoder}) {is_constant.sum()} of {len(ours)}")
    return judge_cases(cases, f"runs that predict one class: {'; '.join(numbers)}")


def _group_pairs(report: Report) -> dict[tuple[str, str], list[tuple[pd.DataFrame, pd.DataFrame]]]:
    """Group the runs of each method and encoder in pairs with plain fine-tuning's, one for each task and setting."""
    runs = report.runs[is_scored(report.runs)]
    groups: dict[tuple[str, str], list[tuple[pd.DataFrame, pd.DataFrame]]] = {}
    for method in runs["method"].unique():
        for pair in _pair_runs(runs, method, BASE_METHOD) if method != BASE_METHOD else ():
            groups.setdefault((method, pair[0]["encoder"].iloc[0]), []).append(pair)
    return groups


def _average(runs: pd.DataFrame, *columns: str) -> list[float]:
    return [float(read_numbers(runs, column).mean()) for column in columns]


def list_collapses(report: Report, *methods: str) -> list[str]:
    """List, in words, where more runs of a method than of plain fine-tuning predict one class."""
    found = []
    for (method, encoder), pairs in _group_pairs(report).items():
        for pair in pairs if method in methods else ():
            ours, plain = ((runs["failure"] == CONSTANT_PREDICTOR).mean() for runs in pair)
            if ours > plain:
                found.append(f"{method} predicts one class on {pair[0]['task'].iloc[0]} ({encoder})")
    return found


def _list_constant_tasks(report: Report, method: str | None = None) -> Iterator[tuple[str, str]]:
    """Yield methods with the tasks on which a run of them or of plain fine-tuning is a constant predictor."""
    for row in report.methods.itertuples():
        if row.method != BASE_METHOD and row.method == (method or row.method):
            label = name_method(report.methods, row)
            yield from ((label, task) for task in row.constant_tasks)


def isotropy_lowers_scores(report: Report) -> Outcome:
    """Check that a more isotropic head goes with a lower score, among the runs of a task and encoder.

    Spearman's correlation of the score with I1, and with I2, which falls as isotropy rises. Runs that predict one
    class count. Groups of six runs or more are pooled; runs of different scales, heads or reported epochs are
    correlated apart. The claim holds if the interval of I1's pooled correlation is below 0 and that of I2's above,
    and each encoder's correlations are too. It does not hold if both intervals are on the other side.
    """
    from scipy import stats

    columns = {name: read_numbers(report.runs, measure) for name, measure in HEAD_ISOTROPY.items()}
    runs = report.runs.assign(**columns, y=read_numbers(report.runs, "score"))
    usable = runs[runs["status"].eq("finished") & runs["y"].notna()].dropna(subset=list(columns))
    pooled, numbers, signs = {}, [], {"I1": -1, "I2": 1}
    is_in_each = True
    for name in columns:
        groups = [group for _, group in usable.groupby(COMPARED, sort=False, dropna=False) if len(group) >= 6]
        varied = [group for group in groups if group[name].nunique() > 1 and group["y"].nunique() > 1]
        if not varied:
            return Outcome(
                NOT_RUN, f"no task and encoder with six runs that differ in score and in {name} of the head"
            )
        found = [(group["task"].iloc[0], stats.spearmanr(group[name], group["y"]).statistic) for group in varied]
        pooled[name] = pool_correlations([rho for _, rho in found], list(map(len, varied)))
        by_encoder: dict[str, list[tuple[float, int]]] = {}
        for group, (_, rho) in zip(varied, found, strict=True):
            by_encoder.setdefault(group["encoder"].iloc[0], []).append((rho, len(group)))
        own = [pool_correlations(*zip(*pairs, strict=True)).value for pairs in by_encoder.values()]
        is_in_each &= all(signs[name] * value > 0 for value in own)
        each = ", ".join(f"{task} {rho:+.2f}" for task, rho in found)
        x = pooled[name]
        numbers.append(f"{name} {x.value:+.2f} [{x.low:+.2f}, {x.high:+.2f}] ({each}; {sum(map(len, varied))} runs)")
    text = f"pooled Spearman's correlation with the score: {'; '.join(numbers)}"
    if pooled["I1"].high < 0 < pooled["I2"].low:
        return Outcome(HOLDS, text) if is_in_each else Outcome(UNDECIDED, f"{text}; not with each encoder")
    return Outcome(FAILS if pooled["I2"].high < 0 < pooled["I1"].low else UNDECIDED, text)


def pool_correlations(correlations: Sequence[float], sizes: Sequence[int]) -> Estimate:
    """Pool Spearman's correlations of groups of runs: the pooled correlation with its 95% interval.

    By Fisher's z, whose variance is 1.06 / (n - 3) for Spearman's correlation (Fieller, Hartley and Pearson 1957),
    which is good for correlations near 0; a group's weight is n - 3, and no correlation counts as more than
    ``MAX_CORRELATION``. Runs of one seed are not quite independent, so the interval is somewhat too narrow.
    """
    from scipy import stats

    weights = np.array(sizes) - 3
    mean = np.average(np.arctanh(np.clip(correlations, -MAX_CORRELATION, MAX_CORRELATION)), weights=weights)
    margin = float(stats.norm.ppf(0.975)) * math.sqrt(1.06 / sum(weights))
    return Estimate(*map(math.tanh, (mean, mean - margin, mean + margin)))
