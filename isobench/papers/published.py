"""The papers' numbers, from experiments/<paper>/published.yaml.

A table there has ``what`` (one line), ``form`` (the statistics of a cell, in order), ``doubtful`` (notes),
``columns`` (printed name -> task and one of ``metric``, with ``split`` if it is not the first one; ``isotropy``, its
name in a record; ``time``, the unit: ``minutes`` of training an epoch), ``methods`` (a calibration's name -> row),
``significant`` (encoder -> row -> starred columns), ``average`` (encoder -> row), ``differences`` (to the first row,
as printed: encoder -> row -> column), ``reported`` (others' numbers that it repeats: encoder -> column) and
``cells`` (encoder -> row -> column -> the numbers of ``form``, null where none is printed). A row may lack columns.
"""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import yaml

from isobench.common.errors import UserError, suggest_nearest
from isobench.common.resources import experiments_dir
from isobench.config.schema import Experiment

PrintedCell = tuple[str, str]


class PrintedNumber(float):
    """A number that shows the digits it was typed with."""

    text: str

    @classmethod
    def construct(cls, loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Self:
        """From a YAML scalar."""
        number = cls(loader.construct_yaml_float(node))
        number.text = "NaN" if number != number else node.value
        return number

    def __str__(self) -> str:
        return self.text


class PrintedNumberLoader(yaml.SafeLoader):
    """YAML whose floats are ``Printed``."""


PrintedNumberLoader.add_constructor("tag:yaml.org,2002:float", PrintedNumber.construct)


def find_published_cell(
    paper: str | None, table: str | None, encoder: str, method: str, task: str, metric: str
) -> PrintedCell | None:
    """Find the printed cell and the encoder it is for: this encoder's if there is one, else the table's first.

    ``method`` is a calibration's name; the paper's variants share the paper's cell (``methods`` in the file).
    None if the paper has no such cell, or its metric is another one.
    """
    content = load_tables(paper).get(table) if paper and table else None
    name = find_column(content, task, metric) if content else None
    if content is None or name is None:
        return None
    return find_cell_in_column(content, encoder, method, name)


def find_cell_in_column(table: dict[str, Any], encoder: str, method: str, name: str) -> PrintedCell | None:
    """Find the printed cell, and the encoder it is for, in the column with this printed name."""
    row = table["methods"].get(method)
    for where in [encoder, *table["cells"]]:
        found = table["cells"].get(where, {}).get(row, {}).get(name)
        if found is not None:
            return format_statistics(table["form"], found), where
    return None


def find_column(table: dict[str, Any], task: str, metric: str, split: str | None = None) -> str | None:
    """Find the printed name of the column for a task, a metric (or isotropy, or ``minutes``) and a split.

    ``split=None`` is the first one. None if there is no such column.
    """
    for name, about in table["columns"].items():
        metrics = about.get("metric") or about.get("isotropy") or about.get("time")
        known = metrics if isinstance(metrics, list) else [metrics]
        if about["task"] == task and metric in known and about.get("split") == split:
            return str(name)
    return None


def format_statistics(form: list[str], values: Sequence[float | str | None]) -> str:
    """A cell on one line: ``mean ± sd``, ``median (sd)``, others after a stroke."""
    text = str(values[0])
    for (before, _), (name, value) in pairwise(zip(form, values, strict=True)):
        if value is not None:
            spread = f" ± {value}" if before == "mean" else f" ({value})"
            text += spread if name.endswith("sd") else f" / {value}"
    return text


def check_tables_exist(experiment: Experiment) -> None:
    """Raise UserError for a table that is not there: before anything has been run for it."""
    known = load_tables(experiment.paper) if experiment.paper else {}
    for name in experiment.tables:
        if name not in known:
            raise UserError(
                f"experiment.tables: {experiment.paper} has no {name}: {suggest_nearest(name, list(known))}"
            )


@cache
def load_tables(paper: str) -> dict[str, Any]:
    """All tables of one paper; empty if its numbers are not there."""
    file = Path(experiments_dir()) / paper / "published.yaml"
    return yaml.load(file.read_text(), PrintedNumberLoader) if file.is_file() else {}
