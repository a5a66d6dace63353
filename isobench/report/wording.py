"""Numbers and names as sentences and tables write them."""

import math
from collections.abc import Sequence

DASH, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
# The tests that marks can come from, by their names in published.yaml.
MARK_TESTS = {"welch": "Welch's t-test over seeds", "student": "Student's two-sample t-test over seeds"}


def format_points(difference: float) -> str:
    """Write a difference with its sign and two decimals; zero has no sign."""
    text = f"{difference:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text


def format_interval(value: float, low: float, high: float, form: str = "points") -> str:
    """Write a number, followed by its interval in brackets if it has one; ``form``: points, or a format of Python."""
    texts = [format_points(x) if form == "points" else format(x, form) for x in (value, low, high)]
    return texts[0] if math.isnan(low) else f"{texts[0]} [{texts[1]}, {texts[2]}]"


def describe_p(p: float) -> str:
    """Write a p-value with two significant digits, or two decimals from 0.1 on."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}" if p < 0.1 else f"p = {p:.2f}"


def format_columns(columns: Sequence[str]) -> str:
    """Name up to three columns; of more, give the number."""
    return ", ".join(columns) if len(columns) <= 3 else f"{len(columns)} tasks"


def format_seeds_per_method(sizes: Sequence[tuple[int, int]]) -> str:
    """Say how many seeds each of two compared methods has: ``5 seeds per method``, or ``2 against 5 seeds``."""
    pairs = sorted({(min(pair), max(pair)) for pair in sizes})
    if len(pairs) > 3:
        return f"{min(map(min, sizes))} to {max(map(max, sizes))} seeds per method"
    if all(few == many for few, many in pairs):
        return f"{' or '.join(str(few) for few, _ in pairs)} seeds per method"
    return f"{' or '.join(f'{few} against {many}' for few, many in pairs)} seeds"


def format_p_value(p: float | None) -> str:
    """Write a p-value as papers print it, without the zero before the point; a dash for none."""
    if p is None or math.isnan(p):
        return DASH
    return "< .001" if p < 0.001 else "1" if p >= 0.9995 else f"{p:.3f}".removeprefix("0")


def format_signed(value: float | None, digits: int = 2) -> str:
    """Write a number with its sign; zero has none; a dash if there is no finite number."""
    if value is None or not math.isfinite(value):
        return DASH
    text = f"{value:+.{digits}f}"
    return text.replace("-", MINUS) if float(text) else text[1:]


def format_seconds(value: float) -> str:
    """Write a time in seconds with about three digits."""
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f} s"


def format_share(value: float | None, digits: int = 3) -> str:
    """Write a number of about 0 to 1, such as IsoScore, with ``digits`` decimals; a dash for none."""
    return DASH if value is None or math.isnan(value) else f"{value:.{digits}f}".replace("-", MINUS)


def format_number(value: float | None) -> str:
    """Write a number with at most four digits; a dash for none."""
    return DASH if value is None or math.isnan(value) else f"{value:.4g}".replace("-", MINUS)
