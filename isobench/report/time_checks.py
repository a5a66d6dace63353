"""Judge claims on training times, as `isobench.report.checks` judges those on scores."""

import math

import numpy as np
import pandas as pd

from isobench.papers.published import load_tables
from isobench.report.build import Report
from isobench.report.checks import Check
from isobench.report.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED, Outcome
from isobench.report.methods import count_seeds
from isobench.report.tables import BASE_METHOD, SPEED_SETTINGS, read_numbers
from isobench.runs.grouping import SOURCE_SETTINGS
from isobench.statistics.seeds import Arm, Estimate, compare_runs

# Columns of ``runs`` that two runs share if their times may be compared.
TIMED = ["encoder", "task", "scale", "machine", "share", "threads", "torch", *SPEED_SETTINGS, *SOURCE_SETTINGS]


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
