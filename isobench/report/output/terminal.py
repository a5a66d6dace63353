"""Print tables on the terminal with rich: a sweep's configurations, and a paper's tables with our numbers."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from isobench.common.terminal import format_count, make_console
from isobench.config.schema import Experiment, Selection
from isobench.papers.published import find_published_cell, format_statistics
from isobench.report.build import Report, build_report
from isobench.report.columns import find_content, find_fastest
from isobench.report.notes import (
    describe_epoch_rule,
    describe_generation,
    describe_scale,
    describe_training,
    list_warnings,
)
from isobench.report.selection import number_parts
from isobench.report.tables import (
    BASE_METHOD,
    CONSTANT_PREDICTOR,
    NO_SETTING,
    build_runs,
    find_troubles,
    is_scored,
    label_method,
    read_numbers,
)
from isobench.report.views import TIME_NOTE, Line, list_views
from isobench.report.wording import format_points
from isobench.runs.folder import RECORD_FILE
from isobench.runs.grouping import (
    PROTOCOL_SETTINGS,
    SOURCE_SETTINGS,
    find_varying_settings,
    format_value,
    shorten_setting_names,
)
from isobench.runs.run import Run

NOTHING = "-"  # in place of a number that a line does not have
ISOTROPY = {"EV_1": ("embedding/ev1", 3), "IsoScore": ("embedding/isoscore", 4)}  # column -> source, decimals
MAX_SEED_LINES = 20  # lines up to which every seed's score is printed
MAX_NAMED_LINES = 8  # how many lines a sentence on one kind of trouble names
LEAST_LABEL = 24  # characters that the name of a line has at least, where it is cut to make room for numbers


def print_table(rows: Sequence[Run], report: Report | None = None) -> None:
    """Print the paper's tables with our numbers, then the table of the runs, and the footnotes.

    The runs' own table comes last, so that a terminal shows it when a sweep has ended.

    Args:
        rows: the runs, at least one.
        report: of these runs; the table then has the runs that it selected. None shows every configuration, and the
            paper's tables only where each method has one.
    """
    out, experiment = make_console(), rows[0].cfg.experiment
    varying = find_varying_settings(list(rows))
    if report is None and experiment.tables and not varying:
        report = build_report(replace(experiment, selection=Selection("none")), rows, with_pairs=False)
    if report is None:
        runs = build_runs(rows, varying)
        runs["part"] = number_parts(runs)
    else:
        runs = report.runs[report.runs["selected"]]
        experiment = report.experiment
        _print_paper_tables(out, report)
    lines = summarize_lines(runs, varying)
    columns = {name: [line[name] for line in lines] for name in ("n", "median", "SD", "change", *ISOTROPY, "time")}
    columns = {name: texts for name, texts in columns.items() if set(texts) != {NOTHING}}
    explanations = _explain_columns(lines, columns)
    if len(lines) <= MAX_SEED_LINES:
        seeds = sorted({seed for line in lines for seed in line["scores"]})
        columns |= {f"seed {seed}": [line["scores"].get(seed, "") for line in lines] for seed in seeds}
    elif any(line["n"] != "1" for line in lines):
        explanations.append("Each run's score is in runs.csv, beside the report's page.")
    title = experiment.name or "runs"
    print_columns(out, title, [(line["place"], line["name"]) for line in lines], columns)
    for sentence in [
        *_describe_troubles(lines),
        *(_describe_published(experiment, runs, varying) if report is None and experiment.tables else []),
        *explanations,
        *describe_scale(rows),
        describe_training(rows),
        f"Score: x100, of the {describe_epoch_rule(rows)}; SD over seeds.",
        *describe_generation(rows),
        *(f"Warning: {warning}." for warning in list_warnings(rows)),
        f"Records: {rows[0].folder.path.parent}/<key>/{RECORD_FILE}",
    ]:
        print_words(out, sentence)


def print_words(out: Console, text: str) -> None:
    """Print a text, broken between words; if a word is longer than a line, the terminal breaks the text."""
    out.print(text, highlight=False, soft_wrap=any(len(word) > out.width for word in text.split()))


def print_columns(out: Console, title: str, labels: Sequence[tuple[str, str]], columns: dict[str, list[str]]) -> None:
    """Print a table; where it is wider than the terminal, as several below one another. No number is cut.

    Args:
        out: the console.
        title: above the table.
        labels: of each line, the section that it belongs to and its name.
        columns: heading -> the text of each line.
    """
    sections = list(dict.fromkeys(section for section, _ in labels))
    if len(sections) == 1:
        title = f"{title}: {sections[0]}".removesuffix(": ")
    out.print(title, style="bold", highlight=False)
    widths = {
        name: max(len(part) for text in (name, *texts) for part in text.split("\n"))
        for name, texts in columns.items()
    }
    widest = max(len(part) for _, name in labels for part in name.split("\n"))
    rest = list(columns)
    while rest:
        room, count = out.width - min(widest, LEAST_LABEL), 0
        while count < len(rest) and (not count or room >= 2 + widths[rest[count]]):
            room -= 2 + widths[rest[count]]
            count += 1
        shown, rest = rest[:count], rest[count:]
        for section in sections:
            table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, title_justify="left")
            table.title = section if len(sections) > 1 else None
            table.add_column("", overflow="fold", min_width=min(widest, LEAST_LABEL))
            for name in shown:
                table.add_column(name, justify="right", no_wrap=True, min_width=widths[name])
            for number, (own, label) in enumerate(labels):
                if own == section:
                    table.add_row(label, *(columns[name][number] for name in shown))
            out.print(table)
            out.print()


def summarize_lines(runs: pd.DataFrame, varying: Sequence[str]) -> list[dict[str, Any]]:
    """Summarise the runs that differ only in their seeds, in order of appearance, as texts.

    Returns:
        For each such group its ``place`` (task, encoder, protocol: only lines of one place are compared), ``name``
        (method and settings), ``n`` (runs with a score), ``median``, ``SD``, ``change`` (of the median from plain
        fine-tuning's with the same settings), the columns of ``ISOTROPY`` (median), ``time`` (of the fastest run,
        relative to plain fine-tuning's if there is one), ``scores`` (seed -> text) and ``troubles``.
    """
    shared = [name for name in varying if name in (*PROTOCOL_SETTINGS, *SOURCE_SETTINGS)]
    own = [name for name in varying if name not in shared]
    keys = ["part", "task", "encoder", *shared, "method", *own]
    groups = [group for _, group in runs.groupby([runs[name].astype(str) for name in keys], sort=False)]
    short = shorten_setting_names(varying)
    lines = []
    for group in groups:
        first, base = group.iloc[0], _find_baseline(group.iloc[0], groups, ["part", "task", "encoder", *shared], own)
        settings = [f"{short[name]}={format_value(first[name])}" for name in own if first[name] != NO_SETTING]
        protocol = [f"{short[name]}={format_value(first[name])}" for name in shared]
        scores, base_scores = read_scores(group), [] if base is None else read_scores(base)
        constant = (group["failure"] == CONSTANT_PREDICTOR).all()
        is_base_constant = base is not None and (base["failure"] == CONSTANT_PREDICTOR).all()
        can_change = scores and base_scores and not constant and not is_base_constant
        change = statistics.median(scores) - statistics.median(base_scores) if can_change else math.nan
        has_spread = len(scores) > 1 and not constant and all(map(math.isfinite, scores))
        spread = statistics.stdev(scores) if has_spread else math.nan
        seconds, base_seconds = find_fastest(group), None if base is None else find_fastest(base)
        line = {
            "place": ", ".join([f"{first['task']} ({first['metric']})", first["encoder"], *protocol]),
            "name": " ".join([label_method(first["method"]), *settings]),
            "is_base": first["method"] == BASE_METHOD,
            "n": str(len(scores)) if len(scores) == len(group) else f"{len(scores)}/{len(group)}",
            "median": "constant" if constant else _format_median(scores, 2),
            "SD": NOTHING if math.isnan(spread) else f"{spread:.2f}",
            "change": format_points(change) if math.isfinite(change) else NOTHING,
            "time": NOTHING if not seconds else f"{seconds:,.{1 if seconds < 100 else 0}f} s",
            "scores": _format_scores(group, constant),
            "troubles": [] if constant else find_troubles(group),
        }
        if seconds and base_seconds:
            line["time"] = f"{seconds / base_seconds:.2f}x"
        for name, (source, digits) in ISOTROPY.items():
            values = read_numbers(group[is_scored(group)], source)
            line[name] = _format_median(values[~np.isnan(values)].tolist(), digits)
        lines.append(line)
    return lines


def _find_baseline(
    first: pd.Series, groups: Sequence[pd.DataFrame], place: Sequence[str], settings: Sequence[str]
) -> pd.DataFrame | None:
    """Find plain fine-tuning's runs with the same values of the settings that both have; None unless one group fits.

    Args:
        first: a run of the method.
        groups: of all lines.
        place: columns that must be equal.
        settings: columns that must be equal where both have them.
    """
    if first["method"] == BASE_METHOD:
        return None
    fitting = []
    for group in groups:
        base = group.iloc[0]
        pairs = [(str(base[name]), str(first[name])) for name in settings]
        is_same_place = all(str(base[name]) == str(first[name]) for name in place)
        fits = all(ours == theirs or NO_SETTING in (ours, theirs) for ours, theirs in pairs)
        if base["method"] == BASE_METHOD and is_same_place and fits:
            fitting.append(group)
    return fitting[0] if len(fitting) == 1 else None


def read_scores(runs: pd.DataFrame) -> list[float]:
    """Return the scores in percent of those runs of one task that have one; NaN if the metric is undefined."""
    first = runs.iloc[0]
    return read_numbers(runs[is_scored(runs)], f"{first['split']}/{first['metric']}").tolist()


def _format_scores(runs: pd.DataFrame, constant: bool) -> dict[int, str]:
    """Write the scores of each seed's runs, or what went wrong, unless the line says that all are constant."""
    first = runs.iloc[0]
    texts: dict[int, list[str]] = {}
    numbers = read_numbers(runs, f"{first['split']}/{first['metric']}")
    for run, number in zip(runs.itertuples(), numbers.tolist(), strict=True):
        trouble = run.failure or (run.status if run.status not in ("finished", "failed") else "")
        score = "" if run.score is None else "NaN" if math.isnan(number) else f"{number:.2f}"
        is_said = constant and trouble == CONSTANT_PREDICTOR
        texts.setdefault(run.seed, []).append(
            f"{score} {'' if is_said else trouble.removesuffix('_predictor')}".strip()
        )
    return {seed: ", ".join(own) for seed, own in texts.items()}


def _format_median(values: Sequence[float], digits: int) -> str:
    """Write the median; ``NaN`` if one of the values is undefined, a dash if there are none."""
    if not values:
        return NOTHING
    return "NaN" if any(map(math.isnan, values)) else f"{statistics.median(values):.{digits}f}"


def _describe_troubles(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Say in which lines some runs failed or have no result: a sentence for each failure's name and each state."""
    counts = Counter(trouble for line in lines for trouble in line["troubles"])
    sentences = []
    several = len({line["place"] for line in lines}) > 1
    for trouble, count in sorted(counts.items()):
        names = [
            f"{line['place']}: {line['name']}" if several else line["name"]
            for line in lines
            if trouble in line["troubles"]
        ]
        more = (
            f" and {format_count(len(names) - MAX_NAMED_LINES, 'more line')}" if len(names) > MAX_NAMED_LINES else ""
        )
        sentences.append(f"{count} {trouble}: {', '.join(names[:MAX_NAMED_LINES])}{more}.")
    return sentences


def _explain_columns(lines: Sequence[dict[str, Any]], columns: dict[str, list[str]]) -> list[str]:
    """Say what the table's columns mean."""
    sentences = []
    if any(line["is_base"] for line in lines):
        sentences.append("plain: calibration=none.")
    medians = columns.get("median", [])
    if "constant" in medians:
        sentences.append("constant: every run predicts the same for every example.")
    if "change" in columns:
        sentences.append("change: the median minus plain's median.")
    isotropy = [name for name in ISOTROPY if name in columns]
    if isotropy:
        about = "of the dev set's embeddings after calibration, in the reported epoch, median over seeds"
        sentences.append(f"{', '.join(isotropy)}: {about}.")
    elif medians:
        sentences.append(f"{' and '.join(ISOTROPY)} were not recorded.")
    if "time" in columns:
        ratio = "; x: ratio to plain" if any(text.endswith("x") for text in columns["time"]) else ""
        sentences.append(f"time: training an epoch, in the fastest seed{ratio}.")
    return [" ".join(sentences)] if sentences else []


def _describe_published(experiment: Experiment, runs: pd.DataFrame, varying: Sequence[str]) -> list[str]:
    """Write a sentence for each task and encoder with the published cells, where the paper's table is left out."""
    cells: dict[tuple[str, str], dict[str, str]] = {}  # task, printed encoder -> method -> cell
    for run in runs.drop_duplicates(["task", "encoder", "method"]).itertuples():
        for name in experiment.tables:
            cell = find_published_cell(experiment.paper, name, run.encoder, run.method, run.task, run.metric)
            if cell is not None:
                cells.setdefault((run.task, cell[1]), {})[label_method(run.method)] = cell[0]
                break
    why = f"its cells have one configuration each, and in these runs {', '.join(varying)} vary"
    return [
        f"Published, {task}, {encoder}: {', '.join(f'{method} {cell}' for method, cell in own.items())}."
        for (task, encoder), own in cells.items()
    ] + [f"The paper's table is left out: {why}."]


def _print_paper_tables(out: Console, report: Report) -> None:
    """Print the tables of the experiment's paper, with the published cell below ours.

    Scores of tasks that the paper doesn't have are left out: they can't be compared, and the runs' own table shows
    them.
    """
    for view in list_views(report):
        content = find_content(report.experiment, view.name)
        kinds = {cell.column: cell.kind for cell in view.own_cells}
        printed = {*content.columns, *(name for name, kind in kinds.items() if kind != "score")}
        shown = [name for name in view.columns if name in printed or name.partition(" (")[0] in printed]
        if not view.name or not shown:
            continue
        columns = {name: [_format_both(line, name) for line in view.lines] for name in shown}
        columns["training time per epoch"] = [line.time for line in view.lines]
        labels = [("", f"{label_method(line.method)}\n{line.encoder}") for line in view.lines]
        title = f"{report.experiment.paper}, {view.name}: {format_statistics(content.form, content.form)}"
        print_columns(out, f"{title} ({view.part})" if view.part else title, labels, columns)
        for note in [*view.notes, TIME_NOTE]:
            print_words(out, note)


def _format_both(line: Line, column: str) -> str:
    """Write our cell with the published one below it, in brackets."""
    cell = line.cells.get(column)
    if cell is None:
        return ""
    printed = "not in the paper" if cell.published is None else f"[{cell.published}]"
    if cell.published is not None and cell.published_of != cell.encoder:
        printed = f"[{cell.published} {cell.published_of}]"
    return printed if line.is_reported else f"{' '.join(filter(None, (cell.ours, cell.mark)))}\n{printed}"
