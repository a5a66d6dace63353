"""Print a report on the terminal with rich: the paper's tables with our numbers, then a line a configuration."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from isobench.common.terminal import format_count, make_console, make_table
from isobench.report.build import TIME_NOTE, Line, Report
from isobench.report.cells import find_content
from isobench.report.claims import describe_multiplicity
from isobench.report.output.text import format_method, format_published
from isobench.report.tables import BASE_METHOD, BASELINE, CONSTANT_PREDICTOR, label_method
from isobench.report.wording import format_points
from isobench.runs.run import Run

NOTHING = "-"  # in place of a number that a line does not have
ISOTROPY = {"EV1": ("ev1", 3), "IsoScore": ("isoscore", 4)}  # heading -> column of ``configurations``, decimals
MAX_SEED_LINES = 20  # lines up to which every seed's score is printed
MAX_LINES = 60  # lines up to which configurations that were not chosen are printed too
MAX_NAMED_LINES = 8  # how many lines a sentence on one kind of trouble names
LEAST_LABEL = 24  # characters that the name of a line has at least, where it is cut to make room for numbers


def print_table(report: Report, runs: Sequence[Run]) -> None:
    """Print the paper's tables with our numbers, then the table of the runs, at least one, and the footnotes.

    The runs' own table comes last, so that a terminal shows it when a sweep has ended.
    """
    out = make_console()
    _print_paper_tables(out, report)
    for sentence in [
        report.verdict,
        *_print_configurations(out, report),
        *_describe_scale(report, runs[0].cfg.scale),
        *([report.described_settings] if report.settings else []),
        f"Score: x100, of the {report.epoch_rule}; SD over seeds.",
        *report.notes,
        f"Records: {str(runs[0].folder.result_file).replace(runs[0].folder.path.name, '<key>')}",
    ]:
        _print_words(out, sentence)


def print_comparisons(report: Report) -> None:
    """Print each method's difference from plain fine-tuning with its interval and p, and how runs were selected."""
    out = make_console()
    if len(report.comparisons):
        headings = list(report.comparisons.columns)
        table = make_table(f"Against {BASELINE}, in points", headings[:2], headings[2:])
        for line in report.comparisons.itertuples(index=False):
            table.add_row(*line)
        out.print(table)
    out.print(f"Selection: {report.selection}", highlight=False)


def print_claims(claims: list[dict[str, Any]], by_print: bool = False) -> None:
    """Print the papers' claims with their outcomes, and how the runs behind them differ from the papers' setting.

    ``by_print``: the outcomes are those of the papers' own printed numbers.
    """
    basis = "what their own printed numbers say" if by_print else "what was found here"
    labels = ("paper", "claim", "in print" if by_print else "here", "numbers")
    table = make_table(f"What the papers claim, and {basis}", labels, ())
    for claim in claims:
        text = f"{claim['claim']}\nHolds if: {claim['criterion']}"
        table.add_row(claim["paper"], text, claim["outcome"], claim["numbers"], end_section=True)
    out = make_console()
    out.print(table)
    if not by_print:
        out.print(describe_multiplicity(len(claims)), highlight=False)
    for scale in dict.fromkeys(claim["scale"] for claim in claims if claim["scale"]):
        out.print(f"NOT the paper's setting: {scale}.", highlight=False, markup=False)


def _describe_scale(report: Report, scale: str) -> list[str]:
    """Say how data and encoder differ from the paper's; without a paper, which part of the data was used, if any."""
    differs = "; ".join(report.scale)
    if not report.paper:
        return [f"Data: {differs}."] if differs else []
    comparison = f"NOT the paper's setting: {differs}." if differs else "Data and encoder are the paper's."
    return [f"scale={scale}. {comparison}"]


def _print_words(out: Console, text: str) -> None:
    """Print a text, broken between words; if a word is longer than a line, the terminal breaks the text."""
    out.print(text, highlight=False, soft_wrap=any(len(word) > out.width for word in text.split()))


def _print_columns(
    out: Console, title: str, labels: Sequence[tuple[str, str]], columns: dict[str, list[str]]
) -> None:
    """Print a table; where it is wider than the terminal, as several below one another. No number is cut.

    ``labels``: of each line, the section that it belongs to and its name; ``columns``: heading -> each line's text.
    """
    sections = list(dict.fromkeys(section for section, _ in labels))
    if len(sections) == 1:
        title = f"{title}: {sections[0]}".removesuffix(": ")
    out.print(title, style="bold", highlight=False)
    widths = {
        name: max(len(line) for text in (name, *texts) for line in text.split("\n"))
        for name, texts in columns.items()
    }
    widest = max(len(line) for _, name in labels for line in name.split("\n"))
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
            for number, (section_of_line, label) in enumerate(labels):
                if section_of_line == section:
                    table.add_row(label, *(columns[name][number] for name in shown))
            out.print(table)
            out.print()


def _print_configurations(out: Console, report: Report) -> list[str]:
    """Print a line for each configuration of each task, and return the sentences that explain it."""
    shown = report.configurations
    if len(shown) > MAX_LINES:
        shown = shown[shown["is_chosen"]]
    lines = [_format_configuration(line) for line in shown.itertuples()]
    names = ("n", "mean", "SD", "change", *ISOTROPY, "time", *(["chosen"] if report.has_choices else []))
    columns = {name: [line[name] for line in lines] for name in names}
    columns = {name: texts for name, texts in columns.items() if set(texts) != {NOTHING}}
    sentences = [*_describe_troubles(lines), _explain_columns(shown, columns)]
    if len(shown) < len(report.configurations):
        sentences.append("Only chosen configurations are shown. The report's page has all.")
    if len(lines) <= MAX_SEED_LINES:
        seeds = sorted({seed for line in lines for seed in line["scores"]})
        columns |= {f"seed {seed}": [line["scores"].get(seed, "") for line in lines] for seed in seeds}
    else:
        sentences.append("Each run's score is in runs.csv, beside the report's page.")
    _print_columns(out, report.name, [(line["section"], line["name"]) for line in lines], columns)
    return sentences


def _format_configuration(line: Any) -> dict[str, Any]:
    """Write a row of ``configurations`` as texts; ``scores`` has the text of each seed."""
    is_constant = line.troubles.count(CONSTANT_PREDICTOR) == line.runs
    change = statistics.fmean(line.values) - statistics.fmean(line.base) if line.values and line.base else math.nan
    has_spread = len(line.values) > 1 and not is_constant and all(map(math.isfinite, line.values))
    time = NOTHING if math.isnan(line.seconds) else f"{line.seconds:,.{1 if line.seconds < 100 else 0}f} s"
    if line.base_seconds > 0 and line.seconds > 0:
        time = f"{line.seconds / line.base_seconds:.2f}x"
    mean = f"{statistics.fmean(line.values):.2f}".replace("nan", "NaN") if line.values else NOTHING
    texts: dict[int, list[str]] = {}
    for seed, value in zip(line.seeds, line.values, strict=True):
        texts.setdefault(seed, []).append(f"{value:.2f}".replace("nan", "NaN"))
    for seed, trouble in zip(line.trouble_seeds, line.troubles, strict=True):
        if not is_constant:  # else the line says it of all seeds
            texts.setdefault(seed, []).append(trouble.removesuffix("_predictor"))
    return {
        "section": f"{line.task} ({line.metric}), {line.group}",
        "name": " ".join(filter(None, (label_method(line.method), line.settings))),
        "n": str(len(line.values)) if len(line.values) == line.runs else f"{len(line.values)}/{line.runs}",
        "mean": "constant" if is_constant else mean,
        "SD": f"{statistics.stdev(line.values):.2f}" if has_spread else NOTHING,
        "change": format_points(change) if math.isfinite(change) else NOTHING,
        "time": time,
        "chosen": "yes" if line.is_chosen else "",
        "scores": {seed: " ".join(of_seed) for seed, of_seed in texts.items()},
        "troubles": [] if is_constant else line.troubles,
    } | {
        name: NOTHING if math.isnan(getattr(line, column)) else f"{getattr(line, column):.{digits}f}"
        for name, (column, digits) in ISOTROPY.items()
    }


def _describe_troubles(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Say in which lines some runs failed or have no result: a sentence for each failure's name and each state."""
    counts = Counter(trouble for line in lines for trouble in line["troubles"])
    sentences = []
    several = len({line["section"] for line in lines}) > 1
    for trouble, count in sorted(counts.items()):
        names = [
            f"{line['section']}: {line['name']}" if several else line["name"]
            for line in lines
            if trouble in line["troubles"]
        ]
        more = (
            f" and {format_count(len(names) - MAX_NAMED_LINES, 'more line')}" if len(names) > MAX_NAMED_LINES else ""
        )
        sentences.append(f"{count} {trouble}: {', '.join(names[:MAX_NAMED_LINES])}{more}.")
    return sentences


def _explain_columns(configurations: pd.DataFrame, columns: dict[str, list[str]]) -> str:
    sentences = []
    if BASE_METHOD in set(configurations["method"]):
        sentences.append("plain: calibration=none.")
    if "constant" in columns.get("mean", []):
        sentences.append("constant: every run predicts the same for every example.")
    if "change" in columns:
        sentences.append("change: the mean minus plain's mean.")
    if isotropy := [name for name in ISOTROPY if name in columns]:
        about = "of the dev set's embeddings after calibration, in the reported epoch, mean over seeds"
        sentences.append(f"{', '.join(isotropy)}: {about}.")
    elif "mean" in columns:
        sentences.append(f"{' and '.join(ISOTROPY)} were not recorded.")
    if "time" in columns:
        ratio = "; x: ratio to plain" if any(text.endswith("x") for text in columns["time"]) else ""
        sentences.append(f"time: training an epoch, in the fastest seed{ratio}.")
    return " ".join(sentences)


def _print_paper_tables(out: Console, report: Report) -> None:
    """Print the tables of the experiment's paper, with the published cell below ours.

    Scores of tasks that the paper doesn't have are left out: they can't be compared, and the runs' own table shows
    them.
    """
    for view in report.views:
        content = find_content(report.experiment, view.name)
        kinds = {cell.column: cell.kind for cell in view.own_cells}
        printed = {*content.columns, *(name for name, kind in kinds.items() if kind != "score")}
        shown = [name for name in view.columns if name in printed or name.partition(" (")[0] in printed]
        if not view.name or not shown:
            continue
        columns = {name: [_format_both(line, name) for line in view.lines] for name in shown}
        columns["training time per epoch"] = [line.time for line in view.lines]
        labels = [("", f"{format_method(line)}\n{line.encoder}") for line in view.lines]
        _print_columns(out, view.title, labels, columns)
        for note in [*view.notes, TIME_NOTE]:
            _print_words(out, note)


def _format_both(line: Line, column: str) -> str:
    """Write our cell with the published one below it, in brackets."""
    cell = line.cells.get(column)
    if cell is None:
        return ""
    printed = "not in the paper" if cell.published is None else f"[{format_published(cell)}]"
    return printed if line.is_reported else f"{' '.join(filter(None, (cell.ours, cell.mark)))}\n{printed}"
