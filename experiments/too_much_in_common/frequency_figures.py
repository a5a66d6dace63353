"""Figures 3 and 4 of Too Much in Common (Bis et al. 2021)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isobench.analyses.rows import list_distinct, select_rows
from isobench.common.plots import PALETTE, add_finding, make_panel_grid


def draw_figure3(rows: list[dict[str, Any]], printed: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the mean cosine against the token id, a panel an encoder; crosses are the paper's printed values."""
    encoders = list_distinct(rows, "encoder")
    figure, axes = make_panel_grid(encoders, 2.2, across=3, sharey=True)
    for encoder, axis in zip(encoders, axes, strict=True):
        for vectors, line in (("raw", "-"), ("centred", "--"), ("zipf_centred", ":")):
            bins = select_rows(rows, {"encoder": encoder, "vectors": vectors})
            cosines = [np.nan if row["cosine"] is None else row["cosine"] for row in bins]
            axis.plot([_range_midpoint(row) for row in bins], cosines, line, label=vectors)
        published = [bounds["published"] for bounds in printed]
        axis.plot(
            [_range_midpoint(bounds) for bounds in printed], published, "x", color="black", label="paper's BERT, raw"
        )
        axis.set_xlabel("token id (thousands)")
        _label_first_column(axis, "mean cosine")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def _label_first_column(axis: Axes, label: str) -> None:
    """Label the vertical axis of a panel in the first column; the others share its numbers."""
    if axis.get_subplotspec().is_first_col():  # type: ignore[union-attr]
        axis.set_ylabel(label)


def _range_midpoint(bounds: Mapping[str, Any]) -> float:
    """Return the middle of a range of token ids, in thousands."""
    return (bounds["first"] + bounds["end"]) / 2000


def draw_figure4(curves: list[dict[str, Any]], summary: list[dict[str, Any]], ranks: Sequence[int]) -> Figure:
    """Draw the counts of words and tokens against their ranks, both logarithmic, a panel an encoder.

    Thin lines are Zipf's law: with the exponent fitted by least squares, through the mean of the points fitted to.

    Args:
        curves: tidy rows with ``unit``, ``rank`` and ``count``.
        summary: a tidy row for words, then one for each encoder's tokens, with ``unit`` and the exponent.
        ranks: first and last rank that the exponent is fitted to.
    """
    words, *tokens = summary
    encoders = [encoder_tokens["unit"].removeprefix("tokens, ") for encoder_tokens in tokens]
    figure, axes = make_panel_grid(encoders, 2.4, across=3, sharey=True)
    for encoder_tokens, axis in zip(tokens, axes, strict=True):
        lines = ((words, "words", "-", PALETTE[0]), (encoder_tokens, "tokens", "--", PALETTE[1]))
        for unit, label, line, colour in lines:
            points = select_rows(curves, {"unit": unit["unit"]})
            rank, count = (np.array([row[name] for row in points], float) for name in ("rank", "count"))
            exponent = unit["zipf_least_squares"]
            axis.loglog(rank, count, line, color=colour, label=f"{label}, s = {exponent:.2f}")
            inside = (rank >= ranks[0]) & (rank <= ranks[1])
            if inside.any():
                middle = np.log(count[inside]).mean() + exponent * np.log(rank[inside]).mean()
                axis.loglog(rank, np.exp(middle - exponent * np.log(rank)), color=colour, linewidth=0.6)
        axis.set(xlabel="rank", ylim=(0.6, None))
        _label_first_column(axis, "count")
        add_finding(axis, r"thin lines: count $\propto$ rank$^{-s}$")
        axis.legend(loc="lower left")
    return figure
