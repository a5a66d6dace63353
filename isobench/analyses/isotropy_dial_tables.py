"""Tables of the study ``isotropy_dial``: slopes in the dose, and correlations of score and isotropy."""

import math
from collections.abc import Sequence

from rich.table import Table

from isobench.analyses.findings import make_table
from isobench.analyses.isotropy_dial_rows import (
    ACROSS,
    DIALS,
    GIVEN_DIAL,
    GIVEN_DOSE,
    MEASURES,
    VOCABULARY_MEASURES,
    WHOLE,
)
from isobench.analyses.rows import TidyRow, list_distinct, select_rows
from isobench.report.effects import ALPHA

LABELS = {dial.name: dial.label for dial in DIALS}


def build_slope_table(slopes: Sequence[TidyRow], progress: str) -> Table:
    """Build the table of the primary slopes: points of the score that a unit of the dose gives.

    Args:
        slopes: rows of ``measure_slopes``.
        progress: what begins the title, such as that the study is incomplete.
    """
    table = make_table(
        f"{progress}Slope of the score (points) in the dose, all doses",
        ("encoder", "task", "dial"),
        ("a unit of dose", "95% interval", "whole dial", "95% interval", "p", "p after Holm", "seeds"),
    )
    primary = [row for row in slopes if row["quantity"] == "score" and row["doses"] == WHOLE]
    for encoder in list_distinct(primary, "encoder"):
        for row in select_rows(primary, {"encoder": encoder}):
            table.add_row(*name_slope(row), *format_slope(row), format_p(row["p_holm"]), str(row["seeds"]))
        table.add_section()
    return table


def build_half_table(slopes: Sequence[TidyRow], progress: str) -> Table:
    """Build the table of the slopes over one half of a dial, which are secondary and not corrected."""
    table = make_table(
        f"{progress}Secondary, not corrected: slope of the score over one half of the dial",
        ("encoder", "task", "dial", "doses"),
        ("a unit of dose", "95% interval", "whole half", "95% interval", "p", "seeds"),
    )
    for row in slopes:
        if row["quantity"] == "score" and row["doses"] != WHOLE:
            table.add_row(*name_slope(row), row["doses"], *format_slope(row), str(row["seeds"]))
    return table


def build_check_table(slopes: Sequence[TidyRow], progress: str) -> Table:
    """Build the table that shows whether a dial turns isotropy: what each measure changes by over the whole dial."""
    table = make_table(
        f"{progress}Manipulation check: change of isotropy over the whole dial (* p < {ALPHA}, not corrected)",
        ("encoder", "task", "dial"),
        [label.replace("average ", "") for label in MEASURES.values()],
    )
    labels = MEASURES | VOCABULARY_MEASURES
    found = [row for row in slopes if row["quantity"] in labels and row["doses"] == WHOLE]
    for encoder, task, dial in dict.fromkeys((row["encoder"], row["task"], row["dial"]) for row in found):
        own = select_rows(found, {"encoder": encoder, "task": task, "dial": dial})
        for names, of_what in ((MEASURES, ""), (VOCABULARY_MEASURES, ", vocabulary")):
            cells = {row["quantity"]: row for row in own if row["quantity"] in names}
            if cells:
                table.add_row(encoder, task, LABELS[dial] + of_what, *(format_change(cells[name]) for name in names))
    return table


def build_correlation_table(correlations: Sequence[TidyRow], progress: str) -> Table:
    """Build the table of Spearman's correlations of score and isotropy: a row an encoder, task and measure."""
    dials = [dial.name for dial in DIALS if any(row["dial"] == dial.name for row in correlations)]
    table = make_table(
        f"{progress}Spearman's correlation of score and isotropy, mean over seeds (within dials: * p < {ALPHA})",
        ("encoder, task, measure",),
        (*dials, "across", "given the dial", "95% interval", "Holm", "given dial, dose", "95% interval", "seeds"),
        wrap_numbers=True,
    )
    for encoder, task in dict.fromkeys((row["encoder"], row["task"]) for row in correlations):
        table.add_row(f"{encoder}, {task}", style="bold")
        for measure, label in MEASURES.items():
            own = select_rows(correlations, {"encoder": encoder, "task": task, "measure": measure})
            within = {row["dial"]: row for row in own if row["dial"]}
            across = {row["kind"]: row for row in own if not row["dial"]}
            cells = [format_correlation(within[dial]) if dial in within else "" for dial in dials]
            if across:
                plain, dial, dose = across[ACROSS], across[GIVEN_DIAL], across[GIVEN_DOSE]
                cells += [format_correlation(plain)]
                cells += [
                    format_number(dial["correlation"], "+.2f"),
                    format_interval(dial["low"], dial["high"], "+.2f"),
                ]
                cells += [format_p(dial["p_holm"]), format_number(dose["correlation"], "+.2f")]
                cells += [format_interval(dose["low"], dose["high"], "+.2f"), str(dial["seeds"])]
            table.add_row(label, *cells)
        table.add_section()
    return table


def name_slope(row: TidyRow) -> tuple[str, str, str]:
    """Name a slope's encoder, task and dial."""
    return row["encoder"], row["task"], LABELS[row["dial"]]


def format_slope(row: TidyRow) -> list[str]:
    """Write a slope with its interval, the same over the whole dial, and p."""
    return [
        format_number(row["slope"], "+.3f"), format_interval(row["low"], row["high"], "+.3f"),
        format_number(row["over_dial"], "+.2f"), format_interval(row["over_low"], row["over_high"], "+.2f"),
        format_p(row["p"]),
    ]  # fmt: skip


def format_change(row: TidyRow) -> str:
    """Write what a measure changes by over the whole dial, with a star where p is small."""
    return mark(format_number(row["over_dial"], "+.3g"), row)


def format_correlation(row: TidyRow) -> str:
    """Write a correlation, with a star where p is small."""
    return mark(format_number(row["correlation"], "+.2f"), row)


def mark(text: str, row: TidyRow) -> str:
    """Add a star to a number whose p, not corrected, is below ``ALPHA``."""
    return text + ("*" if row["p"] < ALPHA else "")


def format_number(value: float, form: str) -> str:
    """Write a number; a dash where it is undefined."""
    return "-" if math.isnan(value) else format(value, form)


def format_interval(low: float, high: float, form: str) -> str:
    """Write an interval; a dash where it is undefined."""
    return "-" if math.isnan(low) else f"{low:{form}} to {high:{form}}"


def format_p(value: float) -> str:
    """Write a p-value; a dash where there is none."""
    return "-" if math.isnan(value) else "< 0.0001" if value < 0.0001 else f"{value:.4f}"
