"""Show a diagnosis: on the terminal, as a page with pictures, and as a notebook's tables.

``diagnosis`` is an `isobench.frozen.diagnosis.Diagnosis` everywhere; that file imports this one for notebooks, and no
two files import each other.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import Markup

from isobench.common.terminal import PlainConsole, format_count, make_console, replace_control_characters
from isobench.report.output.templating import make_environment
from isobench.report.wording import DASH, MINUS, format_number, format_signed
from isobench.statistics.seeds import ALPHA

TIMES, NO_BREAK = "\N{MULTIPLICATION SIGN}", "\N{NO-BREAK SPACE}"
ASCII = str.maketrans({DASH: "-", MINUS: "-", TIMES: "x", NO_BREAK: " "})  # a terminal may have nothing else

FINDINGS = "Measures. Reference: three encoders on film reviews, lowest to highest; other texts may well lie outside."
EFFECTS = "What would change them: each method is fitted on one half of the vectors, and measured on the other half."
COSINES = "What a cosine means: those of unrelated pairs, and the % of related ones above the 1% level."
SEARCH = "Search: each method is fitted on the documents. Times 100, but for p; the change is of nDCG@10."
HUBS = "Hubs: how unevenly documents are among the 10 nearest of another, and how many never are."
CEILING = 0.995  # of a score: above it nothing can gain
STRIKING: dict[str, Callable[[float, Any], bool]] = {  # when a measure is the first thing to know, most urgent first
    "duplicates": lambda value, diagnosis: value > 0.1 * diagnosis.rows,
    "EV1": lambda value, _: value > 0.25,
    "average cosine": lambda value, _: value > 0.5,
    "effective rank": lambda value, diagnosis: value < 0.25 * diagnosis.dim,
}


def summarise(diagnosis: Any) -> list[str]:
    """Say the fact that matters most, then what the measured half shows for search, classifiers and thresholds."""
    by_name = {finding.measure: finding for finding in diagnosis.findings if _is_number(finding.value)}
    known = [by_name[name].sentence for name, is_striking in STRIKING.items()
             if name in by_name and is_striking(by_name[name].value, diagnosis)]  # fmt: skip
    known += [by_name["EV1"].sentence] if "EV1" in by_name else ["No direction could be measured."]
    gains = _describe_gains(diagnosis.retrieval, "nDCG@10", "ndcg_10")
    if diagnosis.score:
        gains += _describe_gains(diagnosis.effects, _name_score(diagnosis), "score")
    elif not gains:
        gains = ["Whether a method helps is not known without --labels, --pairs, or --queries and --relevant."]
    return [known[0], *gains, *_describe_thresholds(diagnosis.levels)]


def _describe_gains(rows: Sequence[Any], measure: str, field: str) -> list[str]:
    """Say which method raises a measure most, of those whose interval, and p if there is one, exclude chance."""
    plain, tested = next(iter(rows), None), [row for row in rows[1:] if _is_number(row.low) and _is_number(row.high)]
    if plain is None:
        return []
    if _is_number(score := getattr(plain, field)) and score >= CEILING:
        return [f"With no method {measure} is {_format_score(score)} of 100: nothing can gain."]
    sure = [row for row in tested if getattr(row, "p", 0) < ALPHA and (row.low > 0 or row.high < 0)]
    best = max(sure, key=lambda row: row.change, default=None)
    if best and best.low > 0:
        new = f"{_format_change(best)}, to {_format_score(getattr(best, field))}"
        return [f"{best.method} helps most: it changes {measure} by {new}."]
    if sure:
        worst = min(sure, key=lambda row: row.change)
        return [f"No method raises {measure} beyond chance; {len(sure)} lower{'s' * (len(sure) == 1)} it, "
                f"{worst.method} most: {_format_change(worst)}."]  # fmt: skip
    return [f"No method changes {measure} beyond chance." if tested else f"No change of {measure} was measured."]


def _describe_thresholds(levels: Sequence[Any]) -> list[str]:
    """Say what a cosine means, and with the method that moves the level most, if one surely does."""
    if not levels or levels[0].method != "none":
        return []
    plain, same = levels[0], [level for level in levels if level.pairs == levels[0].pairs]
    said = f"A cosine of {plain.one_percent[0]:.2f} is reached by 1% of unrelated pairs"
    said += f" and {_format_score(plain.true)}% of related ones" * _is_number(plain.true)
    sure = [level for level in same if level.one_percent[2] < plain.one_percent[1]]
    best = max(sure, key=lambda x: (x.true if _is_number(x.true) else 0, -x.one_percent[0]), default=None)
    if best:
        said += f"; with {best.method}, one of {best.one_percent[0]:.2f}"
        said += f" (and by {_format_score(best.true)}%)" * _is_number(best.true)
    return [f"{said}."]


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _locate(finding: Any) -> str:
    """Return "below" or "above" for a value outside the reference's range, else an empty text."""
    if finding.reference is None or not _is_number(finding.value):
        return ""
    low, high = finding.reference
    return "below" if finding.value < low else "above" if finding.value > high else ""


def _name_score(diagnosis: Any) -> str:
    return {"spearman": "Spearman's correlation"}.get(diagnosis.score, diagnosis.score)


def format_value(value: float | None) -> str:
    """Write a measure's value with four digits, a large one without decimals; a dash if it is not finite."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:,.0f}".replace("-", MINUS) if 1000 <= abs(value) < 1e12 else format_number(value)


def _format_range(finding: Any) -> str:
    return " to ".join(map(format_value, finding.reference)) if finding.reference else DASH


def _format_score(score: float | None) -> str:
    return DASH if score is None else format_number(100 * score, ".2f")


def _format_change(effect: Any) -> str:
    """Write a change times 100, with its interval if there is one."""
    change, *ends = (format_signed(None if x is None else 100 * x) for x in (effect.change, effect.low, effect.high))
    return change if DASH in ends else f"{change} [{ends[0]},{NO_BREAK}{ends[1]}]"


def _format_level(level: tuple[float, float, float]) -> str:
    value, *ends = (format_number(x, ".3f") for x in level)
    return f"{value} [{ends[0]},{NO_BREAK}{ends[1]}]"


def _lay_out(diagnosis: Any) -> dict[str, Any]:
    """Lay out what all forms show: the sentences, and the tables: a name, a caption, columns and rows of texts."""
    score = [f"{_name_score(diagnosis)} {TIMES}100", "change [low, high]"] if diagnosis.score else []
    findings = [
        [f.measure, format_value(f.value), f"{_locate(f)} {_format_range(f)}".strip(), f.sentence]
        for f in diagnosis.findings
    ]
    effects = [
        [effect.method, *(format_number(x, ".3f") for x in (effect.isoscore, effect.ev1, effect.average_cosine))]
        + ([_format_score(effect.score), _format_change(effect)] if score else [])
        for effect in diagnosis.effects
    ]
    retrieval = [
        [
            row.method,
            *map(_format_score, (row.ndcg_10, row.recall_10, row.recall_100, row.mrr_10)),
            _format_change(row),
            format_number(row.p, ".3f"),
            format_number(row.hubness, ".1f"),
            format_number(100 * row.orphans, ".1f"),
        ]
        for row in diagnosis.retrieval
    ]
    levels = [
        [level.method, level.pairs, format_number(level.quantiles[2], ".3f"), _format_level(level.one_percent),
         _format_level(level.one_per_mille), _format_score(level.true)]
        for level in diagnosis.levels
    ]  # fmt: skip
    tables = [
        ("findings", FINDINGS, ["measure", "value", "reference", "what it says"], findings),
        ("effects", EFFECTS, ["method", "IsoScore", "EV1", "average cosine", *score], effects),
        ("effects", SEARCH, ["method", "nDCG @10", "Recall @10", "Recall @100", "MRR @10", "change [low, high]", "p"],
         [row[:7] for row in retrieval]),
        ("effects", HUBS, ["method", "hubness", "never near %"], [[row[0], *row[7:]] for row in retrieval]),
        *[("effects", f"{COSINES} Here: {kind}.",
           ["method", "median", "1% above [low, high]", "0.1% above [low, high]", "related above 1%"],
           [[row[0], *row[2:]] for row in levels if row[1] == kind]) for kind in ("not relevant", "random pairs")],
    ]  # fmt: skip
    return {
        "source": diagnosis.source,
        "size": f"{format_count(diagnosis.rows, 'vector')} of {format_count(diagnosis.dim, 'coordinate')}",
        "summary": summarise(diagnosis),
        "tables": [table for table in tables if table[3]],
        "notes": diagnosis.notes,
    }


def print_diagnosis(diagnosis: Any, console: PlainConsole | None = None) -> None:
    """Print the sentences that sum up, the findings, what post-hoc methods change, and the notes."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    out, shown = console or make_console(), _lay_out(diagnosis)
    for sentence in shown["summary"]:
        out.print(sentence.translate(ASCII), style="bold", highlight=False)
    out.print(f"\n{shown['source']}: {shown['size']}".translate(ASCII), highlight=False, markup=False)
    for name, caption, columns, rows in shown["tables"]:
        out.print(f"\n{caption}".translate(ASCII), highlight=False)
        table = Table(header_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for number, column in enumerate(columns):
            is_word = number == 0 or (name == "findings" and number > 1)  # a number is never cut nor broken
            heading = column.translate(ASCII) if is_word else column.translate(ASCII).replace(" ", "\n", 1)
            table.add_column(heading, overflow="fold", justify="left" if is_word else "right", no_wrap=not is_word)
        for row in rows:
            table.add_row(*(text.translate(ASCII) for text in row))
        out.print(table)
    for note in shown["notes"]:
        out.print(note.translate(ASCII), highlight=False)


def render_page(diagnosis: Any) -> str:
    """Write a page that needs nothing from outside: the sentences, both tables, the notes, and six pictures."""
    from isobench.frozen.pictures import draw_pictures

    return render_tables(diagnosis, draw_pictures(diagnosis))


def render_tables(diagnosis: Any, pictures: dict[str, tuple[Markup, str]] | None = None) -> str:
    """Write the sentences, both tables and the notes as HTML for the inside of a page, such as a notebook's."""
    template = make_environment().get_template("diagnosis.html.j2")
    return replace_control_characters(template.render(**_lay_out(diagnosis), pictures=pictures))
