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


SHARE = 0.95  # of the published scores; with so many hit the recipes count as repeated; the number is our choice


def ledger_is_hit(rows: Rows) -> Outcome:
    """Check that nearly every published score is hit by MTEB's recipe, and nearly none by a wrong one.

    BIOSSES is left out, because we don't have MTEB's copy of its data.
    """
    from isobench_papers.mteb.ledger import HIT, MTEB

    rows = [row for row in rows if row["task"] != "BIOSSES"]
    ours, wrong = ([row for row in rows if (row["recipe"] == MTEB) is right] for right in (True, False))
    if not ours:
        return Outcome(NOT_RUN, "no encoder with published scores")
    hits, by_chance = sum(row["hit"] for row in ours), sum(row["hit"] for row in wrong)
    numbers = f"{hits} of {len(ours)} scores within {HIT:g}; wrong recipes hit {by_chance} of {len(wrong)}"
    return judge_cases([hits >= SHARE * len(ours), by_chance <= (1 - SHARE) * len(wrong)], numbers)


CLAIMS = [
    Claim(
        "accuracy, f1, ap, cosine_spearman and others",
        "result files",
        f"{SHARE:.0%} of the published scores are hit, and {1 - SHARE:.0%} by wrong recipes at most, without BIOSSES",
        "mteb",
        ledger_is_hit,
        "it compares our scores with the published ones",
        rows_file="ledger",
    ),
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
