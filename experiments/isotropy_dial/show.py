"""Show the study ``isotropy_dial``: tables of slopes and correlations, figures, and what to know of them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from isobench.analyses.rows import TidyRow, group_rows, select_rows
from isobench.analyses.shown import Rows, Shown, format_number, make_table
from isobench.common.plots import LINE_STYLES, PALETTE, escape_math, make_panel_grid, make_panels
from isobench.statistics.dose_response import student_t
from isobench.statistics.seeds import ALPHA
from isobench_papers.isotropy_dial.design import (
    describe_power,
    describe_preregistration,
    describe_progress,
    label_progress,
)
from isobench_papers.isotropy_dial.rows import (
    ACROSS,
    DIALS,
    GIVEN_DIAL,
    GIVEN_DOSE,
    MEASURES,
    VOCABULARY_MEASURES,
    WHOLE,
    Group,
    Series,
    collect_all_series,
    list_groups,
)

FOLDER = Path(__file__).parent
LABELS = {dial.name: dial.label for dial in DIALS}
INCOMPLETE = " †"  # ends the rows of a study that is not complete
SECONDARY = "Secondary, not corrected: slope of the score"
Labels = Mapping[Group, str]  # encoder and task -> how incomplete their study is; empty if it is complete
CellWriter = Callable[[TidyRow], str]


def show(rows: Rows) -> Shown:
    """Show slopes and correlations, the score against dose and isotropy, and the study's progress and power."""
    doses, slopes, correlations = rows["doses"], rows["slopes"], rows["correlations"]
    labels = {(row["encoder"], row["task"]): label_progress(row) for row in rows["progress"]}
    of_score = [row for row in slopes if row["quantity"] == "score"]
    primary = [row for row in of_score if row["doses"] == WHOLE]
    halves = [row for row in of_score if row["doses"] != WHOLE]
    of_examples = rows.get("slopes_new_examples")
    holm: dict[str, CellWriter] = {name_holm(slopes): lambda row: format_holm(row, slopes)}
    seeds: dict[str, CellWriter] = {"seeds": lambda row: str(row["seeds"])}
    examples: dict[str, CellWriter] = {"examples": lambda row: str(row["examples"])}
    tables = [
        build_slope_table("Slope of the score (points) in the dose, all doses", primary, labels, holm | seeds),
        build_slope_table(f"{SECONDARY} over one half of the dial", halves, labels, seeds, "half"),
    ]
    if of_examples:
        title = f"{SECONDARY}, all doses, for new seeds and new dev examples"
        tables.append(build_slope_table(title, of_examples, labels, seeds | examples))
    return Shown(
        [*tables, build_check_table(slopes, labels), *build_correlation_tables(correlations, labels)],
        {"isotropy": draw_isotropy(doses, correlations, labels), "dose": draw_doses(doses, labels)},
        [
            *describe_progress(rows["progress"]),
            *describe_preregistration(rows["code"], FOLDER / "preregistration.md"),
            *describe_power(FOLDER / "power.json", rows["design"]),
            *list_notes(doses, slopes, correlations),
        ],
    )


def build_slope_table(
    title: str, rows: Iterable[TidyRow], labels: Labels, last: Mapping[str, CellWriter], span: str = "dial"
) -> Table:
    """Build a table of slopes of the score, for a unit of the dose and over the whole ``span``: a dial or its half.

    ``last`` has its last columns: heading -> function that writes a row's cell.
    """
    headings = ("a unit of dose", "95% interval", f"whole {span}", "95% interval", "p", *last)

    def write_cells(row: TidyRow) -> list[str]:
        return [name_dial(row), *format_slope(row), *(write(row) for write in last.values())]

    table = make_table(title, ("dial" if span == "dial" else "dial, doses",), headings)
    return fill_table(table, rows, labels, write_cells)


def build_check_table(slopes: Sequence[TidyRow], labels: Labels) -> Table:
    """Build the table that shows whether a dial turns isotropy: what each measure changes by over the whole dial."""
    title = "Manipulation check, not corrected: change of isotropy over the whole dial"
    names = {**MEASURES, **VOCABULARY_MEASURES}

    def write_cells(row: TidyRow) -> list[str]:
        interval = format_interval(row["over_low"], row["over_high"], "+z.3g")
        change = format_number(row["over_dial"], "+z.3g")
        return [name_dial(row), names[row["quantity"]], change, interval, format_p(row["p"]), str(row["seeds"])]

    table = make_table(title, ("dial", "measure"), ("change", "95% interval", "p", "seeds"))
    return fill_table(table, [row for row in slopes if row["quantity"] != "score"], labels, write_cells)


def fill_table(
    table: Table, rows: Iterable[TidyRow], labels: Labels, write_cells: Callable[[TidyRow], Sequence[str]]
) -> Table:
    """Add rows to a table, those of each encoder and task below their names."""
    for name, group in split_by_study(rows, labels).items():
        table.add_row(name, style="bold")
        for row in group:
            table.add_row(*write_cells(row))
        table.add_section()
    return table


def name_dial(row: TidyRow) -> str:
    """Name the dial of a row and the half that it is of, and mark it if its study is not complete."""
    half = "" if row["doses"] == WHOLE else f", {row['doses']}"
    return mark_incomplete(LABELS[row["dial"]] + half, row)


def build_correlation_tables(correlations: Sequence[TidyRow], labels: Labels) -> list[Table]:
    """Build a table of Spearman's correlations of score and isotropy for each encoder and task: a row a measure."""
    tables = []
    for name, group in split_by_study(correlations, labels).items():
        dials = [dial for dial in dict.fromkeys(row["dial"] for row in group) if dial]
        title = f"Spearman's correlation of score and isotropy, {name} (* p < {ALPHA}, not corrected)"
        of_given_dial = ("given dial", "95% interval", name_holm(correlations))
        headings = (*dials, "across", *of_given_dial, "given dial, dose", "95% interval", "seeds")
        table = make_table(title, ("measure",), headings, wrap_numbers=True)
        for measure, label in MEASURES.items():
            own = select_rows(group, {"measure": measure})
            within = {row["dial"]: row for row in own if row["dial"]}
            across = {row["kind"]: row for row in own if not row["dial"]}
            cells = [format_correlation(within[dial]) for dial in dials]
            if across:
                given_dial, given_dose = across[GIVEN_DIAL], across[GIVEN_DOSE]
                cells += [format_correlation(across[ACROSS]), format_correlation(given_dial)]
                cells += [format_ends(given_dial), format_holm(given_dial, correlations)]
                cells += [format_correlation(given_dose), format_ends(given_dose), str(given_dial["seeds"])]
            table.add_row(mark_incomplete(label, own[0]), *cells)
        tables.append(table)
    return tables


def split_by_study(rows: Iterable[TidyRow], labels: Labels) -> dict[str, list[TidyRow]]:
    """Split rows by encoder and task: name of the study -> its rows."""
    groups = group_rows(rows, "encoder", "task")
    return {name_study(encoder, task, labels): group for (encoder, task), group in groups.items()}


def name_study(encoder: str, task: str, labels: Labels) -> str:
    """Name an encoder and task, and say how incomplete their study is."""
    label = labels[encoder, task]
    return f"{encoder}, {task}{f' ({label})' if label else ''}"


def mark_incomplete(text: str, row: TidyRow) -> str:
    """Mark the name of a table's row if its study is not complete."""
    return text if row["complete"] else text + INCOMPLETE


def name_holm(rows: Sequence[TidyRow]) -> str:
    """Name the column of corrected p-values: they are provisional as long as no study is complete."""
    return "p after Holm" if any(row["complete"] for row in rows) else "p after Holm, provisional"


def format_holm(row: TidyRow, rows: Sequence[TidyRow]) -> str:
    """Write the corrected p of one of these rows; beside a complete study, an incomplete one has its own p."""
    is_outside = not row["complete"] and any(other["complete"] for other in rows)
    return f"{format_p(row['p'])} uncorrected" if is_outside else format_p(row["p_holm"])


def format_slope(row: TidyRow) -> list[str]:
    """Write a slope with its interval, the same over the whole dial, and p."""
    return [
        format_number(row["slope"], "+z.3f"), format_interval(row["low"], row["high"], "+z.3f"),
        format_number(row["over_dial"], "+z.2f"), format_interval(row["over_low"], row["over_high"], "+z.2f"),
        format_p(row["p"]),
    ]  # fmt: skip


def format_correlation(row: TidyRow) -> str:
    """Write a correlation, with a star where p, not corrected, is below ``ALPHA``."""
    return format_number(row["correlation"], "+z.2f") + ("*" if row["p"] < ALPHA else "")


def format_ends(row: TidyRow) -> str:
    """Write the interval of a correlation."""
    return format_interval(row["low"], row["high"], "+z.2f")


def format_interval(low: float, high: float, form: str) -> str:
    """Write an interval; a dash where it is undefined."""
    return "-" if format_number(low, form) == "-" else f"{low:{form}} to {high:{form}}"


def format_p(value: float | None) -> str:
    """Write a p-value; a dash where there is none."""
    return "< 0.0001" if value is not None and value < 0.0001 else format_number(value, ".4f")


def draw_isotropy(rows: Sequence[TidyRow], correlations: Sequence[TidyRow], labels: Labels) -> Figure:
    """Draw the score against each isotropy measure: a row of panels an encoder and task, a colour a dial.

    A point is the mean over the seeds that have all doses of the dial, with its standard error. A line joins the
    doses of a dial in their order. Plain fine-tuning is black. A panel's title is the correlation given the dial: the
    points of different dials lie apart for reasons of their own, which the eye can't take away. An encoder and task
    without any such seed has no panels, and the title names it; if none has one, all get empty panels.
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
    add_legend(figure, axes.flat, len(MEASURES))
    title = ["Score against the isotropy of the embeddings"]
    title += [f"No seed with all doses yet: {name}" for name in missing]
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


def draw_doses(rows: Sequence[TidyRow], labels: Labels) -> Figure:
    """Draw the score less the seed's mean against the dose: a panel a dial, a line an encoder and task.

    Each seed's mean over the doses is taken away, because a level that all doses of a seed share says nothing about
    the slope. The 95% intervals are of these differences.
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
            label = name_study(encoder, task, labels)
            axis.errorbar(series.doses, means, margins, color=colour, ls=style, marker="o", markersize=3, label=label)
        axis.set(xlabel="dose", ylabel="score less the seed's mean")
    add_legend(figure, axes, 3)
    figure.suptitle("Score against the dose, with 95% intervals over seeds", fontsize=8)
    return figure


def add_legend(figure: Figure, axes: Iterable[Axes], columns: int) -> None:
    """Add a legend of all panels' labels, each once, in at most so many columns."""
    handles = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles[label] = handle
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=min(len(handles), columns) or 1)


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


def list_notes(rows: Sequence[TidyRow], slopes: Sequence[TidyRow], correlations: Sequence[TidyRow]) -> list[str]:
    """Write how the numbers are made, over how many tests Holm's correction is, and which seeds are left out."""
    tested = [sum(not math.isnan(row["p_holm"]) for row in family) for family in (
        [row for row in slopes if row["quantity"] == "score" and row["doses"] == WHOLE],
        [row for row in correlations if row["kind"] == GIVEN_DIAL],
    )]  # fmt: skip
    family = f"{tested[0]} slopes of the score, and {tested[1]} correlations given the dial"
    has_result = any(row["complete"] for row in rows)
    return [
        "Every statistic is computed for each seed by itself; intervals and p are Student's t over the seeds. They "
        "are for new seeds with these training and dev examples, not for other examples; one secondary table has "
        "intervals for new dev examples too, where runs have predictions and the score is the accuracy.",
        f"Holm's correction is over {family}, of complete studies only."
        if has_result
        else f"PROVISIONAL: no study is complete. Until one is, Holm's correction is over {family}.",
        "A unit of dose: " + ", ".join(f"{dial.label}: {dial.unit}" for dial in DIALS) + ".",
        *list_left_out(rows),
    ]


def list_left_out(rows: Sequence[TidyRow]) -> list[str]:
    """List the seeds that each dial leaves out, of the seeds of which some run has ended, and why."""
    notes = []
    for encoder, task in list_groups(rows):
        own = select_rows(rows, {"encoder": encoder, "task": task})
        begun = {row["seed"] for row in own if row["state"] != "missing"}
        for name, series in collect_all_series(own, encoder, task).items():
            label = next(dial.label for dial in DIALS if dial.name == name)
            reasons = [f"seed {seed} ({reason})" for seed, reason in series.left_out.items() if seed in begun]
            if reasons:
                notes.append(f"Left out of {label} on {encoder}, {task}: {'; '.join(reasons)}.")
    return notes
