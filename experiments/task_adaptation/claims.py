"""Define what the task-adaptation paper claims, and judge each claim."""

from functools import partial

from isobench.report.build import Report
from isobench.report.checks import improves, judge_cases
from isobench.report.claims import Claim, Outcome, Rows
from isobench.report.methods import list_score_cells
from isobench.report.printed import build_printed_report
from isobench.report.wording import format_points

FIGURE_TASKS = ("mrpc", "cola", "sst2", "rte")  # of Figures 1 to 3 and of Section 3.2
UNRELATED_TASKS = ("mrpc", "cola", "sst2")  # of these, where the paper sees no relation of variance and importance
RISING_TASKS = ("rte", "mnli", "qnli", "wnli")  # where the paper sees importance rise with variance (Sec. 3.3)
RELATED = 0.3  # a |Spearman| below this is what the paper calls "no clear relationship"; the number is our choice
CRITICAL = 1.96  # standard errors, 1 / sqrt(n - 1), that Spearman's correlation of n dimensions must be above 0
FIGURE = "it is shown in a figure, without numbers"


def variance_is_not_importance(rows: Rows) -> Outcome:
    """Check that a dimension's deviation and Fisher score correlate little: |Spearman| below ``RELATED``."""
    found = [row for row in rows if row["task"] in UNRELATED_TASKS]
    return judge_cases((abs(row["spearman"]) < RELATED for row in found), describe_correlations(found))


def variance_rises_with_importance(rows: Rows) -> Outcome:
    """Check that a dimension's deviation and Fisher score rise together by more than chance on ``RISING_TASKS``."""
    found = [row for row in rows if row["task"] in RISING_TASKS]
    counts = [row["dimensions"] - row["constant"] for row in found]
    cases = (row["spearman"] * (n - 1) ** 0.5 > CRITICAL for row, n in zip(found, counts, strict=True))
    return judge_cases(cases, describe_correlations(found))


def describe_correlations(rows: Rows) -> str:
    """Write every row's Spearman correlation of standard deviation and Fisher score over the dimensions."""
    return "Spearman's: " + "; ".join(f"{row['encoder']}, {row['task']} {row['spearman']:+.2f}" for row in rows)


def there_are_two_clusters(rows: Rows) -> Outcome:
    """Check that t-SNE shows two clusters, and that the vectors themselves are more clustered than one Gaussian.

    The second condition is there because t-SNE can show clusters where there are none.
    """
    rows = [row for row in rows if row["task"] in FIGURE_TASKS]
    numbers = "; ".join(
        f"{row['encoder']}, {row['task']}: {row['clusters']}, index {row['cluster_index']:.2f} against "
        f"{row['gaussian_cluster_index']:.2f} of one Gaussian"
        for row in rows
    )
    cases = (row["clusters"] == 2 and row["cluster_index"] < row["gaussian_cluster_index"] for row in rows)
    return judge_cases(cases, numbers)


def most_means_are_small(rows: Rows) -> Outcome:
    """Check that more than half of the dimensions have a mean within .5, the analysis's default."""
    shares = {f"{row['encoder']}, {row['task']}": row["means_within"] / row["dimensions"] for row in rows}
    return judge_cases((x > 0.5 for x in shares.values()), "; ".join(f"{name} {x:.0%}" for name, x in shares.items()))


def l2_is_above(report: Report, encoder: str, tasks: tuple[str, ...], each: bool) -> Outcome:
    """Check that L2 normalisation's mean is above plain fine-tuning's, on each of the tasks or averaged over them."""
    cells = list_score_cells(report.cells).query("compared and encoder == @encoder and method == 'fixed_norm_l2'")
    differences = {cell.column: cell.difference for cell in cells.itertuples() if cell.task in tasks}
    numbers = ", ".join(f"{column} {format_points(difference)}" for column, difference in differences.items())
    values = list(differences.values())
    return judge_cases((x > 0 for x in (values if each or not values else [sum(values)])), f"{encoder}: {numbers}")


CLAIMS = [
    Claim(
        "our methods achieve consistent improvements over fine-tuning with the BERT-base encoder",
        "Section 5.2, Table 1", "most of L2 and gradient normalisation (alpha .5 and 1) gain more than chance gives",
        "glue_adaptation", improves("fixed_norm_l2", "gradient_norm_half", "gradient_norm"),
        partial(build_printed_report, "task_adaptation", ["table1"], seeds=5),
    ),
    Claim(
        "With the BERT-large encoder, L2 normalization still helps", "Section 5.2, Table 1",
        "its mean over the three tasks is above plain fine-tuning's, as in print; chance is not asked for",
        "glue_adaptation",
        partial(l2_is_above, encoder="bert-large-wwm", tasks=("mrpc", "rte", "sst2"), each=False),
        partial(build_printed_report, "task_adaptation", ["table1"], seeds=5), settings="scale=paper",
    ),
    Claim(
        "L2 normalization improves model performance on both datasets", "Section 5.2, Table 2",
        "its mean on MNLI and on QNLI is above plain fine-tuning's, as in print; chance is not asked for",
        "glue_adaptation", partial(l2_is_above, encoder="bert-base-uncased", tasks=("mnli", "qnli"), each=True),
        partial(build_printed_report, "task_adaptation", ["table2"], seeds=3), settings="scale=paper",
    ),
    Claim(
        "the pre-trained [CLS] embedding of new datasets fall into two clusters", "Section 3.2, Figure 1",
        "t-SNE shows two clusters, and the vectors are more clustered than a Gaussian. The paper's reason is BERT's "
        "next-sentence prediction: an encoder trained without it, such as DistilBERT, can't speak for or against it",
        "adaptation_embeddings", there_are_two_clusters, FIGURE, rows_file="summary",
    ),
    Claim(
        "most dimensions has an average value within 0.5", "Section 3.2, Figure 2",
        "more than half of the dimensions have a mean of at most .5 in size",
        "adaptation_embeddings", most_means_are_small, FIGURE, rows_file="summary",
    ),
    Claim(
        "large variances do not correspond to important dimensions generally", "Section 3.3, Figure 3",
        f"on MRPC, CoLA and SST-2, |Spearman's correlation| below {RELATED} (our choice)",
        "adaptation_embeddings", variance_is_not_importance, FIGURE, rows_file="summary",
    ),
    Claim(
        "In RTE (also MNLI, QNLI, WNLI), the feature variance is positively related to the importance",
        "Section 3.3, Figure 3", "Spearman's correlation over the dimensions is above 0 by more than chance",
        "adaptation_embeddings", variance_rises_with_importance, FIGURE, rows_file="summary",
    ),
]  # fmt: skip
