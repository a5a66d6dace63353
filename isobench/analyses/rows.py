"""Pick rows and values out of tidy rows: lists of dicts from column to value, one dict an observation."""

from collections.abc import Iterable, Mapping
from typing import Any

TidyRow = dict[str, Any]


def select_rows(rows: Iterable[TidyRow], selection: Mapping[str, Any]) -> list[TidyRow]:
    """Return the rows that have the selection's value in each of its columns, in their order."""
    return [row for row in rows if all(row[column] == value for column, value in selection.items())]


def list_distinct(rows: Iterable[TidyRow], column: str) -> list[Any]:
    """List the distinct values of a column, in the order in which they first appear."""
    return list(dict.fromkeys(row[column] for row in rows))


def name_panel(row: TidyRow) -> str:
    """Name the panel of a row's encoder and task."""
    return f"{row['encoder']}, {row['task']}"


def select_subject(rows: Iterable[TidyRow], subject: TidyRow) -> list[TidyRow]:
    """Return the rows with a row's encoder and task."""
    return select_rows(rows, {"encoder": subject["encoder"], "task": subject["task"]})
