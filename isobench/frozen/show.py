"""Show a diagnosis: on the terminal, as a page with pictures, and as a notebook's tables.

``diagnosis`` is an `isobench.frozen.diagnosis.Diagnosis` everywhere; that file imports this one for notebooks, and no
two files import each other.
"""

import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from isobench.common.terminal import PlainConsole, format_count, make_console, replace_control_characters
from isobench.report.output.templating import make_environment
from isobench.report.wording import DASH, MINUS, format_number, format_signed

TIMES, NO_BREAK = "\N{MULTIPLICATION SIGN}", "\N{NO-BREAK SPACE}"
ASCII = str.maketrans({DASH: "-", MINUS: "-", TIMES: "x", NO_BREAK: " "})  # a terminal may have nothing else

FINDINGS = "Measures. Normal: from the lowest to the highest value of well-known encoders."
EFFECTS = "What would change them: each method is fitted on one half of the vectors, and measured on the other half."
COSINES = "What a cosine means: those of unrelated pairs, and the % of related ones above the 1% level."
SEARCH = "Search: each method is fitted on the documents. Numbers are times 100, but for p and hubness."


def summarise(diagnosis: Any) -> list[str]:
    """Say in one sentence which measure is the most unusual, and in another what helps most, if anything does."""
    return [_describe_most_unusual(diagnosis.findings), *_describe_best_method(diagnosis)]


def _describe_most_unusual(findings: Sequence[Any]) -> str:
    known = [finding for finding in findings if finding.normal and _is_number(finding.value)]
    unusual = [finding for finding in known if _locate(finding)]
    if not known:
        return "No measure could be compared with well-known encoders."
    if not unusual:
        return f"Nothing is unusual: {format_count(len(known), 'measure')} compared with well-known encoders."
    worst = max(unusual, key=_measure_distance)
    where = f"{_locate(worst)} the {_format_range(worst)} of well-known encoders"
    count = f"{len(unusual)} of {format_count(len(known), 'measure')} outside that range"
    return f"Most unusual is {worst.measure}: {format_value(worst.value)}, {where} ({count})."


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _locate(finding: Any) -> str:
    """Return "below" or "above" for a value outside the normal range, else an empty text."""
    if finding.normal is None or not _is_number(finding.value):
        return ""
    low, high = finding.normal
    return "below" if finding.value < low else "above" if finding.value > high else ""


def _measure_distance(finding: Any) -> float:
    """Measure how many widths of the normal range a value is outside of it.

    Where all three are positive, the widths of their logarithms count instead, if they are more: a rank of 5 is far
    below 50 to 400, though an eighth of the range away.
    """
    (low, high), value = finding.normal, finding.value
    distance = max(low - value, value - high) / ((high - low) or abs(high) or 1)
    if min(low, value) > 0 and high > low:
        distance = max(distance, math.log(max(low / value, value / high)) / math.log(high / low))
    return distance


def _describe_best_method(diagnosis: Any) -> list[str]:
    """Say which method raises the score most, of those whose interval excludes 0; without scores, IsoScore.

    IsoScore is compared only among methods that keep all components.
    """
    plain, methods = diagnosis.effects[:1], diagnosis.effects[1:]
    if not methods:
        return []
    if not diagnosis.score:
        whole = [effect for effect in (*plain, *methods) if effect.components >= diagnosis.dim]
        known = [effect for effect in whole if _is_number(effect.isoscore)]
        best = max(known, key=lambda effect: effect.isoscore, default=plain[0])
        ends = "from " + " to ".join(format_number(effect.isoscore, ".3f") for effect in (plain[0], best))
        found = "No method raises IsoScore" if best is plain[0] else f"{best.method} raises IsoScore most, {ends}"
        return [f"{found}; without labels or scored pairs, nothing says what helps."]
    score = _name_score(diagnosis)
    tested = [effect for effect in methods if _is_number(effect.low) and _is_number(effect.high)]
    down = [effect for effect in tested if effect.high < 0]
    best = max((effect for effect in tested if effect.low > 0), key=lambda effect: effect.change, default=None)
    if best:
        return [
            f"{best.method} helps most: it changes {score} by {_format_change(best)}, to {_format_score(best.score)}."
        ]
    if down:
        worst = min(down, key=lambda effect: effect.change)
        lower = f"{len(down)} lower{'s' if len(down) == 1 else ''} it, {worst.method} most: {_format_change(worst)}"
        return [f"No method's interval is above 0 for {score}; {lower}."]
    return [f"Every method's interval for {score} holds 0." if tested else f"No change of {score} was measured."]


def _name_score(diagnosis: Any) -> str:
    return {"spearman": "Spearman's correlation"}.get(diagnosis.score, diagnosis.score)


def format_value(value: float | None) -> str:
    """Write a measure's value with four digits, a large one without decimals; a dash if it is not finite."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:,.0f}".replace("-", MINUS) if 1000 <= abs(value) < 1e12 else format_number(value)


def _format_range(finding: Any) -> str:
    return f"{format_value(finding.normal[0])} to {format_value(finding.normal[1])}" if finding.normal else DASH


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
            format_number(row.hubness, ".2f"),
            _format_score(row.orphans),
        ]
        for row in diagnosis.retrieval
    ]
    levels = [
        [level.method, level.pairs, format_number(level.quantiles[2], ".3f"), _format_level(level.one_percent),
         _format_level(level.one_per_mille), _format_score(level.true)]
        for level in diagnosis.levels
    ]  # fmt: skip
    tables = [
        ("findings", FINDINGS, ["measure", "value", "normal", "what it says"], findings),
        ("effects", EFFECTS, ["method", "IsoScore", "EV1", "average cosine", *score], effects),
        ("effects", SEARCH, ["method", "nDCG @10", "Recall @10", "Recall @100", "MRR @10",
                             "change of nDCG [low, high]", "p", "hubness", "never near %"], retrieval),
        ("effects", COSINES, ["method", "cosines of", "median", "1% above [low, high]", "0.1% above [low, high]",
                              "related above 1% level"], levels),
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
            heading = column.translate(ASCII) if is_word else column.translate(ASCII).replace(" ", "\n")
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
