"""The papers' printed numbers, from published.yaml in a paper's folder: one `PublishedTable` for each table there."""

import difflib
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, InstanceOf, Strict, ValidationInfo, field_validator

from isobench.common.errors import refuse, suggest_nearest
from isobench.papers.folders import StrictEntries, find_papers, list_configs, read_checked_yaml

PrintedCell = tuple[str, str]


class PrintedNumber(float):
    """A number whose text is the digits it was typed with in the YAML, such as ``1.00``."""

    text: str

    @classmethod
    def construct(cls, loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Self:
        """Make one of a YAML scalar."""
        number = cls(loader.construct_yaml_float(node))
        number.text = "NaN" if number != number else node.value
        return number

    def __str__(self) -> str:
        return self.text


class _PrintedNumberLoader(yaml.SafeLoader):
    pass


_PrintedNumberLoader.add_constructor("tag:yaml.org,2002:float", PrintedNumber.construct)


PrintedValue = InstanceOf[PrintedNumber] | Annotated[int, Strict()]


class PublishedColumn(StrictEntries):
    """What a column is of: a task, and one of metric, isotropy and time."""

    task: str
    variants: dict[str, str] = Field(
        default_factory=dict,
        description="another task whose runs it compares with -> how that differs from the paper",
    )
    split: str | None = Field(default=None, description="dev split, where it is not the task's first one")
    metric: str | list[str] | None = Field(default=None, description="the metric, or those that it may be")
    isotropy: str | None = Field(default=None, description="the measure's name in a record")
    time: Literal["minutes"] | None = Field(default=None, description="minutes of training an epoch")

    @property
    def kind(self) -> Literal["time", "isotropy", "score"]:
        """Tell which of the three it is of."""
        return "time" if self.time else "isotropy" if self.isotropy else "score"

    @property
    def metrics(self) -> list[str]:
        """List the metrics that its scores may be."""
        return self.metric if isinstance(self.metric, list) else [self.metric] if self.metric else []


class PublishedTable(StrictEntries):
    """One table of a paper. Columns and rows go by their printed names; a row may lack columns."""

    what: str = Field(description="one line on the table")
    form: list[str] = Field(description="the statistics of a cell, in order: mean, sd, median, ...")
    doubtful: list[str] = Field(default_factory=list, description="notes on what may be wrong in print")
    columns: dict[str, PublishedColumn] = Field(description="column -> what it is of")
    methods: dict[str, str] = Field(description="a calibration's name -> row")
    significant: dict[str, dict[str, list[str]]] = Field(
        default_factory=dict, description="encoder -> row -> columns that are starred"
    )
    average: dict[str, dict[str, PrintedValue]] = Field(default_factory=dict, description="encoder -> row -> average")
    differences: dict[str, dict[str, dict[str, PrintedValue]]] = Field(
        default_factory=dict, description="encoder -> row -> column -> difference to the first row, as printed"
    )
    reported: dict[str, dict[str, PrintedValue]] = Field(
        default_factory=dict, description="encoder -> column -> others' number that the paper repeats"
    )
    reported_from: str | None = Field(
        default=None,
        description="PAPER/TABLE with the same columns that prints ``reported``, where this one does not",
    )
    cells: dict[str, dict[str, dict[str, list[PrintedValue | None]]]] = Field(
        description="encoder -> row -> column -> the numbers of ``form``, null where none is printed"
    )

    @field_validator("cells")
    @classmethod
    def _check_names(cls, cells: dict[str, dict[str, dict[str, Any]]], info: ValidationInfo) -> Any:
        """Refuse a misspelt row or column: its numbers would seem not to be in the paper."""
        rows = {row for of_encoder in cells.values() for row in of_encoder}
        columns = {column for of_encoder in cells.values() for row in of_encoder.values() for column in row}
        known = {"row": set(info.data.get("methods", {}).values()), "column": set(info.data.get("columns", {}))}
        for kind, names in (("row", rows), ("column", columns)):
            for name in sorted(names - known[kind]):
                raise ValueError(f"no {kind} is called {name}: {suggest_nearest(name, known[kind])}")
        return cells


def find_cell_in_column(table: PublishedTable, encoder: str, method: str, name: str | None) -> PrintedCell | None:
    """Find the printed cell, and the encoder it is of, in the column with this printed name; None: the row's average.

    It is the given encoder's, else that of one of its family (distilbert), else of the paper's first that has one.
    """
    row = table.methods.get(method, "")
    family = encoder.partition("-")[0]
    for printed_encoder in [encoder, *sorted(table.cells, key=lambda name: name.partition("-")[0] != family)]:
        average, cells = table.average.get(printed_encoder, {}), table.cells.get(printed_encoder, {}).get(row, {})
        if name is None and row in average:
            return str(average[row]), printed_encoder
        if name in cells:
            return format_statistics(table.form, cells[name]), printed_encoder
    return None


def find_difference(table: PublishedTable, encoder: str, methods: tuple[str, str], name: str) -> float:
    """Return the first method's printed mean or median less the second's, of an encoder of the paper in a column.

    NaN where print lacks one.
    """
    rows = [table.cells[encoder].get(table.methods.get(method, ""), {}).get(name) for method in methods]
    ours, theirs = (math.nan if row is None or row[0] is None else float(row[0]) for row in rows)
    return ours - theirs


def find_reported(table: PublishedTable) -> tuple[str, dict[str, dict[str, PrintedValue]]]:
    """Find the row of others' numbers that the paper, or another version of it, repeats.

    Return its heading, and encoder -> column -> number; no encoders if there is no such row.
    """
    if table.reported_from is None:
        return "Reported", table.reported
    paper, _, name = table.reported_from.partition("/")
    return f"Reported ({paper})", load_tables(paper)[name].reported


def find_column(table: PublishedTable, task: str, metric: str) -> str | None:
    """Find the printed name of the column for a task and a metric (isotropy, ``minutes``) on the first dev split."""
    for name, column in table.columns.items():
        known = (*column.metrics, column.isotropy, column.time)
        # A column of a further dev split names it.
        if task in (column.task, *column.variants) and metric in known and column.split is None:
            return name
    return None


def format_statistics(form: list[str], values: Sequence[float | str | None]) -> str:
    """Format a cell on one line: ``mean ± sd``, ``median (sd)``, other statistics after a stroke."""
    text = str(values[0])
    for (before, _), (name, value) in pairwise(zip(form, values, strict=True)):
        if value is not None:
            spread = f" ± {value}" if before == "mean" else f" ({value})"
            text += spread if name.endswith("sd") else f" / {value}"
    return text


def check_tables_exist(paper: str | None, tables: Sequence[str]) -> None:
    """Raise UserError if an experiment names a paper or a table that isn't there; called before any run starts."""
    papers = find_papers()
    refuse((paper and papers and paper not in papers, f"experiment.paper={paper}: choose one of {', '.join(papers)}"))
    known = load_tables(paper) if paper else {}
    for name in tables:
        refuse((name not in known, f"experiment.tables: paper {paper} has no {name}, only {', '.join(known)}"))


def list_misspellings(
    paper: str, tables: Iterable[str], tasks: Iterable[str], methods: Iterable[str]
) -> Iterator[str]:
    """Yield a remark on each task and method of a paper's tables that seems misspelt, as an existing one is close.

    ``tasks`` and ``methods`` are those of runs, which exist beside those that have a config. A paper may also print
    tasks and methods that isobench lacks: of these none is close.
    """
    for table in tables:
        content = load_tables(paper)[table]
        printed_tasks = {task for column in content.columns.values() for task in (column.task, *column.variants)}
        for column, group, printed, ran in (
            ("task", "task", printed_tasks, tasks),
            ("method", "calibration", set(content.methods), methods),
        ):
            known = {*list_configs(group), *ran}
            for unknown in sorted(printed - known):
                # A chain such as center+isobn_paper has no config of its own, and its methods have.
                nearest = [difflib.get_close_matches(part, known, 1, 0.75) for part in unknown.split("+")]
                meant = "+".join(names[0] for names in nearest) if all(nearest) else unknown
                if meant != unknown:
                    yield f"published.yaml of {paper}, {table}, has a {column} {unknown}: did you mean {meant}?"


def count_numbers(paper: str) -> int:
    """Count the published numbers in a paper's folder: the rows of published.csv, or else those of published.yaml."""
    scores = find_papers()[paper] / "published.csv"
    if scores.is_file():  # it repeats published.yaml with all digits
        return len(scores.read_text(encoding="utf-8").splitlines()) - 1
    rows = [row for table in load_tables(paper).values() for rows in table.cells.values() for row in rows.values()]
    return sum(number is not None for row in rows for cell in row.values() for number in cell)


def load_tables(paper: str) -> dict[str, PublishedTable]:
    """Load all tables of a paper, by name; none if it has no published.yaml."""
    folder = find_papers().get(paper)
    file = folder / "published.yaml" if folder else None
    if file is None or not file.is_file():
        return {}
    return read_checked_yaml(file, dict[str, PublishedTable], _PrintedNumberLoader)
