"""Efficient Task Adaptation, Figures 1 to 3: pretrained [CLS] vectors before the pooler (h^l) and after it (h)."""

from typing import Annotated, Any

import numpy as np
import torch
from rich.table import Table
from threadpoolctl import threadpool_limits
from torch import Tensor

from isobench.analyses.findings import Findings, make_table
from isobench.analyses.setting_checks import check_no_calibration, no_variance_error
from isobench.analyses.subject import Subject, collect_scale_notes, iterate_subjects
from isobench.common.errors import UserError
from isobench.common.linalg import gram_diagonal, row_mean
from isobench.config.bounds import NonNegativeFloat, PositiveFloat, Seed, at_least, between
from isobench.metrics.fisher import fisher_score
from isobench.metrics.task import METRIC_FUNCTIONS
from isobench_papers.task_adaptation.clusters import compare_with_one_gaussian, count_clusters
from isobench_papers.task_adaptation.distribution import EmbeddingDistribution
from isobench_papers.task_adaptation.figures import draw_figure1, draw_figure2, draw_figure3

PointCount = Annotated[int, at_least(2)]
Share = Annotated[float, between(0, 1)]
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


def analyse(
    subjects: list[Subject],
    points: PointCount,
    perplexity: PositiveFloat,
    seed: Seed,
    within: NonNegativeFloat,
    cluster_share: Share,
) -> Findings:
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
    check_no_calibration(subjects)
    for subject in subjects:
        if not list_class_names(subject):
            advice = "leave it out, or set task.as_classes"
            raise UserError(f"task {subject.task} is a regression and has no classes: {advice}")
    distributions = [
        measure_distribution(subject, points, perplexity, seed, cluster_share)
        for subject in iterate_subjects(subjects, "distribution of embeddings")
    ]
    summaries = [summarise_distribution(part, within) for part in distributions]
    unpooled = dict.fromkeys(subject.encoder for subject in subjects if subject.cfg.encoder.pooling != "pooler")
    return Findings(
        numbers={
            "summary": summaries,
            "dimensions": [row for part in distributions for row in build_fisher_rows(part)],
            "tsne": [row for part in distributions for row in build_point_rows(part)],
        },
        figures={
            "figure1": draw_figure1(distributions),
            "figure2": draw_figure2(distributions, summaries, within),
            "figure3": draw_figure3(distributions, summaries),
        },
        tables=[build_distribution_table(summaries, within)],
        notes=[
            *(f"{encoder} is read without a pooler: h is h^l." for encoder in unpooled),
            TYPES_NOTE,
            CLUSTERS_NOTE,
        ],
        differs=collect_scale_notes(subjects, "encoder", "task"),
    )


def list_class_names(subject: Subject) -> list[str]:
    """List the names of a task's classes; an empty list for a regression."""
    task = subject.cfg.task
    return list(task.labels or map(str, range(task.as_classes or 0)))


def measure_distribution(
    subject: Subject, points: int, perplexity: float, seed: int, cluster_share: float
) -> EmbeddingDistribution:
    """Measure one subject's training set for the figures.

    Raises:
        UserError: no dimension of the embeddings varies, or t-SNE's perplexity does not fit.
    """
    before, after = subject.encoded(), subject.embeddings()
    labels = subject.labels()
    count = len(labels)
    deviation = (gram_diagonal(after, row_mean(after)) / count).sqrt()
    if not deviation.any():
        raise no_variance_error(subject, count)
    plotted = np.arange(min(points, count)) * count // max(1, min(points, count))
    places = tsne(before[plotted], perplexity, seed)
    return EmbeddingDistribution(
        subject.encoder,
        subject.task,
        list_class_names(subject),
        count,
        plotted,
        labels[plotted],
        places,
        *count_clusters(places, cluster_share),
        *compare_with_one_gaussian(before[plotted], seed),
        row_mean(before).numpy(),
        deviation.numpy(),
        fisher_score(after, torch.from_numpy(labels)).numpy(),
    )


def tsne(vectors: Tensor, perplexity: float, seed: int) -> np.ndarray:
    """Place vectors [P, d] in the plane by t-SNE, [P, 2], starting from their principal components.

    It runs on one thread, because the order of its sums, and so the picture, depends on the number of threads.

    Raises:
        UserError: the perplexity is not between 0 and the number of vectors.
    """
    from sklearn.manifold import TSNE  # slow to import

    if not 0 < perplexity < len(vectors):
        raise UserError(
            f"analysis.perplexity={perplexity:g} must be between 0 and the number of points, {len(vectors)}"
        )
    with threadpool_limits(1):
        return TSNE(perplexity=perplexity, init="pca", random_state=seed, n_jobs=1).fit_transform(vectors.numpy())


def summarise_distribution(part: EmbeddingDistribution, within: float) -> dict[str, Any]:
    """Summarise one subject in a tidy row; means of at most ``within`` in absolute value are counted."""
    varying = part.deviation > 0
    largest = int(np.abs(part.mean).argmax())
    loudest = int(part.deviation.argmax())
    return {
        **part.columns,
        "examples": part.examples,
        "classes": len(part.classes),
        "plotted": len(part.plotted),
        "clusters": part.clusters,
        "in_no_cluster": part.in_no_cluster,
        "cluster_index": part.cluster_index,
        "gaussian_cluster_index": part.gaussian_cluster_index,
        "dimensions": len(part.mean),
        "means_within": int((np.abs(part.mean) <= within).sum()),
        "largest_mean": float(part.mean[largest]),
        "largest_mean_dimension": largest,
        "constant": int((~varying).sum()),
        "std_min": float(part.deviation.min()),
        "std_median": float(np.median(part.deviation)),
        "std_max": float(part.deviation.max()),
        "std_max_dimension": loudest,
        "std_max_fisher_rank": int(np.flatnonzero(part.importance_order == loudest)[0]) + 1,
        "fisher_median": float(np.median(part.fisher)),
        "fisher_max": float(part.fisher.max()),
        "spearman": METRIC_FUNCTIONS["spearman"](part.deviation[varying], part.fisher[varying]),
    }


def build_fisher_rows(part: EmbeddingDistribution) -> list[dict[str, Any]]:
    """Build a tidy row for each dimension: its mean in h^l, its deviation and Fisher score in h.

    Dimension j of h^l and dimension j of h are related only where there is no pooler between them.
    """
    rank = np.argsort(part.importance_order) + 1
    columns = {"mean": part.mean, "std": part.deviation, "fisher": part.fisher, "fisher_rank": rank}
    return [
        {**part.columns, "dimension": j, **{column: values[j].item() for column, values in columns.items()}}
        for j in range(len(part.mean))
    ]


def build_point_rows(part: EmbeddingDistribution) -> list[dict[str, Any]]:
    """Build a tidy row for each example in Figure 1: its number in the training set, its class, its place."""
    return [
        {**part.columns, "example": int(index), "class": part.classes[label], "x": float(x), "y": float(y)}
        for index, label, (x, y) in zip(part.plotted, part.labels, part.tsne_points, strict=True)
    ]


def build_distribution_table(summaries: list[dict[str, Any]], within: float) -> Table:
    """Build the terminal's table of the summaries, one row per encoder and task."""
    title = "Efficient Task Adaptation, Figures 1 to 3: dimensions of [CLS]"
    headings = (
        "N", "clusters,\nindex (null)", "d\n(const.)", f"h^l: means\nwithin {within:g}", "h^l:\nlargest",
        "h: std min/\nmedian/max",
        "rank of\nmax std", "Fisher score\nmedian/max", "Spear-\nman",
    )  # fmt: skip
    table = make_table(title, ("encoder", "task"), headings)
    for row in summaries:
        table.add_row(
            row["encoder"], row["task"], f"{row['examples']:,}",
            f"{row['clusters']}, {row['cluster_index']:.2f} ({row['gaussian_cluster_index']:.2f})",
            f"{row['dimensions']} ({row['constant']})",
            f"{row['means_within'] / row['dimensions']:.1%}",
            f"{row['largest_mean']:.2f}", "/".join(f"{row[f'std_{name}']:.2g}" for name in ("min", "median", "max")),
            str(row["std_max_fisher_rank"]), f"{row['fisher_median']:.2g}/{row['fisher_max']:.2g}",
            f"{row['spearman']:.2f}",
        )  # fmt: skip
    return table
