"""Draw the study's front picture: how far a method moves isotropy and, in the same row, the score."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import markers
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from isobench.analyses.rows import TidyRow, group_rows, select_rows
from isobench.common.plots import PALETTE, escape_math, make_panels
from isobench_papers.isotropy_dial.rows import DIALS, FINISHED, PLAIN, Dial, Group

RULE = (
    "The figure front has each method at the largest strength of the grid, I-STAR in both directions, and whitening "
    "at epsilon 0 and at the epsilon whose IsoScore is nearest to that of 0. This rule does not look at scores. It "
    "was made after the study."
)
ISOSCORE = "embedding/isoscore"
NAMES = {"minilm": "MiniLM", "distilbert-quire": "DistilBERT", "cosine": "cosine regularisation"}
LETTERS = 12.0  # size of all letters: 9 pixels where the picture is 390 pixels wide


class Change(NamedTuple):
    """Hold what a dose changes: IsoScore from ``before`` to ``after``, and the score by its row of the contrasts."""

    dial: Dial
    before: float
    after: float
    plain_score: float
    contrast: TidyRow

    @property
    def name(self) -> str:
        value = f"{self.dial.read_value(self.contrast['dose']):g}".replace("-", "\N{MINUS SIGN}")
        return f"{NAMES.get(self.dial.name, self.dial.short_label)}, {self.dial.setting} {value}"


def choose_changes(rows: Sequence[TidyRow], contrasts: Sequence[TidyRow]) -> list[Change]:
    """Choose the contrasts that ``RULE`` names; whitening's come first. ``rows``: of one encoder and task."""
    own = [row for row in rows if row["state"] == FINISHED and not math.isnan(row[ISOSCORE])]
    plain = [row for row in own if row["method"] == PLAIN]
    if not plain:
        return []
    isoscores = {  # rounding can give 0 or less, which has no logarithm
        place: max(np.mean([row[ISOSCORE] for row in runs]), 1e-6)
        for place, runs in group_rows(own, "dial", "dose").items()
    }
    before, level = isoscores[plain[0]["dial"], 0], np.mean([row["score"] for row in plain])
    chosen: list[Change] = []
    for dial in reversed(DIALS):
        names = {"encoder": rows[0]["encoder"], "task": rows[0]["task"], "against": PLAIN, "dial": dial.name}
        changes = [
            Change(dial, before, isoscores[dial.name, row["dose"]], level, row)
            for row in select_rows(contrasts, names)
            if (dial.name, row["dose"]) in isoscores
        ]
        if dial.starts_plain:
            doses = [0, *(change.contrast["dose"] for change in changes)]
            chosen += [change for change in changes if change.contrast["dose"] in (min(doses), max(doses))]
        elif changes:
            full, *others = changes
            chosen += [*sorted(others, key=lambda other: abs(math.log(other.after / full.after)))[:1], full]
    return chosen


def draw_front(found: Mapping[Group, Sequence[Change]], score: str) -> Figure:
    """Draw a row a change: left an arrow from plain fine-tuning's IsoScore to the dose's, right the score's change.

    ``found``: encoder and task -> changes. ``score``: name and unit of the score.
    """
    figure, axes = make_panels(1, 2, 1.6 + 0.25 * sum(len(changes) + 1 for changes in found.values()), sharey=True)
    left, right = axes[0]
    name, unit = score.split(" (")[0], "%" * score.endswith("(%)")
    names: list[str] = []
    headings: list[int] = []
    for (encoder, task), changes in found.items():
        heading = NAMES.get(encoder, encoder) + f", {task}" * (len({task for _, task in found}) > 1)
        plain = f"plain: {changes[0].plain_score:.1f}{unit}"
        right.text(1, len(names), plain, ha="right", va="center", size=LETTERS, transform=right.get_yaxis_transform())
        draw_changes(left, right, changes, len(names))
        headings.append(len(names))
        names += [escape_math(heading), *(change.name for change in changes)]
    left.set(xscale="log", ylim=(len(names) - 0.4, -0.6))
    left.set_yticks(range(len(names)), names)
    for place in headings:
        left.get_yticklabels()[place].set_weight("bold")
    left.set_xlabel("IsoScore of the\nembeddings (0 to 1;\nright: more isotropic)", size=LETTERS)
    right.set_xlabel(f"change in {name}\nfrom plain fine-tuning\n(points, 95% interval)", size=LETTERS)
    for axis in (left, right):
        axis.tick_params(labelsize=LETTERS)
        axis.tick_params("y", length=0)
        axis.spines["left"].set_visible(False)
    left.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    left.xaxis.set_minor_locator(NullLocator())
    left.xaxis.set_major_formatter("{x:g}")
    right.locator_params("x", nbins=4)
    finding = write_finding([change for changes in found.values() for change in changes], name)
    figure.suptitle(textwrap.fill(finding, 66), x=0.01, ha="left", weight="bold", size=LETTERS)
    return figure


def draw_changes(left: Axes, right: Axes, changes: Sequence[Change], place: int) -> None:
    """Draw the changes of one encoder and task in the rows below ``place``."""
    plain, rows = changes[0].before, range(place + 1, place + 1 + len(changes))
    left.text(plain, place, "plain", ha="left", va="center", size=LETTERS)
    for axis, origin in ((left, plain), (right, 0)):
        axis.vlines(origin, place + 0.5, rows[-1] + 0.4, "0.4", linewidth=1)
        axis.hlines(rows, 0, 1, "0.9", transform=axis.get_yaxis_transform())
    for row, change in zip(rows, changes, strict=True):
        colour, ratio = PALETTE[DIALS.index(change.dial)], change.after / change.before
        value, low, high = (change.contrast[name] for name in ("difference", "low", "high"))
        line = [change.before, change.after * (0.95 if ratio > 1 else 1.05)]  # the arrow's tip is narrower
        left.plot(line, [row, row], color=colour, linewidth=2.5, solid_capstyle="butt")
        tip = markers.CARETRIGHT if ratio > 1.05 else markers.CARETLEFT if ratio < 0.95 else "o"
        left.plot(change.after, row, marker=tip, color=colour, markersize=8)
        right.errorbar(value, row, xerr=[[value - low], [high - value]], color=colour, marker="o", linewidth=2.5)


def write_finding(changes: Sequence[Change], score: str) -> str:
    """Write how often full whitening costs, and a dose of it that is nearly as isotropic; else say what is drawn."""
    whitened = [change for change in changes if not change.dial.starts_plain]
    full = [change.contrast for change in whitened if not change.contrast["dose"]]
    mild = [change for change in whitened if change.contrast["dose"]]
    if full and all(cost["high"] < 0 for cost in full):
        costs = sum(change.contrast["high"] < 0 for change in mild)
        everywhere = f"Full whitening (epsilon 0) lowers the {score} in all {len(full)} cases."
        return f"{everywhere} Milder whitening, nearly as isotropic by IsoScore, lowers it in {costs} of {len(mild)}."
    return f"Isotropy and {score}, compared with plain fine-tuning"
