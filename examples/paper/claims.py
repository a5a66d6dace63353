"""Define what the paper claims, and judge each claim."""

import statistics
from functools import partial
from pathlib import Path

from isobench.report.checks import judge_cases, nothing_improves
from isobench.report.claims import Claim, Outcome, Rows
from isobench.report.printed import build_printed_report, scale_effects

PAPER = Path(__file__).parent.name


def vectors_are_halved(rows: Rows) -> Outcome:
    """Check that the mean length under halving is half of the plain one, to 1%."""
    means = {
        method: statistics.fmean(row["norm"] for row in rows if row["method"] == method)
        for method in ("none", "halved")
    }
    ratio = means["halved"] / means["none"]
    return judge_cases([abs(ratio - 0.5) < 0.01], f"mean length {ratio:.3f} of the plain one")


def list_lengths(ratio: float) -> Rows:
    """List the mean lengths as the analysis's rows; halved vectors have ``ratio`` of the plain one."""
    return [{"method": "none", "norm": 1.0}, {"method": "halved", "norm": ratio}]


# `isobench report --published` looks whether each check accepts the printed numbers and rejects the broken ones.
CLAIMS = [
    Claim(
        quote="halving improves nothing",
        source="Table 1",
        criterion="no gain has p < .05, and the 95% interval of the difference ends below a gain of a point",
        experiment="greetings",
        check=nothing_improves,
        printed="three seeds with the printed deviations could miss a gain of a point",
        broken={  # 20 and 60 times the printed difference of 0.10
            f"halving gains {factor / 10:g} points": partial(
                build_printed_report, PAPER, ["table1"], seeds=3, change=scale_effects(factor)
            )
            for factor in (20, 60)
        },
        methods=["halved"],
    ),
    Claim(
        quote="halved vectors are half as long",
        source="Figure 1",
        criterion="to 1%",
        experiment="greeting_norms",
        check=vectors_are_halved,
        printed=partial(list_lengths, 0.5),
        broken={"as long as before": partial(list_lengths, 1.0), "a twentieth longer": partial(list_lengths, 0.525)},
        methods=["halved"],
        rows_file="norms",
    ),
]
