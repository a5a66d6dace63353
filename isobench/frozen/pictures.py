"""Draw the pictures of a diagnosis with matplotlib, as SVG in the colours of the page around them."""

import textwrap
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from markupsafe import Markup
from matplotlib.axes import Axes

from isobench.common.plots import PALETTE, escape_math, make_panels, use_figure_style
from isobench.common.terminal import replace_control_characters
from isobench.metrics.isotropy import effective_rank_of
from isobench.report.output.figures import write_svg
from isobench.report.wording import format_number

HEIGHT, METHOD_HEIGHT = 2.2, 0.26  # inches: of a picture, and of each method in the picture of effects
LONGEST_LINE = 22  # characters of a method's name, which may have two lines
BINS = 40  # of histograms
NARROWEST = 0.02  # width of a histogram, as a share of its largest value: lengths of 1 differ by rounding alone
SMALLEST_SHARE = 1e-10  # of the largest variance: below it is rounding, and the picture's edge
OUTLIER, MOST_NAMED = 5, 5  # times the mean variance (Rudman et al. 2023, Section 3); how many have their names


def draw_pictures(diagnosis: Any) -> dict[str, tuple[Markup, str]]:
    """Draw the pictures for which a diagnosis has numbers: title -> SVG, and a sentence on what it shows."""
    drawn = {}
    with use_figure_style():
        for title, (read, draw, about) in PICTURES.items():
            values = np.array(read(diagnosis), float)  # [n], or [n, numbers of each method]
            if np.isfinite(values).any():
                height = 0.6 + METHOD_HEIGHT * len(values) if values.ndim > 1 else 0
                figure, axes = make_panels(1, 1, max(HEIGHT, height))
                draw(axes[0, 0], values, diagnosis)
                drawn[title] = write_svg(figure, title), about
    return drawn


def _read_effects(diagnosis: Any) -> list[list[float]]:
    names = ("change", "low", "high") if diagnosis.score else ("isoscore",)
    return [[getattr(effect, name) for name in names] for effect in diagnosis.effects]


def _read_levels(diagnosis: Any) -> list[list[float]]:
    known = [level for level in diagnosis.levels if level.pairs == diagnosis.levels[0].pairs]
    return [[*level.quantiles, *level.one_percent, *level.one_per_mille] for level in known]


def _draw_spectrum(axis: Axes, shares: np.ndarray, _: Any) -> None:
    shares = np.where(shares > 0, shares, np.nan)
    axis.loglog(np.arange(1, len(shares) + 1), shares, marker="." if len(shares) < 10 else "")
    axis.axhline(1 / len(shares), color="black", linestyle=":")
    axis.annotate("1/d", (1, 1 / len(shares)), (0, 2), textcoords="offset points")
    axis.set_ylim(bottom=max(np.nanmin(shares) / 2, SMALLEST_SHARE * np.nanmax(shares)))
    axis.set(xlabel="principal component", ylabel="share of the variance")


def _draw_explained_variance(axis: Axes, shares: np.ndarray, _: Any) -> None:
    rank = effective_rank_of(torch.from_numpy(np.maximum(shares, 0)))
    axis.semilogx(np.arange(1, len(shares) + 1), shares.cumsum(), marker="." if len(shares) < 10 else "")
    axis.axvline(rank, color="black", linestyle=":")
    is_right = rank > len(shares) ** 0.5
    axis.annotate(
        f"effective rank {format_number(rank)}", (rank, 0.05), (-3 if is_right else 3, 0),
        textcoords="offset points", ha="right" if is_right else "left",
    )  # fmt: skip
    axis.set(xlabel="principal components", ylabel="explained variance", ylim=(0, 1.02))


def _draw_norms(axis: Axes, norms: np.ndarray, _: Any) -> None:
    finite = norms[np.isfinite(norms)]
    middle, width = (finite.max() + finite.min()) / 2, np.ptp(finite)
    half = max(width, NARROWEST * np.abs(finite).max(), np.finfo(float).tiny) / 2
    counts, edges = np.histogram(finite, BINS, (middle - half, middle + half))
    axis.stairs(counts / len(finite), edges, fill=True, color=PALETTE[0], alpha=0.5)
    axis.locator_params("x", nbins=5)
    axis.set(xlabel="length of a vector", ylabel="share")


def _draw_levels(axis: Axes, values: np.ndarray, diagnosis: Any) -> None:
    """Draw quantiles, and the two levels with their intervals, of each method's cosines [n, 5 + 2 * 3]."""
    for place, row in enumerate(values):
        for left, right, width in ((0, 4, 1), (1, 3, 4)):
            axis.plot(row[[left, right]], [place, place], color=PALETTE[0], linewidth=width)
        for level, colour in ((row[5:8], PALETTE[1]), (row[8:], PALETTE[5])):
            axis.plot(level[1:], [place, place], color=colour)
            axis.plot(level[0], place, "o", color=colour, markersize=4)
    _name_methods(axis, [level.method for level in diagnosis.levels[: len(values)]])
    axis.set_xlabel(f"cosine: {diagnosis.levels[0].pairs}")


def _name_methods(axis: Axes, methods: Sequence[str]) -> None:
    plain = map(replace_control_characters, methods)
    names = [escape_math(textwrap.fill(name, LONGEST_LINE, max_lines=2, placeholder="...")) for name in plain]
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)


def _draw_coordinates(axis: Axes, shares: np.ndarray, _: Any) -> None:
    shares = np.nan_to_num(shares)
    axis.stairs(shares, np.arange(len(shares) + 1) - 0.5, fill=True, edgecolor=PALETTE[0], linewidth=0.8)
    axis.axhline(OUTLIER / len(shares), color="black", linestyle=":")
    for index in np.argsort(-shares)[:MOST_NAMED]:
        if shares[index] > OUTLIER / len(shares):
            axis.annotate(str(index), (index, shares[index]), (0, 1), textcoords="offset points", ha="center")
    axis.set(xlabel="coordinate", ylabel="share of the variance")


def _draw_effects(axis: Axes, values: np.ndarray, diagnosis: Any) -> None:
    """Draw the changes of the score [n, 3] with their intervals, or IsoScores [n, 1], downwards."""
    if diagnosis.score:
        for place, (change, low, high) in enumerate(100 * values):
            colour = PALETTE[2] if low > 0 else PALETTE[5] if high < 0 else "black"
            axis.plot([low, high], [place, place], color=colour)
            axis.plot(change, place, "o", color=colour, markersize=4)
        axis.axvline(0, color="0.5", linewidth=0.8)
        axis.set_xlabel("change of the score \N{MULTIPLICATION SIGN}100")
    else:
        axis.barh(range(len(values)), values[:, 0])
        axis.set_xlabel("IsoScore")
    _name_methods(axis, [effect.method for effect in diagnosis.effects])


PICTURES: dict[str, tuple[Callable[[Any], Any], Callable[[Axes, np.ndarray, Any], None], str]] = {
    # Title -> what is read of the diagnosis, how it is drawn, and a sentence.
    "Spectrum": (attrgetter("variances"), _draw_spectrum, "A flat line at 1/d would be a perfectly isotropic space."),
    "Explained variance": (
        attrgetter("variances"), _draw_explained_variance, "What the first components hold together.",
    ),
    "Lengths": (attrgetter("norms"), _draw_norms, "Of a sample of the vectors."),
    "Cosines": (
        _read_levels, _draw_levels,
        "Lines: the middle 90% and 50% of unrelated pairs. Dots: the values above which 1% and 0.1% lie, with 95% "
        "intervals.",
    ),
    "Coordinates": (
        attrgetter("coordinates"), _draw_coordinates,
        f"Above the dotted line: over {OUTLIER} times the mean variance; the {MOST_NAMED} largest are named.",
    ),
    "Effect of each method": (
        _read_effects, _draw_effects,
        "Measured on the half that nothing was fitted on. With labels or pairs, a 95% interval of what is in colour "
        "excludes 0.",
    ),
}  # fmt: skip
