"""Tables and notes of sentence similarity: means over sets, and our correlations beside MTEB's."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from rich.table import Table

from isobench.analyses.findings import find_paper_column, make_table
from isobench.analyses.rows import TidyRow, list_distinct, select_rows
from isobench.common.terminal import format_count
from isobench.data.scored_pairs import SETS, ScoredPairs
from isobench.papers import published

PAPER = "mteb"
PLAIN = "none"  # the method of vectors without calibration
HEADINGS = {"cosine": "cosine", "inner": "inner", "spearman": "ranks", "l1": "-L1"}  # of the similarities


def compare_with_published(rows: Sequence[TidyRow], unit_length: bool) -> list[TidyRow]:
    """Put our correlations of uncalibrated vectors beside MTEB's, where MTEB has the encoder.

    MTEB's vectors are means over tokens, at the model's output, of length 1. Length plays no part in a cosine. By L1
    ours are MTEB's only with ``unit_length``.

    Returns:
        Rows of encoder, set, similarity, metric, ours, published, and their difference, all x 100.
    """
    compared = []
    for row in select_rows(rows, {"method": PLAIN, "layer": None, "pooling": "mean"}):
        similarity = row["similarity"]
        if similarity != "cosine" and not (similarity == "l1" and unit_length):
            continue
        table = published.load_tables(PAPER)[similarity]
        column = published.find_column(table, row["set"], "spearman")
        values = table.cells.get(row["model"], {}).get(table.methods[PLAIN], {}).get(column or "")
        for metric, value in zip(table.form, values or [], strict=bool(values)):
            names = {"encoder": row["encoder"], "set": row["set"], "similarity": similarity, "metric": metric}
            theirs = float(value or math.nan)
            compared.append({**names, "ours": row[metric], "published": theirs, "difference": row[metric] - theirs})
    return compared


def average_over_sets(rows: Sequence[TidyRow]) -> list[TidyRow]:
    """Average the correlations and gains over the sets, by encoder, method and similarity; without undefined ones."""
    groups: dict[tuple[str, ...], list[TidyRow]] = {}
    for row in rows:
        groups.setdefault((row["encoder"], row["method"], row["similarity"]), []).append(row)
    means = []
    for (encoder, method, similarity), group in groups.items():
        defined = [row for row in group if not math.isnan(row["spearman"])]
        means.append(
            {
                "encoder": encoder,
                "layer": group[0]["layer"],
                "method": method,
                "similarity": similarity,
                "sets": ", ".join(row["set"] for row in defined),
                **{kind: average([row[kind] for row in defined]) for kind in ("spearman", "pearson", "gain")},
            }
        )
    return means


def average(values: Sequence[float]) -> float:
    """Average numbers; NaN without any."""
    return float(np.mean(values)) if values else math.nan


def build_published_table(compared: Sequence[TidyRow]) -> Table:
    """Build the table of our correlations, MTEB's, and the difference: a column a set."""
    sets = list_distinct(compared, "set")
    table = make_table("Without calibration, x 100, beside MTEB", ("encoder", ""), map(find_set_name, sets))
    for encoder in list_distinct(compared, "encoder"):
        for similarity in list_distinct(compared, "similarity"):
            for metric in list_distinct(compared, "metric"):
                names = {"encoder": encoder, "similarity": similarity, "metric": metric}
                cells = {row["set"]: row for row in select_rows(compared, names)}
                if not cells:
                    continue
                title = metric.capitalize() + ("" if similarity == "cosine" else f" {HEADINGS[similarity]}")
                for label, key, form in (
                    (title, "ours", "{:.2f}"), ("MTEB", "published", "{:.2f}"), ("differs", "difference", "{:+.3f}"),
                ):  # fmt: skip
                    numbers = (form.format(cells[name][key]) if name in cells else "-" for name in sets)
                    table.add_row(encoder, label, *numbers, style="" if key == "ours" else "dim")
        table.add_section()
    return table


def build_set_table(rows: Sequence[TidyRow]) -> Table:
    """Build the table of Spearman's correlation by cosine: a section an encoder, a row a method, a column a set."""
    rows = select_shown(select_rows(rows, {"similarity": "cosine"}))
    sets = list_distinct(rows, "set")
    headings = [*map(find_set_name, sets), *(["mean"] if len(sets) > 1 else [])]
    table = make_table("Spearman x 100 by cosine", ("encoder, method",), headings)
    for encoder in list_distinct(rows, "encoder"):
        table.add_row(encoder, style="bold")
        own = select_rows(rows, {"encoder": encoder})
        for method in list_distinct(own, "method"):
            values = [row["spearman"] for row in select_rows(own, {"method": method})]
            mean = [average(values)] if len(sets) > 1 else []
            table.add_row(method, *map(format_score, [*values, *mean]))
        table.add_section()
    return table


def build_mean_table(means: Sequence[TidyRow]) -> Table:
    """Build the table of Spearman's correlation by each similarity, averaged over the sets: a row a method."""
    means = select_shown(means)
    similarities = list_distinct(means, "similarity")
    table = make_table(
        "Spearman x 100, mean over sets, by similarity",
        ("encoder, method",),
        [*(HEADINGS[name] for name in similarities), "gain by cosine"],
    )
    for encoder in list_distinct(means, "encoder"):
        table.add_row(encoder, style="bold")
        own = select_rows(means, {"encoder": encoder})
        for method in list_distinct(own, "method"):
            cells = {row["similarity"]: row for row in select_rows(own, {"method": method})}
            gain = "" if method == PLAIN else f"{cells['cosine']['gain']:+.2f}"
            table.add_row(method, *(format_score(cells[name]["spearman"]) for name in similarities), gain)
        table.add_section()
    return table


def select_shown(rows: Sequence[TidyRow]) -> list[TidyRow]:
    """Select the rows of the models' outputs for a table; all rows if other layers alone were asked for."""
    return select_rows(rows, {"layer": None}) or list(rows)


def format_score(value: float) -> str:
    """Write a correlation x 100; a dash where it is undefined."""
    return "-" if math.isnan(value) else f"{value:.2f}"


def find_set_name(name: str) -> str:
    """Return the printed name of a set."""
    return find_paper_column(PAPER, "cosine", name, "spearman")


def list_notes(rows: Sequence[TidyRow], cut: Mapping[str, int], fit: str | None, unit_length: bool) -> list[str]:
    """Write the notes below the tables: what calibrations were fitted on, and how vectors were made.

    Args:
        rows: of the similarities.
        cut: encoder -> number of sentences that are as long as its longest input.
        fit: the set that calibrations were fitted on; None for each set's own.
        unit_length: whether vectors were divided by their lengths first.
    """
    where = f"of {find_set_name(fit)}" if fit else "of the set that is evaluated (transductive; scores are not read)"
    notes = [
        f"Calibrations are fitted on the sentences {where}, as one batch: calibration.momentum plays no part.",
        "inner: inner product; ranks: Spearman's correlation of the vectors' coordinates; -L1: minus L1 distance.",
    ]
    if unit_length:
        notes.append("Every vector is divided by its length before it is calibrated.")
    if any(row["layer"] is not None for row in rows) and any(row["layer"] is None for row in rows):
        notes.append("The tables show the models' outputs; other layers are in the figure and in similarity.csv.")
    notes += [
        f"{name}: {format_count(count, 'sentence')} of its longest length or cut."
        for name, count in cut.items()
        if count
    ]
    models = set(list_distinct(rows, "model"))
    if models & set(published.load_tables(PAPER)["cosine"].cells):
        notes += published.load_tables(PAPER)["cosine"].doubtful
    return notes


def list_differences(rows: Sequence[TidyRow], pairs: Mapping[str, ScoredPairs], from_files: bool) -> list[str]:
    """List how encoders and sentence pairs differ from MTEB's; ``from_files``: the pairs are not from the hub."""
    known = published.load_tables(PAPER)["cosine"].cells
    differences = [
        f"encoder {name} is not in the paper" for name in list_distinct(rows, "model") if name not in known
    ]
    if from_files:
        differences.append("sentence pairs of data.root, not of the hub's commits")
    return differences + [
        f"{find_set_name(name)} has {format_count(len(own), 'pair')}, not {SETS[name].pairs:,}"
        for name, own in pairs.items()
        if len(own) != SETS[name].pairs
    ]
