"""The claims of Efficient Task Adaptation: what each looks at, and near misses of its criterion."""

import math

import pytest
from made_up_report import PLAIN, make_report, make_runs

from isobench.report.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED, find_faults, judge_claim, load_claims, select
from isobench.sweep.find_runs import find_runs
from isobench_papers.task_adaptation.claims import (
    BASE,
    FIGURE_TASKS,
    L2,
    LARGE,
    RISING_TASKS,
    TABLE1,
    UNRELATED_TASKS,
    make_clusters,
    make_correlations,
    make_dimensions,
    make_loud,
)

CLAIMS = load_claims("task_adaptation")


def find_claim(text):
    (claim,) = (claim for claim in CLAIMS if text in claim.quote)
    return claim


def judge(text, rows, differences=()):
    claim = find_claim(text)
    return judge_claim(claim, lambda _: rows, lambda *_: (rows, list(differences)))[0]


def make_scores(gains, encoder=BASE, base=PLAIN):
    tasks = dict.fromkeys(task for _, task in gains)
    runs = [run for task in tasks for run in make_runs("none", base, task=task, encoder=encoder)]
    for (method, task), gain in gains.items():
        runs += make_runs(method, [score + gain for score in base], task=task, encoder=encoder)
    return runs


def test_claims_accept_print_and_reject_broken_numbers_of_their_tasks():
    assert [find_faults(claim) for claim in CLAIMS] == [[]] * len(CLAIMS)
    named = [set(claim.tasks) for claim in CLAIMS if claim.rows_file]
    assert named == [set(FIGURE_TASKS)] * 2 + [set(UNRELATED_TASKS), {"mrpc"}, set(RISING_TASKS)]


def test_the_claim_on_both_datasets_is_about_mnli_and_qnli():
    text = "on both datasets"
    gains = {(L2, "rotten_tomatoes"): 1, (L2, "rte"): 1}
    missing = make_report(*make_scores({(L2, "qnli"): 1, (L2, "mnli"): math.nan}))
    assert find_claim(text).check(select(find_claim(text), missing)).word != HOLDS
    assert judge(text, make_report(*make_scores(gains))).word == NOT_RUN
    assert judge(text, make_report(*make_scores(gains | {(L2, "qnli"): 1}))).word == UNDECIDED
    assert judge(text, make_report(*make_scores({(L2, "qnli"): 1, (L2, "mnli"): 1}))).word == HOLDS


def test_the_gains_with_bert_base_and_bert_large_are_compared_in_one_report():
    text, large = "much less", {(L2, "mrpc"): 0.2, (L2, "rte"): 1.4, (L2, "sst2"): -0.1}
    large_runs = make_scores(large, LARGE)
    base_runs = make_scores({(L2, "mrpc"): 0.5, (L2, "rte"): 1.3, (L2, "sst2"): 0.3})
    assert judge(text, make_report(*large_runs)).word == NOT_RUN
    assert judge(text, make_report(*large_runs, *base_runs)).word == HOLDS
    other = make_scores({names: 0.7 * gain for names, gain in large.items()})
    assert judge(text, make_report(*large_runs, *other)).word == FAILS
    assert judge("still helps", make_report(*large_runs, *base_runs)).numbers.count(" on ") == 3  # BERT-large alone


def test_the_runs_that_the_claim_on_smaller_gains_needs_are_those_of_bert_base(monkeypatch):
    monkeypatch.delenv("ISOBENCH_DATA", raising=False)
    claim = find_claim("much less")
    _, needed = find_runs(["+experiment=glue_adaptation_large", *claim.settings.split()])
    _, runs = find_runs(["+experiment=glue_adaptation", "scale=paper"])
    own = {
        run.folder.key for run in runs if run.cfg.task.name in TABLE1 and run.cfg.calibration["name"] in ("none", L2)
    }
    assert len(own) == 30
    assert {run.folder.key for run in needed} == own


@pytest.mark.parametrize(
    ("text", "rows", "word"),
    [
        ("two clusters", make_clusters(2, 2, 2, 2), HOLDS),
        ("two clusters", make_clusters(2, 2, 2, 3), UNDECIDED),
        ("two clusters", lambda: make_clusters(2, 2, 2, 2)()[:3], UNDECIDED),  # a task is missing
        ("within 0.5", make_dimensions(0.1, -0.5, 0.3, 2.6, -8.0), HOLDS),
        ("within 0.5", make_dimensions(0.1, -0.5, 0.3, 2.4, -8.0), FAILS),
        ("do not correspond", make_correlations(mrpc=-0.5, cola=0.29, sst2=-0.29), HOLDS),
        ("do not correspond", make_correlations(mrpc=-0.5, cola=0.29), UNDECIDED),
        ("far higher variance", make_loud(0.2, 8), HOLDS),
        ("far higher variance", make_loud(0.19, 8), FAILS),
        ("positively related", make_correlations(rte=0.3, mnli=0.4, qnli=0.4, wnli=0.4), HOLDS),
        ("positively related", make_correlations(rte=0.3, wnli=0.4), UNDECIDED),
        ("positively related", make_correlations(cola=0.9), NOT_RUN),
    ],
)
def test_a_claim_of_a_figure_is_about_its_tasks(text, rows, word):
    assert judge(text, rows()).word == word
    others = [{**row, "task": "rotten_tomatoes", "clusters": 1, "mean": 1.0, "spearman": 0.9} for row in rows()]
    assert judge(text, [*rows(), *others]).word == word  # rows of other tasks are not looked at
