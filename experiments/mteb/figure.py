"""The figure of sentence similarity: what each method adds, against how anisotropic the vectors are."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from isobench.analyses.rows import TidyRow, list_distinct, select_rows
from isobench.common.plots import PALETTE, make_panel_grid
from isobench_papers.mteb.tables import PLAIN

MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # of the layers
TICKS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # of the logarithmic axis
SAME = 0.05  # points; rounding orders pairs of equal cosine at random, so that equal methods differ this little


def draw_gains(rows: Sequence[TidyRow]) -> Figure:
    """Draw each method's gain by cosine against the top coordinate's share of the variance, before calibration.

    One point is an encoder, layer and set; a panel is a method. Colours are encoders, markers are layers. Methods
    with the same gains share a panel, as PCA and ZCA whitening do, which differ by a rotation only.
    """
    rows = [row for row in rows if row["similarity"] == "cosine" and row["method"] != PLAIN]
    panels = group_equal_methods(rows)
    figure, axes = make_panel_grid(
        [", ".join(methods) for methods in panels] or [""], 2.0, 3, sharex=True, sharey=True
    )
    all_shares = [row["top_share"] for row in rows]
    ticks = [tick for tick in TICKS if all_shares and min(all_shares) / 2 <= tick <= 2 * max(all_shares)]
    for methods, axis in zip(panels, axes, strict=False):
        axis.axhline(0, color="0.8", linewidth=0.8, zorder=0)
        own = select_rows(rows, {"method": methods[0]})
        for colour, model in zip(PALETTE, list_distinct(rows, "model"), strict=False):
            for marker, layer in zip(MARKERS, list_layers(rows), strict=False):
                points = select_rows(own, {"model": model, "layer": layer})
                label = f"{model}, {'output' if layer is None else f'layer {layer}'}" if points else None
                shares, gains = ([row[key] for row in points] for key in ("top_share", "gain"))
                axis.plot(shares, gains, marker, color=colour, markersize=3, alpha=0.8, label=label)
        axis.set(xscale="log", xlabel="top coordinate (% of variance)", ylabel="gain (points)")
        axis.set_xticks(ticks, [f"{100 * tick:g}" for tick in ticks])
        axis.minorticks_off()
        axis.tick_params(labelbottom=True, labelleft=True)
    if panels:
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3)
    return figure


def group_equal_methods(rows: Sequence[TidyRow]) -> list[list[str]]:
    """Group the methods whose gains are the same in all rows, in order of appearance."""
    groups: list[tuple[np.ndarray, list[str]]] = []
    for method in list_distinct(rows, "method"):
        gains = np.array([row["gain"] for row in select_rows(rows, {"method": method})])
        for other, methods in groups:
            if other.shape == gains.shape and np.allclose(other, gains, rtol=0, atol=SAME, equal_nan=True):
                methods.append(method)
                break
        else:
            groups.append((gains, [method]))
    return [methods for _, methods in groups]


def list_layers(rows: Sequence[TidyRow]) -> list[int | None]:
    """List the layers, the first one first and the model's output (None) last."""
    layers = list_distinct(rows, "layer")
    return sorted((layer for layer in layers if layer is not None), key=int) + [None] * (None in layers)
