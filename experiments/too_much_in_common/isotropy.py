"""Too Much in Common (Bis et al. 2021), Table 1, Section 5.3, Figures 1, 2, 5, 6: vocabularies and their centring.

Beyond the paper, vocabularies are also centred, whitened and measured with each word weighted by its share of a
corpus (Yokoi et al. 2024, Zipfian Whitening).
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from rich.table import Table
from typing_extensions import TypedDict

from isobench.analyses.rows import TidyRow, group_rows, list_distinct, select_rows
from isobench.analyses.shown import RowLabel, Rows, Shown, build_comparison_tables, make_table
from isobench.common.plots import LINE_STYLES, PAGE_WIDTH, PALETTE, make_panel_grid, make_panels
from isobench.config.bounds import NOT_EMPTY, PositiveInt, one_of
from isobench.papers import published

if TYPE_CHECKING:  # importing them takes seconds
    from torch import Tensor

    from isobench.analyses.subject import Subject

PAPER, TABLE = "too_much_in_common", "table1"
# Column -> measure and decimals: the columns that Table 1 prints, then more of our own.
TABLE1_COLUMNS = {"I(W)": ("i1_raw", 2), "I(Wc)": ("i1_centred", 2), "I(Wr)": ("i1_removed", 3)}
TABLE1_COLUMNS |= {"avg norm": ("average_norm", 2), "mean norm": ("mean_norm", 2), "ratio": ("mean_ratio", 2)}
TABLE1_COLUMNS |= {"EV1": ("ev1", 3), "IsoScore": ("isoscore", 3)}
# The same for the numbers that Section 5.3 gives in its text, for RoBERTa-large alone.
SECTION = "section5_3"
SECTION_COLUMNS = {"avg cos": ("average_cosine", 2), "cos(mean, top)": ("cosine_of_mean_and_top", 2)}
# The same for the measures with all words alike and by their frequency.
WEIGHTING_COLUMNS = {"ratio": ("mean_ratio", 2), "avg cos": ("average_cosine", 2)}
WEIGHTING_COLUMNS |= {"EV1": ("ev1", 3), "IsoScore": ("isoscore", 3)}
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
    from isobench.analyses.subject import check_no_calibration, iterate_subjects
    from isobench.common.linalg import to_float64
    from isobench_papers.too_much_in_common.corpus import open_corpus
    from isobench_papers.too_much_in_common.token_counts import count_rows

    check_no_calibration(subjects)
    counted = None if corpus is None else open_corpus(corpus, subjects[0].cfg.data, texts)
    rows: Rows = {"isotropy": [], "singular_values": [], "norm_density": [], "points": []}
    for subject in iterate_subjects(subjects, "vocabularies"):
        matrix = to_float64(subject.vocabulary())
        counts = count_rows(subject, counted, len(matrix)) if counted else None
        subject.release()  # the rest of the encoder is not needed, and large
        measured = measure_vocabulary(matrix, removed)
        if counted and counts is not None:
            measured["weighted_isotropy"] = measure_weighted(matrix, counts)
            measured["corpus"] = [{"corpus": counted.name, "texts": counted.text_count}]
        for name, own in measured.items():
            rows.setdefault(name, []).extend({"encoder": subject.encoder, **row} for row in own)
    spheres = sample_toy_spheres(toy["points"], toy["shifts"], subjects[0].cfg.seed)
    rows["toy_points"] = [
        {"shift": shift, **dict(zip("xyz", point, strict=True))}
        for shift, sphere in spheres.items()
        for point in sphere.tolist()
    ]
    rows["toy_singular_values"] = [
        {"shift": shift, "index": index, "singular_value": value}
        for shift, sphere in spheres.items()
        for index, value in enumerate(np.linalg.svd(sphere, compute_uv=False).tolist(), 1)
    ]
    return rows


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

    count, dim = len(matrix), matrix.shape[1]
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
        rows["singular_values"] += [
            {"vectors": vectors, "index": index, "singular_value": value}
            for index, value in enumerate(singular.tolist(), 1)
        ]
        norms = row_norms(version).numpy()
        grid = np.linspace(norms.min(), norms.max(), DENSITY_POINTS)
        heights = stats.gaussian_kde(norms)(grid)
        rows["norm_density"] += [
            {"vectors": vectors, "norm": norm, "density": density}
            for norm, density in zip(grid.tolist(), heights.tolist(), strict=True)
        ]
        rows["points"] += [
            {"vectors": vectors, "token": int(token), "first": float(x), "second": float(y)}
            for token, (x, y) in zip(tokens, places[tokens].float().tolist(), strict=True)
        ]
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


def sample_toy_spheres(points: int, shifts: list[float], seed: int) -> dict[float, np.ndarray]:
    """Draw points evenly from unit spheres whose centres are shifted from the origin along (1, 1, 1).

    Returns:
        Shift -> points, [n, 3].
    """
    generator = np.random.default_rng(seed)
    spheres = {}
    for shift in shifts:
        sphere = generator.normal(size=(points, 3))
        sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
        spheres[shift] = sphere + shift / math.sqrt(3)
    return spheres


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
    measures, weighted = rows["isotropy"], rows.get("weighted_isotropy")
    notes = [
        f"Wr: centred, less the top {removed}(d / 100) principal components (analysis.removed).",
        "Eigenvectors are turned towards the sum of the rows; of centred rows, towards their largest entry.",
        *describe_norm_correlation(measures),
    ]
    if weighted:
        counted = rows["corpus"][0]
        notes.append(
            f"Zipf: a word's weight is how often its token occurs in {counted['texts']:,} texts of "
            f"{counted['corpus']}, in the means and covariances of zipf_centred and zipf_whitened and in the columns "
            "(Yokoi et al. 2024; not in the paper)."
        )
    shown = len(select_rows(rows["points"], {"encoder": measures[0]["encoder"], "vectors": "raw"}))
    if shown < measures[0]["rows"]:
        notes.append(f"Figure 1 shows at most {MAX_TOKENS:,} tokens, evenly spaced in the vocabulary.")
    section = "Too Much in Common, Section 5.3: average cosine, and cosine of the mean with the top eigenvector"
    return Shown(
        [
            *build_comparison_tables(
                "Too Much in Common, Table 1", ("encoder",), format_cells(measures, TABLE1_COLUMNS), PAPER, TABLE
            ),
            *build_comparison_tables(section, ("encoder",), format_cells(measures, SECTION_COLUMNS), PAPER, SECTION),
            *([build_weighting_table(weighted)] if weighted else []),
        ],
        {
            "figure1": draw_figure1(rows),
            "figure2": draw_figure2(rows["toy_points"], rows["toy_singular_values"]),
            "figure5": draw_figure5(rows["norm_density"]),
            "figure6": draw_figure6(rows["norm_density"]),
        },
        notes,
        independent_figures=("figure2",),
    )


def format_cells(measures: list[TidyRow], columns: Mapping[str, tuple[str, int]]) -> dict[RowLabel, dict[str, str]]:
    """Format our cells of a table, encoder -> column -> text; ``columns`` has each one's measure and decimals."""
    return {
        (row["encoder"],): {name: f"{row[key]:.{decimals}f}" for name, (key, decimals) in columns.items()}
        for row in measures
    }


def describe_norm_correlation(measures: list[TidyRow]) -> list[str]:
    """Say how average norm and isotropy correlate over three encoders or more (Appendix C), here and in Table 1."""
    from scipy import stats

    if len(measures) < 3:
        return []
    ours = stats.pearsonr(*([row[key] for row in measures] for key in ("average_norm", "i1_raw")))
    rows = [cells for methods in published.load_tables(PAPER)[TABLE].cells.values() for cells in methods.values()]
    theirs = stats.pearsonr(*([row[name][0] for row in rows] for name in ("avg norm", "I(W)")))
    return [
        f"Correlation of average norm and I(W): {ours.statistic:.2f} over these {len(measures)} encoders, "
        f"{theirs.statistic:.2f} over the paper's {len(rows)} printed ones."
    ]


def build_weighting_table(rows: list[TidyRow]) -> Table:
    """Build the table of both weightings' measures, side by side: a row for each encoder and kind of vectors."""
    headings = [heading for name in WEIGHTING_COLUMNS for heading in (name, f"{name}, Zipf")]
    table = make_table("All words alike, and by their frequency", ("encoder", "vectors"), headings, wrap_numbers=True)
    measures = {(row["encoder"], row["vectors"], row["weighting"]): row for row in rows}
    for encoder, vectors in dict.fromkeys(key[:2] for key in measures):
        pair = [measures[encoder, vectors, weighting] for weighting in ("uniform", "zipf")]
        cells = [f"{row[measure]:z.{digits}f}" for measure, digits in WEIGHTING_COLUMNS.values() for row in pair]
        table.add_row(encoder, vectors, *cells)
    return table


def draw_figure1(rows: Rows) -> Figure:
    """Draw embeddings on their first two singular vectors, raw and centred, and singular values, a row an encoder."""
    measures = rows["isotropy"]
    figure, axes = make_panels(len(measures), 3, 1.9)
    for measured, (raw, centred, spectrum) in zip(measures, axes, strict=True):
        encoder = measured["encoder"]
        shown = []
        for axis, vectors, line in ((raw, "raw", "--"), (centred, "centred", "-")):
            points = select_rows(rows["points"], {"encoder": encoder, "vectors": vectors})
            token, x, y = ([row[column] for row in points] for column in ("token", "first", "second"))
            axis.scatter(x, y, s=0.7, c=token, linewidths=0, alpha=0.5, rasterized=True)
            axis.plot(0, 0, "+", color="black", markersize=9)
            title = f"{encoder}, {vectors}"
            axis.set(title=title, xlabel="on singular vector 1", ylabel="on singular vector 2")
            own = select_rows(rows["singular_values"], {"encoder": encoder, "vectors": vectors})
            values = np.array([row["singular_value"] for row in own])
            spectrum.plot(np.arange(1, len(values) + 1), values / values[0], line, label=vectors)
            shown += list(values / values[0])
        scale = ScalarMappable(Normalize(0, measured["rows"] / 1000))
        figure.colorbar(scale, ax=centred, label="token id (thousands)")
        spectrum.set(title=encoder, xlabel="index", ylabel="singular value\n(largest = 1)")
        spectrum.set(yscale="log", ylim=(0.9 * min(value for value in shown if value > ROUNDING_ERROR), 1.2))
        spectrum.legend()
    return figure


def draw_figure2(points: list[TidyRow], values: list[TidyRow]) -> Figure:
    """Draw the points of shifted spheres, and beside them their singular values in the same colours."""
    figure = Figure(figsize=(PAGE_WIDTH, 2.6), layout="constrained")
    space: Any = figure.add_subplot(1, 2, 1, projection="3d")
    spectrum = figure.add_subplot(1, 2, 2)
    for number, ((shift,), sphere) in enumerate(group_rows(points, "shift").items()):
        style: dict[str, Any] = {
            "color": PALETTE[number % len(PALETTE)],
            "marker": SPHERE_MARKERS[number % len(SPHERE_MARKERS)],
        }
        space.scatter(
            *([row[axis] for row in sphere] for axis in "xyz"), s=1.5, linewidths=0, rasterized=True, **style
        )
        own_rows = select_rows(values, {"shift": shift})
        indices, heights = [row["index"] for row in own_rows], [row["singular_value"] for row in own_rows]
        spectrum.plot(indices, heights, LINE_STYLES[number % 4], label=f"shifted by {shift:g}", **style)
    space.set(xlabel="x", ylabel="y", zlabel="z")
    space.set_aspect("equal")
    for side in (space.xaxis, space.yaxis, space.zaxis):
        side.labelpad = -4
        side.set_tick_params(pad=-2)
    spectrum.set(xlabel="index", ylabel="singular value", xticks=[1, 2, 3], ylim=(0, None))
    spectrum.legend()
    return figure


def draw_figure5(rows: list[TidyRow]) -> Figure:
    """Draw the densities of the raw embeddings' norms, a line an encoder."""
    figure, axes = make_panels(1, 1, 2.3)
    for number, encoder in enumerate(list_distinct(rows, "encoder")):
        raw = select_rows(rows, {"encoder": encoder, "vectors": "raw"})
        _plot_density(axes[0, 0], raw, LINE_STYLES[number % 4], encoder)
    axes[0, 0].set_ylim(bottom=0)
    axes[0, 0].legend()
    return figure


def draw_figure6(rows: list[TidyRow]) -> Figure:
    """Draw the densities of the embeddings' norms before and after centring, a panel an encoder."""
    encoders = list_distinct(rows, "encoder")
    figure, axes = make_panel_grid(encoders, 2.0)
    for encoder, axis in zip(encoders, axes, strict=True):
        for vectors, line in (("raw", "--"), ("centred", "-")):
            _plot_density(axis, select_rows(rows, {"encoder": encoder, "vectors": vectors}), line, vectors)
        axis.set_ylim(bottom=0)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def _plot_density(axis: Axes, rows: list[TidyRow], line: str, label: str) -> None:
    axis.plot([row["norm"] for row in rows], [row["density"] for row in rows], line, label=label)
    axis.set(xlabel="L2 norm", ylabel="density")
