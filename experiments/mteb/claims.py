"""What MTEB's result files claim of two encoders, and how it is judged."""

from isobench.papers.published import load_tables
from isobench.report.checks import judge_cases
from isobench.report.claims import NOT_RUN, UNDECIDED, Claim, Outcome, Rows, later

NEAR = 0.1  # points; a correlation this near a published one counts as repeated; the number is our choice
SHARE = 0.95  # of the published scores; with so many hit the recipes count as repeated; the number is our choice
COMPARED = "it compares our scores with the published ones"


def scores_are_repeated(rows: Rows) -> Outcome:
    rows = [row for row in rows if row["similarity"] == "cosine"]
    differences = {f"{row['encoder']}, {row['set']}, {row['metric']}": row["difference"] for row in rows}
    if not differences:
        return Outcome(NOT_RUN, "no encoder with published scores")
    farthest = max(differences, key=lambda name: abs(differences[name]))
    numbers = f"largest of {len(differences)} differences: {differences[farthest]:+.3f} points ({farthest})"
    outcome = judge_cases((abs(difference) <= NEAR for difference in differences.values()), numbers)
    published = {column.task for column in load_tables("mteb")["cosine"].columns.values()}
    if missing := sorted(published - {row["set"] for row in rows}):
        return Outcome(UNDECIDED, f"{numbers}; not measured: {', '.join(missing)}")
    return outcome


def ledger_is_hit(rows: Rows) -> Outcome:
    # BIOSSES is left out, because we don't have MTEB's copy of its data.
    from isobench_papers.mteb.ledger import HIT, MTEB, read_published

    rows = [row for row in rows if row["task"] != "BIOSSES"]
    ours, wrong = ([row for row in rows if (row["recipe"] == MTEB) is right] for right in (True, False))
    if not ours:
        return Outcome(NOT_RUN, "no encoder with published scores")
    hits, by_chance = sum(row["hit"] for row in ours), sum(row["hit"] for row in wrong)
    numbers = f"{hits} of {len(ours)} scores within {HIT:g}; wrong recipes hit {by_chance} of {len(wrong)}"
    is_rare = bool(wrong) and by_chance <= (1 - SHARE) * len(wrong)
    outcome = judge_cases([hits >= SHARE * len(ours), is_rare], numbers)
    published = sum(row["task"] != "BIOSSES" for row in read_published())
    if len(ours) < published:
        return Outcome(UNDECIDED, f"{numbers}; not measured: {published - len(ours)} of {published} published scores")
    return outcome


@later
def make_ledger(off: float, every: int, wrong: float | None, wrong_every: int = 1) -> Rows:
    """Make rows of the ledger.

    Args:
        off: by how much every ``every``-th score by MTEB's recipe differs from the published one.
        wrong: by how much every ``wrong_every``-th score by a wrong recipe does, the others by .01; None: no rows.
    """
    from isobench_papers.mteb.ledger import MTEB, NOT_NORMALISED, compare, read_published

    rows = []
    for number, row in enumerate(read_published(), 1):
        rows.append(compare(row, MTEB, row["published"] + (0 if number % every else off)))
        if wrong is not None:
            rows.append(compare(row, NOT_NORMALISED, row["published"] + (0.01 if number % wrong_every else wrong)))
    return rows


@later
def make_correlations(*differences: float, sets: int | None = None) -> Rows:
    """Make rows of our correlations by cosine, which differ by these numbers in turn; of so many sets, or all."""
    names = [column.task for column in load_tables("mteb")["cosine"].columns.values()][:sets]
    return [
        {"encoder": "minilm", "set": name, "similarity": "cosine", "metric": metric, "difference": difference}
        for number, name in enumerate(names)
        for metric in ("spearman", "pearson")
        for difference in [differences[number % len(differences)]]
    ]


CLAIMS = [
    Claim(
        "accuracy, f1, ap, cosine_spearman and others", "result files",
        f"{SHARE:.0%} of the published scores are hit, and {1 - SHARE:.0%} by wrong recipes at most, without BIOSSES",
        "mteb", ledger_is_hit, COMPARED,
        {
            "wrong recipes hit as often": make_ledger(0, 1, 0.0),
            "wrong recipes hit one score in ten": make_ledger(0, 1, 0.0, 10),
            "no wrong recipe was tried": make_ledger(0, 1, None),
            "every second score alone": lambda: make_ledger(0, 1, 0.01)()[1::4] + make_ledger(0, 1, 0.01)()[::4],
            "each score is .3 points off": make_ledger(0.003, 1, 0.01),
            "one score in ten is .02 points off": make_ledger(0.0002, 10, 0.01),
        },
        encoders=("minilm", "mpnet"), settings="encoder=minilm,mpnet", rows_file="ledger",
    ),
    Claim(
        "cosine_spearman, cosine_pearson", "result files",
        f"each of our scores by cosine, on every set, is within {NEAR} points of the published one",
        "sts_similarity", scores_are_repeated, COMPARED,
        {
            "each is .3 points off": make_correlations(0.3, -0.3),
            "one set is .2 points off": make_correlations(0.0, 0.0, 0.0, 0.0, 0.0, 0.2),
            "one set alone": make_correlations(0.0, sets=1),
        },
        rows_file="published",
    ),
]  # fmt: skip
