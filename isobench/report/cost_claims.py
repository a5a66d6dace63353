"""Check the papers' claims on what a calibration costs: its training time over that of plain fine-tuning."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from isobench.papers.published import load_tables
from isobench.report.build import Report
from isobench.report.claim_outcome import FAILS, HOLDS, NOT_RUN, UNDECIDED, Outcome
from isobench.report.score_claims import TidyRows, pair_methods
from isobench.report.tables import BASE_METHOD, SPEED_SETTINGS
from isobench.statistics.resampling import mean_difference_interval
from isobench.statistics.seeds import Arms, Estimate

TOLERANCE = 1.25  # our choice: our factor agrees with a printed one if it is at most a quarter larger or smaller


class TimedSetting(NamedTuple):
    """Name what two runs must share so that their training times may be compared."""

    encoder: str
    task: str
    scale: str
    machine: str | None
    share: int | None  # runs that shared the device
    threads: int | None  # of torch in the run's process
    torch: str | None
    settings: tuple[str, ...]  # from ``read_time_settings``


def costs_times(table: str, gpu: str, factor: float, method: str) -> Callable[[Report], Outcome]:
    """Make the check that a method takes ``factor`` times plain fine-tuning's training time, on average over tasks.

    Args:
        table: PAPER/TABLE, whose tasks and encoders the claim is about.
        gpu: on which the paper measured its times.
        factor: as the text prints it; our factor has to be within ``TOLERANCE`` of it.
        method: the calibration's name.
    """
    low, high = factor / TOLERANCE, factor * TOLERANCE

    def check(report: Report) -> Outcome:
        arms, missing = select_timed_arms(report.runs.to_dict("records"), table, method)
        return judge_factors({method: list(arms.values())}, list(arms), missing, low, high, gpu)

    return check


def costs_between(table: str, gpu: str, low: float, high: float, *methods: str) -> Callable[[Report], Outcome]:
    """Make the check that each method takes ``low`` to ``high`` times plain fine-tuning's training time on each task.

    Args:
        table: PAPER/TABLE, whose tasks and encoders the claim is about.
        gpu: on which the paper measured its times.
        low: the smallest factor that the paper prints.
        high: the largest.
        methods: names of calibrations.
    """

    def check(report: Report) -> Outcome:
        factors, settings, missing = dict[str, list[Arms]](), list[TimedSetting](), list[str]()
        for method in methods:
            arms, lacking = select_timed_arms(report.runs.to_dict("records"), table, method)
            factors |= {f"{method} on {setting.task}": [pair] for setting, pair in arms.items()}
            settings, missing = [*settings, *arms], [*missing, *lacking]
        return judge_factors(factors, settings, missing, low, high, gpu)

    return check


def judge_factors(
    factors: dict[str, list[Arms]],
    settings: list[TimedSetting],
    missing: list[str],
    low: float,
    high: float,
    gpu: str,
) -> Outcome:
    """Judge factors by their 95% intervals against the range in which they agree with the paper.

    The claim is about the paper's encoders, data and GPU. Runs with other encoders or data therefore decide nothing.
    With the paper's encoders and data, the claim holds if every interval is inside the range. It fails if an interval
    is wholly outside and the GPU is the paper's. On another GPU, other factors do not contradict the paper.

    Args:
        factors: label -> logarithms of training times, the method's and plain fine-tuning's, one pair per task. A
            factor is the geometric mean over these tasks.
        settings: where the times were measured.
        missing: methods and tasks of the claim that have no times in the paper's setting.
        low: the smallest factor that agrees with the paper.
        high: the largest.
        gpu: the paper's.
    """
    if not settings:
        return Outcome(
            NOT_RUN, "no training times of the method and of plain fine-tuning on one machine, in the claim's setting"
        )
    estimates = {label: estimate_factor(arms) for label, arms in factors.items() if arms}
    machines = list(dict.fromkeys(str(setting.machine) for setting in settings))
    numbers = "; ".join(f"{label} {e.value:.2f}x [{e.low:.2f}, {e.high:.2f}]" for label, e in estimates.items())
    numbers += f", on {', '.join(machines)}; agrees from {low:.3g}x to {high:.3g}x"
    if any(math.isnan(estimate.low) for estimate in estimates.values()):
        return Outcome(NOT_RUN, f"{numbers}; no interval: fewer than two seeds, or equal times")
    if any(setting.scale for setting in settings):
        return Outcome(UNDECIDED, f"{numbers}; the claim is about the paper's encoder and data, which these are not")
    if missing:
        return Outcome(UNDECIDED, f"{numbers}; not measured: {', '.join(missing)}")
    if all(low <= estimate.low and estimate.high <= high for estimate in estimates.values()):
        return Outcome(HOLDS, numbers)
    if not any(estimate.high < low or estimate.low > high for estimate in estimates.values()):
        return Outcome(UNDECIDED, numbers)
    if all(gpu.upper() in machine.upper() for machine in machines):
        return Outcome(FAILS, numbers)
    return Outcome(UNDECIDED, f"{numbers}; the paper's times are of another machine, {gpu}")


def estimate_factor(arms: list[Arms]) -> Estimate:
    """Compute a factor of time, the geometric mean over tasks, with its 95% bootstrap interval.

    Args:
        arms: logarithms of training times on each task, the method's and plain fine-tuning's, one per seed.
    """
    return Estimate(*map(math.exp, mean_difference_interval(arms)))


def select_timed_arms(runs: TidyRows, table: str, method: str) -> tuple[dict[TimedSetting, Arms], list[str]]:
    """Select the settings in which to compare training times: those of the paper's table, or all if there is none.

    Returns:
        The logarithms of the training times in each setting, the method's and plain fine-tuning's. Then the names of
        the method's tasks in the table that have no times in the paper's setting.
    """
    arms = collect_timed_arms(runs, method)
    printed = list_printed_cells(table, method)
    of_paper = {s: pair for s, pair in arms.items() if not s.scale and (s.encoder, s.task) in printed}
    found = {(setting.encoder, setting.task) for setting in of_paper}
    missing = [f"{method} on {task} ({encoder})" for encoder, task in printed if (encoder, task) not in found]
    return of_paper or {s: pair for s, pair in arms.items() if s.scale}, missing


def list_printed_cells(table: str, method: str) -> list[tuple[str, str]]:
    """List the encoders and tasks for which a table of the paper prints the method."""
    paper, _, name = table.partition("/")
    content = load_tables(paper)[name]
    row = content.methods[method]
    return list(
        dict.fromkeys(
            (encoder, content.columns[title].task)
            for encoder, rows in content.cells.items()
            for title in rows.get(row, {})
        )
    )


def collect_timed_arms(runs: TidyRows, method: str) -> dict[TimedSetting, Arms]:
    """Collect the logarithms of training seconds per example, of a method and of plain fine-tuning, one per seed.

    Both train on the same examples, so the ratio of their seconds per example is that of their minutes per epoch.
    Only runs with one ``TimedSetting`` are compared.
    """
    times: dict[TimedSetting, dict[str, list[float]]] = {}
    for run in runs:
        if run["method"] in (method, BASE_METHOD) and (seconds := read_seconds_per_example(run)):
            where = {name: run[name] for name in TimedSetting._fields if name != "settings"}
            setting = TimedSetting(**where, settings=read_time_settings(run))
            times.setdefault(setting, {}).setdefault(run["method"], []).append(math.log(seconds))
    return pair_methods(times, method, BASE_METHOD)


def read_time_settings(run: dict[str, Any]) -> tuple[str, ...]:
    """Read the values that two runs must share besides, for their times to be compared: speed, data and weights."""
    return tuple(str(run[name]) for name in (*SPEED_SETTINGS, "data", "weights"))


def read_seconds_per_example(run: dict[str, Any]) -> float | None:
    """Read the seconds that training took per example; None if the run did not finish or is not a selected one."""
    if run["status"] != "finished" or not run.get("selected", True) or not run["examples"]:
        return None
    return float(run["training_seconds"]) / int(run["examples"]) or None
