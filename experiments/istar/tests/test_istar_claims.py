"""The claim of I-STAR's abstract: which gains satisfy it, and that no run of ours has the paper's setting."""

from isobench.report.claims import HOLDS, UNDECIDED, find_faults, judge_claim, load_claims, select
from isobench_papers.istar.claims import make_scores

(CLAIM,) = load_claims("istar")


def test_the_claim_accepts_gains_on_most_tasks_and_rejects_broken_ones():
    assert find_faults(CLAIM) == []
    for points, word in (
        ({}, HOLDS),
        ({"rte": -1}, HOLDS),
        (dict.fromkeys(("rte", "cola", "sst2"), -0.1), UNDECIDED),
    ):
        assert CLAIM.check(select(CLAIM, make_scores(points, 1))).word == word


def test_the_papers_own_settings_are_not_known():
    outcome, differences = judge_claim(CLAIM, lambda _: make_scores({}, 1), None)
    assert outcome.word == "can't tell here"  # QQP is missing
    assert "have not read" in differences
