"""Figures 1, 2, 5 and 6 of Too Much in Common (Bis et al. 2021)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from isobench.analyses.rows import list_distinct, select_rows
from isobench.common.plots import LINE_STYLES, PAGE_WIDTH, PALETTE, make_panel_grid, make_panels

if TYPE_CHECKING:
    from isobench_papers.too_much_in_common.vocabulary import VocabularyMeasures

SPHERE_MARKERS = "osD^vP*X"
ROUNDING_ERROR = 1e-6  # singular values below this share of the largest are zeros


def draw_figure1(vocabularies: "list[VocabularyMeasures]") -> Figure:
    """Draw embeddings on their first two singular vectors, raw and centred, and singular values, a row an encoder."""
    figure, axes = make_panels(len(vocabularies), 3, 1.9)
    for vocabulary, (raw, centred, spectrum) in zip(vocabularies, axes, strict=True):
        for axis, vectors in ((raw, "raw"), (centred, "centred")):
            points = vocabulary.projected[vectors]
            axis.scatter(*points.T, s=0.7, c=np.arange(len(points)), linewidths=0, alpha=0.5, rasterized=True)
            axis.plot(0, 0, "+", color="black", markersize=9)
            title = f"{vocabulary.encoder}, {vectors}"
            axis.set(title=title, xlabel="on singular vector 1", ylabel="on singular vector 2")
        scale = ScalarMappable(Normalize(0, len(points) / 1000))
        figure.colorbar(scale, ax=centred, label="token id (thousands)")
        for (vectors, values), line in zip(vocabulary.singular_values.items(), ("--", "-"), strict=True):
            spectrum.plot(np.arange(1, len(values) + 1), values / values[0], line, label=vectors)
        shown = np.concatenate([values / values[0] for values in vocabulary.singular_values.values()])
        spectrum.set(title=vocabulary.encoder, xlabel="index", ylabel="singular value\n(largest = 1)")
        spectrum.set(yscale="log", ylim=(0.9 * shown[shown > ROUNDING_ERROR].min(), 1.2))
        spectrum.legend()
    return figure


def draw_figure2(spheres: Mapping[float, np.ndarray], rows: list[dict[str, Any]]) -> Figure:
    """Draw the points of shifted spheres, and beside them their singular values in the same colours.

    Args:
        spheres: shift -> points, [n, 3].
        rows: tidy rows of the singular values, with ``shift``, ``index`` and ``singular_value``.
    """
    figure = Figure(figsize=(PAGE_WIDTH, 2.6), layout="constrained")
    space: Any = figure.add_subplot(1, 2, 1, projection="3d")
    values = figure.add_subplot(1, 2, 2)
    for number, (shift, points) in enumerate(spheres.items()):
        style: dict[str, Any] = {
            "color": PALETTE[number % len(PALETTE)],
            "marker": SPHERE_MARKERS[number % len(SPHERE_MARKERS)],
        }
        space.scatter(*points.T, s=1.5, linewidths=0, rasterized=True, **style)
        own_rows = select_rows(rows, {"shift": shift})
        indices, heights = [row["index"] for row in own_rows], [row["singular_value"] for row in own_rows]
        values.plot(indices, heights, LINE_STYLES[number % 4], label=f"shifted by {shift:g}", **style)
    space.set(xlabel="x", ylabel="y", zlabel="z")
    space.set_aspect("equal")
    for side in (space.xaxis, space.yaxis, space.zaxis):
        side.labelpad = -4
        side.set_tick_params(pad=-2)
    values.set(xlabel="index", ylabel="singular value", xticks=[1, 2, 3], ylim=(0, None))
    values.legend()
    return figure


def draw_figure5(rows: list[dict[str, Any]]) -> Figure:
    """Draw the densities of the raw embeddings' norms, a line an encoder."""
    figure, axes = make_panels(1, 1, 2.3)
    for number, encoder in enumerate(list_distinct(rows, "encoder")):
        raw = select_rows(rows, {"encoder": encoder, "vectors": "raw"})
        _plot_density(axes[0, 0], raw, LINE_STYLES[number % 4], encoder)
    axes[0, 0].set_ylim(bottom=0)
    axes[0, 0].legend()
    return figure


def draw_figure6(rows: list[dict[str, Any]]) -> Figure:
    """Draw the densities of the embeddings' norms before and after centring, a panel an encoder."""
    encoders = list_distinct(rows, "encoder")
    figure, axes = make_panel_grid(encoders, 2.0)
    for encoder, axis in zip(encoders, axes, strict=True):
        for vectors, line in (("raw", "--"), ("centred", "-")):
            _plot_density(axis, select_rows(rows, {"encoder": encoder, "vectors": vectors}), line, vectors)
        axis.set_ylim(bottom=0)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def _plot_density(axis: Axes, rows: list[dict[str, Any]], line: str, label: str) -> None:
    axis.plot([row["norm"] for row in rows], [row["density"] for row in rows], line, label=label)
    axis.set(xlabel="L2 norm", ylabel="density")
