"""Print the table that ends a sweep: what each configuration gains, does to the embeddings, and costs."""

import textwrap
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from isobench.common.terminal import make_console
from isobench.papers.published import find_published_cell
from isobench.report.generation_notes import describe_generation
from isobench.report.paper_terminal import print_paper_tables
from isobench.report.run_notes import describe_epoch_rule, list_scale_differences, list_warnings
from isobench.report.sweep_layout import LaidOutLines, find_varying_place, format_place, lay_out_lines
from isobench.report.sweep_lines import (
    ISOTROPY_FIGURES,
    NOTHING,
    SweepLine,
    build_lines,
    describe_troubles_of_lines,
    list_seed_scores,
)
from isobench.runs.grouping import find_varying_settings, read_run_names
from isobench.runs.layout import RECORD_FILE
from isobench.runs.row import Row

MAX_SEED_LINES = 20  # lines whose seeds are listed below a table without room for them


def print_table(experiment: Any, rows: list[Row], candidates: Sequence[Row] = ()) -> None:
    """Print the paper's tables with our numbers, then the table of a sweep's runs, and the footnotes.

    The sweep's own table comes last, so that a terminal shows it when the sweep has ended.

    Args:
        experiment: its name, paper and tables.
        rows: the runs to show.
        candidates: all runs, if ``rows`` were selected from them; a column then shows the chosen values.
    """
    out = make_console()
    varying = find_varying_settings(rows)
    if not varying:
        print_paper_tables(out, experiment, rows)
    lines = build_lines(rows, candidates)
    varying_place = find_varying_place(lines)
    shared_place = format_place(lines[0], [name for name in lines[0].place if name not in varying_place])
    seeds, seed_scores = list_seed_scores(lines)
    is_one_seed = {len(line.runs) for line in lines} == {1} and seeds.startswith("seed ")
    title = [shared_place, *([seeds] if is_one_seed else [])]
    print_words(out, f"{experiment.name or 'runs'}: {', '.join(filter(None, title))}", "bold")
    table = lay_out_lines(lines, out.width, "-" if out.options.ascii_only else "─")
    print_sections(out, table)
    if not table.has_seeds and not is_one_seed:
        print_seeds(out, f"{seeds[:1].upper()}{seeds[1:]}", lines, varying_place, seed_scores)
    for sentence in describe_troubles_of_lines(lines, varying_place):
        print_words(out, sentence)
    published = describe_published(experiment, lines, varying) if varying and experiment.tables else []
    for note in [*published, *describe_figures(lines, table.omitted, out.width), *list_footnotes(rows)]:
        print_words(out, note)


def print_words(out: Console, text: str, style: str = "") -> None:
    """Print a text, broken between words; if a word is longer than a line, the terminal breaks the text."""
    has_long_word = any(len(word) > out.width for word in text.split())
    out.print(text, highlight=False, style=style, soft_wrap=has_long_word)


def print_sections(out: Console, table: LaidOutLines) -> None:
    """Print the tables, each under its name if there are several."""
    for section in table.sections:
        if section.name:
            out.print()
            print_words(out, section.name, "bold")
        for number, text in enumerate(section.texts):
            out.print(text, highlight=False, soft_wrap=True, style="bold" if number == 0 else "")
    out.print()


def print_seeds(
    out: Console, heading: str, lines: Sequence[SweepLine], place: Sequence[str], scores: Sequence[str]
) -> None:
    """Print every seed's score below the table, or name the file that has them if the table has many lines."""
    if len(lines) > MAX_SEED_LINES:
        print_words(out, f"{heading}: each run's score is in runs.csv, beside the report's page.")
        return
    names = [line.name(place) for line in lines]
    width = max(map(len, names))
    out.print(f"{heading}:", highlight=False)
    indent = " " * min(width + 4, out.width // 2)
    for name, text in zip(names, scores, strict=True):
        wrapper = textwrap.TextWrapper(out.width, subsequent_indent=indent, break_long_words=False)
        out.print(wrapper.fill(f"  {name.ljust(width)}  {text}"), highlight=False, soft_wrap=True)
    out.print()


def describe_published(experiment: Any, lines: Sequence[SweepLine], varying: Sequence[str]) -> list[str]:
    """Write a sentence for each task and encoder, with the published cells of the lines' methods.

    Args:
        experiment: its paper and tables.
        lines: the lines of the table.
        varying: settings that vary in these runs but have no place in the paper's tables.
    """
    cells: dict[tuple[str, str], dict[str, str]] = {}  # task, printed encoder -> method -> cell
    for line in lines:
        cfg = line.runs[0].cfg
        task, encoder, method = read_run_names(cfg)
        for name in experiment.tables:
            cell = find_published_cell(experiment.paper, name, encoder, method, task, cfg.task.primary)
            if cell is not None:
                cells.setdefault((task, cell[1]), {})[line.method] = cell[0]
                break
    sentences = [
        f"Published, {task}, {encoder}: {', '.join(f'{method} {cell}' for method, cell in own.items())}."
        for (task, encoder), own in cells.items()
    ]
    why = f"its cells have one configuration each, and in these runs {', '.join(varying)} vary"
    return [*sentences, f"The paper's table is left out: {why}."]


def describe_figures(lines: Sequence[SweepLine], omitted: Sequence[str], width: int) -> list[str]:
    """Write sentences on what the table's columns mean, and on those left out because the terminal is narrow."""
    figures = {name for line in lines for name, text in line.figures.items() if text != NOTHING}
    sentences = []
    if any(line.is_baseline for line in lines):
        sentences.append("plain: calibration=none.")
    if any(line.is_constant for line in lines):
        sentences.append("constant: every run predicts the same for every example.")
    if "change" in figures:
        sentences.append("change: the median minus plain's median.")
    if isotropy := [name for name in ISOTROPY_FIGURES if name in figures]:
        about = "of the dev set's embeddings after calibration, in the reported epoch, median over seeds"
        sentences.append(f"{', '.join(isotropy)}: {about}.")
    elif any(line.scores for line in lines):
        sentences.append(f"{' and '.join(ISOTROPY_FIGURES)} were not recorded.")
    if "time" in figures:
        ratio = "; x: ratio to plain" if any(line.figures["time"].endswith("x") for line in lines) else ""
        sentences.append(f"time: training an epoch, in the fastest seed{ratio}.")
    if omitted:
        sentences.append(f"Left out in {width} columns: {', '.join(omitted)}; the report has them.")
    return [" ".join(sentences)] if sentences else []


def list_footnotes(rows: list[Row]) -> list[str]:
    """Write the sentences below the table: scale, training, reported epoch, warnings, where the records are."""
    return [
        *describe_scale(rows),
        describe_training(rows),
        f"Score: x100, of the {describe_epoch_rule(rows)}; SD over seeds.",
        *describe_generation(rows),
        *(f"Warning: {warning}." for warning in list_warnings(rows)),
        f"Records: {rows[0].folder.path.parent}/<key>/{RECORD_FILE}",
    ]


def describe_scale(rows: list[Row]) -> list[str]:
    """Say how data and encoder differ from the paper's; without a paper, which part of the data was used, if any."""
    differs = "; ".join(list_scale_differences(rows))
    if not rows[0].cfg.experiment.paper:
        return [f"Data: {differs}."] if differs else []
    comparison = f"NOT the paper's setting: {differs}." if differs else "Data and encoder are the paper's."
    return [f"scale={rows[0].cfg.scale}. {comparison}"]


def describe_training(rows: list[Row]) -> str:
    """Say what the runs were trained with: the settings that papers state, with the values that took effect."""
    settings = [row.cfg.optimization for row in rows]
    values_by_name = {"lr": dict.fromkeys(f"{o.lr:g}" for o in settings)}
    values_by_name["batch"] = dict.fromkeys(map(describe_batch, rows))
    values_by_name["epochs"] = dict.fromkeys(f"{o.epochs}" for o in settings)
    values_by_name["length"] = dict.fromkeys(map(describe_length, rows))
    parts = [f"{name} {' or '.join(values)}" for name, values in values_by_name.items()]
    return f"Trained with {', '.join(parts)}."


def describe_batch(row: Row) -> str:
    """Say how large a run's batches are; a batch can't have more examples than the training set has."""
    o = row.cfg.optimization
    if o.batch_tokens:
        return f"{o.batch_tokens} tokens"
    examples = row.record.data.examples.get(row.cfg.task.train_split) if row.record else None
    if examples is not None and examples < o.batch_size:
        return f"{examples} (the whole training set, less than optimization.batch_size={o.batch_size})"
    return str(o.batch_size)


def describe_length(row: Row) -> str:
    """Say how many tokens of a text a run reads at most: ``task.max_length``, or what its encoder takes if less."""
    limit, data = row.cfg.task.max_length, row.record.data if row.record else None
    used = (data.limits.sources if data.limits else data.max_length) if data else None
    if used is None or used >= limit:
        return str(limit)
    return f"{used} (task.max_length={limit} is more than the encoder takes)"
