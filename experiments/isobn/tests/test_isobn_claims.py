"""Test what IsoBN claims of analyses: each check on made-up rows either way."""

import pytest

from isobench.report.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED
from isobench_papers.isobn.claims import classifier_stays_at_init, isobn_lowers_ev, top_component_is_exaggerated


def ev(none, bn, isobn, task="rte"):
    values = {"none": none, "batch_norm": bn, "isobn_paper": isobn}
    return [{"encoder": "e", "task": task, "method": m, "k": 1, "ev": value} for m, value in values.items()]


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        (ev(0.8, 0.75, 0.3), HOLDS),
        (ev(0.8, 0.5, 0.45), FAILS),  # lower than BN, but BN did most of it
        ([*ev(0.8, 0.75, 0.3), *ev(0.3, 0.4, 0.5, "cola")], UNDECIDED),
        ([], NOT_RUN),
    ],
)
def test_isobn_lowers_ev_much_and_batch_normalisation_little(rows, word):
    assert isobn_lowers_ev(rows).word == word


def test_drift_is_judged_by_every_runs_last_epoch():
    base = {"encoder": "e", "task": "t", "method": "none", "seed": 1}
    first = {**base, "epoch": 0, "cosine": 1.0, "fine_tuned_top1": 0.1, "optimal_top1": 0.5}
    rows = [first, {**base, "epoch": 1, "cosine": 0.9, "fine_tuned_top1": 0.9, "optimal_top1": 0.5}]
    assert [classifier_stays_at_init(rows).word, classifier_stays_at_init([first]).word] == [FAILS, HOLDS]
    assert [top_component_is_exaggerated(rows).word, top_component_is_exaggerated([first]).word] == [HOLDS, FAILS]
    regression = {**rows[1], "task": "stsb", "fine_tuned_top1": 0.1, "optimal_top1": None}  # no optimal classifier
    assert top_component_is_exaggerated([*rows, regression]) == top_component_is_exaggerated(rows)
    assert top_component_is_exaggerated([regression]).word == NOT_RUN
    assert classifier_stays_at_init([regression]).word == FAILS  # the drift of its head counts
