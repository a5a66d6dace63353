"""The papers' claims: every check on made-up rows either way, and the constants in claims by the papers' numbers."""

import math
from dataclasses import replace

import pyarrow.parquet
import pytest

from isobench.papers.published import load_tables
from isobench.report.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED, judge_claim, load_claims, select
from isobench_papers.isobn import claims as isobn
from isobench_papers.isobn_arxiv_v1 import claims as isobn_arxiv
from isobench_papers.too_much_in_common import claims as common


def make_rows(*changes, **shared):
    return [{"encoder": "e", "task": "t"} | shared | change for change in changes]


def ev(none, bn, isobn_paper, isobn_released=0.1, task="rte"):
    values = {"none": none, "batch_norm": bn, "isobn_paper": isobn_paper, "isobn_released": isobn_released}
    return make_rows(*({"method": method, "ev": value} for method, value in values.items()), task=task, k=3)


def drift(*changes):
    return make_rows(*changes, method="none", seed=1, optimal_top1=0.5)


START = {"epoch": 0, "cosine": 1.0, "l2": 0.0, "fine_tuned_top1": 0.1}
END = {"epoch": 1, "cosine": 0.9, "l2": 0.2, "fine_tuned_top1": 0.95}
LOW = END | {"epoch": 2, "fine_tuned_top1": 0.6}  # above the optimal share, not above 90%
REGRESSION = END | {"task": "stsb", "fine_tuned_top1": 0.1, "optimal_top1": None}  # has no optimal classifier


NEAR = START | {"epoch": 1, "cosine": 0.9992, "l2": 0.005, "initial_norm": 0.063}
TURNED = NEAR | {"cosine": 0.998, "l2": 0.0895}  # by 3.6 degrees; by a right angle


def spreads(least, most, inner=0.9):
    return isobn.list_spreads((least, most), (least, most), inner=inner)()


def isotropies(centred, encoder="e"):
    return make_rows({"i1_raw": 0.4, "i1_centred": centred, "i1_removed": 0.99}, encoder=encoder)


def words(encoder="e", **scores):
    """Scores by cosine and by inner product of each method."""
    sides = {(m, side): score for m, pair in scores.items() for side, score in zip(SIDES, pair, strict=True)}
    rows = ({"method": m, "similarity": side, "pearson": score} for (m, side), score in sides.items())
    return make_rows(*rows, encoder=encoder)


SIDES = ("cosine", "inner")
GAIN = common.helps("centered", ("odd", "cosine"), ("odd", "inner"))


def gaps(*differences):
    """Inner product's score less cosine's of centred vectors, for the paper's models in their order; raw: -5."""
    rows = [words(m, raw=(60, 55), centered=(60, 60 + x)) for m, x in zip(common.MODELS, differences, strict=False)]
    return [row for own in rows for row in own]


def ranges(*values, ids=(common.FREQUENT, (10000, 11000), (20000, 21000), common.RARE), **shared):
    rows = ({"cosine": x, "first": first, "end": end} for x, (first, end) in zip(values, ids, strict=True))
    return make_rows(*rows, **{"vectors": "raw", "unused": True} | shared)


def norms(*pairs):
    return make_rows(*({"average_norm": norm, "i1_raw": i1} for norm, i1 in pairs))


def steps(*, others, away, targets, predictions=512):
    cosines = {"others_cosine": others, "others_away": away, "targets_away": targets}
    return make_rows(cosines, predictions=predictions)


ALGEBRA = steps(others=1, away=1, targets=-1, predictions=1)


@pytest.mark.parametrize(
    ("check", "rows", "word"),
    [
        (isobn.isobn_lowers_ev, ev(0.8, 0.75, 0.3), HOLDS),
        (isobn.isobn_lowers_ev, ev(0.8, 0.79, 0.75, 0.76), FAILS),  # less than half of the printed fall
        (isobn.isobn_lowers_ev, ev(0.8, 0.3, 0.45, 0.35), FAILS),  # not below BN
        (isobn.isobn_lowers_ev, ev(0.8, 0.75, 0.3) + ev(0.3, 0.4, 0.5, task="cola"), HOLDS),  # the mean of both tasks
        (isobn.isobn_lowers_ev, ev(0.8, 0.75, 0.3, 0.75), UNDECIDED),  # one version
        (isobn.turns_little, drift(START, NEAR, TURNED), FAILS),  # the mean of two runs
        (isobn.turns_little, drift(START, NEAR, END | {"epoch": 2}), FAILS),  # every epoch counts
        (isobn.moves_little, drift(START, END), NOT_RUN),  # an older record
        (isobn.top_components_are_exaggerated, drift(END, LOW, REGRESSION), HOLDS),
        (isobn.top_components_are_exaggerated, drift(START, END), UNDECIDED),  # not before training
        (isobn.top_component_dominates, drift(END, LOW), FAILS),
        (isobn.spreads_are_wide, spreads(0.001, 0.2, inner=0.2), FAILS),
        (common.centring_restores_isotropy, isotropies(0.6, "roberta-large"), HOLDS),
        (common.centring_restores_isotropy, isotropies(0.3, "roberta-large"), FAILS),  # the text excepts it
        (common.norm_goes_against_isotropy, norms(*((x, 1 / x) for x in range(1, 9))), HOLDS),
        (common.norm_goes_against_isotropy, norms(*((x, 1 / x) for x in range(1, 8))), UNDECIDED),  # seven encoders
        (common.norm_goes_against_isotropy, norms(*((x, x) for x in range(1, 9))), FAILS),
        (GAIN, words(raw=(50, 50), centered=(51, 49)), UNDECIDED),
        (GAIN, words(raw=(50, 50), centered=(49, 49)) + words("odd", raw=(5, 5), centered=(9, 9)), FAILS),
        (GAIN, words("odd", raw=(50, 50), centered=(49, 49)), NOT_RUN),  # the exception alone
        (common.inner_product_gains_more, words(raw=(50, 40), centered=(51, 40.5)), UNDECIDED),
        (common.centring_closes_the_gap, gaps(-1, -1, 1, 1, 1, 0), HOLDS),
        (common.centring_closes_the_gap, gaps(-1, -1, 1, 1, 1, -1), UNDECIDED),
        (common.cosine_rises_with_rarity, ranges(0.2, 0.3, 0.35, 0.4), HOLDS),
        (common.cosine_rises_with_rarity, ranges(0.2, 0.3, 0.25, 0.4), UNDECIDED),  # a fall between
        (common.cosine_rises_with_rarity, ranges(0.4, 0.3, 0.25, 0.2), FAILS),
        (common.cosine_rises_with_rarity, ranges(-0.037, 0.007, 0.062, 0.099), UNDECIDED),  # MiniLM's: little
        (common.cosine_rises_with_rarity, ranges(0.2, 0.3, 0.35, 0.4, unused=False), UNDECIDED),  # the last ids
        (common.gradients_share_a_direction, steps(others=0.6, away=0.75, targets=-0.4), UNDECIDED),
        (common.gradients_share_a_direction, steps(others=0, away=0, targets=0) + ALGEBRA, FAILS),
    ],
)  # fmt: skip
def test_a_check_of_an_analysis_judges_its_rows(check, rows, word):
    assert check(rows).word == word


def judge_common(words, rows):
    claim = next(claim for claim in load_claims("too_much_in_common") if words in claim.quote)
    return judge_claim(claim, None, lambda *_: (rows, ["another encoder"]))[0]


def test_common_claims_see_no_other_methods():
    own = words(raw=(50, 40), centered=(51, 42), centered_scaled=(51, 42), post_process=(51, 42))
    others = words(zipf_centered=(1, 0), whitened=(1, 0), zipf_whitened=(1, 0), post_process_2=(1, 0))
    for quote in ("In general", "more pronounced", "consistently improves", "more effective", "only case"):
        alone, beside = judge_common(quote, own), judge_common(quote, own + others)
        assert alone == beside
        assert alone.word == ("seen here" if quote != "more effective" else "not seen here"), quote
    outcome = judge_common("In general", words(raw=(50, 40), centered=(51, 42)))
    assert outcome.word == "can't tell here"
    own = words("minilm", raw=(50, 50), centered=(49, 49))  # exceptions are the paper's alone
    assert judge_common("consistently improves", own).word == "not seen here"


def test_larger_gains_on_small_sets_need_equal_budgets_and_both_kinds_of_sets():
    claim = next(claim for claim in isobn.CLAIMS if "1.6%" in claim.quote)
    report = isobn.TABLE1()
    candidates = report.runs["method"].map({"none": 6}).fillna(18)
    assert claim.check(replace(report, runs=report.runs.assign(candidates=candidates))).word == UNDECIDED
    assert claim.check(select(replace(claim, tasks=isobn.SMALL), report)).word == NOT_RUN


def test_print_leaves_room_for_correlations_as_high_as_the_claim_asks_for():
    table = load_tables("isobn")["table2"]
    most = {}
    for encoder, lines in table.cells.items():
        for title, ev in lines[table.methods["batch_norm"]].items():
            shares = [high - low for low, high in zip((0, *ev[:2]), ev, strict=True)]
            squares = sum(share**2 for share in shares) + shares[-1] * (1 - ev[-1])
            most[encoder, table.columns[title].task] = math.sqrt(squares)
    for excepted in (("bert-base-cased", "cola"), ("roberta-large", "rte")):
        assert most.pop(excepted) < isobn.HIGHLY
    assert (round(min(most.values()), 2), round(max(most.values()), 2)) == (0.63, 0.75)


def test_the_unbalanced_tasks_are_those_of_the_data(glue):
    shares = {}
    for task in ("cola", "mrpc", "rte", "sst2", "wnli"):  # the folder has parts only of the larger tasks
        labels = pyarrow.parquet.read_table(f"{glue}/glue/{task}/train.parquet")["label"].to_pylist()
        shares[task] = max(map(labels.count, set(labels))) / len(labels)
    assert {task for task, share in shares.items() if share > 0.6} == set(isobn_arxiv.UNBALANCED_TASKS)
    assert max(share for share in shares.values() if share < 0.6) < 0.56
