"""Show the whitening map: the picture, what each strength changes by budget, advice, and the verdicts."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, StrMethodFormatter
from rich.table import Table

from isobench.analyses.rows import TidyRow, group_rows, list_distinct, select_rows
from isobench.analyses.shown import Rows, Shown, describe_registration, format_estimate, format_number, make_table
from isobench.common.plots import PALETTE, make_panel_grid
from isobench_papers.whitening_map.verdicts import (
    BOUNDED,
    ENCODING,
    REFUTED,
    REGISTERED,
    average_sets,
    group_strengths,
    list_values,
    name_encoding,
    select_whitening,
)

REGISTRATION = Path(__file__).parent / "registration.md"
HEIGHT = 1.7  # inches of a panel


def show(rows: Rows) -> Shown:
    """Show the picture and the tables; the first table has the mean over all sets and encoders."""
    whitening = select_whitening(rows["changes"])
    cells = list_cells(whitening)
    notes = [
        "A change is in points of accuracy, against no method, of a logistic regression that is tuned inside the "
        "labelled examples. Intervals of 95% are for new sets (Student's t), and for these encoders.",
        *give_advice(cells),
        "These intervals are not corrected for their number, and include the known sets.",
        describe_registration(REGISTRATION),
    ]
    tables = [build_cells(cells), build_parts(rows["changes"]), *build_verdicts(rows["verdicts"])]
    return Shown(tables, {"whitening_map": draw_map(whitening)} if whitening else {}, notes)


def list_cells(whitening: Sequence[TidyRow]) -> list[TidyRow]:
    """List the mean change over sets and encodings of each strength at each budget, with its interval over sets."""
    return [
        {"shrinkage": strength, "place": place} | list_values(mean)
        for strength, means in group_strengths(whitening).items()
        for place, mean in average_sets(means).items()
    ]


def build_cells(cells: Sequence[TidyRow]) -> Table:
    places = list_distinct(cells, "place")
    table = make_table("Change of accuracy by whitening, mean over sets and encodings", ("shrinkage",), places, True)
    for (strength,), own in group_rows(cells, "shrinkage").items():
        found = {cell["place"]: format_interval(cell) for cell in own}
        table.add_row(f"{strength:g}", *(found[place] for place in places))
    return table


def build_parts(changes: Sequence[TidyRow]) -> Table:
    """Build a table of each classifier and encoding: the weakest and the full whitening at three budgets."""
    whitening = [row for row in select_rows(changes, {"unit_length": "none"}) if row["shrinkage"] is not None]
    parts = {}
    for (classifier,), own in group_rows(whitening, "classifier").items():
        parts[classifier, "all"] = list_cells(own)
        for encoding, part in group_rows(own, *ENCODING).items():
            parts[classifier, name_encoding(*encoding)] = list_cells(part)
    places = list_distinct([cell for cells in parts.values() for cell in cells], "place")
    shown = list(dict.fromkeys([*places[:1], *places[len(places) // 2 :][:1], *places[-1:]]))
    words = ("classifier", "encoding", "shrinkage")
    table = make_table("Secondary: change by classifier and encoding, mean over sets", words, shown, True)
    for names, cells in parts.items():
        strengths = list_distinct(cells, "shrinkage")
        for strength in dict.fromkeys((max(strengths), min(strengths))):
            found = {cell["place"]: format_interval(cell) for cell in select_rows(cells, {"shrinkage": strength})}
            table.add_row(*names, f"{strength:g}", *(found.get(place, "-") for place in shown))
    return table


def format_interval(row: TidyRow) -> str:
    return f"{format_estimate(row)} ({row['sets']})"


def build_verdicts(verdicts: Sequence[TidyRow]) -> list[Table]:
    """Build a table of the registered statements, and one of the secondary scopes; a row for each group of tests."""
    tables = []
    titles = {True: "Registered statements", False: "Secondary: other sets, labels or encodings"}
    for is_registered, title in titles.items():
        own = [row for row in verdicts if (row["scope"] == REGISTERED) is is_registered]
        words = ("statement", "case", "verdict") if is_registered else ("scope", "statement", "case", "verdict")
        table = make_table(title, words, ("mean [95%] (sets)", "p, Holm's"), True)
        for group in group_rows(own, "scope", "statement", "group").values():
            row = choose_row(group)
            table.add_row(*(row[word] for word in words), format_interval(row), write_p(row, group))
        tables.append(table)
    return [table for table in tables if table.rows]


def write_p(row: TidyRow, group: Sequence[TidyRow]) -> str:
    """Write Holm's p; for a bound that nothing refutes, the group's largest p of "the mean is below the bound".

    The stored p of a bound is of the opposite: small where the mean is below it.
    """
    if row["statement"] in BOUNDED and row["verdict"] != REFUTED:
        return f"{1 - min(own['p'] for own in group):.4f} (no worse)"
    return format_number(row["p_holm"], ".4f")


def choose_row(group: Sequence[TidyRow]) -> TidyRow:
    """Choose the test that a group is shown by: the lowest mean of those that refute, else of all."""
    refuting = [row for row in group if row["verdict"] == REFUTED]
    lowest = min(refuting or group, key=lambda row: row["value"])
    return lowest | {"verdict": lowest["group_verdict"]}


def give_advice(cells: Sequence[TidyRow]) -> list[str]:
    """Say for each strength up to how many labels a class it loses, and from how many on it gains."""
    sentences = []
    for (strength,), own in group_rows(cells, "shrinkage").items():
        parts = []
        for word, found in (
            ("loses", [cell for cell in own if cell["high"] < 0]),
            ("gains", [cell for cell in own if cell["low"] > 0]),
        ):
            if found:
                most = max(found, key=lambda cell: abs(cell["value"]))
                places = f"with {', '.join(cell['place'] for cell in found)}" if found != own else "at every budget"
                parts.append(f"{word} {places}, most with {most['place']}: {format_estimate(most)}")
        name = "Full whitening" if strength == 0 else f"Whitening with shrinkage {strength:g}"
        changes = " and ".join(parts) or "changes accuracy at no budget by more than its interval"
        sentences.append(f"{name} {changes}.")
    return sentences


def draw_map(whitening: Sequence[TidyRow]) -> Figure:
    """Draw a panel for each set: the change against the labels a class, a line for each strength."""
    by_strength = group_strengths(whitening)
    held_out = {row["task"]: row["held_out"] for row in whitening}
    titles = [task.replace("_", " ") + " (held out)" * is_held_out for task, is_held_out in held_out.items()]
    figure, axes = make_panel_grid(titles, HEIGHT, across=3, sharex=True, sharey=True)
    for task, axis in zip(held_out, axes, strict=True):
        for color, (strength, means) in zip(PALETTE, by_strength.items(), strict=False):
            own = means[means.task == task]
            name = "full whitening" if strength == 0 else f"shrinkage {strength:g}"
            axis.plot(own.labels_a_class, own.change, marker="o", markersize=2.5, color=color, label=name)
    for axis in axes:
        mark_sides(axis)
        axis.tick_params(labelbottom=True)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    figure.supylabel("change of accuracy, points", fontsize=8)
    axes[max(len(axes) - 2, 0)].set_xlabel("labels a class (the last point is all labels)")
    return figure


def mark_sides(axis: Axes) -> None:
    """Draw the zero line, write on which side whitening helps, and write the labels as plain numbers."""
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(LogLocator(base=4))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.axhline(0, color="black", linewidth=0.8)
    low, high = axis.get_ylim()
    axis.set_ylim(low, max(high, 0.2 * (high - low)))
    for text, offset, vertical in (("helps", 2, "bottom"), ("hurts", -2, "top")):
        place = ("axes fraction", "data")
        axis.annotate(
            text, (1, 0), (-2, offset), place, "offset points", fontsize=7, color="0.35", ha="right", va=vertical
        )
