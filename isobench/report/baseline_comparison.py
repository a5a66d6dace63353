"""Collect the cells of a report's tables so that every method can be compared with plain fine-tuning across tasks.

An arm is the scores of one method on one task, one a seed.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from isobench.report.document import Cell, Comparison, ReportTable
from isobench.statistics.resampling import permutation_test
from isobench.statistics.seeds import ALPHA, Arms, hedges_g, holm, student, welch

MethodKey = tuple[str, str]  # group (`ReportTable.name_group`: the encoder, and the part of the runs), method
BASE_METHOD = "none"  # plain fine-tuning: what every method is compared with
BASE_LABEL = "plain"  # what reports call it, because "none remains" would be ambiguous beside a method called none
CONSTANT_PREDICTOR = "constant_predictor"  # the failure of a run that predicts the same for every example


@dataclass
class MethodArms:
    """The scores of a method and of plain fine-tuning on the same tasks: column -> both arms, one column a task.

    Attributes:
        tested: the columns in which both have two seeds or more, so that a test is possible.
        single_seed: the columns in which one of them has a single seed.
    """

    tested: dict[str, Arms] = field(default_factory=dict)
    single_seed: dict[str, Arms] = field(default_factory=dict)


class BaselineComparison:
    """The cells of all tables by group and method; a column that several tables of a group show is taken once.

    Args:
        tables: cells of scores (in percent) have a ``comparison``; other cells have none.
    """

    def __init__(self, tables: Sequence[ReportTable]) -> None:
        self.cells: dict[MethodKey, dict[str, Cell]] = {}
        self.tasks: dict[str, str] = {}
        for table in tables:
            self.tasks |= table.tasks
            for line in table.lines:
                own = self.cells.setdefault((table.name_group(line), line.method), {})
                for column, cell in line.cells.items():
                    if column not in own or (own[column].comparison is None and cell.comparison is not None):
                        own[column] = cell
        self.methods = [name for name in self.cells if name[1] != BASE_METHOD]
        self.several_groups = len({group for group, _ in self.cells}) > 1

    def format_method(self, name: MethodKey) -> str:
        """Return the method's label, with its encoder and part if there are several."""
        label = label_method(name[1])
        return f"{label} ({name[0]})" if self.several_groups else label

    def list_constant_tasks(self, names: Iterable[MethodKey]) -> list[str]:
        """List the tasks of these methods on which a run of them or of plain fine-tuning is a constant predictor."""
        tasks: dict[str, None] = {}
        for name in names:
            baseline = self.find_baseline_cells(name)
            for column, cell in self.cells[name].items():
                both = cell, baseline.get(column, cell)
                if was_run(cell) and any(CONSTANT_PREDICTOR in own.troubles for own in both):
                    tasks[self.find_task(column)] = None
        return list(tasks)

    def list_constant_predictors(self) -> list[str]:
        """List every method with the tasks of ``list_constant_tasks``: ``flow on rte``."""
        return [
            f"{self.format_method(name)} on {task}"
            for name in self.methods
            for task in self.list_constant_tasks([name])
        ]

    def find_task(self, column: str) -> str:
        """Return the task of a column, or the column's title if its task is not known."""
        return self.tasks.get(column, column)

    def find_baseline_cells(self, name: MethodKey) -> dict[str, Cell]:
        """Return plain fine-tuning's cells with the same encoder, in the same part of the runs: column -> cell."""
        return self.cells.get((name[0], BASE_METHOD), {})

    def has_baseline_scores(self, name: MethodKey) -> bool:
        """Return True if plain fine-tuning has any score in the same group."""
        return any(cell.values for cell in self.find_baseline_cells(name).values())

    def collect_arms(self, name: MethodKey) -> MethodArms:
        """Collect the scores of a method and of plain fine-tuning; of several columns of one task only the first."""
        arms, collected_tasks = MethodArms(), set[str]()
        for column, cell in self.cells[name].items():
            baseline = self.find_baseline_cells(name).get(column)
            if cell.comparison is None or baseline is None or not is_usable(cell) or not is_usable(baseline):
                continue
            if self.find_task(column) not in collected_tasks:
                collected_tasks.add(self.find_task(column))
                several = min(len(cell.values), len(baseline.values)) > 1
                (arms.tested if several else arms.single_seed)[column] = (cell.values, baseline.values)
        return arms


def label_method(method: str) -> str:
    """Return what a report calls a method: its name, and ``plain`` for plain fine-tuning."""
    return BASE_LABEL if method == BASE_METHOD else method


def was_run(cell: Cell) -> bool:
    """Return True if a cell has runs, ended or not."""
    return bool(cell.values or cell.troubles)


def is_usable(cell: Cell) -> bool:
    """Return True if a cell's values may be averaged: it has some, no run is a constant predictor, none is NaN."""
    return bool(cell.values) and CONSTANT_PREDICTOR not in cell.troubles and not any(map(math.isnan, cell.values))


# The tests that marks can come from, by their names in published.yaml.
MARK_TESTS = {"welch": "Welch's t-test over seeds", "student": "Student's two-sample t-test over seeds"}


def choose_mark(p: float | None, difference: float) -> str:
    """Return * for significantly better than plain fine-tuning, † for worse, else nothing; p is not corrected."""
    if p is None or p >= ALPHA:
        return ""
    return "*" if difference > 0 else "†"


def format_mark_legend(marks: str) -> str:
    """Explain the marks * and † that come from a test, one of ``MARK_TESTS``."""
    return f"* better, † worse than plain fine-tuning: p < {ALPHA} ({MARK_TESTS[marks]}, not corrected)"


def compare(ours: Sequence[float], base: Sequence[float], marks: str = "welch") -> Comparison:
    """Compare a method's scores with plain fine-tuning's in one column; ``marks``: the test that its mark comes from.

    What the seeds don't allow is None; so is ``holm``, which ``apply_holm_correction`` fills.
    """
    undefined = not ours or not base or any(math.isnan(value) for value in (*ours, *base))
    difference = math.nan if undefined else statistics.fmean(ours) - statistics.fmean(base)
    numbers = (welch(ours, base), permutation_test(ours, base), *hedges_g(ours, base), student(ours, base))
    p, permutation, effect, low, high, pooled = (None if math.isnan(number) else number for number in numbers)
    return Comparison(difference, p, permutation, None, effect, low, high, pooled, marks)


ComparisonKey = tuple[str, str, str, tuple[float, ...]]  # group, method, column, values


def collect_test_family(tables: Sequence[ReportTable]) -> dict[ComparisonKey, list[Comparison]]:
    """Collect all comparisons that have a p: the family over which Holm's correction is made.

    A comparison shown in two tables (same group, method, column and values) is counted once: the list holds its
    copies.
    """
    family: dict[ComparisonKey, list[Comparison]] = {}
    for table in tables:
        for line in table.lines:
            for column, cell in line.cells.items():
                if cell.comparison and cell.comparison.welch is not None:
                    key = (table.name_group(line), line.method, column, tuple(cell.values))
                    family.setdefault(key, []).append(cell.comparison)
    return family


def apply_holm_correction(tables: Sequence[ReportTable]) -> None:
    """Set ``holm`` of every comparison in these tables: Welch's p, corrected over all of them."""
    family = list(collect_test_family(tables).values())
    adjusted = holm([p for p in (copies[0].welch for copies in family) if p is not None])
    for copies, p in zip(family, adjusted, strict=True):
        for comparison in copies:
            comparison.holm = p
