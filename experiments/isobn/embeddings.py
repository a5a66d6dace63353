"""IsoBN, Figures 4 to 6: deviations and correlations of the dimensions of pretrained [CLS] embeddings."""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from rich.table import Table

from isobench.analyses.findings import Findings, make_table
from isobench.analyses.names import EncoderOnTask
from isobench.analyses.setting_checks import check_no_calibration, no_variance_error
from isobench.analyses.subject import Subject, collect_scale_notes, iterate_subjects
from isobench.common.linalg import gram, row_mean
from isobench.common.plots import add_finding, make_panel_grid, make_panels
from isobench.config.bounds import NOT_EMPTY, PositiveInt, at_least, at_most, between
from isobench.metrics.correlation import block_diagonal, clusters_of, correlation_of

RANGES_NOTE = (
    "The paper has no numbers for these figures but two ranges of the standard deviation: [1e-10, 1] for BERT-base "
    "on MRPC, usually [0.01, 1] for RoBERTa-large."
)
READING_NOTE = (
    "std: of the dimensions that vary; spread: exp of the standard deviation of log std. A constant dimension counts "
    "as correlated with none. Clusters (> 1): those of more than one dimension."
)


@dataclass
class DimensionStatistics(EncoderOnTask):
    """Deviations, correlations and clusters of the dimensions of one subject's embeddings."""

    examples: int
    deviation: np.ndarray  # (d,), standard deviations, divided by N
    correlation: np.ndarray  # (d, d), absolute values
    order: np.ndarray  # (d,): the dimensions, correlated ones side by side
    cluster: np.ndarray  # (d,): each dimension's cluster, counted from 1

    @property
    def ordered_correlation(self) -> np.ndarray:
        """The correlations with rows and columns in ``order``, [d, d]."""
        return self.correlation[np.ix_(self.order, self.order)]

    @property
    def nonzero_deviations(self) -> np.ndarray:
        """The deviations above 0, of the dimensions that vary."""
        return self.deviation[self.deviation > 0]


def analyse(
    subjects: list[Subject],
    bins: PositiveInt,
    strong: Annotated[list[Annotated[float, between(0, 1)]], NOT_EMPTY],
    threshold: Annotated[float, at_least(0), at_most(1)],
) -> Findings:
    """Measure standard deviations, correlations and clusters of the dimensions, by encoder and task.

    Args:
        subjects: encoders x tasks, without calibration.
        bins: number of bins of Figure 4.
        strong: for each of these the share of pairs of dimensions with |rho| above it is computed.
        threshold: two clusters of dimensions are merged while the mean |rho| between them is at least this.

    Raises:
        UserError: a calibration is set, or embeddings do not vary.
    """
    check_no_calibration(subjects)
    statistics = [
        measure_dimensions(subject, threshold) for subject in iterate_subjects(subjects, "correlation of dimensions")
    ]
    summaries = [summarise_dimensions(dims, strong) for dims in statistics]
    return Findings(
        numbers={
            "summary": summaries,
            "dimensions": [row for dims in statistics for row in build_dimension_rows(dims)],
            "clusters": [row for dims in statistics for row in build_cluster_rows(dims)],
        },
        figures={
            "figure4": draw_figure4(statistics, bins),
            "figure5": draw_figure5(statistics),
            "figure6": draw_figure6(statistics, summaries, threshold),
        },
        tables=[build_dimension_table(summaries, strong, threshold)],
        notes=[RANGES_NOTE, READING_NOTE],
        differs=collect_scale_notes(subjects, "encoder", "task"),
    )


def measure_dimensions(subject: Subject, threshold: float) -> DimensionStatistics:
    """Measure the dimensions of the embeddings that a head reads without calibration.

    Raises:
        UserError: no dimension varies.
    """
    h = subject.embeddings()
    covariance = gram(h, row_mean(h)) / len(h)
    if not covariance.any():
        raise no_variance_error(subject, len(h))
    correlation = correlation_of(covariance)
    order, cluster = clusters_of(correlation, threshold)
    deviation = covariance.diagonal().sqrt().numpy()
    return DimensionStatistics(
        subject.encoder, subject.task, len(h), deviation, correlation.abs().numpy(), order, cluster
    )  # fmt: skip


def summarise_dimensions(dims: DimensionStatistics, strong: list[float]) -> dict[str, Any]:
    """Summarise one subject in a tidy row; ``geometric_spread`` is exp of the standard deviation of log std."""
    values = dims.nonzero_deviations
    pairs = dims.correlation[np.triu_indices(len(dims.deviation), 1)]
    sizes = np.bincount(dims.cluster)[1:]
    apart = block_diagonal(dims.cluster)[np.triu_indices(len(dims.deviation), 1)] - pairs
    quantiles = {f"std_q{100 * q:02.0f}": float(np.quantile(values, q)) for q in (0.05, 0.25, 0.5, 0.75, 0.95)}
    return {
        **dims.columns,
        "examples": dims.examples,
        "dimensions": len(dims.deviation),
        "constant": len(dims.deviation) - len(values),
        "std_min": float(values.min()),
        **quantiles,
        "std_max": float(values.max()),
        "geometric_spread": math.exp(np.log(values).std()),
        "mean_correlation": float(pairs.mean()),  # also the mean error of what batch normalisation assumes
        "mean_off_blocks": float(np.abs(apart).mean()),  # the mean error of what IsoBN assumes
        **{f"share_above_{bound:g}": float((pairs > bound).mean()) for bound in strong},
        "clusters": len(sizes),
        "clusters_of_several": int((sizes > 1).sum()),
        "largest_cluster": int(sizes.max()),
    }


def build_dimension_rows(dims: DimensionStatistics) -> list[dict[str, Any]]:
    """Build a tidy row for each dimension: its deviation, its place in Figure 5, its cluster."""
    place = np.argsort(dims.order)
    return [
        {**dims.columns, "dimension": j, "std": float(std), "place": int(place[j]), "cluster": int(dims.cluster[j])}
        for j, std in enumerate(dims.deviation)
    ]


def build_cluster_rows(dims: DimensionStatistics) -> list[dict[str, Any]]:
    """Build a tidy row for each cluster, the largest first: its number of dimensions."""
    sizes = np.bincount(dims.cluster)[1:]
    return [{**dims.columns, "cluster": k, "size": int(size)} for k, size in enumerate(sizes, 1)]


def build_dimension_table(summaries: list[dict[str, Any]], strong: list[float], threshold: float) -> Table:
    """Build the terminal's table of the summaries, a row a subject."""
    above = "/".join(f"{bound:g}" for bound in strong)
    headings = (
        "N", "d\n(const.)", "std min/\nmedian/max", "spread", "mean\n|rho|", f"|rho| above\n{above}",
        f"clusters\nat {threshold:g} (> 1)", "largest",
    )  # fmt: skip
    table = make_table("IsoBN, Figures 4 to 6: dimensions of [CLS]", ("encoder", "task"), headings)
    for row in summaries:
        table.add_row(
            row["encoder"], row["task"], f"{row['examples']:,}", f"{row['dimensions']} ({row['constant']})",
            "/".join(f"{row[name]:.2g}" for name in ("std_min", "std_q50", "std_max")),
            f"{row['geometric_spread']:.2f}", f"{row['mean_correlation']:.2f}",
            "/".join(f"{row[f'share_above_{bound:g}']:.1%}" for bound in strong),
            f"{row['clusters']} ({row['clusters_of_several']})", str(row["largest_cluster"]),
        )  # fmt: skip
    return table


def draw_figure4(statistics: list[DimensionStatistics], bins: int) -> Figure:
    """Draw histograms of the standard deviations; an encoder's panels share the limits of the logarithmic axis."""
    figure, axes = make_panel_grid([dims.title for dims in statistics], 2.0)
    for dims, axis in zip(statistics, axes, strict=True):
        pooled = np.concatenate([other.nonzero_deviations for other in statistics if other.encoder == dims.encoder])
        low, high = math.floor(math.log10(pooled.min())), math.floor(math.log10(pooled.max())) + 1
        d = len(dims.deviation)
        edges = np.logspace(low, high, bins + 1).tolist()
        axis.hist(dims.nonzero_deviations, edges, weights=np.full(len(dims.nonzero_deviations), 100 / d))
        axis.set(xscale="log", xlim=(10.0**low, 10.0**high), xlabel="standard deviation", ylabel="dimensions (%)")
        constant = d - len(dims.nonzero_deviations)
        if constant:
            axis.annotate(f"{constant} of {d} constant:\nno logarithm", (0.03, 0.97), None, "axes fraction", va="top")
    return figure


def draw_figure5(statistics: list[DimensionStatistics]) -> Figure:
    """Draw the absolute correlations, correlated dimensions side by side, a panel a subject."""
    figure, axes = make_panel_grid([dims.title for dims in statistics], 2.0 if len(statistics) > 1 else 2.8)
    figure.set_layout_engine("compressed")
    for dims, axis in zip(statistics, axes, strict=True):
        image = draw_matrix(axis, dims.ordered_correlation)
        axis.set_xlabel("dimension (clustered)")
    axes[0].set_ylabel("dimension (clustered)")
    figure.colorbar(image, ax=axes, label=r"$|\rho|$", aspect=30)
    return figure


def draw_figure6(statistics: list[DimensionStatistics], summaries: list[dict[str, Any]], threshold: float) -> Figure:
    """Draw the correlations that batch normalisation and IsoBN assume beside the real ones, a row a subject."""
    figure, axes = make_panels(len(statistics), 3, 2.6)
    figure.set_layout_engine("compressed")
    for axis, title in zip(axes[0], ("batch normalisation assumes", "IsoBN assumes", "real"), strict=True):
        axis.set_title(title)
    for dims, row, (identity, blocks, real) in zip(statistics, summaries, axes, strict=True):
        draw_matrix(identity, np.eye(len(dims.order)))
        draw_matrix(blocks, block_diagonal(dims.cluster[dims.order]))
        image = draw_matrix(real, dims.ordered_correlation)
        error = "{:.2f} off on average"
        add_finding(identity, "no correlations:\n" + error.format(row["mean_correlation"]))
        clusters = rf"{row['clusters']} clusters (mean $|\rho|$ $\geq$ {threshold:g}):"
        add_finding(blocks, f"{clusters}\n" + error.format(row["mean_off_blocks"]))
        add_finding(real, f"of the embeddings:\n{row['mean_correlation']:.2f} on average")
        identity.set(ylabel=dims.title)
        for axis in (identity, blocks, real):
            axis.set(xlabel="dimension (clustered)")
        figure.colorbar(image, ax=[identity, blocks, real], label=r"$|\rho|$", aspect=30)
    return figure


def draw_matrix(axis: Axes, matrix: np.ndarray) -> AxesImage:
    """Draw a matrix of |rho| as an image, white at 0, dark blue at 1.

    The diagonal is drawn as a line, because single pixels may be too small to print.
    """
    image = axis.imshow(matrix, "Blues", vmin=0, vmax=1)
    ends = (0, len(matrix) - 1)
    axis.plot(ends, ends, color=image.cmap(1.0), linewidth=0.5)
    return image
