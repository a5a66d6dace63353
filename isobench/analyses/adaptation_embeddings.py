"""Efficient Task Adaptation, Figures 1 to 3: the pretrained [CLS] vector before the pooler (h^l) and after it (h)."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from matplotlib.figure import Figure
from rich.table import Table
from threadpoolctl import threadpool_limits
from torch import Tensor

from isobench.analyses.findings import Findings
from isobench.analyses.setting_checks import check_no_calibration, no_variance_error
from isobench.analyses.subject import Subject, collect_scale_notes, iterate_subjects
from isobench.common.errors import UserError
from isobench.common.linalg import gram_diagonal, row_mean
from isobench.common.plots import PALETTE, make_panel_grid
from isobench.config.bounds import NonNegativeFloat, PositiveFloat, Seed, at_least
from isobench.metrics.fisher import fisher_score
from isobench.metrics.task import METRIC_FUNCTIONS

PointCount = Annotated[int, at_least(2)]
TYPES_NOTE = (
    "The paper sees three types: MRPC, few dimensions that vary much; CoLA and SST-2, std unrelated to importance; "
    "RTE, std rising with it. rank: by Fisher score, 1 the highest; Spearman: of it and std, where std is not 0."
)


@dataclass
class EmbeddingDistribution:
    """How one subject's training set lies in its embedding space."""

    encoder: str
    task: str
    classes: list[str]
    examples: int
    plotted: np.ndarray  # (P,): which examples Figure 1 shows
    labels: np.ndarray  # (P,): their classes
    tsne_points: np.ndarray  # (P, 2): where t-SNE puts them
    mean: np.ndarray  # (d,), of h^l
    deviation: np.ndarray  # (d,), of h, divided by N
    fisher: np.ndarray  # (d,), of h

    @property
    def title(self) -> str:
        """What a panel is of."""
        return f"{self.encoder}, {self.task}"

    @property
    def importance_order(self) -> np.ndarray:
        """The dimensions of h, the most important first, [d]."""
        return np.argsort(-self.fisher, kind="stable")


def analyse(
    subjects: list[Subject], points: PointCount, perplexity: PositiveFloat, seed: Seed, within: NonNegativeFloat
) -> Findings:
    """Place of the examples, mean of every dimension of h^l, deviation and importance of every dimension of h.

    Args:
        subjects: encoders x tasks, without calibration.
        points: how many examples t-SNE shows at most.
        perplexity: of t-SNE.
        seed: of t-SNE.
        within: means up to this, positive or negative, are counted as ordinary.

    Raises:
        UserError: a task without classes, a calibration, embeddings that do not vary.
    """
    check_no_calibration(subjects)
    for subject in subjects:
        if not list_class_names(subject):
            advice = "leave it out, or set task.as_classes"
            raise UserError(f"task {subject.task} is a regression: no classes to colour and to score by; {advice}")
    found = [
        measure_distribution(subject, points, perplexity, seed)
        for subject in iterate_subjects(subjects, "distribution of embeddings")
    ]
    summaries = [summarise_distribution(part, within) for part in found]
    same = [f"{s.encoder} is read without a pooler: h is h^l." for s in subjects if s.cfg.encoder.pooling != "pooler"]
    return Findings(
        numbers={
            "summary": summaries,
            "dimensions": [row for part in found for row in build_fisher_rows(part)],
            "tsne": [row for part in found for row in build_point_rows(part)],
        },
        figures={
            "figure1": draw_figure1(found),
            "figure2": draw_figure2(found, summaries, within),
            "figure3": draw_figure3(found, summaries),
        },
        tables=[build_distribution_table(summaries, within)],
        notes=[*dict.fromkeys(same), TYPES_NOTE],
        differs=collect_scale_notes(subjects, "encoder", "task"),
    )


def list_class_names(subject: Subject) -> list[str]:
    """What the classes are called; none for a regression."""
    task = subject.cfg.task
    return list(task.labels or map(str, range(task.as_classes or 0)))


def measure_distribution(subject: Subject, points: int, perplexity: float, seed: int) -> EmbeddingDistribution:
    """What the figures show of one subject."""
    before, after = subject.encoded(), subject.embeddings()
    labels = subject.labels()
    count = len(labels)
    deviation = (gram_diagonal(after, row_mean(after)) / count).sqrt()
    if not deviation.any():
        raise no_variance_error(subject, count)
    shown = np.arange(min(points, count)) * count // max(1, min(points, count))
    return EmbeddingDistribution(
        subject.encoder,
        subject.task,
        list_class_names(subject),
        count,
        shown,
        labels[shown],
        tsne(before[shown], perplexity, seed),
        row_mean(before).numpy(),
        deviation.numpy(),
        fisher_score(after, torch.from_numpy(labels)).numpy(),
    )


def tsne(vectors: Tensor, perplexity: float, seed: int) -> np.ndarray:
    """t-SNE of [P, d] in the plane, [P, 2], from their principal components.

    On one thread: the order of its sums, and so the picture, would depend on how many there are.

    Raises:
        UserError: a perplexity that is not between 0 and the number of vectors.
    """
    from sklearn.manifold import TSNE  # slow to import

    if not 0 < perplexity < len(vectors):
        raise UserError(
            f"analysis.perplexity={perplexity:g} must be between 0 and the number of points, {len(vectors)}"
        )
    with threadpool_limits(1):
        return TSNE(perplexity=perplexity, init="pca", random_state=seed, n_jobs=1).fit_transform(vectors.numpy())


def summarise_distribution(part: EmbeddingDistribution, within: float) -> dict[str, Any]:
    """One subject in a line."""
    varying = part.deviation > 0
    largest = int(np.abs(part.mean).argmax())
    loudest = int(part.deviation.argmax())
    return {
        "encoder": part.encoder,
        "task": part.task,
        "examples": part.examples,
        "classes": len(part.classes),
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
    """A row a dimension; those of h^l and of h have nothing in common but their number, unless there is no pooler."""
    rank = np.argsort(part.importance_order) + 1
    columns = {"mean": part.mean, "std": part.deviation, "fisher": part.fisher, "fisher_rank": rank}
    name = {"encoder": part.encoder, "task": part.task}
    return [
        {**name, "dimension": j, **{column: values[j].item() for column, values in columns.items()}}
        for j in range(len(part.mean))
    ]


def build_point_rows(part: EmbeddingDistribution) -> list[dict[str, Any]]:
    """A row an example that Figure 1 shows: which one of the training set, its class, its place."""
    name = {"encoder": part.encoder, "task": part.task}
    return [
        {**name, "example": int(index), "class": part.classes[label], "x": float(x), "y": float(y)}
        for index, label, (x, y) in zip(part.plotted, part.labels, part.tsne_points, strict=True)
    ]


def build_distribution_table(summaries: list[dict[str, Any]], within: float) -> Table:
    """The summaries, a line each."""
    title = "Efficient Task Adaptation, Figures 1 to 3: dimensions of [CLS]"
    shown = Table(title=title, title_justify="left", header_style="bold")
    for name in ("encoder", "task"):
        shown.add_column(name, overflow="fold")
    for name in (
        "N", "d\n(const.)", f"h^l: means\nwithin {within:g}", "h^l:\nlargest", "h: std min/\nmedian/max",
        "rank of\nmax std", "Fisher score\nmedian/max", "Spear-\nman",
    ):  # fmt: skip
        shown.add_column(name, justify="right", no_wrap=True)
    for row in summaries:
        shown.add_row(
            row["encoder"], row["task"], f"{row['examples']:,}", f"{row['dimensions']} ({row['constant']})",
            f"{row['means_within'] / row['dimensions']:.1%}",
            f"{row['largest_mean']:.2f}", "/".join(f"{row[f'std_{name}']:.2g}" for name in ("min", "median", "max")),
            str(row["std_max_fisher_rank"]), f"{row['fisher_median']:.2g}/{row['fisher_max']:.2g}",
            f"{row['spearman']:.2f}",
        )  # fmt: skip
    return shown


def draw_figure1(found: list[EmbeddingDistribution]) -> Figure:
    """t-SNE of h^l, coloured by class."""
    figure, axes = make_panel_grid([part.title for part in found], 2.6 if len(found) > 2 else 3.2)
    for part, axis in zip(found, axes, strict=True):
        for place, name in enumerate(part.classes):
            x, y = part.tsne_points[part.labels == place].T
            axis.scatter(x, y, 3, PALETTE[place % len(PALETTE)], linewidths=0, alpha=0.6, label=name)
        axis.set_aspect("equal", adjustable="datalim")
        every = len(part.plotted) == part.examples
        which = f"all {part.examples:,}" if every else f"{len(part.plotted):,} of {part.examples:,}, evenly spaced"
        axis.set(xticks=[], yticks=[], ylabel="t-SNE 2", xlabel=f"t-SNE 1\n{which}")
        below = (0.5, -0.2)  # the panel, where it hides no point
        axis.legend(loc="upper center", bbox_to_anchor=below, ncols=1 if len(part.classes) < 4 else 3, markerscale=3)
    return figure


def draw_figure2(found: list[EmbeddingDistribution], summaries: list[dict[str, Any]], within: float) -> Figure:
    """Mean of each dimension of h^l."""
    figure, axes = make_panel_grid([part.title for part in found], 2.2)
    for part, row, axis in zip(found, summaries, axes, strict=True):
        axis.vlines(np.arange(len(part.mean)), 0, part.mean, PALETTE[0], linewidth=0.7)
        for bound in (-within, within):
            axis.axhline(bound, color=PALETTE[5], linewidth=0.7, linestyle="--")
        count = f"{row['means_within']} of {len(part.mean)} within {within:g}"
        axis.set(xlabel=f"dimension of $h^l$\n{count}", ylabel="mean")
        axis.margins(x=0.01)
    return figure


def draw_figure3(found: list[EmbeddingDistribution], summaries: list[dict[str, Any]]) -> Figure:
    """Standard deviation of each dimension of h, the most important one first."""
    figure, axes = make_panel_grid([part.title for part in found], 2.2)
    for part, row, axis in zip(found, summaries, axes, strict=True):
        ranks = np.arange(1, len(part.importance_order) + 1)
        axis.vlines(ranks, 0, part.deviation[part.importance_order], PALETTE[0], linewidth=0.7)
        xlabel = f"rank by Fisher score\nSpearman {row['spearman']:.2f}"
        axis.set(xlabel=xlabel, ylabel="standard deviation", ylim=(0, None))
        axis.margins(x=0.01)
    return figure
