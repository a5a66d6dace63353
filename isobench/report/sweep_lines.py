"""Summarise a sweep's runs in lines, one for each configuration: score, change, isotropy, time and every seed."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from isobench.common.terminal import format_count, replace_control_characters
from isobench.config.schema import Config
from isobench.report.baseline_comparison import BASE_METHOD, CONSTANT_PREDICTOR, label_method
from isobench.report.evidence import format_points
from isobench.report.paper_columns import compute_epoch_seconds
from isobench.report.parts import split_into_parts
from isobench.runs.grouping import (
    PROTOCOL_SETTINGS,
    SOURCE_SETTINGS,
    find_varying_settings,
    format_settings,
    format_value,
    group_over_seeds,
    read_run_names,
    read_value,
    shorten_setting_names,
)
from isobench.runs.row import Row, are_constant_predictors, count_troubles, format_score

NOTHING = "-"  # in place of a number or a setting that a line does not have
CHOSEN = "chosen"  # heading of the settings whose values were chosen among several
FIGURES = ("n", "median", "SD", "change", "EV_1", "IsoScore", "time")  # columns of numbers, in order
ISOTROPY_FIGURES = {"EV_1": "embedding/ev1", "IsoScore": "embedding/isoscore"}  # column -> name in the records
DIGITS = {"EV_1": 3, "IsoScore": 4}  # decimals: IsoScore is often below 0.01
MAX_NAMED_LINES = 8  # how many lines a sentence on one kind of trouble names


@dataclass
class SweepLine:
    """Hold a line of the table: runs that differ only in their seeds.

    Attributes:
        runs: the runs.
        place: task, encoder and others; lines of the same place may be compared: heading -> text.
        method: its name in tables.
        settings: the method's settings that vary, or were chosen: heading -> text.
        is_baseline: True if the method is plain fine-tuning.
        figures: one of ``FIGURES`` -> text.
    """

    runs: list[Row]
    place: dict[str, str]
    method: str
    settings: dict[str, str]
    is_baseline: bool
    figures: dict[str, str] = field(default_factory=dict)

    def name(self, place: Sequence[str] = ()) -> str:
        """Name the line: ``isobn_paper beta=0.25``; the texts of the headings in ``place`` come first."""
        settings = (
            text if heading == CHOSEN else f"{heading}={text}"
            for heading, text in self.settings.items()
            if text != NOTHING
        )
        return " ".join([*(self.place[heading] for heading in place), self.method, *settings])

    @cached_property
    def scored_runs(self) -> list[Row]:
        """Return the runs that have a score."""
        return [row for row in self.runs if row.scored_epoch]

    @cached_property
    def scores(self) -> list[float]:
        """Return each run's score x 100 in the reported epoch, if it has one; NaN if the metric is undefined."""
        scores = []
        for row in self.runs:
            if epoch := row.scored_epoch:
                is_undefined = epoch.metrics(row.cfg.task.dev_splits[0]).get(row.cfg.task.primary) is None
                scores.append(math.nan if is_undefined else 100 * epoch.score)
        return scores

    @cached_property
    def is_constant(self) -> bool:
        """Return True if every run predicts the same for every example."""
        return are_constant_predictors(self.runs)

    @cached_property
    def seconds(self) -> float | None:
        """Return the training seconds of an epoch in the fastest run; None if no run has an epoch."""
        return compute_epoch_seconds(self.scored_runs)

    def read_isotropy(self, name: str) -> list[float]:
        """Read a measure of isotropy in the reported epoch of the runs that have it."""
        values = (epoch.isotropy.get(name) for row in self.runs if (epoch := row.scored_epoch))
        return [value for value in values if value is not None]


def build_lines(rows: list[Row], candidates: Sequence[Row] = ()) -> list[SweepLine]:
    """Build the lines of a table in the order in which their runs appear.

    Args:
        rows: the runs to show.
        candidates: all runs, if ``rows`` were selected from them; the lines then show the chosen values.
    """
    varying = find_varying_settings(rows)
    chosen = [name for name in find_varying_settings(list(candidates)) if name not in varying]
    lines = [build_line(group, varying, chosen) for group in group_over_seeds(rows, varying)]
    part_by_run = {id(row): number for number, part in enumerate(split_into_parts(rows)) for row in part}
    keys = [(part_by_run[id(line.runs[0])], *line.place.values()) for line in lines]
    baselines: dict[tuple[Any, ...], list[SweepLine]] = {}
    for line, key in zip(lines, keys, strict=True):
        if line.is_baseline:
            baselines.setdefault(key, []).append(line)
    for line, key in zip(lines, keys, strict=True):
        line.figures = measure_figures(line, find_baseline(line, baselines.get(key, [])))
    return lines


def build_line(runs: list[Row], varying: list[str], chosen: list[str]) -> SweepLine:
    """Build a line without its figures; ``varying`` and ``chosen``: dotted names of settings that it shows."""
    cfg = runs[0].cfg
    task, encoder, method = read_run_names(cfg)
    place = {"task": f"{task} ({cfg.task.primary})", "encoder": encoder}
    settings: dict[str, str] = {}
    for name, heading in shorten_setting_names(varying).items():
        section = place if name in (*PROTOCOL_SETTINGS, *SOURCE_SETTINGS) else settings
        section[heading] = format_value(read_value(runs[0], name))
    if chosen:
        settings[CHOSEN] = format_settings(runs[0], chosen) or NOTHING
    return SweepLine(
        runs, clean_texts(place), clean_text(label_method(method)), clean_texts(settings), method == BASE_METHOD
    )


def clean_texts(texts: dict[str, str]) -> dict[str, str]:
    """Write each heading and text on one line, without control characters."""
    return {clean_text(heading): clean_text(text) for heading, text in texts.items()}


def clean_text(text: str) -> str:
    """Write a text on one line, without the control characters that a terminal would obey."""
    return " ".join(replace_control_characters(text).split())


def find_baseline(line: SweepLine, baselines: list[SweepLine]) -> SweepLine | None:
    """Find plain fine-tuning's line with the same values of the settings that both lines have.

    Args:
        line: the method's line.
        baselines: plain fine-tuning's lines in the same place.

    Returns:
        The line. None if ``line`` is plain fine-tuning itself, or unless exactly one of ``baselines`` fits.
    """
    fitting = [
        base
        for base in baselines
        if all(
            heading == CHOSEN or NOTHING in (text, line.settings[heading]) or text == line.settings[heading]
            for heading, text in base.settings.items()
        )
    ]
    return fitting[0] if len(fitting) == 1 and not line.is_baseline else None


def measure_figures(line: SweepLine, baseline: SweepLine | None) -> dict[str, str]:
    """Write the numbers of a line, over its runs that have a score; ``baseline``: the line to compare it with."""
    scores, seconds = line.scores, line.seconds
    has_spread = len(scores) > 1 and not line.is_constant and all(map(math.isfinite, scores))
    figures = {
        "n": str(len(scores)) if len(scores) == len(line.runs) else f"{len(scores)}/{len(line.runs)}",
        "median": "constant" if line.is_constant else format_median(scores, 2),
        "SD": f"{statistics.stdev(scores):.2f}" if has_spread else NOTHING,
        "change": NOTHING,
        **{key: format_median(line.read_isotropy(name), DIGITS[key]) for key, name in ISOTROPY_FIGURES.items()},
        "time": format_seconds(seconds) if seconds else NOTHING,
    }
    if baseline is None:
        return figures
    if scores and baseline.scores and not line.is_constant and not baseline.is_constant:
        change = statistics.median(scores) - statistics.median(baseline.scores)
        figures["change"] = format_points(change) if math.isfinite(change) else NOTHING
    if seconds and baseline.seconds:
        figures["time"] = f"{seconds / baseline.seconds:.2f}x"
    return figures


def format_seconds(seconds: float) -> str:
    """Write a time in seconds, with a decimal below 100."""
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:,.0f} s"


def format_median(values: Sequence[float], digits: int) -> str:
    """Write the median; ``NaN`` if one of the values is undefined, a dash if there are none."""
    if not values:
        return NOTHING
    return "NaN" if any(map(math.isnan, values)) else f"{statistics.median(values):.{digits}f}"


def list_seed_scores(lines: Sequence[SweepLine]) -> tuple[str, list[str]]:
    """Write every seed's score, or what went wrong in its run.

    Returns:
        A heading, and one text for each line. The heading names the seeds if all lines have the same seeds in the
        same order; otherwise each score has its seed before it.
    """
    seeds = [[format_seeds(row.cfg) for row in line.runs] for line in lines]
    scores = [[format_seed_score(line, row) for row in line.runs] for line in lines]
    if all(own == seeds[0] for own in seeds):
        heading = f"{'seed' if len(seeds[0]) == 1 else 'seeds'} {', '.join(seeds[0])}"
        return heading, ["  ".join(own) for own in scores]
    return "every seed", [
        "  ".join(f"{seed}: {score}" for seed, score in zip(*pair, strict=True))
        for pair in zip(seeds, scores, strict=True)
    ]


def format_seed_score(line: SweepLine, row: Row) -> str:
    """Write the score of one run of a line, or what went wrong in it, unless the line already says "constant"."""
    text = format_score(row)
    return text.removesuffix(f" {CONSTANT_PREDICTOR}") if line.is_constant else text


def format_seeds(cfg: Config) -> str:
    """Write a run's seed, and any seeds that were set for single random streams: ``1 (order 7)``."""
    own = ", ".join(f"{stream} {seed}" for stream, seed in vars(cfg.seeds).items() if seed is not None)
    return f"{cfg.seed} ({own})" if own else str(cfg.seed)


def describe_troubles_of_lines(lines: Sequence[SweepLine], place: Sequence[str]) -> list[str]:
    """Say in which lines some runs failed or have no result: a sentence for each failure's name and each state.

    Args:
        lines: the lines of the table.
        place: headings of the places in which lines differ.
    """
    counts: Counter[str] = Counter()
    names: dict[str, list[str]] = {}
    for line in lines:
        if line.is_constant:  # the table says so
            continue
        for trouble, count in count_troubles(line.runs).items():
            counts[trouble] += count
            names.setdefault(trouble, []).append(line.name(place))
    sentences = []
    for trouble, own in sorted(names.items()):
        more = f" and {format_count(len(own) - MAX_NAMED_LINES, 'more line')}" if len(own) > MAX_NAMED_LINES else ""
        sentences.append(f"{counts[trouble]} {trouble}: {', '.join(own[:MAX_NAMED_LINES])}{more}.")
    return sentences
