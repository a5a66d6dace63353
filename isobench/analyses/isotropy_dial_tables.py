"""Tables of the study ``isotropy_dial``: slopes in the dose, and correlations of score and isotropy."""

import math
from collections.abc import Iterable, Sequence

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
    headings = ("a unit of dose", "95% interval", "whole dial", "95% interval", "p", "p after Holm", "seeds")
    table = make_table(f"{progress}Slope of the score (points) in the dose, all doses", ("dial",), headings)
    primary = [row for row in slopes if row["quantity"] == "score" and row["doses"] == WHOLE]
    for name, group in split_by_study(primary).items():
        table.add_row(name, style="bold")
        for row in group:
            cells = (*format_slope(row), format_p(row["p_holm"]), str(row["seeds"]))
            table.add_row(LABELS[row["dial"]], *cells)
        table.add_section()
    return table


def build_half_table(slopes: Sequence[TidyRow], progress: str) -> Table:
    """Build the table of the slopes over one half of a dial, which are secondary and not corrected."""
    headings = ("a unit of dose", "95% interval", "whole half", "95% interval", "p", "seeds")
    title = f"{progress}Secondary, not corrected: slope of the score over one half of the dial"
    table = make_table(title, ("dial, doses",), headings)
    halves = [row for row in slopes if row["quantity"] == "score" and row["doses"] != WHOLE]
    for name, group in split_by_study(halves).items():
        table.add_row(name, style="bold")
        for row in group:
            table.add_row(f"{LABELS[row['dial']]}, {row['doses']}", *format_slope(row), str(row["seeds"]))
        table.add_section()
    return table


def build_check_table(slopes: Sequence[TidyRow], progress: str) -> Table:
    """Build the table that shows whether a dial turns isotropy: what each measure changes by over the whole dial."""
    title = f"{progress}Manipulation check: change of isotropy over the whole dial (* p < {ALPHA}, not corrected)"
    table = make_table(title, ("dial",), MEASURES.values())
    matrices = ((MEASURES, ""), (VOCABULARY_MEASURES, ", vocabulary"))
    for name, group in split_by_study(row for row in slopes if row["quantity"] != "score").items():
        table.add_row(name, style="bold")
        for dial in list_distinct(group, "dial"):
            cells = {row["quantity"]: row for row in select_rows(group, {"dial": dial})}
            for measures, of_what in matrices:
                if cells.keys() >= measures.keys():
                    changes = (mark(format_number(cells[key]["over_dial"], "+.3g"), cells[key]) for key in measures)
                    table.add_row(LABELS[dial] + of_what, *changes)
        table.add_section()
    return table


def build_correlation_tables(correlations: Sequence[TidyRow], progress: str) -> list[Table]:
    """Build a table of Spearman's correlations of score and isotropy for each encoder and task: a row a measure."""
    tables = []
    for name, group in split_by_study(correlations).items():
        dials = [dial for dial in list_distinct(group, "dial") if dial]
        title = f"{progress}Spearman's correlation of score and isotropy, {name} (* p < {ALPHA}, not corrected)"
        headings = (
            "across",
            "given dial",
            "95% interval",
            "p after Holm",
            "given dial, dose",
            "95% interval",
            "seeds",
        )
        table = make_table(title, ("measure",), (*dials, *headings), wrap_numbers=True)
        for measure, label in MEASURES.items():
            own = select_rows(group, {"measure": measure})
            within = {row["dial"]: row for row in own if row["dial"]}
            across = {row["kind"]: row for row in own if not row["dial"]}
            cells = [format_correlation(within[dial]) for dial in dials]
            if across:
                given_dial, given_dose = across[GIVEN_DIAL], across[GIVEN_DOSE]
                cells += [format_correlation(across[ACROSS]), format_correlation(given_dial)]
                cells += [format_ends(given_dial), format_p(given_dial["p_holm"])]
                cells += [format_correlation(given_dose), format_ends(given_dose), str(given_dial["seeds"])]
            table.add_row(label, *cells)
        tables.append(table)
    return tables


def split_by_study(rows: Iterable[TidyRow]) -> dict[str, list[TidyRow]]:
    """Split rows by encoder and task, which name them."""
    groups: dict[str, list[TidyRow]] = {}
    for row in rows:
        groups.setdefault(f"{row['encoder']}, {row['task']}", []).append(row)
    return groups


def format_slope(row: TidyRow) -> list[str]:
    """Write a slope with its interval, the same over the whole dial, and p."""
    return [
        format_number(row["slope"], "+.3f"), format_interval(row["low"], row["high"], "+.3f"),
        format_number(row["over_dial"], "+.2f"), format_interval(row["over_low"], row["over_high"], "+.2f"),
        format_p(row["p"]),
    ]  # fmt: skip


def format_correlation(row: TidyRow) -> str:
    """Write a correlation, with a star where p is small."""
    return mark(format_number(row["correlation"], "+.2f"), row)


def format_ends(row: TidyRow) -> str:
    """Write the interval of a correlation."""
    return format_interval(row["low"], row["high"], "+.2f")


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
