"""The cells of a report's tables, sorted for comparing every method with a base across tasks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from isobench.report.document import Cell, ReportTable
from isobench.report.resampling import Arms

MethodKey = tuple[str, str]  # encoder, method
BASE_METHOD = "none"  # plain fine-tuning: what every method is compared with
CONSTANT_PREDICTOR = "constant_predictor"  # the failure of a run that predicts the same for every example


@dataclass
class MethodArms:
    """A method's runs beside the base's: column -> both arms, one column a task.

    ``tested``: where both have two seeds or more; ``single``: where one has not.
    """

    tested: dict[str, Arms] = field(default_factory=dict)
    single: dict[str, Arms] = field(default_factory=dict)


class BaselineComparison:
    """The cells of all tables, each column of a line once.

    Args:
        tables: with ``comparison`` in the cells of scores (in percent), and of these only.
        base: the method that the others are compared with.
    """

    def __init__(self, tables: Sequence[ReportTable], base: str) -> None:
        self.base = base
        self.cells: dict[MethodKey, dict[str, Cell]] = {}
        self.tasks: dict[str, str] = {}
        for table in tables:
            self.tasks |= table.tasks
            for line in table.lines:
                own = self.cells.setdefault((line.encoder, line.method), {})
                for column, cell in line.cells.items():
                    if column not in own or (own[column].comparison is None and cell.comparison is not None):
                        own[column] = cell
        self.methods = [name for name in self.cells if name[1] != base]
        self.several_encoders = len({encoder for encoder, _ in self.cells}) > 1

    def format_method(self, name: MethodKey) -> str:
        """A method, with its encoder if there are several."""
        return f"{name[1]} ({name[0]})" if self.several_encoders else name[1]

    def task(self, column: str) -> str:
        """The task of a column, itself where none is known."""
        return self.tasks.get(column, column)

    def find_base_cells(self, name: MethodKey) -> dict[str, Cell]:
        """The base's cells of the same encoder."""
        return self.cells.get((name[0], self.base), {})

    def has_base_scores(self, name: MethodKey) -> bool:
        """True if the base has any score of the same encoder."""
        return any(cell.values for cell in self.find_base_cells(name).values())

    def collect_arms(self, name: MethodKey) -> MethodArms:
        """A method's and the base's values; of columns that show the same runs the first."""
        found, seen = MethodArms(), set()
        for column, cell in self.cells[name].items():
            base = self.find_base_cells(name).get(column)
            if cell.comparison is None or base is None or not is_usable(cell) or not is_usable(base):
                continue
            if self.task(column) not in seen:
                seen.add(self.task(column))
                several = min(len(cell.values), len(base.values)) > 1
                (found.tested if several else found.single)[column] = (cell.values, base.values)
        return found


def is_usable(cell: Cell) -> bool:
    """True if a cell's values may be averaged: no constant predictor and no undefined score among its runs."""
    return bool(cell.values) and CONSTANT_PREDICTOR not in cell.troubles and not any(map(math.isnan, cell.values))
