"""What MTEB's result files claim of two encoders, and how it is judged."""

from isobench.report.checks import judge_cases
from isobench.report.claims import NOT_RUN, Claim, Outcome, Rows

NEAR = 0.1  # points; a correlation this near a published one counts as repeated; the number is our choice


def scores_are_repeated(rows: Rows) -> Outcome:
    """Check that each of our correlations by cosine is within ``NEAR`` points of the published one."""
    rows = [row for row in rows if row["similarity"] == "cosine"]
    differences = {f"{row['encoder']}, {row['set']}, {row['metric']}": row["difference"] for row in rows}
    if not differences:
        return Outcome(NOT_RUN, "no encoder with published scores")
    farthest = max(differences, key=lambda name: abs(differences[name]))
    numbers = f"largest of {len(differences)} differences: {differences[farthest]:+.3f} points ({farthest})"
    return judge_cases((abs(difference) <= NEAR for difference in differences.values()), numbers)


CLAIMS = [
    Claim(
        "cosine_spearman, cosine_pearson",
        "result files",
        f"each of our scores by cosine is within {NEAR} points of the published one",
        "sts_similarity",
        scores_are_repeated,
        "it compares our scores with the published ones",
        rows_file="published",
    ),
]
