"""IsoBN, Figures 4 to 6: deviations and correlations of the dimensions of pretrained [CLS] embeddings."""

import math
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from rich.table import Table

from isobench.analyses.rows import TidyRow, name_panel, select_subject
from isobench.analyses.shown import Rows, Shown, make_table
from isobench.common.plots import add_finding, make_panel_grid, make_panels
from isobench.config.bounds import NOT_EMPTY, PositiveInt, above, at_least, at_most, below

if TYPE_CHECKING:  # importing it takes seconds
    from isobench.analyses.subject import Subject

MAX_CELLS = 192  # of a side of Figures 5 and 6: more dimensions are averaged in blocks, which are finer than print
RANGES_NOTE = (
    "The paper has no numbers for these figures but two ranges of the standard deviation: [1e-10, 1] for BERT-base "
    "on MRPC, usually [0.01, 1] for RoBERTa-large."
)
READING_NOTE = (
    "std: of the dimensions that vary; spread: exp of the standard deviation of log std. A constant dimension counts "
    "as correlated with none. Clusters (> 1): those of more than one dimension."
)


def compute(
    subjects: list["Subject"],
    bins: PositiveInt,
    strong: Annotated[list[Annotated[float, above(0), below(1)]], NOT_EMPTY],
    threshold: Annotated[float, at_least(0), at_most(1)],
) -> Rows:
    """Measure standard deviations, correlations and clusters of the dimensions, by encoder and task.

    Args:
        subjects: encoders x tasks, without calibration.
        bins: number of bins of Figure 4.
        strong: for each of these the share of pairs of dimensions with |rho| above it is computed.
        threshold: two clusters of dimensions are merged while the mean |rho| between them is at least this.

    Raises:
        UserError: a calibration is set, or embeddings do not vary.
    """
    from isobench.analyses.subject import check_no_calibration, iterate_subjects

    check_no_calibration(subjects)
    rows: Rows = {"summary": [], "dimensions": [], "clusters": [], "correlations": []}
    for subject in iterate_subjects(subjects, "correlation of dimensions"):
        names = {"encoder": subject.encoder, "task": subject.task}
        for name, own in measure_dimensions(subject, strong, threshold).items():
            rows[name] += [{**names, **row} for row in own]
    return rows


def measure_dimensions(subject: "Subject", strong: list[float], threshold: float) -> Rows:
    """Measure the dimensions of the embeddings that a head reads without calibration.

    Returns:
        summary: one row; ``geometric_spread`` is exp of the standard deviation of log std.
        dimensions: a row for each: its standard deviation (divided by N), its place in Figure 5, its cluster.
        clusters: a row for each, the largest first.
        correlations: |rho| with correlated dimensions side by side, below and on the diagonal; of more than
            ``MAX_CELLS`` dimensions the means of blocks.
    """
    from isobench.analyses.subject import no_variance_error
    from isobench.common.linalg import gram, row_mean
    from isobench.metrics.correlation import clusters_of, correlation_of

    h = subject.embeddings()
    covariance = gram(h, row_mean(h)) / len(h)
    if not covariance.any():
        raise no_variance_error(subject, len(h))
    rho = correlation_of(covariance)
    order, cluster = clusters_of(rho, threshold)
    deviation, correlation = covariance.diagonal().sqrt().numpy(), rho.abs().numpy()
    varying, d = deviation[deviation > 0], len(deviation)
    pairs, sizes = correlation[np.triu_indices(d, 1)], np.bincount(cluster)[1:]
    assumed = cluster[:, None] == cluster  # the |rho| that IsoBN assumes: 1 within a cluster, 0 between
    apart = assumed[np.triu_indices(d, 1)] - pairs
    summary = {
        "examples": len(h),
        "dimensions": d,
        "constant": d - len(varying),
        "std_min": float(varying.min()),
        **{f"std_q{100 * q:02.0f}": float(np.quantile(varying, q)) for q in (0.05, 0.25, 0.5, 0.75, 0.95)},
        "std_max": float(varying.max()),
        "geometric_spread": math.exp(np.log(varying).std()),
        "mean_correlation": float(pairs.mean()),  # also the mean error of what batch normalisation assumes
        "mean_off_blocks": float(np.abs(apart).mean()),  # the mean error of what IsoBN assumes
        **{f"share_above_{bound:g}": float((pairs > bound).mean()) for bound in strong},
        "clusters": len(sizes),
        "clusters_of_several": int((sizes > 1).sum()),
        "largest_cluster": int(sizes.max()),
    }
    cells = shrink(correlation[np.ix_(order, order)]).round(4)
    row, column = np.tril_indices(len(cells))
    tables = {
        "dimensions": {"dimension": range(d), "std": deviation, "place": np.argsort(order), "cluster": cluster},
        "clusters": {"cluster": range(1, len(sizes) + 1), "size": sizes},
        "correlations": {"row": row, "column": column, "correlation": cells[row, column]},
    }
    return {"summary": [summary]} | {name: pd.DataFrame(own).to_dict("records") for name, own in tables.items()}


def shrink(matrix: np.ndarray) -> np.ndarray:
    """Average a matrix [d, d] in blocks, so that it has at most ``MAX_CELLS`` rows."""
    d = len(matrix)
    if d <= MAX_CELLS:
        return matrix
    starts = np.arange(MAX_CELLS) * d // MAX_CELLS
    sizes = np.diff([*starts, d])
    sums = np.add.reduceat(np.add.reduceat(matrix, starts, 0), starts, 1)
    return sums / np.outer(sizes, sizes)


def show(rows: Rows, bins: int, strong: list[float], threshold: float) -> Shown:
    """Show the summaries and Figures 4 to 6."""
    summaries = rows["summary"]
    return Shown(
        [build_dimension_table(summaries, strong, threshold)],
        {
            "figure4": draw_figure4(summaries, rows["dimensions"], bins),
            "figure5": draw_figure5(summaries, rows["correlations"]),
            "figure6": draw_figure6(rows, threshold),
        },
        [RANGES_NOTE, READING_NOTE],
    )


def build_dimension_table(summaries: list[dict[str, Any]], strong: list[float], threshold: float) -> Table:
    """Build the terminal's table of the summaries, a row a subject."""
    columns = {
        "N": "{examples:,}", "d\n(const.)": "{dimensions} ({constant})",
        "std min/\nmedian/max": "{std_min:.2g}/{std_q50:.2g}/{std_max:.2g}", "spread": "{geometric_spread:.2f}",
        "mean\n|rho|": "{mean_correlation:.2f}", f"|rho| above\n{'/'.join(map('{:g}'.format, strong))}": "{above}",
        f"clusters\nat {threshold:g} (> 1)": "{clusters} ({clusters_of_several})", "largest": "{largest_cluster}",
    }  # fmt: skip
    table = make_table("IsoBN, Figures 4 to 6: dimensions of [CLS]", ("encoder", "task"), columns)
    for row in summaries:
        above = "/".join(f"{row[f'share_above_{bound:g}']:.1%}" for bound in strong)
        cells = (form.format(above=above, **row) for form in columns.values())
        table.add_row(row["encoder"], row["task"], *cells)
    return table


def draw_figure4(summaries: list[TidyRow], dimensions: list[TidyRow], bins: int) -> Figure:
    """Draw histograms of the standard deviations; an encoder's panels share the limits of the logarithmic axis."""
    figure, axes = make_panel_grid([name_panel(row) for row in summaries], 2.0)
    for summary, axis in zip(summaries, axes, strict=True):
        pooled = [row["std"] for row in dimensions if row["encoder"] == summary["encoder"] and row["std"] > 0]
        own = [row["std"] for row in select_subject(dimensions, summary) if row["std"] > 0]
        low, high = math.floor(math.log10(min(pooled))), math.floor(math.log10(max(pooled))) + 1
        d, constant = summary["dimensions"], summary["constant"]
        axis.hist(own, np.logspace(low, high, bins + 1).tolist(), weights=np.full(len(own), 100 / d))
        axis.set(xscale="log", xlim=(10.0**low, 10.0**high), xlabel="standard deviation", ylabel="dimensions (%)")
        if constant:
            axis.annotate(f"{constant} of {d} constant:\nno logarithm", (0.03, 0.97), None, "axes fraction", va="top")
    return figure


def draw_figure5(summaries: list[TidyRow], correlations: list[TidyRow]) -> Figure:
    """Draw the absolute correlations, correlated dimensions side by side, a panel a subject."""
    figure, axes = make_panel_grid([name_panel(row) for row in summaries], 2.0 if len(summaries) > 1 else 2.8)
    figure.set_layout_engine("compressed")
    for summary, axis in zip(summaries, axes, strict=True):
        image = draw_matrix(axis, read_matrix(select_subject(correlations, summary)), summary["dimensions"])
    axes[0].set_ylabel("dimension (clustered)")
    figure.colorbar(image, ax=axes, label=r"$|\rho|$", aspect=30)
    return figure


def draw_figure6(rows: Rows, threshold: float) -> Figure:
    """Draw the correlations that batch normalisation and IsoBN assume beside the real ones, a row a subject."""
    figure, axes = make_panels(len(rows["summary"]), 3, 2.6)
    figure.set_layout_engine("compressed")
    for axis, title in zip(axes[0], ("batch normalisation assumes", "IsoBN assumes", "real"), strict=True):
        axis.set_title(title)
    for summary, panels in zip(rows["summary"], axes, strict=True):
        own = sorted(select_subject(rows["dimensions"], summary), key=lambda row: row["place"])
        clusters = np.array([row["cluster"] for row in own])
        error, clustered = summary["mean_correlation"], rf"(mean $|\rho|$ $\geq$ {threshold:g})"
        findings = {
            f"no correlations:\n{error:.2f} off on average": np.eye(len(own)),
            f"{summary['clusters']} clusters {clustered}:\n{summary['mean_off_blocks']:.2f} off on average": (
                np.equal.outer(clusters, clusters).astype(float)
            ),
            f"of the embeddings:\n{error:.2f} on average": read_matrix(select_subject(rows["correlations"], summary)),
        }
        for axis, (finding, matrix) in zip(panels, findings.items(), strict=True):
            image = draw_matrix(axis, matrix, len(own))
            add_finding(axis, finding)
        panels[0].set(ylabel=name_panel(summary))
        figure.colorbar(image, ax=list(panels), label=r"$|\rho|$", aspect=30)
    return figure


def read_matrix(rows: list[TidyRow]) -> np.ndarray:
    """Read a symmetric matrix from its rows below and on the diagonal."""
    lower = pd.DataFrame(rows).pivot(index="row", columns="column", values="correlation").to_numpy()
    return np.where(np.isnan(lower), lower.T, lower)


def draw_matrix(axis: Axes, matrix: np.ndarray, dimensions: int) -> AxesImage:
    """Draw a matrix of |rho| between dimensions as an image, white at 0, dark blue at 1.

    The diagonal is drawn as a line, because single pixels may be too small to print.
    """
    edges = (-0.5, dimensions - 0.5)
    image = axis.imshow(matrix, "Blues", vmin=0, vmax=1, extent=(*edges, *reversed(edges)))
    ends = (0, dimensions - 1)
    axis.plot(ends, ends, color=image.cmap(1.0), linewidth=0.5)
    axis.set_xlabel("dimension (clustered)")
    return image
