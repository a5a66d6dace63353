"""The papers' numbers, from experiments/<paper>/published.yaml."""

from pathlib import Path
from typing import Any

import yaml

from isobench.resources import experiments_dir

Cell = tuple[str, str]


def cell(paper: str | None, table: str | None, encoder: str, method: str, task: str, metric: str) -> Cell | None:
    """The printed cell and the encoder it is for: this encoder's if there is one, else the table's first.

    ``method`` is a calibration's name; the paper's variants share the paper's cell (``methods`` in the file).
    None if the paper has no such cell, or its metric is another one.
    """
    if not paper or not table:
        return None
    content = load(paper).get(table)
    if content is None or metric not in content["metrics"].get(task, []):
        return None
    cells: dict[str, dict[str, dict[str, list[float]]]] = content["cells"]
    row = content["methods"].get(method)
    for name in [encoder, *cells]:
        found = cells.get(name, {}).get(row, {}).get(task)
        if found is not None:
            value, spread = found
            return f"{value:.2f} ({spread:g})", name
    return None


def load(paper: str) -> dict[str, Any]:
    """All tables of one paper; empty if its numbers are not there."""
    file = Path(experiments_dir()) / paper / "published.yaml"
    return yaml.safe_load(file.read_text()) if file.is_file() else {}
