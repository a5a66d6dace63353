"""IsoBN, Figures 4 to 6: deviations and correlations of the dimensions of the pretrained [CLS] embeddings."""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from rich.table import Table

from isobench.analyses.findings import Findings
from isobench.analyses.setting_checks import check_no_calibration, no_variance_error
from isobench.analyses.subject import Subject, collect_scale_notes, iterate_subjects
from isobench.common.linalg import gram, row_mean
from isobench.common.plots import make_panel_grid, make_panels
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
class DimensionStatistics:
    """How the dimensions of one subject's embeddings vary, each alone and with each other."""

    encoder: str
    task: str
    examples: int
    deviation: np.ndarray  # (d,), divided by N
    correlation: np.ndarray  # (d, d), absolute
    order: np.ndarray  # (d,): correlated dimensions side by side
    cluster: np.ndarray  # (d,)

    @property
    def title(self) -> str:
        """What a panel is of."""
        return f"{self.encoder}, {self.task}"

    @property
    def ordered_correlation(self) -> np.ndarray:
        """The correlations in that order, [d, d]."""
        return self.correlation[np.ix_(self.order, self.order)]

    @property
    def nonzero_deviations(self) -> np.ndarray:
        """The deviations that are not 0."""
        return self.deviation[self.deviation > 0]


def analyse(
    subjects: list[Subject],
    bins: PositiveInt,
    strong: Annotated[list[Annotated[float, between(0, 1)]], NOT_EMPTY],
    threshold: Annotated[float, at_least(0), at_most(1)],
) -> Findings:
    """Standard deviations, correlations and groups of the dimensions, by encoder and task.

    Args:
        subjects: encoders x tasks, without calibration.
        bins: of Figure 4.
        strong: |rho| above which pairs of dimensions are counted as correlated.
        threshold: two groups of dimensions are one while the mean |rho| between them is at least this.

    Raises:
        UserError: a calibration, embeddings that do not vary.
    """
    check_no_calibration(subjects)
    found = [
        measure_dimensions(subject, threshold) for subject in iterate_subjects(subjects, "correlation of dimensions")
    ]
    summaries = [summarise_dimensions(dims, strong) for dims in found]
    return Findings(
        numbers={
            "summary": summaries,
            "dimensions": [row for dims in found for row in build_dimension_rows(dims)],
            "clusters": [row for dims in found for row in build_cluster_rows(dims)],
        },
        figures={
            "figure4": draw_figure4(found, bins),
            "figure5": draw_figure5(found),
            "figure6": draw_figure6(found, summaries, threshold),
        },
        tables=[build_dimension_table(summaries, strong, threshold)],
        notes=[RANGES_NOTE, READING_NOTE],
        differs=collect_scale_notes(subjects, "encoder", "task"),
    )


def measure_dimensions(subject: Subject, threshold: float) -> DimensionStatistics:
    """Deviations, absolute correlations and groups of what a head would read."""
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
    """One subject in a line; the geometric spread is exp of the standard deviation of log std."""
    values = dims.nonzero_deviations
    pairs = dims.correlation[np.triu_indices(len(dims.deviation), 1)]
    sizes = np.bincount(dims.cluster)[1:]
    apart = block_diagonal(dims.cluster)[np.triu_indices(len(dims.deviation), 1)] - pairs
    quantiles = {f"std_q{100 * q:02.0f}": float(np.quantile(values, q)) for q in (0.05, 0.25, 0.5, 0.75, 0.95)}
    return {
        "encoder": dims.encoder,
        "task": dims.task,
        "examples": dims.examples,
        "dimensions": len(dims.deviation),
        "constant": len(dims.deviation) - len(values),
        "std_min": float(values.min()),
        **quantiles,
        "std_max": float(values.max()),
        "geometric_spread": math.exp(np.log(values).std()),
        "mean_correlation": float(pairs.mean()),  # also how far batch normalisation's assumption is off
        "mean_off_blocks": float(np.abs(apart).mean()),  # how far IsoBN's is
        **{f"share_above_{bound:g}": float((pairs > bound).mean()) for bound in strong},
        "clusters": len(sizes),
        "clusters_of_several": int((sizes > 1).sum()),
        "largest_cluster": int(sizes.max()),
    }


def build_dimension_rows(dims: DimensionStatistics) -> list[dict[str, Any]]:
    """A row a dimension: its deviation, its place in Figure 5, its group."""
    place = np.argsort(dims.order)
    name = {"encoder": dims.encoder, "task": dims.task}
    return [
        {**name, "dimension": j, "std": float(std), "place": int(place[j]), "cluster": int(dims.cluster[j])}
        for j, std in enumerate(dims.deviation)
    ]


def build_cluster_rows(dims: DimensionStatistics) -> list[dict[str, Any]]:
    """A row a group, the largest first: how many dimensions it has."""
    name = {"encoder": dims.encoder, "task": dims.task}
    return [{**name, "cluster": k, "size": int(size)} for k, size in enumerate(np.bincount(dims.cluster)[1:], 1)]


def build_dimension_table(summaries: list[dict[str, Any]], strong: list[float], threshold: float) -> Table:
    """The summaries, a line each."""
    shown = Table(title="IsoBN, Figures 4 to 6: dimensions of [CLS]", title_justify="left", header_style="bold")
    for name in ("encoder", "task"):
        shown.add_column(name, overflow="fold")
    above = "/".join(f"{bound:g}" for bound in strong)
    for name in (
        "N", "d\n(const.)", "std min/\nmedian/max", "spread", "mean\n|rho|", f"|rho| above\n{above}",
        f"clusters\nat {threshold:g} (> 1)", "largest",
    ):  # fmt: skip
        shown.add_column(name, justify="right", no_wrap=True)
    for row in summaries:
        shown.add_row(
            row["encoder"], row["task"], f"{row['examples']:,}", f"{row['dimensions']} ({row['constant']})",
            "/".join(f"{row[name]:.2g}" for name in ("std_min", "std_q50", "std_max")),
            f"{row['geometric_spread']:.2f}", f"{row['mean_correlation']:.2f}",
            "/".join(f"{row[f'share_above_{bound:g}']:.1%}" for bound in strong),
            f"{row['clusters']} ({row['clusters_of_several']})", str(row["largest_cluster"]),
        )  # fmt: skip
    return shown


def draw_figure4(found: list[DimensionStatistics], bins: int) -> Figure:
    """How many dimensions have which standard deviation; the panels of an encoder have one logarithmic axis."""
    figure, axes = make_panel_grid([dims.title for dims in found], 2.0)
    for dims, axis in zip(found, axes, strict=True):
        together = np.concatenate([other.nonzero_deviations for other in found if other.encoder == dims.encoder])
        low, high = math.floor(math.log10(together.min())), math.floor(math.log10(together.max())) + 1
        d = len(dims.deviation)
        edges = np.logspace(low, high, bins + 1).tolist()
        axis.hist(dims.nonzero_deviations, edges, weights=np.full(len(dims.nonzero_deviations), 100 / d))
        axis.set(xscale="log", xlim=(10.0**low, 10.0**high), xlabel="standard deviation", ylabel="dimensions (%)")
        constant = d - len(dims.nonzero_deviations)
        if constant:
            axis.annotate(f"{constant} of {d} constant:\nno logarithm", (0.03, 0.97), None, "axes fraction", va="top")
    return figure


def draw_figure5(found: list[DimensionStatistics]) -> Figure:
    """Absolute correlations, the dimensions in the order of the clustering."""
    figure, axes = make_panel_grid([dims.title for dims in found], 2.0 if len(found) > 1 else 2.8)
    figure.set_layout_engine("compressed")
    for dims, axis in zip(found, axes, strict=True):
        image = draw_matrix(axis, dims.ordered_correlation)
        axis.set_xlabel("dimension (clustered)")
    axes[0].set_ylabel("dimension (clustered)")
    figure.colorbar(image, ax=axes, label=r"$|\rho|$", aspect=30)
    return figure


def draw_figure6(found: list[DimensionStatistics], summaries: list[dict[str, Any]], threshold: float) -> Figure:
    """What batch normalisation and IsoBN assume of the correlations, beside the real ones: a row for each panel."""
    figure, axes = make_panels(len(found), 3, 2.6)
    figure.set_layout_engine("compressed")
    for axis, title in zip(axes[0], ("batch normalisation assumes", "IsoBN assumes", "real"), strict=True):
        axis.set_title(title)
    for dims, row, (identity, blocks, real) in zip(found, summaries, axes, strict=True):
        draw_matrix(identity, np.eye(len(dims.order)))
        draw_matrix(blocks, block_diagonal(dims.cluster[dims.order]))
        image = draw_matrix(real, dims.ordered_correlation)
        off = "{:.2f} off on average"
        identity.set(ylabel=dims.title, xlabel="no correlations\n" + off.format(row["mean_correlation"]))
        number = rf"{row['clusters']} clusters at mean $|\rho|$ $\geq$ {threshold:g}"
        blocks.set(xlabel=f"{number}\n" + off.format(row["mean_off_blocks"]))
        real.set(xlabel="dimension (clustered)")
        figure.colorbar(image, ax=[identity, blocks, real], label=r"$|\rho|$", aspect=30)
    return figure


def draw_matrix(axis: Axes, matrix: np.ndarray) -> AxesImage:
    """A matrix of |rho| as an image, white 0, dark blue 1; its diagonal as a line, thinner than a dot otherwise."""
    image = axis.imshow(matrix, "Blues", vmin=0, vmax=1)
    ends = (0, len(matrix) - 1)
    axis.plot(ends, ends, color=image.cmap(1.0), linewidth=0.5)
    return image
