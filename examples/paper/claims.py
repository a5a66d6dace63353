"""Define what the paper claims, and judge each claim."""

import statistics

from isobench.report.checks import judge_cases, nothing_improves
from isobench.report.claims import Claim, Outcome, Rows


def vectors_are_halved(rows: Rows) -> Outcome:
    """Check that the mean length under halving is half of the plain one, to 1%."""
    means = {
        method: statistics.fmean(row["norm"] for row in rows if row["method"] == method)
        for method in ("none", "halved")
    }
    ratio = means["halved"] / means["none"]
    return judge_cases([abs(ratio - 0.5) < 0.01], f"mean length {ratio:.3f} of the plain one")


CLAIMS = [
    Claim("Halving improves nothing (Table 1)", "greetings", nothing_improves),
    Claim("Halved vectors are half as long (Figure 1)", "greeting_norms", vectors_are_halved, rows_file="norms"),
]
