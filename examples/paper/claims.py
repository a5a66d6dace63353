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
    Claim(
        quote="halving improves nothing",
        source="Table 1",
        criterion="no gain survives Holm's correction, and the runs would usually have shown one of a point",
        experiment="greetings",
        check=nothing_improves,
        printed="three seeds with the printed deviations could miss a gain of a point",
    ),
    Claim(
        quote="halved vectors are half as long",
        source="Figure 1",
        criterion="to 1%",
        experiment="greeting_norms",
        check=vectors_are_halved,
        printed=lambda: [{"method": "none", "norm": 1.0}, {"method": "halved", "norm": 0.5}],
        rows_file="norms",
    ),
]
