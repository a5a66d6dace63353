"""Figures 3 and 4 of Too Much in Common (Bis et al. 2021)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from isobench.common.plots import PALETTE, make_panel_grid


def draw_figure3(rows: list[dict[str, Any]], printed: Sequence[Mapping[str, Any]]) -> Figure:
    """Mean cosine against the place in the vocabulary, a panel an encoder; crosses are printed values."""
    encoders = list(dict.fromkeys(row["encoder"] for row in rows))
    figure, axes = make_panel_grid(encoders, 2.2, across=3, sharey=True)
    for encoder, axis in zip(encoders, axes, strict=True):
        for vectors, line in (("raw", "-"), ("centred", "--")):
            found = [row for row in rows if (row["encoder"], row["vectors"]) == (encoder, vectors)]
            heights = [np.nan if row["cosine"] is None else row["cosine"] for row in found]
            axis.plot([_range_midpoint(row) for row in found], heights, line, label=vectors)
        published = [one["published"] for one in printed]
        axis.plot([_range_midpoint(one) for one in printed], published, "x", color="black", label="paper's BERT, raw")
        axis.set(xlabel="token id (thousands)", ylabel="mean cosine")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def _range_midpoint(bounds: Mapping[str, Any]) -> float:
    """Of a range of token ids, in thousands."""
    return (bounds["first"] + bounds["end"]) / 2000


def draw_figure4(curves: list[dict[str, Any]], summary: list[dict[str, Any]], ranks: Sequence[int]) -> Figure:
    """Counts against ranks, both logarithmic: words and tokens, a panel an encoder; thin lines are Zipf's law.

    The line has the exponent fitted by least squares and goes through the middle of the ranks that it is fitted to.
    """
    words, *tokens = summary
    figure, axes = make_panel_grid([about["unit"] for about in tokens], 2.4, across=3, sharey=True)
    for about, axis in zip(tokens, axes, strict=True):
        for unit, label, line, colour in ((words, "words", "-", PALETTE[0]), (about, "tokens", "--", PALETTE[1])):
            found = [row for row in curves if row["unit"] == unit["unit"]]
            rank, count = (np.array([row[name] for row in found], float) for name in ("rank", "count"))
            exponent = unit["zipf_least_squares"]
            axis.loglog(rank, count, line, color=colour, label=f"{label}, s = {exponent:.2f}")
            inside = (rank >= ranks[0]) & (rank <= ranks[1])
            if inside.any():
                middle = np.log(count[inside]).mean() + exponent * np.log(rank[inside]).mean()
                axis.loglog(rank, np.exp(middle - exponent * np.log(rank)), color=colour, linewidth=0.6)
        axis.set(xlabel="rank", ylabel="count", ylim=(0.6, None))
        axis.legend(loc="lower left")
    return figure
