"""The checks that this paper's claims alone need: of isotropy, of training times, and of gains on most tasks.

`isobench.report.checks` has those that several papers share. Each check reads an experiment's report.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
import pandas as pd

from isobench.papers.published import load_tables
from isobench.report.build import Report
from isobench.report.checks import COMPARED, Check, group_pairs, judge_cases, read_arm
from isobench.report.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED, Outcome
from isobench.report.methods import count_seeds, list_score_cells
from isobench.report.tables import BASE_METHOD, CONSTANT_PREDICTOR, SPEED_SETTINGS, read_numbers
from isobench.report.wording import describe_p, format_points
from isobench.runs.grouping import SOURCE_SETTINGS
from isobench.statistics.seeds import ALPHA, Arm, Comparison, Estimate, compare_runs, holm

MOST_TASKS = 0.75  # share of the tasks on which a method must be above plain fine-tuning, or change little
MAX_CORRELATION = 0.99  # of a group of runs, when it is pooled: Fisher's z of 1 is infinite
# Of the output matrix, as we infer that the paper which prints them computed them.
HEAD_ISOTROPY = {"I1": "head/i1_printed", "I2": "head/i2_printed"}
# Columns of ``runs`` that two runs share if their times may be compared.
TIMED = ["encoder", "task", "scale", "machine", "share", "threads", "torch", *SPEED_SETTINGS, *SOURCE_SETTINGS]


def nothing_improves_consistently(report: Report) -> Outcome:
    """Check that no method is above plain fine-tuning on most tasks of an encoder by more than chance.

    Most are ``MOST_TASKS``. In the test all tasks weigh alike, so no collapse on one of them hides gains on the rest
    (Stouffer's method, with Holm's correction over methods and encoders). Runs that predict one class count with
    their scores. Undecided if a method is above on most tasks and chance could explain it. A method needs two tasks.
    """
    found, numbers = [], []
    for (method, encoder), pairs in group_pairs(report).items():
        arms = [(read_arm(ours), read_arm(theirs)) for ours, theirs in pairs]
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
    for (method, encoder), pairs in group_pairs(report).items():
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
        for (method, encoder), pairs in group_pairs(report).items():
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
    """Check that on each task and encoder every run of a method predicts one class, and not every plain one does.

    One such run is enough on STS-B, as it makes the mean NaN, which is all that print has.
    """
    cases, numbers = [], []
    for (method, encoder), pairs in group_pairs(report).items():
        for ours, plain in pairs:
            is_constant, is_plain = (runs["failure"] == CONSTANT_PREDICTOR for runs in (ours, plain))
            task = ours["task"].iloc[0]
            prevented = is_constant.any() if task == "stsb" else is_constant.all()
            cases.append(bool(prevented and not is_plain.all()))
            numbers.append(f"{method} on {task} ({encoder}) {is_constant.sum()} of {len(ours)}")
    return judge_cases(cases, f"runs that predict one class: {'; '.join(numbers)}")


def _average(runs: pd.DataFrame, *columns: str) -> list[float]:
    return [float(read_numbers(runs, column).mean()) for column in columns]


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


def costs(table: str, gpu: str, low: float, high: float, *methods: str, most: float = math.inf) -> Check:
    """Make the check that methods take ``low`` to ``high`` times plain fine-tuning's training time.

    Their factor is averaged over methods and tasks.

    Args:
        table: PAPER/TABLE, whose tasks and encoders the claim is about.
        gpu: on which the paper measured its times.
        low, high: the smallest and the largest factor that agree with the paper.
        methods: names of calibrations.
        most: the largest factor that agrees, if its interval may end above it.
    """

    def check(report: Report) -> Outcome:
        selected = [_select_times(report.runs, table, method) for method in methods]
        times = pd.concat([found for found, _ in selected])
        missing = [text for _, texts in selected for text in texts]
        return _judge_factor(" and ".join(methods), times, missing, low, high, gpu, most)

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
            arms = [Arm(times, [None] * len(times)) for times in (ours, theirs)]  # seeds have no part in times
            settings.append((*of_setting[TIMED[:4]].iloc[0], tuple(arms)))
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


def _judge_factor(
    label: str, times: pd.DataFrame, missing: list[str], low: float, high: float, gpu: str, most: float
) -> Outcome:
    """Judge a factor by its 95% interval against the range in which it agrees with the paper.

    The claim is about the paper's encoders, data and GPU. Runs with other encoders or data therefore decide nothing.
    With the paper's encoders and data, the claim holds if the interval is inside the range and the factor at most
    ``most``. It fails if the interval is wholly outside and the GPU is the paper's. On another GPU, other factors do
    not contradict the paper. The factor is the geometric mean of ``times``; ``missing`` are methods and tasks without
    times in the paper's setting.
    """
    if times.empty or min(map(count_seeds, times["arms"])) < 2:
        return Outcome(NOT_RUN, "fewer than two training times of the method or of plain fine-tuning on one machine")
    x = compare_runs(list(times["arms"]))
    ends = (x.value, x.value) if math.isnan(x.low) else (x.low, x.high)  # all times of a method are equal
    factor = Estimate(*map(math.exp, (x.value, *ends)))
    machines = list(times["machine"].astype(str).unique())
    numbers = f"{label} {factor.value:.2f}x [{factor.low:.2f}, {factor.high:.2f}], on {', '.join(machines)}; "
    numbers += f"agrees from {low:.3g}x to {high:.3g}x"
    if (times["scale"] != "").any():
        return Outcome(UNDECIDED, f"{numbers}; the claim is about the paper's encoder and data, which these are not")
    if missing:
        return Outcome(UNDECIDED, f"{numbers}; not measured: {', '.join(missing)}")
    if low <= factor.low and factor.high <= high and factor.value <= most:
        return Outcome(HOLDS, numbers)
    if low <= factor.high and factor.low <= high:
        return Outcome(UNDECIDED, numbers)
    if all(gpu.upper() in machine.upper() for machine in machines):
        return Outcome(FAILS, numbers)
    return Outcome(UNDECIDED, f"{numbers}; the paper's times are of another machine, {gpu}")
