"""Draw the study ``isotropy_dial``: the score against isotropy, and against the dose of each dial."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isobench.analyses.rows import TidyRow, select_rows
from isobench.common.plots import LINE_STYLES, PALETTE, escape_math, make_panel_grid, make_panels
from isobench.statistics.dose_response import student_t
from isobench_papers.isotropy_dial.rows import (
    DIALS,
    GIVEN_DIAL,
    MEASURES,
    Group,
    Series,
    collect_all_series,
    list_groups,
)
from isobench_papers.isotropy_dial.tables import format_number


def draw_isotropy(rows: Sequence[TidyRow], correlations: Sequence[TidyRow], labels: Mapping[Group, str]) -> Figure:
    """Draw the score against each isotropy measure: a row of panels an encoder and task, a colour a dial.

    A point is the mean over the seeds that have all doses of the dial, with its standard error. A line joins the
    doses of a dial in their order. Plain fine-tuning is black. A panel's title is the correlation given the dial: the
    points of different dials lie apart for reasons of their own, which the eye can't take away. An encoder and task
    without any such seed has no panels, and the title names it; if none has one, all get empty panels.

    Args:
        rows: of ``build_rows``.
        correlations: of ``measure_correlations``.
        labels: encoder and task -> how incomplete their study is; empty if it is complete.
    """
    groups = list_groups(rows)
    found = {group: collect_all_series(rows, *group) for group in groups}
    begun = [group for group in groups if any(series.seeds for series in found[group].values())]
    drawn = begun or groups
    missing = [", ".join(group) for group in groups if group not in drawn]
    figure, axes = make_panels(len(drawn), len(MEASURES), 1.7 if len(drawn) > 2 else 2.5, sharey="row")
    for (encoder, task), line in zip(drawn, axes, strict=True):
        series = found[encoder, task]
        line[0].set_ylabel(
            escape_math("\n".join((encoder, f"{task}: score", *labels[encoder, task].split(": ")))), fontsize=6
        )
        for axis, (measure, label) in zip(line, MEASURES.items(), strict=True):
            axis.set_xlabel(label)
            names = {"encoder": encoder, "task": task, "measure": measure, "kind": GIVEN_DIAL}
            axis.set_title("\n".join(map(write_correlation, select_rows(correlations, names))), fontsize=6)
            for dial, colour in zip(DIALS, PALETTE, strict=False):
                if dial.name in series and series[dial.name].seeds:
                    draw_path(axis, series[dial.name], measure, colour, dial.label)
                    if dial.starts_plain:
                        mark_plain(axis, series[dial.name], measure)
    handles = {
        label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles) or 1)
    title = [
        "Score against the isotropy of the embeddings",
        *(f"No seed with all doses yet: {name}" for name in missing),
    ]
    figure.suptitle(escape_math("\n".join(title)), fontsize=8)
    return figure


def write_correlation(row: TidyRow) -> str:
    """Write a correlation given the dial with its interval, for a panel's title."""
    value, low, high = (format_number(row[name], "+z.2f") for name in ("correlation", "low", "high"))
    return f"given the dial:\n{value} [{low}, {high}]"


def draw_path(axis: Axes, series: Series, measure: str, colour: str, label: str) -> None:
    """Draw a dial's mean scores against a measure, joined in the order of the doses."""
    x, scores = series.values[measure].mean(0), series.values["score"]
    error = scores.std(0, ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else None
    axis.errorbar(x, scores.mean(0), error, color=colour, marker="o", markersize=2.5, linewidth=0.8, label=label)


def mark_plain(axis: Axes, series: Series, measure: str) -> None:
    """Mark plain fine-tuning, dose 0 of a dial."""
    if 0 in series.doses:
        place = series.doses.index(0)
        point = (series.values[name][:, place].mean() for name in (measure, "score"))
        x, y = map(np.atleast_1d, point)
        axis.plot(x, y, "D", color="black", mfc="none", markersize=6, zorder=5, label="plain fine-tuning")


def draw_doses(rows: Sequence[TidyRow], labels: Mapping[Group, str]) -> Figure:
    """Draw the score less the seed's mean against the dose: a panel a dial, a line an encoder and task.

    Each seed's mean over the doses is taken away, because a level that all doses of a seed share says nothing about
    the slope. The 95% intervals are of these differences.

    Args:
        rows: of ``build_rows``.
        labels: encoder and task -> how incomplete their study is; empty if it is complete.
    """
    figure, axes = make_panel_grid([dial.label for dial in DIALS], 2.2, 2)
    groups = list_groups(rows)
    for dial, axis in zip(DIALS, axes, strict=True):
        for number, (encoder, task) in enumerate(groups):
            series = collect_all_series(rows, encoder, task).get(dial.name)
            if series is None or not series.seeds:
                continue
            colour, style = PALETTE[number % len(PALETTE)], LINE_STYLES[number // len(PALETTE) % len(LINE_STYLES)]
            means, margins = average_within_seeds(series.values["score"])
            progress = labels[encoder, task]
            label = f"{encoder}, {task}{f' ({progress})' if progress else ''}"
            axis.errorbar(series.doses, means, margins, color=colour, ls=style, marker="o", markersize=3, label=label)
        axis.set(xlabel="dose", ylabel="score less the seed's mean")
    handles = {
        label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=min(len(handles), 3) or 1)
    figure.suptitle("Score against the dose, with 95% intervals over seeds", fontsize=8)
    return figure


def average_within_seeds(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Average scores [S, k], less each seed's mean over the doses, with half the 95% interval of each average.

    For the interval the differences are scaled by sqrt(k / (k - 1)), because taking the mean away makes them smaller
    (Cousineau 2005, Morey 2008).

    Returns:
        Averages [k], and half intervals [k]; None for a single seed.
    """
    k = scores.shape[1]
    rest = scores - scores.mean(1, keepdims=True)
    mean, low, _, _ = student_t(rest.T * np.sqrt(k / (k - 1)))
    return rest.mean(0), None if len(scores) < 2 else np.nan_to_num(mean - low)
