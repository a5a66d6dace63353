"""Print a report on the terminal with rich: the paper's tables with our numbers, then a line a configuration."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from isobench.common.terminal import make_console, make_table, name_some
from isobench.report.build import TIME_NOTE, Report
from isobench.report.claims import describe_multiplicity
from isobench.report.output.text import format_configuration, list_columns, list_rows
from isobench.report.tables import BASELINE
from isobench.runs.run import Run, describe_failure

COLUMNS_NOTE = (
    "plain: calibration=none. constant: the run, or as a mean every run, predicts one class only. change: the mean "
    "minus plain's, each over all its seeds (tests take the shared ones); none if a run predicts one class. EV1, "
    "IsoScore: of the calibrated dev embeddings in each run's reported epoch, mean over runs that neither failed nor "
    "predict one class; epochs may differ. time: of an epoch in the fastest seed; x: over plain's, comparable if "
    "nothing else ran beside either."
)
MAX_SEED_LINES = 20  # lines up to which every seed's score is printed
MAX_LINES = 60  # lines up to which configurations that were not chosen are printed too
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
        f"scale={', '.join(dict.fromkeys(run.cfg.scale for run in runs))}. {report.scale_note}".rstrip(),
        report.described_settings,
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
    where = "in print" if by_print else "here"
    table = make_table(f"What the papers claim, and what is found {where}", ("paper", "claim", where, "numbers"), ())
    for claim in claims:
        text = f"{claim['claim']}\nHolds if: {claim['criterion']}"
        table.add_row(claim["paper"], text, claim["outcome"], claim["numbers"], end_section=True)
    out = make_console()
    out.print(table)
    if not by_print:
        out.print(describe_multiplicity(len(claims)), highlight=False)
    for scale in dict.fromkeys(claim["scale"] for claim in claims if claim["scale"]):
        out.print(f"Not the paper's setting: {scale}.", highlight=False, markup=False)


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
    one_title = f"{title}: {sections[0]}" if len(sections) == 1 and sections[0] else title
    out.print(one_title, style="bold", highlight=False)
    widths = {name: _measure_width([name, *texts]) for name, texts in columns.items()}
    label_width = min(_measure_width([name for _, name in labels]), LEAST_LABEL)
    rest = list(columns)
    while rest:
        shown = [rest.pop(0)]  # then as many more as fit beside it
        while rest and label_width + sum(2 + widths[name] for name in (*shown, rest[0])) <= out.width:
            shown.append(rest.pop(0))
        for section in sections:
            table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, title_justify="left")
            table.title = section if len(sections) > 1 else None
            table.add_column("", overflow="fold", min_width=label_width)
            for name in shown:
                table.add_column(name, justify="right", no_wrap=True, min_width=widths[name])
            for number, (section_of_line, label) in enumerate(labels):
                if section_of_line == section:
                    table.add_row(label, *(columns[name][number] for name in shown))
            out.print(table)
            out.print()


def _measure_width(texts: Sequence[str]) -> int:
    return max(len(line) for text in texts for line in text.split("\n"))


def _print_configurations(out: Console, report: Report) -> list[str]:
    """Print a line for each configuration of each task, and return the sentences that explain it."""
    shown = report.configurations
    if len(shown) > MAX_LINES:
        shown = shown[shown["is_chosen"]]
    lines = [format_configuration(line) for line in shown.itertuples()]
    columns = {name: [line[name] for line in lines] for name in list_columns(lines)}
    sentences = [*_count_troubles(lines), COLUMNS_NOTE]
    if len(shown) < len(report.configurations):
        sentences.append("Only chosen configurations are shown. The report's page has all.")
    if len(lines) <= MAX_SEED_LINES:
        seeds = sorted({seed for line in lines for seed in line["scores"]})
        columns |= {f"seed {seed}": [line["scores"].get(seed, "") for line in lines] for seed in seeds}
    else:
        sentences.append("Each run's score is in runs.csv, beside the report's page.")
    _print_columns(out, report.name, [(line["section"], line["name"]) for line in lines], columns)
    return sentences


def _count_troubles(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Say how many runs failed or have no result, and in which lines: a sentence for each failure and state."""
    counts = Counter(trouble for line in lines for trouble in line["troubles"])
    sentences = []
    for trouble, count in sorted(counts.items()):
        names = dict.fromkeys(line["name"] for line in lines if trouble in line["troubles"])
        sentences.append(f"{describe_failure(trouble, count)}: {name_some(list(names))}.")
    return sentences


def _print_paper_tables(out: Console, report: Report) -> None:
    """Print each table of the paper that has a published number, which stands in a row below ours."""
    for view in report.views:
        if any(cell.published for cell in view.own_cells):
            encoders, methods, *texts = map(list, zip(*list_rows(view), strict=True))
            columns = dict(zip([*view.columns, "training time per epoch"], texts, strict=True))
            _print_columns(out, view.title, list(zip(encoders, methods, strict=True)), columns)
            for note in [*view.notes, TIME_NOTE]:
                _print_words(out, note)
