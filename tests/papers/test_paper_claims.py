"""The papers' claims: every check on made-up rows either way, and the constants in claims by the papers' numbers."""

import pyarrow.parquet
import pytest
from helpers import assert_contains
from made_up_report import PLAIN, make_report, make_runs

from isobench.papers.published import load_tables
from isobench.report.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED
from isobench_papers.isobn import claims as isobn
from isobench_papers.isobn_arxiv_v1 import claims as isobn_arxiv
from isobench_papers.isotropy_calibration import claims as isotropy_calibration
from isobench_papers.isotropy_calibration.claims import TOLERANCE
from isobench_papers.too_much_in_common import claims as common


def make_rows(*changes, **shared):
    return [{"encoder": "e", "task": "t"} | shared | change for change in changes]


def ev(none, bn, isobn_paper, task="rte"):
    values = {"none": none, "batch_norm": bn, "isobn_paper": isobn_paper}
    return make_rows(*({"method": method, "ev": value} for method, value in values.items()), task=task, k=3)


def drift(*changes):
    return make_rows(*changes, method="none", seed=1, optimal_top1=0.5)


START = {"epoch": 0, "cosine": 1.0, "l2": 0.0, "fine_tuned_top1": 0.1}
END = {"epoch": 1, "cosine": 0.9, "l2": 0.2, "fine_tuned_top1": 0.95}
LOW = END | {"epoch": 2, "fine_tuned_top1": 0.6}  # above the optimal share, not above 90%
REGRESSION = END | {"task": "stsb", "fine_tuned_top1": 0.1, "optimal_top1": None}  # has no optimal classifier


STAYS, MOVES_LITTLE = (next(c.check for c in isobn.CLAIMS if word in c.quote) for word in ("W_init", "L2"))


def spreads(least, most):
    return make_rows({"std_min": least, "std_max": most})


def isotropies(centred, encoder="e"):
    return make_rows({"i1_raw": 0.4, "i1_centred": centred, "i1_removed": 0.99}, encoder=encoder)


def words(encoder="e", **scores):
    """Scores by cosine and by inner product of each method."""
    sides = {(m, side): score for m, pair in scores.items() for side, score in zip(SIDES, pair, strict=True)}
    rows = ({"method": m, "similarity": side, "pearson": score} for (m, side), score in sides.items())
    return make_rows(*rows, encoder=encoder)


SIDES = ("cosine", "inner")
GAIN = common.is_above(lambda s: common.leave_out(s, ["odd"])["centered"] - s["raw"])
SCALED = next(c.check for c in common.CLAIMS if "more effective" in c.quote)
MORE, GAP = map(common.is_above, (common.inner_product_gains_more, common.centring_closes_the_gap))


def bins(*values, first=2000):
    rows = ({"cosine": value, "first": first + 1000 * number} for number, value in enumerate(values))
    return make_rows(*rows, vectors="raw")


@pytest.mark.parametrize(
    ("check", "rows", "word"),
    [
        (isobn.isobn_lowers_ev, ev(0.8, 0.75, 0.3), HOLDS),
        (isobn.isobn_lowers_ev, ev(0.8, 0.79, 0.75), FAILS),  # less than half of the printed fall
        (isobn.isobn_lowers_ev, ev(0.8, 0.3, 0.45), FAILS),  # not below BN
        (isobn.isobn_lowers_ev, ev(0.8, 0.81, 0.45), HOLDS),
        (isobn.isobn_lowers_ev, ev(0.8, 0.75, 0.3) + ev(0.3, 0.4, 0.5, "cola"), HOLDS),  # the mean of both tasks
        (isobn.isobn_lowers_ev, [], NOT_RUN),
        (STAYS, drift(START), HOLDS),
        (STAYS, drift(START, END), FAILS),  # every epoch counts
        (STAYS, drift(REGRESSION), FAILS),  # the drift of its head counts
        (MOVES_LITTLE, drift(START), HOLDS),
        (MOVES_LITTLE, drift(START, END), FAILS),
        (isobn.top_components_are_exaggerated, drift(END, LOW, REGRESSION), HOLDS),
        (isobn.top_components_are_exaggerated, drift(END, END | {"fine_tuned_top1": 0.2}), HOLDS),  # the mean of two
        (isobn.top_components_are_exaggerated, drift(START, END), UNDECIDED),  # not before training
        (isobn.top_components_are_exaggerated, drift(START), FAILS),
        (isobn.top_components_are_exaggerated, drift(REGRESSION), NOT_RUN),
        (isobn.top_component_dominates, drift(END), HOLDS),
        (isobn.top_component_dominates, drift(END, LOW), FAILS),
        (isobn.top_component_dominates, drift(REGRESSION), FAILS),  # needs no optimal classifier
        (isobn.spreads_are_wide, spreads(0.001, 0.2), HOLDS),
        (isobn.spreads_are_wide, spreads(0.01, 0.2), FAILS),
        (common.centring_restores_isotropy, isotropies(0.96), HOLDS),
        (common.centring_restores_isotropy, isotropies(0.6), FAILS),
        (common.centring_restores_isotropy, isotropies(0.6, "roberta-large"), HOLDS),
        (common.centring_restores_isotropy, isotropies(0.3, "roberta-large"), FAILS),  # the text excepts it
        (GAIN, words(raw=(50, 50), centered=(51, 52)), HOLDS),
        (GAIN, words(raw=(50, 50), centered=(51, 49)), UNDECIDED),
        (GAIN, words(raw=(50, 50), centered=(49, 49)) + words("odd", raw=(5, 5), centered=(9, 9)), FAILS),
        (SCALED, words(centered=(50, 50), centered_scaled=(49, 51)), UNDECIDED),
        (SCALED, words(centered=(50, 50), centered_scaled=(51, 51)), HOLDS),
        (MORE, words(raw=(50, 40), centered=(51, 42)), HOLDS),
        (MORE, words(raw=(50, 40), centered=(51, 40.5)), FAILS),
        (GAP, words(centered=(51, 52)) + words("bert-base-cased", centered=(51, 50)), HOLDS),
        (GAP, words(centered=(51, 50)), FAILS),
        (common.cosine_rises_with_rarity, bins(0.2, 0.3, 0.4, 0.1), HOLDS),  # the last bin is left out
        (common.cosine_rises_with_rarity, bins(0.300, 0.3005, 0.301, 0.9), FAILS),  # too little
        (common.cosine_rises_with_rarity, bins(0.9, 0.2, 0.3, 0.4, 0.9, first=1000), HOLDS),  # ids below 2000
        (common.cosine_rises_with_rarity, bins(0.2), NOT_RUN),
        (common.most_cases_gain, words(raw=(50, 50), a=(51, 51), b=(51, 49)), HOLDS),
        (common.most_cases_gain, words(raw=(50, 50), a=(51, 49)), UNDECIDED),
        (common.most_cases_gain, words(raw=(50, 50), a=(49, 49)), FAILS),
    ],
)
def test_a_check_of_an_analysis_judges_its_rows(check, rows, word):
    assert check(rows).word == word


def test_the_claim_on_unbalanced_classes_reads_unbalanced_tasks_only():
    (claim,) = isobn_arxiv.CLAIMS
    better = [value + 5 for value in PLAIN[::-1]]
    rte = [*make_runs("isobn_paper", better), *make_runs("center+isobn_paper", PLAIN)]
    assert claim.check(make_report(*rte)).word == NOT_RUN
    cola = [*make_runs("isobn_paper", PLAIN, task="cola"), *make_runs("center+isobn_paper", better, task="cola")]
    assert claim.check(make_report(*rte, *cola)).word == FAILS


def test_the_unbalanced_tasks_are_those_of_the_data(glue):
    shares = {}
    for task in ("cola", "mrpc", "rte", "sst2", "wnli"):  # the folder has parts only of the larger tasks
        labels = pyarrow.parquet.read_table(f"{glue}/glue/{task}/train.parquet")["label"].to_pylist()
        shares[task] = max(map(labels.count, set(labels))) / len(labels)
    assert {task for task, share in shares.items() if share > 0.6} == set(isobn_arxiv.UNBALANCED_TASKS)
    assert max(share for share in shares.values() if share < 0.6) < 0.56


def test_isotropy_calibrations_own_minutes_agree_with_the_factors_of_the_claims():
    tables = load_tables("isotropy_calibration")

    def minutes(table, row):
        (rows,) = tables[table].cells.values()
        return {name: values[0] for name, values in rows[row].items() if tables[table].columns[name].time}

    for table, claimed in (("table2", 10.5), ("table3", 5.5)):
        for column, flow in minutes(table, "flow").items():
            plain = minutes(table, "plain")[column]
            least, most = (flow - 0.5) / (plain + 0.5), (flow + 0.5) / (plain - 0.5)
            assert claimed / TOLERANCE < least < most < claimed * TOLERANCE
    ratios = [
        round(spectrum / minutes("table2", "plain")[column], 2)
        for row in ("spectrum_pol", "spectrum_exp")
        for column, spectrum in minutes("table2", row).items()
    ]
    assert (min(ratios), max(ratios)) == (1.31, 1.63)


def test_the_factors_of_time_are_in_the_papers_text_and_in_the_claims(papers):
    text = " ".join((papers / "isotropy_calibration.txt").read_text().split())
    assert_contains(
        text,
        "requiring on average 4.2 times more time per training epoch",
        "requires on average 10.5 times more computation per epoch",
        "requires 5.5 times more computation",
        "requiring 25% to 50% more computation",
        "Finetuning time is reported on a Nvidia Titan RTX GPU",
    )
    assert isotropy_calibration.GPU == "Titan RTX"
    claims = " ".join(claim.text for claim in isotropy_calibration.CLAIMS)
    assert_contains(claims, "4.2 times", "10.5 times", "5.5 times", "25% to 50%")
