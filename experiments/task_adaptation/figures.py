"""Draw Figures 1 to 3 of Efficient Task Adaptation with Normalization (Zhou)."""

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from isobench.common.plots import PALETTE, add_finding, cut_outliers, make_panel_grid
from isobench_papers.task_adaptation.distribution import EmbeddingDistribution


def draw_figure1(distributions: list[EmbeddingDistribution]) -> Figure:
    """Draw t-SNE of h^l, coloured by class, in one panel per encoder and task."""
    figure, axes = make_panel_grid([part.title for part in distributions], 2.6 if len(distributions) > 2 else 3.2)
    for part, axis in zip(distributions, axes, strict=True):
        for place, name in enumerate(part.classes):
            x, y = part.tsne_points[part.labels == place].T
            axis.scatter(x, y, 3, PALETTE[place % len(PALETTE)], linewidths=0, alpha=0.6, label=name)
        axis.set_aspect("equal", adjustable="datalim")
        plotted, examples = len(part.plotted), part.examples
        which = f"{plotted:,} of {examples:,} examples" if plotted < examples else f"{examples:,} examples"
        axis.set(xticks=[], yticks=[], ylabel="t-SNE 2", xlabel="t-SNE 1")
        add_finding(axis, f"{which}, {part.clusters} cluster{'s' * (part.clusters != 1)}")
        below = (0.5, -0.1)  # below the panel, where the legend hides no point
        axis.legend(loc="upper center", bbox_to_anchor=below, ncols=1 if len(part.classes) < 4 else 3, markerscale=3)
    return figure


def draw_figure2(
    distributions: list[EmbeddingDistribution], summaries: list[dict[str, Any]], within: float
) -> Figure:
    """Draw the mean of each dimension of h^l, in one panel per encoder and task."""
    figure, axes = make_panel_grid([part.title for part in distributions], 2.2)
    for part, row, axis in zip(distributions, summaries, axes, strict=True):
        axis.vlines(np.arange(len(part.mean)), 0, part.mean, PALETTE[0], linewidth=0.7)
        for bound in (-within, within):
            axis.axhline(bound, color=PALETTE[5], linewidth=0.7, linestyle="--")
        axis.set(xlabel="dimension of $h^l$", ylabel="mean")
        axis.margins(x=0.01)
        finding = f"{row['means_within']} of {len(part.mean)} within \N{PLUS-MINUS SIGN}{within:g}"
        if 0 < within < np.abs(part.mean).max():  # else nothing is beyond, or nothing within
            ticks = within * 4.0 ** np.arange(max(1, math.ceil(math.log(np.abs(part.mean).max() / within, 4))))
            axis.set_yscale("symlog", linthresh=within)
            axis.set_yticks([*-ticks[::-1], 0, *ticks])
            axis.yaxis.set_major_formatter("{x:g}")
            axis.yaxis.set_minor_locator(NullLocator())
            finding += "; logarithmic beyond"
        add_finding(axis, finding)
    return figure


def draw_figure3(distributions: list[EmbeddingDistribution], summaries: list[dict[str, Any]]) -> Figure:
    """Draw the standard deviation of each dimension of h, by falling Fisher score, one panel per encoder and task."""
    figure, axes = make_panel_grid([part.title for part in distributions], 2.2)
    for part, row, axis in zip(distributions, summaries, axes, strict=True):
        ranks = np.arange(1, len(part.importance_order) + 1)
        deviations = part.deviation[part.importance_order]
        axis.vlines(ranks, 0, deviations, PALETTE[0], linewidth=0.7)
        axis.set(xlabel="rank by Fisher score", ylabel="standard deviation", ylim=(0, None))
        axis.margins(x=0.01)
        add_finding(axis, f"Spearman's correlation {row['spearman']:.2f}")
        cut_outliers(axis, ranks, deviations, include=0)
    return figure
