"""Too Much in Common (Bis et al. 2021), Table 1, Section 5.3, Figures 1, 2, 5, 6: vocabularies and their centring.

Beyond the paper, vocabularies are also centred, whitened and measured with each word weighted by its share of a
corpus (Yokoi et al. 2024, Zipfian Whitening).
"""

import itertools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from rich.table import Table
from typing_extensions import TypedDict

from isobench.analyses.rows import TidyRow
from isobench.analyses.shown import Rows, Shown, build_comparison_tables, make_table
from isobench.common.plots import LINE_STYLES, PAGE_WIDTH, PALETTE, make_panel_grid, make_panels
from isobench.config.bounds import NOT_EMPTY, PositiveInt, one_of
from isobench.papers import published

if TYPE_CHECKING:  # importing them takes seconds
    from torch import Tensor

    from isobench.analyses.subject import Subject

PAPER = "too_much_in_common"
SPREAD = {"EV1": ("ev1", 3), "IsoScore": ("isoscore", 3)}
# Column -> measure and decimals: the columns that Table 1 prints, then more of our own.
TABLE1_COLUMNS = {
    "I(W)": ("i1_raw", 2), "I(Wc)": ("i1_centred", 2), "I(Wr)": ("i1_removed", 3),
    "avg norm": ("average_norm", 2), "mean norm": ("mean_norm", 2), "ratio": ("mean_ratio", 2), **SPREAD,
}  # fmt: skip
# The same for the numbers that Section 5.3 gives in its text, for RoBERTa-large alone.
SECTION_COLUMNS = {"avg cos": ("average_cosine", 2), "cos(mean, top)": ("cosine_of_mean_and_top", 2)}
# The same for the measures with all words alike and by their frequency.
WEIGHTING_COLUMNS = {"ratio": ("mean_ratio", 2), "avg cos": ("average_cosine", 2), **SPREAD}
VERSIONS = {"raw": "--", "centred": "-"}  # of a vocabulary, with their lines
DENSITY_POINTS = 300
MAX_TOKENS = 6000  # that Figure 1 shows, evenly spaced in the vocabulary
SPHERE_MARKERS = "osD^vP*X"
ROUNDING_ERROR = 1e-6  # singular values below this share of the largest are zeros


class Toy(TypedDict):
    """Unit spheres in three dimensions, for Figure 2."""

    points: PositiveInt  # on each sphere
    shifts: Annotated[list[float], NOT_EMPTY]  # of the spheres' centres from the origin


def compute(
    subjects: list["Subject"],
    removed: Annotated[str, one_of("ceil", "floor")],
    toy: Toy,
    corpus: str | None = None,
    texts: PositiveInt | None = None,
) -> Rows:
    """Measure the isotropy of input embeddings: raw, centred, and without their top principal components.

    Args:
        subjects: encoders.
        removed: ``ceil`` or ``floor``: how d / 100, the number of components removed for I(Wr), is rounded.
        toy: the spheres of Figure 2.
        corpus: name of a corpus of ``corpus.py`` whose tokens are counted, to centre, whiten and measure
            the vocabularies by the frequency of their words too; None for not.
        texts: read only so many texts from the corpus's start; None for all.

    Raises:
        UserError: a calibration is set, or the corpus is missing.
    """
    from isobench_papers.too_much_in_common.corpus import open_corpus
    from isobench_papers.too_much_in_common.vocabularies import iterate_vocabularies

    counted = open_corpus(corpus, subjects[0].cfg.data, texts) if corpus else None
    rows: Rows = {}
    for subject, matrix, counts in iterate_vocabularies(subjects, counted):
        measured = measure_vocabulary(matrix, removed)
        if counted:
            measured["weighted_isotropy"] = measure_weighted(matrix, counts)
            measured["corpus"] = [{"corpus": counted.name, "texts": counted.text_count}]
        for name, own in measured.items():
            rows.setdefault(name, []).extend({"encoder": subject.encoder, **row} for row in own)
    return rows | draw_toy_spheres(toy, subjects[0].cfg.seed)


def describe_differences(subjects: list["Subject"], rows: Rows) -> list[str]:
    """Describe how encoders differ from the paper's; no task is read."""
    from isobench.analyses.subject import list_encoder_differences

    return list_encoder_differences(subjects)


def measure_vocabulary(matrix: "Tensor", removed: str) -> Rows:
    """Measure an embedding matrix, [V, d] float64, raw, centred and without top components (Eqs. 7 to 11).

    Returns:
        isotropy: one row of measures.
        singular_values: a row for each, raw and centred: the right-hand panels of Figure 1.
        norm_density: densities of the norms by Gaussian kernels (Scott's rule), raw and centred: Figures 5 and 6.
        points: places on the first two right singular vectors, raw and centred, of at most ``MAX_TOKENS`` tokens.
    """
    import torch
    from scipy import stats

    from isobench.calibration import all_but_the_top, center
    from isobench.common.linalg import PIECE_ROWS, row_norms
    from isobench.metrics import IsotropyAccumulator, partition_isotropy

    count, dim = matrix.shape
    centred, components = center(matrix), getattr(math, removed)(dim / 100)
    accumulator = IsotropyAccumulator(dim)
    for piece in matrix.split(PIECE_ROWS):
        accumulator.update(piece)
    mean_norm = torch.linalg.vector_norm(accumulator.mean).item()
    rows: Rows = {"isotropy": [], "singular_values": [], "norm_density": [], "points": []}
    tops = {}
    tokens = np.arange(min(count, MAX_TOKENS)) * count // min(count, MAX_TOKENS)
    for vectors, version in {"raw": matrix, "centred": centred}.items():
        tops[vectors], singular, places = project_on_top_two(version)
        norms = row_norms(version).numpy()
        grid = np.linspace(norms.min(), norms.max(), DENSITY_POINTS)
        first, second = places[tokens].float().numpy().T
        for name, columns in {
            "singular_values": {"index": range(1, len(singular) + 1), "singular_value": singular.numpy()},
            "norm_density": {"norm": grid, "density": stats.gaussian_kde(norms)(grid)},
            "points": {"token": tokens, "first": first, "second": second},
        }.items():
            rows[name] += pd.DataFrame({"vectors": vectors, **columns}).to_dict("records")
    along_top = (tops["raw"] @ accumulator.mean).abs().item()
    rows["isotropy"] = [
        {
            "rows": count,
            "dim": dim,
            "removed": components,
            "i1_raw": partition_isotropy(matrix)[0],
            "i1_centred": partition_isotropy(centred)[0],
            "i1_removed": partition_isotropy(all_but_the_top(matrix, components))[0],
            "average_norm": row_norms(matrix).mean().item(),
            "mean_norm": mean_norm,
            **accumulator.compute(),
            "cosine_of_mean_and_top": along_top / mean_norm if mean_norm else math.nan,
        }
    ]
    return rows


def project_on_top_two(matrix: "Tensor") -> "tuple[Tensor, Tensor, Tensor]":
    """Decompose a matrix [V, d] into singular values and project its rows on the first two right singular vectors.

    The signs of the vectors are chosen so that they point towards the sum of the rows, as for I(W).

    Returns:
        The first vector [d], the singular values, descending, [min(V, d)], and the projected rows [V, 2].
    """
    import torch

    from isobench.common.linalg import gram, row_mean
    from isobench.metrics.partition import orient_eigenvectors

    second = gram(matrix)
    values, vectors = torch.linalg.eigh(second)  # ascending
    two = orient_eigenvectors(vectors[:, -2:].flip(1), second, row_mean(matrix) * len(matrix))  # (d, 2)
    singular = values.clamp(min=0).sqrt().flip(0)[: min(matrix.shape)]
    return two[:, 0], singular, matrix @ two


def draw_toy_spheres(toy: Toy, seed: int) -> Rows:
    """Draw points evenly from unit spheres whose centres are shifted from the origin along (1, 1, 1)."""
    generator = np.random.default_rng(seed)
    rows: Rows = {"toy_points": [], "toy_singular_values": []}
    for shift in toy["shifts"]:
        sphere = generator.normal(size=(toy["points"], 3))
        sphere = sphere / np.linalg.norm(sphere, axis=1, keepdims=True) + shift / math.sqrt(3)
        rows["toy_points"] += [{"shift": shift, "x": x, "y": y, "z": z} for x, y, z in sphere.tolist()]
        values = enumerate(np.linalg.svd(sphere, compute_uv=False).tolist(), 1)
        rows["toy_singular_values"] += [{"shift": shift, "index": i, "singular_value": value} for i, value in values]
    return rows


def measure_weighted(matrix: "Tensor", counts: "Tensor") -> list[TidyRow]:
    """Measure a vocabulary [V, d] as it is, centred and whitened, with all words alike and by their counts, [V]."""
    from isobench.calibration import center, whiten
    from isobench.metrics.weighted import weighted_isotropy

    weightings = {"uniform": counts.new_ones(len(counts)), "zipf": counts}
    versions = {  # functions, so that the large matrices are not all in memory
        "raw": lambda: matrix,
        "centred": lambda: center(matrix),
        "zipf_centred": lambda: center(matrix, counts),
        "whitened": lambda: whiten(matrix),
        "zipf_whitened": lambda: whiten(matrix, weights=counts),
    }
    rows = []
    for vectors, transform in versions.items():
        embeddings = transform()
        for weighting, weights in weightings.items():
            rows.append({"vectors": vectors, "weighting": weighting, **weighted_isotropy(embeddings, weights)})
    return rows


def show(rows: Rows, removed: str) -> Shown:
    """Show Table 1, Section 5.3 and the measures by frequency, and Figures 1, 2, 5 and 6."""
    measures = rows["isotropy"]
    densities = pd.DataFrame(rows["norm_density"])
    notes = [
        f"Wr: centred, less the top {removed}(d / 100) principal components (analysis.removed).",
        "Eigenvectors are turned towards the sum of the rows; of centred rows, towards their largest entry.",
        *describe_norm_correlation(measures),
    ]
    section = "Section 5.3: average cosine, and cosine of the mean with the top eigenvector"
    tables = []
    for table, title, columns in (
        ("table1", "Table 1", TABLE1_COLUMNS), ("section5_3", section, SECTION_COLUMNS),
    ):  # fmt: skip
        cells = {
            (row["encoder"],): {name: f"{row[key]:.{decimals}f}" for name, (key, decimals) in columns.items()}
            for row in measures
        }
        tables += build_comparison_tables(f"Too Much in Common, {title}", ("encoder",), cells, PAPER, table)
    if "weighted_isotropy" in rows:
        tables.append(build_weighting_table(rows["weighted_isotropy"]))
        counted = rows["corpus"][0]
        notes.append(
            f"Zipf: a word's weight is how often its token occurs in {counted['texts']:,} texts of "
            f"{counted['corpus']}, in the means and covariances of zipf_centred and zipf_whitened and in the columns "
            "(Yokoi et al. 2024; not in the paper)."
        )
    if measures[0]["rows"] > MAX_TOKENS:
        notes.append(f"Figure 1 shows at most {MAX_TOKENS:,} tokens, evenly spaced in the vocabulary.")
    figures = {
        "figure1": draw_figure1(rows),
        "figure2": draw_figure2(rows),
        "figure5": draw_figure5(densities),
        "figure6": draw_figure6(densities),
    }
    return Shown(tables, figures, notes, independent_figures=("figure2",))


def describe_norm_correlation(measures: list[TidyRow]) -> list[str]:
    """Say how average norm and isotropy correlate over three encoders or more (Appendix C), here and in Table 1."""
    from scipy import stats

    if len(measures) < 3:
        return []
    ours = stats.pearsonr(*([row[key] for row in measures] for key in ("average_norm", "i1_raw")))
    rows = [cells for methods in published.load_tables(PAPER)["table1"].cells.values() for cells in methods.values()]
    theirs = stats.pearsonr(*([row[name][0] for row in rows] for name in ("avg norm", "I(W)")))
    return [
        f"Correlation of average norm and I(W): {ours.statistic:.2f} over these {len(measures)} encoders, "
        f"{theirs.statistic:.2f} over the paper's {len(rows)} printed ones."
    ]


def build_weighting_table(rows: list[TidyRow]) -> Table:
    """Build the table of both weightings' measures, side by side: a row for each encoder and kind of vectors."""
    headings = [heading for name in WEIGHTING_COLUMNS for heading in (name, f"{name}, Zipf")]
    table = make_table("All words alike, and by their frequency", ("encoder", "vectors"), headings, wrap_numbers=True)
    for uniform, zipf in zip(rows[::2], rows[1::2], strict=True):
        columns = WEIGHTING_COLUMNS.values()
        cells = [f"{row[measure]:z.{digits}f}" for measure, digits in columns for row in (uniform, zipf)]
        table.add_row(uniform["encoder"], uniform["vectors"], *cells)
    return table


def draw_figure1(rows: Rows) -> Figure:
    """Draw embeddings on their first two singular vectors, raw and centred, and singular values, a row an encoder."""
    points, values = (
        dict(list(pd.DataFrame(rows[name]).groupby(["encoder", "vectors"]))) for name in ("points", "singular_values")
    )
    figure, axes = make_panels(len(rows["isotropy"]), 3, 1.9)
    for measured, (*pictures, spectrum) in zip(rows["isotropy"], axes, strict=True):
        encoder, shown = measured["encoder"], []
        for axis, (vectors, line) in zip(pictures, VERSIONS.items(), strict=True):
            own = points[encoder, vectors]
            axis.scatter(own["first"], own["second"], s=0.7, c=own["token"], linewidths=0, alpha=0.5, rasterized=True)
            axis.plot(0, 0, "+", color="black", markersize=9)
            axis.set(title=f"{encoder}, {vectors}", xlabel="on singular vector 1", ylabel="on singular vector 2")
            heights = values[encoder, vectors]["singular_value"].to_numpy()
            shown.append(heights / heights[0])
            spectrum.plot(np.arange(1, len(heights) + 1), shown[-1], line, label=vectors)
        scale = ScalarMappable(Normalize(0, measured["rows"] / 1000))
        figure.colorbar(scale, ax=pictures[1], label="token id (thousands)")
        heights = np.concatenate(shown)
        spectrum.set(title=encoder, xlabel="index", ylabel="singular value\n(largest = 1)")
        spectrum.set(yscale="log", ylim=(0.9 * heights[heights > ROUNDING_ERROR].min(), 1.2))
        spectrum.legend()
    return figure


def draw_figure2(rows: Rows) -> Figure:
    """Draw the points of shifted spheres, and beside them their singular values in the same colours."""
    figure = Figure(figsize=(PAGE_WIDTH, 2.6), layout="constrained")
    space: Any = figure.add_subplot(1, 2, 1, projection="3d")
    spectrum = figure.add_subplot(1, 2, 2)
    points, values = (
        pd.DataFrame(rows[name]).groupby("shift", sort=False) for name in ("toy_points", "toy_singular_values")
    )
    for number, ((shift, sphere), (_, own)) in enumerate(zip(points, values, strict=True)):
        marker = SPHERE_MARKERS[number % len(SPHERE_MARKERS)]
        style: dict[str, Any] = {"color": PALETTE[number % len(PALETTE)], "marker": marker}
        space.scatter(*(sphere[axis] for axis in "xyz"), s=1.5, linewidths=0, rasterized=True, **style)
        line = LINE_STYLES[number % 4]
        spectrum.plot(own["index"], own["singular_value"], line, label=f"shifted by {shift:g}", **style)
    space.set(xlabel="x", ylabel="y", zlabel="z")
    space.set_aspect("equal")
    for side in (space.xaxis, space.yaxis, space.zaxis):
        side.labelpad = -4
        side.set_tick_params(pad=-2)
    spectrum.set(xlabel="index", ylabel="singular value", xticks=[1, 2, 3], ylim=(0, None))
    spectrum.legend()
    return figure


def draw_figure5(densities: pd.DataFrame) -> Figure:
    """Draw the densities of the raw embeddings' norms, a line an encoder."""
    figure, axes = make_panels(1, 1, 2.3)
    plot_densities(axes[0, 0], densities[densities["vectors"] == "raw"], "encoder", LINE_STYLES)
    axes[0, 0].legend()
    return figure


def draw_figure6(densities: pd.DataFrame) -> Figure:
    """Draw the densities of the embeddings' norms before and after centring, a panel an encoder."""
    figure, axes = make_panel_grid(densities["encoder"].unique(), 2.0)
    for (_, own), axis in zip(densities.groupby("encoder", sort=False), axes, strict=True):
        plot_densities(axis, own, "vectors", VERSIONS.values())
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def plot_densities(axis: Axes, densities: pd.DataFrame, column: str, lines: Iterable[str]) -> None:
    for (name, own), line in zip(densities.groupby(column, sort=False), itertools.cycle(lines), strict=False):
        axis.plot(own["norm"], own["density"], line, label=name)
    axis.set(xlabel="L2 norm", ylabel="density")
    axis.set_ylim(bottom=0)
