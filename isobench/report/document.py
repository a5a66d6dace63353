"""What a report says, before it takes a form: every view (terminal, Markdown, LaTeX, HTML) is made from this."""

from dataclasses import dataclass, field
from typing import Any

TidyRows = list[dict[str, Any]]  # one dictionary a row, column name -> value
VERDICTS = ("within", "above", "below", "not comparable", "")  # of a cell against the published one; "" for no run


@dataclass
class Comparison:
    """A method against plain fine-tuning on one column, over seeds.

    ``welch``, ``permutation``: two-sided p, None where the seeds don't allow one. ``holm``: Welch's p after Holm over
    the family. ``effect``: Hedges' g with its 95% interval ``low``..``high``. ``difference``: of the means.
    """

    difference: float
    welch: float | None = None
    permutation: float | None = None
    holm: float | None = None
    effect: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass
class Cell:
    """One encoder and method in one column of a table.

    ``values``: one a seed that has a number, in the column's unit (percent, or as it is). ``ours``: the same in the
    paper's form. ``published``: the paper's cell, of the encoder ``published_of``. ``verdict``: one of ``VERDICTS``,
    with ``why`` in words. ``troubles``: what went wrong -> how many runs.
    """

    values: list[float] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    ours: str = ""
    published: str | None = None
    published_of: str | None = None
    verdict: str = ""
    why: str = ""
    troubles: dict[str, int] = field(default_factory=dict)
    comparison: Comparison | None = None


@dataclass
class ReportLine:
    """One encoder and method: a line of a table.

    ``time``: training seconds an epoch over plain fine-tuning's. ``settings``: the chosen configuration, by task
    where it differs, in words; empty where there was nothing to choose.
    """

    encoder: str
    method: str
    cells: dict[str, Cell]  # column title -> cell
    time: str = "-"
    settings: str = ""


@dataclass
class ReportTable:
    """A table in the paper's form. ``name`` in published.yaml, empty where the paper has none.

    ``tasks``: column title -> task; columns of one task show the same runs.
    """

    name: str
    title: str
    columns: list[str]
    lines: list[ReportLine]
    notes: list[str] = field(default_factory=list)
    tasks: dict[str, str] = field(default_factory=dict)


@dataclass
class Report:
    """Everything about one experiment in this installation.

    ``runs``: tidy, one a run; ``epochs``: tidy, one a run and epoch. ``selection``: the rule, in words. ``state``:
    how many runs are in which state. ``scale``: how they are not the paper's setting. ``evidence``: what the runs
    support and what they can't, in sentences. ``failures``: one line each. ``provenance``: of the runs, values that
    differ joined.
    """

    experiment: str
    paper: str | None
    tables: list[ReportTable]
    runs: TidyRows
    epochs: TidyRows
    selection: str
    state: dict[str, int]
    scale: list[str]
    evidence: list[str]
    failures: list[str]
    provenance: dict[str, str]
    notes: list[str] = field(default_factory=list)
