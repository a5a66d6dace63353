"""The content of a report, before any form: terminal, Markdown, LaTeX and HTML are all made from these classes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isobench.report.parts import name_group
from isobench.statistics.paired_bootstrap import PairedComparison
from isobench.statistics.seeds import Estimate

TidyRows = list[dict[str, Any]]  # one dictionary a row, column name -> value
# Column name -> its values, one a row: takes less memory than TidyRows. Isotropies are arrays, NaN where missing.
TidyColumns = dict[str, Sequence[Any] | np.ndarray]
VERDICTS = ("within", "above", "below", "not comparable", "")  # of a cell against the published one; "" for no run


@dataclass
class Comparison:
    """The comparison of a method with plain fine-tuning in one column, over seeds.

    Every field but the first is None where there are too few seeds, or nothing varies.

    Attributes:
        difference: of the means, the method's less plain fine-tuning's.
        welch: two-sided p of Welch's t-test.
        permutation: two-sided p of the permutation test.
        holm: Welch's p after Holm's correction over all comparisons of the report.
        effect: Hedges' g.
        low, high: ends of its 95% interval.
        student: two-sided p of Student's two-sample t-test.
        marks: the test that the mark comes from, welch or student.
        paired: over shared seeds and dev examples, or why there is none; None if it was not asked for.
    """

    difference: float
    welch: float | None = None
    permutation: float | None = None
    holm: float | None = None
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    student: float | None = None
    marks: str = "welch"
    paired: PairedComparison | None = None

    @property
    def mark_p(self) -> float | None:
        """The p that decides the mark."""
        return self.student if self.marks == "student" else self.welch


@dataclass
class Cell:
    """One encoder and method in one column of a table.

    Attributes:
        values: one number for each seed that has one, in the column's unit (percent, minutes, or an isotropy).
        seeds: the seeds of these values, in the same order.
        ours: statistics of the values, printed in the paper's form.
        published: the paper's cell as printed; None if the paper has none.
        published_of: the encoder of the paper's cell, which may be another than ours.
        verdict: how ours compares with the published cell, one of ``VERDICTS``.
        why: the reason for the verdict, in words.
        troubles: what went wrong -> in how many runs.
        comparison: with plain fine-tuning; None where that says nothing.
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
    """A line of a table: one encoder and method.

    Attributes:
        encoder, method: their names.
        cells: column title -> cell.
        time: training time per epoch over plain fine-tuning's, as printed.
        settings: the configuration that was selected, in words, by task if tasks differ; empty without a choice.
    """

    encoder: str
    method: str
    cells: dict[str, Cell]
    time: str = "-"
    settings: str = ""


@dataclass
class ReportedRow:
    """A row of others' numbers that the paper repeats; none of our runs is in it.

    Attributes:
        label: its heading.
        encoder: the encoder that the numbers are of.
        cells: column title -> number as printed.
    """

    label: str
    encoder: str
    cells: dict[str, str]


@dataclass
class ReportTable:
    """Hold a table in the paper's form.

    Attributes:
        name: its name in published.yaml; empty if the paper has no such table.
        title: the heading above it.
        columns: titles of the columns, in order.
        lines: one for each encoder and method.
        notes: sentences below the table.
        tasks: column title -> task; columns of one task show the same runs. An average has no task.
        reported: rows of others' numbers, below the lines.
        marks: the test that the marks come from, welch or student.
        part: the part of the runs that it shows (`isobench.report.parts`); empty if there is only one part.
        scores: titles of the columns with scores in percent; the others show isotropy, times or averages.
    """

    name: str
    title: str
    columns: list[str]
    lines: list[ReportLine]
    notes: list[str] = field(default_factory=list)
    tasks: dict[str, str] = field(default_factory=dict)
    reported: list[ReportedRow] = field(default_factory=list)
    marks: str = "welch"
    part: str = ""
    scores: list[str] = field(default_factory=list)

    def name_group(self, line: ReportLine) -> str:
        """Name what a line's runs share with the runs that they are compared with: the encoder, and the part."""
        return name_group(line.encoder, self.part)


@dataclass
class OverviewLine:
    """Hold a line of the page's first table: what one method gains, does to the embeddings, and costs.

    Attributes:
        group: the encoder, and the part of the runs (``ReportTable.name_group``).
        method: its name.
        settings: the selected configuration in words; empty if there was no choice.
        candidates: number of configurations from which it was selected by the scores that are shown.
        columns: the columns of scores over which ``score`` is the mean, one for each task.
        cell: the cell of the only column; None if there are several.
        score: mean over seeds, and over columns if there are several; None without scores.
        sd: standard deviation over seeds in the only column; None without one.
        seeds: the different numbers of seeds in its cells.
        difference: from plain fine-tuning in points, mean over ``compared`` columns; None if they can't be compared.
        compared: the number of these columns.
        fewest_seeds: of the method, or of plain fine-tuning, in one of these columns; 0 without a test.
        p: of the permutation test, after Holm's correction over methods; None without a test.
        is_shown: True if the difference is larger than chance explains.
        ev1: share of the variance in the first principal component of the calibrated embeddings, mean over runs.
        isoscore: IsoScore of the calibrated embeddings, mean over runs.
        time: training time per epoch and its ratio to plain fine-tuning's, as printed.
        troubles: what went wrong -> number of runs in which it did.
    """

    group: str
    method: str
    settings: str = ""
    candidates: int = 1
    columns: list[str] = field(default_factory=list)
    cell: Cell | None = None
    score: float | None = None
    sd: float | None = None
    seeds: list[int] = field(default_factory=list)
    difference: Estimate | None = None
    compared: int = 0
    fewest_seeds: int = 0
    p: float | None = None
    is_shown: bool = False
    ev1: float | None = None
    isoscore: float | None = None
    time: str = ""
    troubles: dict[str, int] = field(default_factory=dict)


@dataclass
class ConfigurationLine:
    """Hold one configuration of a method on a task, chosen for the tables or not.

    Attributes:
        group: the encoder, and the part of the runs.
        task, method: their names.
        settings: the values of the settings that vary, in words.
        cell: the scores of the seeds that are reported, in percent.
        selected_by: mean of the scores that decided the choice, in percent; None if it could not be chosen.
        is_chosen: True if the tables show it.
    """

    group: str
    task: str
    method: str
    settings: str
    cell: Cell
    selected_by: float | None
    is_chosen: bool


@dataclass
class Report:
    """Hold what the runs of one experiment in this output folder show.

    Attributes:
        experiment: its name.
        paper: the name of the paper that it reproduces; None if there is none.
        tables: in the paper's form.
        runs: tidy rows, one for each run; ``candidates`` is `isobench.report.selection.count_candidates`.
        epochs: tidy columns, with one value for each run and epoch.
        selection: how configurations and epochs were selected, in words.
        state: state of a run -> number of runs.
        scale: how the setting differs from the paper's, in words; empty if it does not.
        evidence: sentences on what the runs support and what they can't support.
        failures: one line for each run that failed.
        provenance: what code, data and machine the runs used; values that differ between runs are joined.
        notes: other sentences: generation settings, truncation, warnings.
        verdict: what the comparisons with plain fine-tuning show, in one sentence.
        overview: a line for each method.
        configurations: every configuration that was tried; empty if every method has one.
    """

    experiment: str
    paper: str | None
    tables: list[ReportTable]
    runs: TidyRows
    epochs: TidyColumns
    selection: str
    state: dict[str, int]
    scale: list[str]
    evidence: list[str]
    failures: list[str]
    provenance: dict[str, str]
    notes: list[str] = field(default_factory=list)
    verdict: str = ""
    overview: list[OverviewLine] = field(default_factory=list)
    configurations: list[ConfigurationLine] = field(default_factory=list)
