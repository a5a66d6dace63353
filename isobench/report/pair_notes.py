"""Write sentences on the comparisons over shared seeds and dev examples, beside those over seeds."""

from collections import Counter
from collections.abc import Iterator

from isobench.common.terminal import format_count
from isobench.report.evidence import BASELINE, describe_p, format_interval, format_points
from isobench.report.method_effects import Effects
from isobench.statistics.paired_bootstrap import PairedComparison
from isobench.statistics.seeds import ALPHA, holm

MAX_NAMED = 3  # differences that a sentence names; the tables have all of them


def describe_pairs(effects: Effects) -> Iterator[str]:
    """Count the differences that are significant for new seeds and new examples, and say why others have no test."""
    compared = {
        f"{effects.runs.format_method(name)} on {column}": cell.comparison.paired
        for name in effects.runs.methods
        for column, cell in effects.runs.cells[name].items()
        if cell.comparison and cell.comparison.paired
    }
    tested = {about: pair for about, pair in compared.items() if not pair.reason}
    if tested:
        adjusted = holm([pair.p for pair in tested.values()])
        significant = sum(pair.p < ALPHA for pair in tested.values())
        corrected = f", {sum(p < ALPHA for p in adjusted)} after Holm's correction" if len(tested) > 1 else ""
        named = [f"{about} {describe_pair(pair)}" for about, pair in list(tested.items())[:MAX_NAMED]]
        more = f"; and {len(tested) - MAX_NAMED} more" if len(tested) > MAX_NAMED else ""
        yield (
            f"Paired with {BASELINE} by seed and dev example, for new seeds and new examples: "
            f"{format_count(len(tested), 'difference')}, {significant} with p < {ALPHA}{corrected}: "
            f"{'; '.join(named)}{more}."
        )
    reasons = Counter(pair.reason for pair in compared.values() if pair.reason)
    if reasons:
        causes = "; ".join(f"{format_count(count, 'difference')} ({reason})" for reason, count in reasons.items())
        yield f"Not tested for new seeds and new examples: {causes}."


def describe_pair(pair: PairedComparison) -> str:
    """Write a difference with its interval, p, and what it rests on."""
    numbers = f"{format_interval(pair.difference, format_points)} points, {describe_p(pair.p)}"
    return f"{numbers} ({pair.seeds} seeds, {pair.examples:,} examples)"
