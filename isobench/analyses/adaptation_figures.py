"""Draw Figures 1 to 3 of Efficient Task Adaptation with Normalization (Zhou)."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from isobench.analyses.adaptation_distribution import EmbeddingDistribution
from isobench.common.plots import PALETTE, make_panel_grid


def draw_figure1(distributions: list[EmbeddingDistribution]) -> Figure:
    """Draw t-SNE of h^l, coloured by class, in one panel per encoder and task."""
    figure, axes = make_panel_grid([part.title for part in distributions], 2.6 if len(distributions) > 2 else 3.2)
    for part, axis in zip(distributions, axes, strict=True):
        for place, name in enumerate(part.classes):
            x, y = part.tsne_points[part.labels == place].T
            axis.scatter(x, y, 3, PALETTE[place % len(PALETTE)], linewidths=0, alpha=0.6, label=name)
        axis.set_aspect("equal", adjustable="datalim")
        plotted, examples = len(part.plotted), part.examples
        which = f"all {examples:,}" if plotted == examples else f"{plotted:,} of {examples:,}, evenly spaced"
        axis.set(xticks=[], yticks=[], ylabel="t-SNE 2", xlabel=f"t-SNE 1\n{which}\nclusters: {part.clusters}")
        below = (0.5, -0.26)  # below the panel, where the legend hides no point
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
        count = f"{row['means_within']} of {len(part.mean)} within {within:g}"
        axis.set(xlabel=f"dimension of $h^l$\n{count}", ylabel="mean")
        axis.margins(x=0.01)
    return figure


def draw_figure3(distributions: list[EmbeddingDistribution], summaries: list[dict[str, Any]]) -> Figure:
    """Draw the standard deviation of each dimension of h, by falling Fisher score, one panel per encoder and task."""
    figure, axes = make_panel_grid([part.title for part in distributions], 2.2)
    for part, row, axis in zip(distributions, summaries, axes, strict=True):
        ranks = np.arange(1, len(part.importance_order) + 1)
        axis.vlines(ranks, 0, part.deviation[part.importance_order], PALETTE[0], linewidth=0.7)
        xlabel = f"rank by Fisher score\nSpearman {row['spearman']:.2f}"
        axis.set(xlabel=xlabel, ylabel="standard deviation", ylim=(0, None))
        axis.margins(x=0.01)
    return figure
