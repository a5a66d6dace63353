"""Whether MTEB's scores are repeated: the check on made-up rows either way."""

import math

from isobench.report.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED
from isobench_papers.mteb.claims import scores_are_repeated


def test_repeated_scores_are_near_the_published_ones():
    base = {"encoder": "e", "set": "sts12", "metric": "spearman", "similarity": "cosine", "difference": 0.01}
    rows = [base, base | {"metric": "pearson", "difference": -0.09}, base | {"similarity": "l1", "difference": 7.0}]
    outcome = scores_are_repeated(rows)
    assert (outcome.word, "-0.090 points (e, sts12, pearson)" in outcome.numbers) == (HOLDS, True)
    assert scores_are_repeated([*rows, base | {"difference": math.nan}]).word == UNDECIDED
    assert scores_are_repeated([row | {"difference": 0.2} for row in rows]).word == FAILS
    assert scores_are_repeated(rows[2:]).word == NOT_RUN
