"""Define what the task-adaptation paper claims, and judge each claim."""

from collections.abc import Callable

from isobench.report.checks import improves, judge_cases
from isobench.report.claims import Claim, Outcome, Rows

FIGURE_TASKS = ("mrpc", "cola", "sst2", "rte")  # of Figures 1 to 3 and of Section 3.2
RISING_TASKS = ("rte", "mnli", "qnli", "wnli")  # where the paper sees importance rise with variance (Sec. 3.3)
RELATED = 0.3  # a |Spearman| below this is what the paper calls "no clear relationship"; the number is our choice


def variance_is_not_importance(rows: Rows) -> Outcome:
    """Check that a dimension's deviation and Fisher score correlate little: |Spearman| below ``RELATED``.

    The tasks that the paper excepts (``RISING_TASKS``) are left out.
    """
    return judge_correlations(
        [row for row in rows if row["task"] not in RISING_TASKS], lambda rho: abs(rho) < RELATED
    )


def variance_rises_with_importance(rows: Rows) -> Outcome:
    """Check that a dimension's deviation and Fisher score rise together on the tasks where the paper sees it."""
    return judge_correlations([row for row in rows if row["task"] in RISING_TASKS], lambda rho: rho >= RELATED)


def judge_correlations(rows: Rows, agrees: Callable[[float], bool]) -> Outcome:
    """Judge every row's Spearman correlation of standard deviation and Fisher score over the dimensions."""
    numbers = "; ".join(f"{row['encoder']}, {row['task']}: {row['spearman']:+.2f}" for row in rows)
    return judge_cases((agrees(row["spearman"]) for row in rows), f"Spearman's correlation: {numbers}")


def there_are_two_clusters(rows: Rows) -> Outcome:
    """Check that t-SNE shows two clusters, and that the vectors themselves are more clustered than one Gaussian.

    The second condition is there because t-SNE can show clusters where there are none. The claim is about the four
    tasks of Figure 1 (``FIGURE_TASKS``); others are left out.
    """
    rows = [row for row in rows if row["task"] in FIGURE_TASKS]
    numbers = "; ".join(
        f"{row['encoder']}, {row['task']}: {row['clusters']}, index {row['cluster_index']:.2f} against "
        f"{row['gaussian_cluster_index']:.2f} of one Gaussian"
        for row in rows
    )
    cases = (row["clusters"] == 2 and row["cluster_index"] < row["gaussian_cluster_index"] for row in rows)
    return judge_cases(cases, numbers)


CLAIMS = [
    Claim(
        "L2 and gradient normalisation improve fine-tuning (Section 5.2)",
        "glue_adaptation",
        improves("fixed_norm_l2", "gradient_norm_half", "gradient_norm"),
    ),
    Claim(
        "Pretrained [CLS] embeddings fall into two clusters by t-SNE (Section 3.2, Figure 1)",
        "adaptation_embeddings",
        there_are_two_clusters,
        rows_file="summary",
    ),
    Claim(
        "Dimensions that vary much are not the important ones, in general (Figure 3)",
        "adaptation_embeddings",
        variance_is_not_importance,
        rows_file="summary",
    ),
    Claim(
        "On RTE, MNLI, QNLI and WNLI, dimensions that vary more are more important (Section 3.3)",
        "adaptation_embeddings",
        variance_rises_with_importance,
        rows_file="summary",
    ),
]
