"""Build the tables of the study ``isotropy_dial``: slopes in the dose, and correlations of score and isotropy."""

import math
from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table

from isobench.analyses.findings import make_table
from isobench.analyses.rows import TidyRow, list_distinct, select_rows
from isobench.statistics.seeds import ALPHA
from isobench_papers.isotropy_dial.rows import (
    ACROSS,
    DIALS,
    GIVEN_DIAL,
    GIVEN_DOSE,
    MEASURES,
    VOCABULARY_MEASURES,
    WHOLE,
    Group,
)

LABELS = {dial.name: dial.label for dial in DIALS}
INCOMPLETE = " †"  # ends the rows of a study that is not complete


def build_slope_table(slopes: Sequence[TidyRow], labels: Mapping[Group, str]) -> Table:
    """Build the table of the primary slopes: points of the score that a unit of the dose gives.

    Args:
        slopes: rows of ``measure_slopes``.
        labels: encoder and task -> how incomplete their study is; empty if it is complete.
    """
    headings = ("a unit of dose", "95% interval", "whole dial", "95% interval", "p", name_holm(slopes), "seeds")
    table = make_table("Slope of the score (points) in the dose, all doses", ("dial",), headings)
    primary = [row for row in slopes if row["quantity"] == "score" and row["doses"] == WHOLE]
    for name, group in split_by_study(primary, labels).items():
        table.add_row(name, style="bold")
        for row in group:
            cells = (*format_slope(row), format_holm(row, slopes), str(row["seeds"]))
            table.add_row(mark_incomplete(LABELS[row["dial"]], row), *cells)
        table.add_section()
    return table


def build_half_table(slopes: Sequence[TidyRow], labels: Mapping[Group, str]) -> Table:
    """Build the table of the slopes over one half of a dial, which are secondary and not corrected."""
    headings = ("a unit of dose", "95% interval", "whole half", "95% interval", "p", "seeds")
    title = "Secondary, not corrected: slope of the score over one half of the dial"
    table = make_table(title, ("dial, doses",), headings)
    halves = [row for row in slopes if row["quantity"] == "score" and row["doses"] != WHOLE]
    for name, group in split_by_study(halves, labels).items():
        table.add_row(name, style="bold")
        for row in group:
            name = mark_incomplete(f"{LABELS[row['dial']]}, {row['doses']}", row)
            table.add_row(name, *format_slope(row), str(row["seeds"]))
        table.add_section()
    return table


def build_example_table(slopes: Sequence[TidyRow], labels: Mapping[Group, str]) -> Table:
    """Build the table of the slopes with intervals for new examples too, from ``measure_example_slopes``."""
    headings = ("a unit of dose", "95% interval", "whole dial", "95% interval", "p", "seeds", "examples")
    title = "Secondary, not corrected: slope of the score, all doses, for new seeds and new dev examples"
    table = make_table(title, ("dial",), headings)
    for name, group in split_by_study(slopes, labels).items():
        table.add_row(name, style="bold")
        for row in group:
            cells = (*format_slope(row), str(row["seeds"]), str(row["examples"]))
            table.add_row(mark_incomplete(LABELS[row["dial"]], row), *cells)
        table.add_section()
    return table


def build_check_table(slopes: Sequence[TidyRow], labels: Mapping[Group, str]) -> Table:
    """Build the table that shows whether a dial turns isotropy: what each measure changes by over the whole dial."""
    title = "Manipulation check, not corrected: change of isotropy over the whole dial"
    table = make_table(title, ("dial", "measure"), ("change", "95% interval", "p", "seeds"))
    names = {**MEASURES, **VOCABULARY_MEASURES}
    for name, group in split_by_study((row for row in slopes if row["quantity"] != "score"), labels).items():
        table.add_row(name, style="bold")
        for dial in list_distinct(group, "dial"):
            for row in select_rows(group, {"dial": dial}):
                change = format_number(row["over_dial"], "+z.3g")
                interval = format_interval(row["over_low"], row["over_high"], "+z.3g")
                cells = (change, interval, format_p(row["p"]), str(row["seeds"]))
                table.add_row(mark_incomplete(LABELS[dial], row), names[row["quantity"]], *cells)
        table.add_section()
    return table


def build_correlation_tables(correlations: Sequence[TidyRow], labels: Mapping[Group, str]) -> list[Table]:
    """Build a table of Spearman's correlations of score and isotropy for each encoder and task: a row a measure."""
    tables = []
    for name, group in split_by_study(correlations, labels).items():
        dials = [dial for dial in list_distinct(group, "dial") if dial]
        title = f"Spearman's correlation of score and isotropy, {name} (* p < {ALPHA}, not corrected)"
        headings = (
            "across",
            "given dial",
            "95% interval",
            name_holm(correlations),
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
                cells += [format_ends(given_dial), format_holm(given_dial, correlations)]
                cells += [format_correlation(given_dose), format_ends(given_dose), str(given_dial["seeds"])]
            table.add_row(mark_incomplete(label, own[0]), *cells)
        tables.append(table)
    return tables


def split_by_study(rows: Iterable[TidyRow], labels: Mapping[Group, str]) -> dict[str, list[TidyRow]]:
    """Split rows by encoder and task, which name them, with how incomplete their study is."""
    groups: dict[str, list[TidyRow]] = {}
    for row in rows:
        label = labels[row["encoder"], row["task"]]
        name = f"{row['encoder']}, {row['task']}{f' ({label})' if label else ''}"
        groups.setdefault(name, []).append(row)
    return groups


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
    """Write a correlation, with a star where p is small."""
    return mark(format_number(row["correlation"], "+z.2f"), row)


def format_ends(row: TidyRow) -> str:
    """Write the interval of a correlation."""
    return format_interval(row["low"], row["high"], "+z.2f")


def mark(text: str, row: TidyRow) -> str:
    """Add a star to a number whose p, not corrected, is below ``ALPHA``."""
    return text + ("*" if row["p"] < ALPHA else "")


def format_number(value: float, form: str) -> str:
    """Write a number; a dash where it is undefined. The form's z writes what rounds to -0 as 0."""
    return "-" if math.isnan(value) else format(value, form)


def format_interval(low: float, high: float, form: str) -> str:
    """Write an interval; a dash where it is undefined."""
    return "-" if math.isnan(low) else f"{low:{form}} to {high:{form}}"


def format_p(value: float) -> str:
    """Write a p-value; a dash where there is none."""
    return "-" if math.isnan(value) else "< 0.0001" if value < 0.0001 else f"{value:.4f}"
