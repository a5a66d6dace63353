"""Efficient Task Adaptation, Figures 1 to 3: pretrained [CLS] vectors before the pooler (h^l) and after it (h)."""

import math
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from rich.table import Table
from threadpoolctl import threadpool_limits

from isobench.analyses.rows import TidyRow, group_rows, list_distinct, name_panel, select_subject
from isobench.analyses.shown import Rows, Shown, format_number, make_table
from isobench.common.errors import UserError
from isobench.common.plots import PALETTE, add_finding, cut_outliers, make_panel_grid
from isobench.config.bounds import NonNegativeFloat, PositiveFloat, Seed, above, at_least, below

if TYPE_CHECKING:  # importing it takes seconds
    from isobench.analyses.subject import Subject

PointCount = Annotated[int, at_least(2)]
Share = Annotated[float, above(0), below(1)]
TYPES_NOTE = (
    "The paper sees three types of task. MRPC has few dimensions that vary much. On CoLA and SST-2, std is unrelated "
    "to importance. On RTE, MNLI, QNLI and WNLI, std rises with importance. Rank is by Fisher score, 1 the highest. "
    "Spearman is the correlation of Fisher score and std over the dimensions whose std is not 0."
)
CLUSTERS_NOTE = (
    "Clusters are those of t-SNE's picture, counted by HDBSCAN. The index is the share of the variance of the same "
    "vectors h^l that is left inside two clusters. The null is the smallest index of 19 samples of one Gaussian. If "
    "the index is above the null, t-SNE may have made the clusters."
)
GAUSSIAN_DRAWS = 19  # an index that is below those of all 19 samples has p <= 1/20


def compute(
    subjects: list["Subject"],
    points: PointCount,
    perplexity: PositiveFloat,
    seed: Seed,
    within: NonNegativeFloat,
    cluster_share: Share,
) -> Rows:
    """Measure t-SNE places, the means of the dimensions of h^l, and the deviations and Fisher scores of those of h.

    Args:
        subjects: encoders x tasks, without calibration.
        points: at most this many examples are shown by t-SNE.
        perplexity: t-SNE's perplexity.
        seed: t-SNE's seed, and that of the Gaussian samples.
        within: means of at most this absolute value are counted.
        cluster_share: a cluster holds at least this share of the examples that t-SNE shows.

    Raises:
        UserError: a task without classes, a calibration, or embeddings that do not vary.
    """
    from isobench.analyses.subject import check_no_calibration, iterate_subjects

    check_no_calibration(subjects)
    for subject in subjects:
        if not list_class_names(subject):
            advice = "leave it out, or set task.as_classes"
            raise UserError(f"task {subject.task} is a regression and has no classes: {advice}")
    rows: Rows = {"summary": [], "dimensions": [], "tsne": []}
    for subject in iterate_subjects(subjects, "distribution of embeddings"):
        names = {"encoder": subject.encoder, "task": subject.task}
        for name, own in measure(subject, points, perplexity, seed, within, cluster_share).items():
            rows[name] += [{**names, **row} for row in own]
    return rows


def list_class_names(subject: "Subject") -> list[str]:
    task = subject.cfg.task
    return list(task.labels or map(str, range(task.as_classes or 0)))


def measure(
    subject: "Subject", points: int, perplexity: float, seed: int, within: float, cluster_share: float
) -> Rows:
    """Measure one subject's training set.

    Returns:
        summary: one row. Its clusters are those of t-SNE's places, by HDBSCAN; its cluster indices are of h^l.
        dimensions: a row for each: its mean in h^l, its standard deviation (divided by N) and Fisher score in h.
            Dimension j of h^l and dimension j of h are related only where there is no pooler between them.
        tsne: a row for each example in Figure 1: its number in the training set, its class, its place.
    """
    import torch

    from isobench.analyses.subject import no_variance_error
    from isobench.common.linalg import gram_diagonal, row_mean
    from isobench.metrics.coordinates import fisher_score
    from isobench.metrics.task import METRIC_FUNCTIONS

    before, after = subject.encoded(), subject.embeddings()
    labels, classes = subject.labels(), list_class_names(subject)
    count = len(labels)
    deviation = (gram_diagonal(after, row_mean(after)) / count).sqrt().numpy()
    if not deviation.any():
        raise no_variance_error(subject, count)
    plotted = np.arange(min(points, count)) * count // max(1, min(points, count))
    shown = before[plotted].numpy()
    places = tsne(shown, perplexity, seed)
    clusters, in_no_cluster = count_clusters(places, cluster_share)
    index, gaussian_index = compare_with_one_gaussian(shown, seed)
    mean, fisher = row_mean(before).numpy(), fisher_score(after, torch.from_numpy(labels)).numpy()
    rank = np.argsort(np.argsort(-fisher, kind="stable")) + 1
    varying = deviation > 0
    largest, loudest = int(np.abs(mean).argmax()), int(deviation.argmax())
    summary = {
        "examples": count,
        "classes": len(classes),
        "plotted": len(plotted),
        "clusters": clusters,
        "in_no_cluster": in_no_cluster,
        "cluster_index": index,
        "gaussian_cluster_index": gaussian_index,
        "dimensions": len(mean),
        "means_within": int((np.abs(mean) <= within).sum()),
        "largest_mean": float(mean[largest]),
        "largest_mean_dimension": largest,
        "constant": int((~varying).sum()),
        "std_min": float(deviation.min()),
        "std_median": float(np.median(deviation)),
        "std_max": float(deviation.max()),
        "std_max_dimension": loudest,
        "std_max_fisher_rank": int(rank[loudest]),
        "fisher_median": float(np.median(fisher)),
        "fisher_max": float(fisher.max()),
        "spearman": METRIC_FUNCTIONS["spearman"](deviation[varying], fisher[varying]),
        "pooler": subject.cfg.encoder.pooling == "pooler",
    }
    tables = {
        "dimensions": {
            "dimension": range(len(mean)),
            "mean": mean,
            "std": deviation,
            "fisher": fisher,
            "fisher_rank": rank,
        },
        "tsne": {
            "example": plotted,
            "class": np.array(classes)[labels[plotted]],
            "x": places[:, 0],
            "y": places[:, 1],
        },
    }
    return {"summary": [summary]} | {name: pd.DataFrame(own).to_dict("records") for name, own in tables.items()}


def tsne(vectors: np.ndarray, perplexity: float, seed: int) -> np.ndarray:
    """Place vectors [P, d] in the plane by t-SNE, [P, 2], starting from their principal components.

    It runs on one thread, because the order of its sums, and so the picture, depends on the number of threads.
    """
    from sklearn.manifold import TSNE  # slow to import

    if not 0 < perplexity < len(vectors):
        limit = f"the number of points, {len(vectors)}"
        raise UserError(f"analysis.perplexity={perplexity:g} must be between 0 and {limit}")
    with threadpool_limits(1):
        return TSNE(perplexity=perplexity, init="pca", random_state=seed, n_jobs=1).fit_transform(vectors)


def count_clusters(points: np.ndarray, share: float) -> tuple[int, float]:
    """Count the clusters of points in the plane, [P, 2], by scikit-learn's HDBSCAN (Campello et al. 2013).

    A cluster is a region of higher density that holds at least ``share`` of the points. There may be only one.

    Returns:
        The number of clusters, and the share of the points that are in none.
    """
    from sklearn.cluster import HDBSCAN  # slow to import

    smallest = max(2, math.ceil(share * len(points)))
    labels = HDBSCAN(min_cluster_size=smallest, allow_single_cluster=True, copy=True).fit(points).labels_
    return int(labels.max()) + 1, float((labels < 0).mean())


def compute_cluster_index(vectors: np.ndarray) -> float:
    """Compute the cluster index of Liu et al. (2008): the share of the variance that two clusters leave.

    The clusters are those of k-means with k = 2. NaN for vectors [N, d] that are all equal.
    """
    from sklearn.cluster import KMeans

    total = float(((vectors - vectors.mean(0)) ** 2).sum())
    if not total:
        return math.nan
    return float(KMeans(2, n_init=3, random_state=0).fit(vectors).inertia_) / total


def compare_with_one_gaussian(vectors: np.ndarray, seed: int) -> tuple[float, float]:
    """Compare the cluster index of vectors [N, d] with that of samples of one Gaussian with the same covariance.

    This is the idea of SigClust (Liu et al. 2008). If the index of the vectors is below those of all the samples, one
    Gaussian is rejected with p of at most 1 / (``GAUSSIAN_DRAWS`` + 1).

    Returns:
        The index of the vectors, and the smallest index of the samples.
    """
    rng = np.random.default_rng(seed)
    centred = vectors.astype(np.float64)
    centred -= centred.mean(0)
    _, triangle = np.linalg.qr(centred)
    root = triangle / math.sqrt(len(centred))  # [min(N, d), d]; root^T root is the covariance
    with threadpool_limits(1):  # the order of sums depends on the number of threads
        samples = (rng.standard_normal((len(centred), len(root))) @ root for _ in range(GAUSSIAN_DRAWS))
        least = min(compute_cluster_index(sample.astype(np.float32)) for sample in samples)
        return compute_cluster_index(centred.astype(np.float32)), least


def show(rows: Rows, within: float) -> Shown:
    """Show the summaries and Figures 1 to 3."""
    summaries, dimensions = rows["summary"], rows["dimensions"]
    unpooled = list_distinct([row for row in summaries if not row["pooler"]], "encoder")
    return Shown(
        [build_distribution_table(summaries, within)],
        {
            "figure1": draw_figure1(summaries, rows["tsne"]),
            "figure2": draw_figure2(summaries, dimensions, within),
            "figure3": draw_figure3(summaries, dimensions),
        },
        [*(f"{encoder} is read without a pooler: h is h^l." for encoder in unpooled), TYPES_NOTE, CLUSTERS_NOTE],
    )


def build_distribution_table(summaries: list[dict[str, Any]], within: float) -> Table:
    """Build the terminal's table of the summaries, one row per encoder and task."""
    columns = {
        "N": "{examples:,}",
        "clusters\n(in none)": "{clusters} ({in_no_cluster:.0%})",
        "index\n(null)": "{cluster_index:.2f} ({gaussian_cluster_index:.2f})",
        "d\n(const.)": "{dimensions} ({constant})", f"h^l: means\nwithin {within:g}": "{share_within:.1%}",
        "h^l:\nlargest": "{largest_mean:.2f}",
        "h: std min/\nmedian/max": "{std_min:.2g}/{std_median:.2g}/{std_max:.2g}",
        "rank of\nmax std": "{std_max_fisher_rank}",
        "Fisher score\nmedian/max": "{fisher_median:.2g}/{fisher_max:.2g}", "Spear-\nman": "{spearman:.2f}",
    }  # fmt: skip
    title = "Efficient Task Adaptation, Figures 1 to 3: dimensions of [CLS]"
    table = make_table(title, ("encoder", "task"), columns)
    for row in summaries:
        share = row["means_within"] / row["dimensions"]
        cells = (form.format(share_within=share, **row) for form in columns.values())
        table.add_row(row["encoder"], row["task"], *cells)
    return table


def draw_figure1(summaries: list[TidyRow], places: list[TidyRow]) -> Figure:
    """Draw t-SNE of h^l, coloured by class, in one panel per encoder and task."""
    figure, axes = make_panel_grid([name_panel(row) for row in summaries], 2.6 if len(summaries) > 2 else 3.2)
    for summary, axis in zip(summaries, axes, strict=True):
        classes = group_rows(select_subject(places, summary), "class")
        for number, ((name,), own) in enumerate(sorted(classes.items())):
            x, y = ([row[column] for row in own] for column in ("x", "y"))
            axis.scatter(x, y, 3, PALETTE[number % len(PALETTE)], linewidths=0, alpha=0.6, label=name)
        axis.set_aspect("equal", adjustable="datalim")
        plotted, examples, clusters = summary["plotted"], summary["examples"], summary["clusters"]
        which = f"{plotted:,} of {examples:,} examples" if plotted < examples else f"{examples:,} examples"
        axis.set(xticks=[], yticks=[], ylabel="t-SNE 2", xlabel="t-SNE 1")
        add_finding(axis, f"{which}, {clusters} cluster{'s' * (clusters != 1)}")
        below = (0.5, -0.1)  # below the panel, where the legend hides no point
        axis.legend(loc="upper center", bbox_to_anchor=below, ncols=1 if len(classes) < 4 else 3, markerscale=3)
    return figure


def draw_figure2(summaries: list[TidyRow], dimensions: list[TidyRow], within: float) -> Figure:
    """Draw the mean of each dimension of h^l, in one panel per encoder and task."""
    figure, axes = make_panel_grid([name_panel(row) for row in summaries], 2.2)
    for summary, axis in zip(summaries, axes, strict=True):
        means = np.array([row["mean"] for row in select_subject(dimensions, summary)])
        axis.vlines(np.arange(len(means)), 0, means, PALETTE[0], linewidth=0.7)
        for bound in (-within, within):
            axis.axhline(bound, color=PALETTE[5], linewidth=0.7, linestyle="--")
        axis.set(xlabel="dimension of $h^l$", ylabel="mean")
        axis.margins(x=0.01)
        finding = f"{summary['means_within']} of {len(means)} within \N{PLUS-MINUS SIGN}{within:g}"
        if 0 < within < np.abs(means).max():  # else nothing is beyond, or nothing within
            ticks = within * 4.0 ** np.arange(max(1, math.ceil(math.log(np.abs(means).max() / within, 4))))
            axis.set_yscale("symlog", linthresh=within)
            axis.set_yticks([*-ticks[::-1], 0, *ticks])
            axis.yaxis.set_major_formatter("{x:g}")
            axis.yaxis.set_minor_locator(NullLocator())
            finding += "; logarithmic beyond"
        add_finding(axis, finding)
    return figure


def draw_figure3(summaries: list[TidyRow], dimensions: list[TidyRow]) -> Figure:
    """Draw the standard deviation of each dimension of h, by falling Fisher score, one panel per encoder and task."""
    figure, axes = make_panel_grid([name_panel(row) for row in summaries], 2.2)
    for summary, axis in zip(summaries, axes, strict=True):
        own = sorted(select_subject(dimensions, summary), key=lambda row: row["fisher_rank"])
        ranks, deviations = (np.array([row[column] for row in own]) for column in ("fisher_rank", "std"))
        axis.vlines(ranks, 0, deviations, PALETTE[0], linewidth=0.7)
        axis.set(xlabel="rank by Fisher score", ylabel="standard deviation", ylim=(0, None))
        axis.margins(x=0.01)
        add_finding(axis, f"Spearman's correlation {format_number(summary['spearman'], '.2f')}")
        cut_outliers(axis, ranks, deviations, include=0)
    return figure
