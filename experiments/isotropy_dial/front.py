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
from isobench.statistics.dose_response import SeedMean, average_over_seeds
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
    """Hold what a dose changes, as means over the seeds that have an IsoScore there and in plain fine-tuning.

    ``ratio`` says how many times as isotropic the embeddings are; ``score`` is the difference from the score of plain
    fine-tuning with the same seed.
    """

    dial: Dial
    dose: float
    plain_isoscore: float
    ratio: float
    plain_score: float
    score: SeedMean

    @property
    def name(self) -> str:
        """The method with its setting."""
        return f"{NAMES.get(self.dial.name, self.dial.short_label)}, {self.dial.setting} {self.value}"

    @property
    def value(self) -> str:
        """The setting's value."""
        return f"{self.dial.read_value(self.dose):g}".replace("-", "\N{MINUS SIGN}")


def measure_changes(rows: Sequence[TidyRow], encoder: str, task: str) -> list[Change]:
    """Measure what the doses that ``RULE`` chooses change on one encoder and task; whitening's come first."""
    finished = select_rows(rows, {"encoder": encoder, "task": task, "state": FINISHED})
    own = [row for row in finished if not math.isnan(row[ISOSCORE])]
    plain = {row["seed"]: row for row in own if row["method"] == PLAIN}
    chosen: list[Change] = []
    for dial in reversed(DIALS):
        changes = []
        for (dose,), runs in sorted(group_rows(select_rows(own, {"dial": dial.name}), "dose").items()):
            if pairs := [(plain[row["seed"]], row) for row in runs if row["seed"] in plain]:
                scores, isoscores = (
                    np.array([[row[name] for row in pair] for pair in pairs]).T for name in ("score", ISOSCORE)
                )  # each [2, S]
                before, after = isoscores.mean(1).clip(1e-6)  # rounding can give 0 or less, which has no logarithm
                score = average_over_seeds(scores[1] - scores[0])
                changes.append(Change(dial, dose, before, after / before, scores[0].mean(), score))
        if dial.starts_plain:
            chosen += [change for change in changes[:1] + changes[-1:] if change.dose]
        elif changes:
            full, *others = changes
            chosen += [*sorted(others, key=lambda other: abs(math.log(other.ratio / full.ratio)))[:1], full]
    return chosen


def draw_front(found: Mapping[Group, Sequence[Change]], score: str) -> Figure:
    """Draw a row a change: left an arrow from plain fine-tuning's IsoScore to the dose's, right the score's change.

    Args:
        found: encoder and task -> changes.
        score: name and unit of the score.
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
    plain, rows = changes[0].plain_isoscore, range(place + 1, place + 1 + len(changes))
    left.text(plain, place, "plain", ha="left", va="center", size=LETTERS)
    for axis, origin in ((left, plain), (right, 0)):
        axis.vlines(origin, place + 0.5, rows[-1] + 0.4, "0.4", linewidth=1)
        axis.hlines(rows, 0, 1, "0.9", transform=axis.get_yaxis_transform())
    for row, change in zip(rows, changes, strict=True):
        colour, (value, low, high, *_) = PALETTE[DIALS.index(change.dial)], change.score
        end = change.plain_isoscore * change.ratio
        line = [change.plain_isoscore, end * (0.95 if change.ratio > 1 else 1.05)]  # the arrow's tip is narrower
        left.plot(line, [row, row], color=colour, linewidth=2.5, solid_capstyle="butt")
        tip = markers.CARETRIGHT if change.ratio > 1.05 else markers.CARETLEFT if change.ratio < 0.95 else "o"
        left.plot(end, row, marker=tip, color=colour, markersize=8)
        right.errorbar(value, row, xerr=[[value - low], [high - value]], color=colour, marker="o", linewidth=2.5)


def write_finding(changes: Sequence[Change], score: str) -> str:
    """Write in a sentence that full whitening costs and mild whitening does not, if all encoders show it."""
    full = [change.score for change in changes if not change.dial.starts_plain and not change.dose]
    mild = [change for change in changes if not change.dial.starts_plain and change.dose]
    values = {change.value for change in mild}
    is_costly = bool(full) and all(cost.high < 0 for cost in full)
    if is_costly and len(values) == 1 and all(change.score.low < 0 < change.score.high for change in mild):
        return (
            f"Full whitening (epsilon 0) costs {score}. At epsilon {values.pop()}, embeddings are nearly as "
            f"isotropic by IsoScore, and no change of {score} is seen."
        )
    return f"Isotropy and {score}, compared with plain fine-tuning"
