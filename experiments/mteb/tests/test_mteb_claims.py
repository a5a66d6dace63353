"""The claims of MTEB's result files: near misses of their criteria, and what a part of the data decides."""

import math

import pytest

from isobench.report.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED, find_faults, judge_claim, load_claims
from isobench_papers.mteb.claims import ledger_is_hit, make_correlations, make_ledger, scores_are_repeated

LEDGER, CORRELATIONS = load_claims("mteb")


@pytest.mark.parametrize(
    ("check", "rows", "word"),
    [
        (scores_are_repeated, make_correlations(0.01, -0.09), HOLDS),
        (scores_are_repeated, make_correlations(0.01, math.nan), UNDECIDED),
        (scores_are_repeated, make_correlations(0.2, -0.2), FAILS),
        (scores_are_repeated, [row | {"similarity": "l1"} for row in make_correlations(0.01)], NOT_RUN),
        (ledger_is_hit, make_ledger(0.00005, 1, 0.01), HOLDS),
        (ledger_is_hit, make_ledger(0.002, 25, 0.0, 25), HOLDS),  # 4% miss, 4% of the wrong recipes' are hit
        (ledger_is_hit, make_ledger(0.002, 15, 0.01), UNDECIDED),
        (ledger_is_hit, [], NOT_RUN),
    ],
)
def test_a_check_judges_its_rows(check, rows, word):
    assert check(rows).word == word


def test_claims_reject_broken_numbers_and_the_ledger_needs_both_encoders():
    assert find_faults(LEDGER) == find_faults(CORRELATIONS) == []
    rows = make_ledger(0.0, 1, 0.01)
    assert judge_claim(LEDGER, None, lambda *_: (rows, []))[0].word == HOLDS
    one = [row for row in rows if row["encoder"] == "minilm"]
    outcome, _ = judge_claim(LEDGER, None, lambda *_: (one, []))
    assert (outcome.word, "; not measured: " in outcome.numbers) == (UNDECIDED, True)
