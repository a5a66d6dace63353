"""Make `cells`: each encoder and method in each column of each table, with its statistics and the published number.

This is the one place where statistics (`isobench.statistics`) become numbers of a report.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from isobench.common.terminal import format_count
from isobench.config.schema import Experiment, Task
from isobench.papers import published
from isobench.papers.folders import find_papers
from isobench.papers.published import PublishedColumn, PublishedTable
from isobench.report.selection import find_varying
from isobench.report.tables import (
    BASE_METHOD,
    CONSTANT_PREDICTOR,
    compute_epoch_seconds,
    describe_settings,
    find_fastest,
    find_troubles,
    is_scored,
    list_scale_differences,
    name_group,
    read_numbers,
)
from isobench.statistics.seeds import ALPHA, Arm, compare_runs, compute_cell_statistics, count_trials, hedges_g, holm

ColumnKind = tuple[str | None, str | None]  # a published column's ``isotropy`` and ``time``; both None for a score
NO_PAPER = PublishedTable(what="", form=["mean", "sd"], cells={}, columns={}, methods={})
A_SCORE = PublishedColumn(task="")  # the kind of column that every task has
AVERAGE = "Avg"  # title of the column of each row's average


@dataclass(frozen=True)
class Column:
    """Describe one printed column: a task's metric on a dev split, an isotropy, or the time of an epoch."""

    title: str
    task: str
    kind: str  # score (in percent), isotropy or time (in minutes)
    source: str = ""  # the column of ``runs`` that has its numbers; empty for a time
    printed: str = ""  # the paper's name of the column; empty if the paper does not have it
    difference: str = ""  # how the task differs from the paper's, in words; empty if it is the paper's

    def read_values(self, runs: pd.DataFrame) -> tuple[list[float], list[int]]:
        """Return the numbers of the runs that have one, NaN where it is undefined, and the seeds of these runs."""
        values = compute_epoch_seconds(runs) / 60 if self.kind == "time" else read_numbers(runs, self.source)
        has_number = np.isfinite(values) if self.kind == "time" else np.ones(len(runs), bool)
        kept = np.asarray(is_scored(runs), bool) & has_number
        return values[kept].tolist(), runs["seed"][kept].tolist()

    def format_value(self, number: float | None) -> str | None:
        """Write a number as the paper prints it.

        A percentage has two decimals; an isotropy three, or an exponent if it is tiny; minutes about three digits:
        246, 17.2, 0.31.
        """
        if number is None or math.isnan(number):
            return None if number is None else "NaN"
        if self.kind == "score":
            return f"{number:.2f}"
        if self.kind == "time":
            return f"{number:.{0 if number >= 100 else 1 if number >= 10 else 2}f}"
        return f"{number:.3f}" if number == 0 or abs(number) >= 1e-3 else f"{number:.0e}"


class Table(NamedTuple):
    """A table to fill: its name in published.yaml (empty without a paper), its content there, and its columns."""

    name: str
    content: PublishedTable
    columns: list[Column]


def _list_tables(experiment: Experiment, tasks: dict[str, Task]) -> list[Table]:
    """List the tables of the experiment's paper that have columns for these tasks; if none has, one of all scores.

    A task that the paper doesn't have gets a column of each kind (score, an isotropy, time) once: in the first table
    with columns of that kind.
    """
    contents = _load_contents(experiment)
    columns_of_all = [column for content in contents.values() for column in content.columns.values()]
    paper_tasks = {task for column in columns_of_all for task in (column.task, *column.variants)}
    other_tasks = [task for name, task in tasks.items() if name not in paper_tasks]
    used_kinds: set[ColumnKind] = set()  # kinds of columns that the other tasks have already
    tables = []
    for name, content in contents.items():
        kinds = {(column.isotropy, column.time): column for column in content.columns.values()}
        new_kinds = [column for kind, column in kinds.items() if kind not in used_kinds]
        columns = [*_build_paper_columns(content, tasks), *_build_other_columns(other_tasks, new_kinds)]
        used_kinds |= kinds.keys()
        if columns:
            tables.append(Table(name, content, columns))
    return tables or [Table("", NO_PAPER, list(_build_other_columns(list(tasks.values()), [A_SCORE])))]


def _load_contents(experiment: Experiment) -> dict[str, PublishedTable]:
    """Load the tables of the experiment's paper that the experiment names; none if the paper is not here."""
    if experiment.paper not in find_papers():
        return {}
    published.check_tables_exist(experiment.paper, experiment.tables)
    tables = published.load_tables(experiment.paper)
    return {name: tables[name] for name in experiment.tables}


def list_mistakes(experiment: Experiment, runs: pd.DataFrame) -> list[str]:
    """Say which printed numbers are not shown by mistake: the paper is not here, or misspells a task or method."""
    if experiment.paper and experiment.paper not in find_papers():
        return [f"The printed numbers of {experiment.paper} are not shown: name its folder with --paper FOLDER."]
    tables, names = _load_contents(experiment), (set(runs["task"]), set(runs["method"]))
    return list(published.list_misspellings(experiment.paper, tables, *names)) if experiment.paper else []


def find_content(experiment: Experiment, table: str) -> PublishedTable:
    """Return a table's content in published.yaml; that of a table without a paper if its name is empty."""
    return _load_contents(experiment).get(table, NO_PAPER)


def _build_paper_columns(content: PublishedTable, tasks: dict[str, Task]) -> Iterator[Column]:
    """Make the columns of a paper's table whose tasks ran; each variant of a task has a column of its own."""
    for printed, column in content.columns.items():
        for name, difference in {column.task: "", **column.variants}.items():
            task = tasks.get(name)
            known = [metric for metric in column.metrics if task and metric in task.metrics]
            if task and (known or not column.metrics):
                # The paper may not say which of several metrics it prints: the task's primary one if it is possible.
                metric = task.primary if task.primary in known or not known else known[0]
                score = f"{column.split or task.dev_splits[0]}/{metric}"
                title = f"{printed} ({name})" if difference else printed
                yield Column(title, name, column.kind, _find_source(column, score), printed, difference)


def _build_other_columns(tasks: Sequence[Task], alike: Sequence[PublishedColumn]) -> Iterator[Column]:
    """Make columns of the same kinds as printed ones for tasks that the paper doesn't have."""
    for task in tasks:
        for column in alike:
            title = f"{task.name} {column.isotropy or column.time or task.primary}"
            yield Column(title, task.name, column.kind, _find_source(column, f"{task.dev_splits[0]}/{task.primary}"))


def _find_source(column: PublishedColumn, score: str) -> str:
    """Return the column of ``runs`` that a printed column's numbers are in, ``score`` being the scores'."""
    return "" if column.time else column.isotropy or score


# Compares a method's runs with plain fine-tuning's in a column: the values of the columns paired_*.
Pair = Callable[[pd.DataFrame, pd.DataFrame, Column], dict[str, Any]]
NAN = math.nan
CELLS: dict[str, Any] = {  # column -> what a cell has that fills in nothing else; numbers are NaN
    "table": None, "part": None, "encoder": None, "group": None, "method": None, "settings": "", "column": None,
    "task": None, "kind": None, "values": [], "seeds": [], "n": 0, "mean": NAN, "sd": NAN, "ours": "",
    "published": None, "published_of": None, "published_difference": NAN, "verdict": "", "why": "", "compared": False,
    "base": [], "base_seeds": [], "difference": NAN, "low": NAN, "high": NAN, "p": NAN, "p_exact": NAN,
    "test_seeds": 0, "trials": 1, "p_holm": NAN, "effect": NAN, "effect_low": NAN, "effect_high": NAN, "mark": "",
    "paired_difference": NAN, "paired_low": NAN, "paired_high": NAN, "paired_p": NAN, "paired_seeds": NAN,
    "paired_examples": NAN, "paired_reason": None, "troubles": [], "time": "",
}  # fmt: skip


def build_cells(
    runs: pd.DataFrame, experiment: Experiment, tasks: dict[str, Task], varying: list[str], pair: Pair | None = None
) -> pd.DataFrame:
    """Build ``cells`` (docs/reference/tables.md), part by part, in the order in which they are printed.

    ``tasks`` are those of the runs by name, and ``varying`` the settings in which the runs differ. ``pair`` compares
    methods over shared seeds and dev examples; None leaves this out.
    """
    cells: list[dict[str, Any]] = []
    for part, of_part in runs.groupby("part", sort=False):
        selected, differing = of_part[of_part["selected"]], find_varying(of_part, varying)
        for table in _list_tables(experiment, {name: tasks[name] for name in selected["task"].unique()}):
            filled = _fill_table(table, selected, differing, pair)
            cells += ({"table": table.name, "part": part, **cell} for cell in filled)
    return finish_cells(cells)


def finish_cells(cells: list[dict[str, Any]]) -> pd.DataFrame:
    """Make the table of all cells of a report: correct their p-values together, and fill in what a cell lacks."""
    tests: dict[tuple[Any, ...], list[dict[str, Any]]] = {}  # a comparison that two tables show is one test
    for cell in cells:
        cell["group"] = name_group(cell["encoder"], cell["part"])
        if not math.isnan(cell.get("p", math.nan)):
            key = (cell["group"], cell["method"], cell["column"], tuple(cell["values"]))
            tests.setdefault(key, []).append(cell)
    # The best of several configurations is tested as often as there are of them.
    p_values = [copies[0]["p"] * copies[0].get("trials", 1) for copies in tests.values()]
    for copies, p in zip(tests.values(), holm(p_values), strict=True):
        for cell in copies:
            cell["p_holm"] = p
            if p < ALPHA:
                cell["mark"] = "*" if cell["difference"] > 0 else "†"
    table = pd.DataFrame([{**CELLS, **cell} for cell in cells], columns=list(CELLS), dtype=object)
    table = table.where(table.notna(), None)
    return table.astype({name: type(empty) for name, empty in CELLS.items() if isinstance(empty, float | int)})


def _fill_table(table: Table, runs: pd.DataFrame, varying: list[str], pair: Pair | None) -> list[dict[str, Any]]:
    """Fill the cells of a table, line by line, then those of others' numbers that the paper repeats."""
    content, paper_columns = table.content, [column for column in table.columns if column.printed]
    has_average = bool(content.average and paper_columns)
    groups = dict(list(runs.groupby(["encoder", "method", "task"], sort=False)))

    def find_runs(encoder: str, method: str, task: str) -> pd.DataFrame:
        return groups.get((encoder, method, task), runs.iloc[:0])

    cells = []
    for (encoder, method), of_line in runs.groupby(["encoder", "method"], sort=False):
        find = partial(find_runs, encoder)
        line = {
            "encoder": encoder, "method": method, "settings": describe_settings(of_line, varying),
            "time": _format_time(table, find, method),
        }  # fmt: skip
        if has_average:
            average = _fill_average(content, paper_columns, find, encoder, method)
            cells.append({**line, "column": AVERAGE, "kind": "average", **average})
        for column in table.columns:
            ours, theirs = find(method, column.task), find(BASE_METHOD, column.task)
            cell = _fill_cell(content, column, encoder, method, ours, theirs, pair)
            cells.append({**line, "column": column.title, "task": column.task, "kind": column.kind, **cell})
    label, reported = published.find_reported(content)
    tasks = {column.title: column.task for column in table.columns} | ({AVERAGE: None} if has_average else {})
    for encoder in runs["encoder"].unique() if paper_columns else ():
        for title, number in reported.get(encoder, {}).items():
            if title in tasks:
                cell = {"column": title, "task": tasks[title], "published": str(number), "published_of": encoder}
                cells.append({"encoder": encoder, "method": label, "kind": "reported", **cell})
    return cells


def _fill_cell(
    content: PublishedTable,
    column: Column,
    encoder: str,
    method: str,
    runs: pd.DataFrame,
    base_runs: pd.DataFrame,
    pair: Pair | None,
) -> dict[str, Any]:
    """Fill a cell: values by seed, their statistics as printed, verdict, comparison with plain fine-tuning."""
    values, seeds = column.read_values(runs)
    troubles = find_troubles(runs)
    cell: dict[str, Any] = {"values": values, "seeds": seeds, "n": len(values), "troubles": troubles}
    cell["mean"], cell["sd"] = compute_cell_statistics(values, ["mean", "sd"])
    cell["ours"] = _format_ours(content, column, values, troubles, len(runs))
    name = column.printed or column.title
    if printed := published.find_cell_in_column(content, encoder, method, name):
        cell["published"], cell["published_of"] = printed
        if method != BASE_METHOD and column.kind == "score":
            difference = published.find_difference(content, printed[1], (method, BASE_METHOD), name)
            cell["published_difference"] = difference
    cell["verdict"], cell["why"] = _judge(content, column, cell, encoder, method, runs)
    base = Arm(*column.read_values(base_runs))
    is_constant = CONSTANT_PREDICTOR in (*troubles, *find_troubles(base_runs))
    if method != BASE_METHOD and column.kind == "score" and values and base.values and not is_constant:
        cell |= compare(Arm(values, seeds), base)
        # From how many configurations each was selected: the best of many is better by chance alone.
        candidates, of_base = (int(max(own["candidates"])) for own in (runs, base_runs))
        cell["trials"] = count_trials(candidates, of_base, cell["difference"])
        if pair:
            cell |= {f"paired_{name}": value for name, value in pair(runs, base_runs, column).items()}
    return cell


def compare(ours: Arm, base: Arm) -> dict[str, Any]:
    """Compare a method's scores with plain fine-tuning's in one column; a statistic that is impossible is NaN.

    ``p_holm`` and ``mark`` are left out: they depend on all cells of a report.
    """
    test, effect = compare_runs([(ours, base)]), hedges_g(ours.values, base.values)
    return {
        "compared": True, "base": base.values, "base_seeds": base.seeds,
        "difference": test.value, "low": test.low, "high": test.high, "p": test.p, "p_exact": test.p_exact,
        "test_seeds": test.seeds,
        "effect": effect.value, "effect_low": effect.low, "effect_high": effect.high,
    }  # fmt: skip


def _summarize(form: list[str], values: list[float]) -> list[float | None]:
    """Compute the statistics that the paper's cells print; None for the spread of a single seed."""
    numbers = zip(form, compute_cell_statistics(values, form), strict=True)
    return [None if name.endswith("sd") and len(values) == 1 else number for name, number in numbers]


def _format_ours(content: PublishedTable, column: Column, values: list[float], troubles: list[str], runs: int) -> str:
    """Write our cell: statistics over seeds, and what went wrong in how many runs."""
    counts = Counter(troubles)
    if not values:
        return ", ".join(counts)
    numbers = [column.format_value(number) for number in _summarize(content.form, values)]
    text = "NaN" if any(map(math.isnan, values)) else published.format_statistics(content.form, numbers)
    if column.kind != "score":
        del counts[CONSTANT_PREDICTOR]
    elif counts[CONSTANT_PREDICTOR] == runs:
        return f"constant ({text})"
    return text + "".join(f", {count} {name.replace('_predictor', '')}" for name, count in counts.items())


def _judge(
    content: PublishedTable, column: Column, cell: dict[str, Any], encoder: str, method: str, runs: pd.DataFrame
) -> tuple[str, str]:
    """Return the verdict on our cell against the published one, and the reason."""
    if not cell["values"]:
        return "", "no run ended" if len(runs) else "not run"
    if cell.get("published") is None:
        return "not comparable", "not in the paper" if content.cells else "no printed numbers are here"
    if column.kind == "time":
        return "not comparable", "times of different machines"
    if cell["published_of"] != encoder:
        return "not comparable", f"the paper's cell is {cell['published_of']}'s"
    if differences := list_scale_differences(runs):
        return "not comparable", f"scale: {'; '.join(differences)}"
    printed = content.cells[encoder][content.methods[method]][column.printed]  # a number for each of content.form
    ours, target = _summarize(content.form, cell["values"])[0], printed[0]  # means or medians; the others are spreads
    if ours is None or target is None:
        return "not comparable", "no number"
    if math.isnan(ours) or math.isnan(target):
        both = math.isnan(ours) and math.isnan(target)
        return ("within", "both undefined") if both else ("not comparable", "one of the two is undefined")
    spreads = zip(content.form, printed, strict=True)
    spread = next((float(x) for name, x in spreads if name.endswith("sd") and x is not None), None)
    reason = f"{ours - target:+.2f}, {'no spread is printed' if spread is None else f'spread {spread:g}'}"
    reason += f"; {column.difference}" if column.difference else ""
    if matches_printed(ours, target) or (spread is not None and abs(ours - target) <= spread):
        return "within", reason
    return ("above" if ours > target else "below"), reason


def matches_printed(ours: float, target: Any) -> bool:
    """Return True if a number, rounded or cut to the digits of ``target``, equals it."""
    scale = 10 ** len(str(target).partition(".")[2])
    return float(target) in (round(ours * scale) / scale, math.trunc(ours * scale) / scale)


def _fill_average(
    content: PublishedTable, columns: list[Column], find: Callable[..., pd.DataFrame], encoder: str, method: str
) -> dict[str, Any]:
    """Fill the cell of a row's average over the paper's columns, each by its first statistic, such as the median."""
    values = [column.read_values(find(method, column.task))[0] for column in columns]
    firsts = [_summarize(content.form, of_column)[0] for of_column in values if of_column]
    mean = statistics.fmean(math.nan if first is None else first for first in firsts) if firsts else math.nan
    ours = "NaN" if math.isnan(mean) else f"{mean:.2f}"
    if len(firsts) < len(content.columns):
        ours = f"{len(firsts)} of {format_count(len(content.columns), 'column')}"
    elif constant := [c.task for c in columns if CONSTANT_PREDICTOR in find_troubles(find(method, c.task))]:
        ours += f" (one class on {', '.join(dict.fromkeys(constant))})"
    number, of = published.find_cell_in_column(content, encoder, method, None) or (None, None)
    why = "not in the paper" if number is None else "no spread of an average is printed"
    return {"ours": ours, "verdict": "not comparable", "why": why, "published": number, "published_of": of}


def _format_time(table: Table, find: Callable[..., pd.DataFrame], method: str) -> str:
    """Write the training time per epoch over plain fine-tuning's: the ratio's median over tasks, and its range."""
    ratios = []
    for task in dict.fromkeys(column.task for column in table.columns):
        ours, base = (find_fastest(compute_epoch_seconds(find(name, task))) for name in (method, BASE_METHOD))
        if ours and base:
            ratios.append(ours / base)
    if not ratios:
        return ""
    text = f"{statistics.median(ratios):.2f}x"
    return text if min(ratios) == max(ratios) else f"{text} ({min(ratios):.2f}-{max(ratios):.2f})"
