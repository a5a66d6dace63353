"""Label the runs of a sweep by the settings in which they differ: ``beta=0.25 lr=1e-05``."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from isobench.runs.grouping import find_varying_settings, read_setting, read_value, shorten_setting_names
from isobench.runs.row import Row

# Tables don't show these as settings that vary, but runs that differ in them need different names.
MORE_SETTINGS = ("seeds.init", "seeds.order", "seeds.dropout")


def label_rows(rows: Sequence[Row]) -> None:
    """Write into each run's ``tracking.label`` what tells it from the other runs, or None if nothing does."""
    for row, label in zip(rows, make_labels(rows), strict=True):
        if label != row.cfg.tracking.label:
            row.cfg = replace(row.cfg, tracking=replace(row.cfg.tracking, label=label))


def make_labels(rows: Sequence[Row]) -> list[str | None]:
    """Make a label for each run from the settings in which the runs differ, beside task, encoder, method and seed."""
    names = find_varying_settings(list(rows))
    names += [name for name in MORE_SETTINGS if len({str(read_setting(row.cfg, name)) for row in rows}) > 1]
    return [format_settings(row, names) or None for row in rows]


def format_settings(row: Row, names: Sequence[str]) -> str:
    """Write a run's values of the named settings, such as ``beta=0.25 lr=1e-05``.

    Settings that the run's method does not have are left out.

    Args:
        row: the run.
        names: dotted names of settings; each is shortened to the part that no other of them has.
    """
    values = {short: read_value(row, name) for name, short in shorten_setting_names(names).items()}
    return " ".join(f"{short}={format_value(value)}" for short, value in values.items() if value != "-")


def format_value(value: Any) -> str:
    """Write a setting's value briefly, as it is typed on the command line."""
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(format_value, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
