"""The papers' claims: each check on made-up numbers either way, and the page over an output folder."""

import csv
import hashlib
import importlib
import json
import math
import re
import statistics
from functools import partial

import numpy as np
import pytest
from helpers import ROOT
from sample_report import list_cells, make_report
from scipy import stats

from isobench.cli.claims import judge_claim, read_analysis_rows
from isobench.common.checksums import add_json_checksum
from isobench.common.errors import UserError
from isobench.common.tidy import write_rows
from isobench.papers.folders import find_config
from isobench.report import claims, run_claims
from isobench.report.build import Report
from isobench.report.claims import FAILS, HOLDS, NOT_RUN, OUTCOME_SYMBOLS, UNDECIDED, UNKNOWN, load_claims
from isobench.report.output.page import render_claims
from isobench.report.tables import build_runs
from isobench.statistics.seeds import detectable_difference
from isobench_papers.isobn import claims as isobn
from isobench_papers.isotropy_calibration.claims import COLLAPSED_I2
from isobench_papers.mteb import claims as mteb
from isobench_papers.task_adaptation import claims as adaptation
from isobench_papers.too_much_in_common import claims as common

CLAIMS = load_claims()


def report(cells: dict[str, list[float]], runs=(), again=(), troubles=None, **columns) -> Report:
    """method -> scores on RTE, or on the named columns; ``again``: columns that show RTE's runs once more."""
    by_column = {"RTE": cells, **dict.fromkeys(again, cells), **columns}
    methods = dict.fromkeys(m for column in by_column.values() for m in column)
    arms = {m: {column: own.get(m, []) for column, own in by_column.items()} for m in methods}
    return make_report(list_cells(arms, dict.fromkeys(("RTE", *again), "rte"), troubles), runs)


PROTOCOL = {"scale": "", "head.name": "isobn", "evaluation.every": "1", "optimization.report": "best"}
PLAIN = [69.0, 70.0, 70.5, 71.0, 69.5]


@pytest.mark.parametrize(
    ("shift", "word"), [(5.0, HOLDS), (-5.0, FAILS), (0.0, UNDECIDED)], ids=["better", "worse", "neither"]
)
def test_improves_by_the_interval_of_the_difference(shift, word):
    made = report({"none": PLAIN, "isobn_paper": [value + shift for value in PLAIN[::-1]]})
    outcome = claims.improves("isobn_paper")(made)
    assert outcome.word == word
    assert f"isobn_paper on RTE {shift:+.2f} points [".replace("+0.00", "0.00") in outcome.numbers
    assert "p = " in outcome.numbers


def test_an_improvement_of_the_best_of_more_configurations_decides_nothing():
    check, better = claims.improves("isobn_paper"), [value + 5 for value in PLAIN]

    def judge(ours, plain, isobn):
        counts = {"none": plain, "isobn_paper": isobn}
        tidy = [run for m, n in counts.items() for run in runs([(1.0, 50.0)], method=m, candidates=n)]
        return check(report({"none": PLAIN, "isobn_paper": ours}, runs=tidy))

    favoured = judge(better, 6, 18)
    assert (favoured.word, "selected from 18 and 6 configurations" in favoured.numbers) == (UNDECIDED, True)
    assert judge(better, 6, 6).word == HOLDS
    assert judge([value - 5 for value in PLAIN], 6, 18).word == FAILS


def test_an_interval_without_a_significant_permutation_test_decides_nothing():
    made = report({"none": PLAIN[:3], "isobn_paper": [value + 5 for value in PLAIN[:3]]})
    outcome = claims.improves("isobn_paper")(made)
    assert "[+4" in outcome.numbers  # the interval excludes 0
    assert (outcome.word, outcome.numbers.split(", ")[-1]) == (UNDECIDED, "p = 0.10")  # 2 of C(6, 3) relabellings
    again = claims.improves("isobn_paper")(
        report({"none": PLAIN[:3], "isobn_paper": [value + 5 for value in PLAIN[:3]]}, again=["RTE again"])
    )
    assert again == outcome  # the same runs in two columns are no more evidence


def test_a_claim_about_one_method_is_not_decided_by_others():
    close, better = [70.0 + seed / 1000 for seed in range(5)], [75.0 + seed / 1000 for seed in range(5)]
    made = report(
        {"none": close, "cosine": close[::-1], "isobn_paper": better}, runs=runs([(1.0, 50.0)], method="flow")
    )
    assert claims.nothing_improves(made).word == FAILS
    outcome = claims.judge_among(claims.nothing_improves, "cosine")(made)
    assert (outcome.word, outcome.numbers.split(" are ")[0]) == (HOLDS, "0 of 1 comparisons on RTE")
    seen = []
    claims.judge_among(lambda narrowed: seen.append(narrowed), "cosine")(made)
    assert list(seen[0].cells["method"]) == ["none", "cosine"]
    assert seen[0].runs.empty


def test_a_single_seed_an_undefined_score_or_no_spread_decides_nothing():
    check = claims.improves("isobn_paper")
    assert check(report({"none": [70.0], "isobn_paper": [80.0]})).word == NOT_RUN
    assert check(report({"isobn_paper": PLAIN})).word == NOT_RUN
    better = {"none": PLAIN, "isobn_paper": [value + 5 for value in PLAIN]}
    undefined = check(report(better, STS={**better, "isobn_paper": [80.0, float("nan")]}))
    assert undefined == (UNDECIDED, "isobn_paper: undefined score (NaN) on STS")
    flat = check(report({"none": [70.0] * 5, "isobn_paper": [75.0] * 5}))
    assert (flat.word, "no spread" in flat.numbers) == (UNDECIDED, True)


def test_a_constant_predictor_is_in_no_mean():
    better = {"none": PLAIN, "isobn_paper": [value + 5 for value in PLAIN]}
    troubles = {("isobn_paper", "MRPC"): {"constant_predictor": 5}}
    made = report(better, MRPC={**better, "isobn_paper": [10.0] * 5}, troubles=troubles)
    numbers = claims.improves("isobn_paper")(made).numbers
    assert numbers.startswith("isobn_paper on RTE +5.00 points [")
    assert numbers.endswith("(left out, constant predictors: MRPC)")


@pytest.mark.parametrize("methods", [("none",), ("isobn_paper",), ("none", "isobn_paper")])
def test_constant_predictors_were_run(methods):
    """The outcome is undecided, and names the task and the method; it does not ask for runs that are there."""
    scores = {"none": PLAIN, "isobn_paper": [value + 5 for value in PLAIN]}
    made = report(scores, troubles={(method, "RTE"): {"constant_predictor": 5} for method in methods})
    outcome = claims.improves("isobn_paper")(made)
    assert outcome == (UNDECIDED, "isobn_paper: no task can be compared (left out, constant predictors: rte)")
    outcome = claims.nothing_improves(made)
    assert outcome.word == UNDECIDED
    assert outcome.numbers.endswith("left out, constant predictors: isobn_paper on rte")


def test_nothing_improves_is_about_gains_that_survive_holm_and_runs_that_would_show_them():
    better, worse = [value + 9 for value in PLAIN], [value - 9 for value in PLAIN]
    failed = claims.nothing_improves(report({"none": PLAIN, "cosine": better, "flow": PLAIN[::-1]}))
    assert failed == (FAILS, "1 of 2 comparisons on RTE are gains that survive Holm: cosine on RTE")
    assert claims.nothing_improves(report({"none": PLAIN})).word == NOT_RUN
    assert claims.nothing_improves(report({"none": PLAIN[:1], "cosine": better[:1]})).word == NOT_RUN
    blind = claims.nothing_improves(report({"none": PLAIN, "cosine": worse}))
    least = detectable_difference(statistics.stdev(PLAIN), 5)
    assert least > 1
    assert (blind.word, f"differences under {least:.2g} points" in blind.numbers) == (UNDECIDED, True)
    close = [70 + (value - 70) / 4 for value in PLAIN]
    assert claims.nothing_improves(report({"none": close, "cosine": close[::-1]})).word == HOLDS
    other = {"none": PLAIN, "cosine": PLAIN[::-1]}
    assert claims.nothing_improves(report({"none": close, "cosine": close[::-1]}, MRPC=other)).word == UNDECIDED
    single = {"none": [70.0], "cosine": [70.1]}
    assert (
        "1 more can't be tested"
        in claims.nothing_improves(report({"none": close, "cosine": close[::-1]}, MRPC=single)).numbers
    )


def runs(pairs, **more):
    base = {"task": "rte", "encoder": "bert", "method": "none", "failure": None, "status": "finished", **PROTOCOL}
    return [{**base, "embedding/i1": i1, "score": score, **more} for i1, score in pairs]


def test_isotropy_and_score():
    related = [(number / 10, 50.0 + number) for number in range(8)]
    unrelated = [(number / 10, score) for number, score in enumerate([3, 1, 4, 1, 5, 9, 2, 6])]
    many = [(number / 80, 50.0 + number * 31 % 80) for number in range(80)]
    check = run_claims.isotropy_is_unrelated
    assert check(report({}, runs=runs(related))).word == FAILS
    assert check(report({}, runs=runs(unrelated))).word == UNDECIDED  # so few runs would show little
    assert check(report({}, runs=runs(many))).word == HOLDS
    assert check(report({}, runs=runs(many[:40]))).word == UNDECIDED
    assert check(report({}, runs=runs(related[:3]))).word == NOT_RUN


def test_constant_and_undefined_isotropy_is_left_out_without_a_warning(recwarn):
    constant = runs([(0.5, 50.0 + number) for number in range(8)], task="cola")
    undefined = runs([(float("nan"), 50.0)] * 3)
    related = runs([(number / 10, 50.0 + number) for number in range(8)])
    check = run_claims.isotropy_is_unrelated
    outcome = check(report({}, runs=[*constant, *undefined, *related]))
    assert outcome.word == FAILS
    assert "with I1: rte +1.00 (8 runs); 1 of 1 with p < 0.05 after Holm; left out" in outcome.numbers
    assert outcome.numbers.endswith("left out, I1 or score is constant: cola, bert")
    assert check(report({}, runs=constant)).word == UNDECIDED
    assert not recwarn.list


def test_the_relation_is_corrected_over_tasks():
    weak = [(1, 1), (2, 3), (3, 2), (4, 5), (5, 4), (6, 6)]  # rho = 1 - 6 * 4 / 210 = .89, p = .02
    none = [(1, 3), (2, 1), (3, 5), (4, 6), (5, 2), (6, 4)]
    made = [*runs(weak), *(run for task in "abcd" for run in runs(none, task=task))]
    assert run_claims.isotropy_is_unrelated(report({}, runs=runs(weak))).word == FAILS
    outcome = run_claims.isotropy_is_unrelated(report({}, runs=made))
    assert (outcome.word, "0 of 5 with p < 0.05 after Holm" in outcome.numbers) == (UNDECIDED, True)


def test_pooled_correlations_have_the_coverage_of_their_interval():
    """Spearman's correlation of two normal variables with correlation r is 6 / pi asin(r / 2)."""
    generator, covered, rounds = np.random.default_rng(7), 0, 2000
    truth = 6 / np.pi * np.arcsin(0.4 / 2)
    for _ in range(rounds):
        correlations = []
        for size in (20, 15, 40):
            x = generator.standard_normal(size)
            y = 0.4 * x + math.sqrt(1 - 0.4**2) * generator.standard_normal(size)
            correlations.append(np.corrcoef(x.argsort().argsort(), y.argsort().argsort())[0, 1])
        low, pooled, high, _ = run_claims.pool_correlations(correlations, (20, 15, 40))
        assert low < pooled < high
        covered += low < truth < high
    assert 0.93 < covered / rounds < 0.965


def test_correlations_that_differ_are_not_called_unrelated():
    """Eight correlations of about +.3 and -.3 pool to 0 within .3, but they are not one correlation."""
    up = [(number, number if number % 5 < 2 else number * 7 % 25) for number in range(25)]
    made = [run for place in range(8) for run in runs([(x, -y if place % 2 else y) for x, y in up], task=f"t{place}")]
    assert run_claims.isotropy_is_unrelated(report({}, runs=made)).word == UNDECIDED
    rho = 0.4
    *interval, p_equal = run_claims.pool_correlations([rho, -rho] * 4, [25] * 8)
    assert max(map(abs, interval)) < run_claims.NO_RELATION
    deviations = [(25 - 3) / 1.06 * math.atanh(rho) ** 2] * 8
    assert p_equal == pytest.approx(stats.chi2.sf(sum(deviations), 7))
    assert p_equal < 0.05


def test_one_correlation_pools_to_itself():
    low, pooled, high, p_equal = run_claims.pool_correlations([0.5], [28])
    assert p_equal == 1
    assert pooled == pytest.approx(0.5)
    assert (low, high) == pytest.approx(
        [math.tanh(math.atanh(0.5) + k * 1.959964 * math.sqrt(1.06) / 5) for k in (-1, 1)]
    )


def spectrum(i2, failure=None, **more):
    return runs([(1.0, 50.0)], method="spectrum_polynomial", failure=failure, **{"head/i2_printed": i2}, **more)


def test_collapses_is_judged_by_runs_whose_head_is_as_isotropic_as_printed():
    check, one_class = run_claims.collapses(COLLAPSED_I2, "spectrum_polynomial"), "constant_predictor"
    assert check(report({}, runs=[*spectrum(7e-4, one_class), *spectrum(0.0)])).word == HOLDS
    assert [check(report({}, runs=spectrum(i2))).word for i2 in (7e-4, 0.0)] == [FAILS, FAILS]
    # A constant run with another head is no evidence for the claim, and does not outweigh evidence against it.
    outcome = check(report({}, runs=[*spectrum(0.4, one_class), *spectrum(7e-4)]))
    assert outcome == (FAILS, "0 of 1 runs with an I2 of at most 0.002 predict one class")
    for i2 in (0.2, None, math.nan):
        outcome = check(report({}, runs=spectrum(i2, one_class)))
        assert outcome.word == UNDECIDED
        assert "calibration=spectrum_polynomial_collapsed" in outcome.numbers
    assert check(report({}, runs=runs([(1.0, 50.0)]))).word == NOT_RUN


def test_collapses_leaves_out_tasks_where_plain_fine_tuning_predicts_one_class_too():
    check, one_class = run_claims.collapses(COLLAPSED_I2, "spectrum_polynomial"), "constant_predictor"
    plain = [*runs([(1.0, 50.0)]), *runs([(1.0, 50.0)], failure=one_class)]
    outcome = check(report({}, runs=[*plain, *spectrum(7e-4, one_class)]))
    assert outcome == (UNDECIDED, "no such run; left out, plain fine-tuning predicts one class too: rte")
    assert check(report({}, runs=[*plain, *spectrum(7e-4, one_class), *spectrum(7e-4, task="mrpc")])).word == FAILS
    assert check(report({}, runs=[*runs([(1.0, 50.0)]), *spectrum(7e-4, one_class)])).word == HOLDS


def ev(none, bn, isobn, task="rte"):
    values = {"none": none, "batch_norm": bn, "isobn_paper": isobn}
    return [{"encoder": "e", "task": task, "method": m, "k": 1, "ev": value} for m, value in values.items()]


def clustered(clusters, index, gaussian, task="rte"):
    measured = {"clusters": clusters, "cluster_index": index, "gaussian_cluster_index": gaussian}
    return [{"encoder": "e", "task": task, **measured}]


@pytest.mark.parametrize(
    ("check", "rows", "word"),
    [
        (isobn.isobn_lowers_ev, ev(0.8, 0.75, 0.3), HOLDS),
        (isobn.isobn_lowers_ev, ev(0.8, 0.5, 0.45), FAILS),  # lower than BN, but BN did most of it
        (isobn.isobn_lowers_ev, [*ev(0.8, 0.75, 0.3), *ev(0.3, 0.4, 0.5, "cola")], UNDECIDED),
        (isobn.isobn_lowers_ev, [], NOT_RUN),
        (
            common.centring_restores_isotropy,
            [{"encoder": "e", "i1_raw": 0.4, "i1_centred": 0.96, "i1_removed": 0.99}],
            HOLDS,
        ),
        (
            common.centring_restores_isotropy,
            [{"encoder": "e", "i1_raw": 0.4, "i1_centred": 0.6, "i1_removed": 0.99}],
            FAILS,
        ),
        (adaptation.variance_is_not_importance, [{"encoder": "e", "task": "t", "spearman": 0.9}], FAILS),
        (adaptation.variance_is_not_importance, [{"encoder": "e", "task": "t", "spearman": 0.1}], HOLDS),
        (
            adaptation.variance_is_not_importance,
            [{"encoder": "e", "task": "rte", "spearman": 0.9}],
            NOT_RUN,
        ),  # excepted
        (adaptation.variance_rises_with_importance, [{"encoder": "e", "task": "rte", "spearman": 0.9}], HOLDS),
        (adaptation.variance_rises_with_importance, [{"encoder": "e", "task": "rte", "spearman": 0.1}], FAILS),
        (
            adaptation.variance_rises_with_importance,
            [{"encoder": "e", "task": "sst2", "spearman": 0.9}],
            NOT_RUN,
        ),
        (adaptation.there_are_two_clusters, clustered(2, 0.5, 0.7), HOLDS),
        (adaptation.there_are_two_clusters, clustered(3, 0.5, 0.7), FAILS),
        (
            adaptation.there_are_two_clusters,
            clustered(2, 0.7, 0.7),
            FAILS,
        ),  # t-SNE's clusters, not the vectors'
        (adaptation.there_are_two_clusters, clustered(2, 0.5, 0.7) + clustered(1, 0.9, 0.8), UNDECIDED),
        (adaptation.there_are_two_clusters, clustered(2, 0.5, 0.7) + clustered(1, 0.9, 0.8, "mnli"), HOLDS),
        (
            adaptation.there_are_two_clusters,
            clustered(2, 0.5, 0.7, "qnli"),
            NOT_RUN,
        ),  # Figure 1 does not show it
    ],
)
def test_checks_of_analyses(check, rows, word):
    assert check(rows).word == word


def test_drift_is_judged_by_every_runs_last_epoch():
    base = {"encoder": "e", "task": "t", "method": "none", "seed": 1}
    rows = [
        {**base, "epoch": 0, "cosine": 1.0, "fine_tuned_top1": 0.1, "optimal_top1": 0.5},
        {**base, "epoch": 1, "cosine": 0.9, "fine_tuned_top1": 0.9, "optimal_top1": 0.5},
    ]
    assert isobn.classifier_stays_at_init(rows).word == FAILS
    assert isobn.classifier_stays_at_init(rows[:1]).word == HOLDS
    assert (
        isobn.top_component_is_exaggerated(rows).word,
        isobn.top_component_is_exaggerated(rows[:1]).word,
    ) == (
        HOLDS,
        FAILS,
    )
    regression = {**rows[1], "task": "stsb", "fine_tuned_top1": 0.1, "optimal_top1": None}  # no optimal classifier
    assert isobn.top_component_is_exaggerated([*rows, regression]) == isobn.top_component_is_exaggerated(rows)
    assert isobn.top_component_is_exaggerated([regression]).word == NOT_RUN
    assert isobn.classifier_stays_at_init([regression]).word == FAILS  # the drift of its head counts


def test_words_and_rare_tokens():
    words = [{"encoder": "e", "similarity": "cosine", "method": m, "pearson": p} for m, p in (("raw", 50), ("x", 60))]
    assert common.word_similarity_improves("x")(words).word == HOLDS
    assert common.word_similarity_improves("x")([*words[:1], {**words[1], "pearson": 40}]).word == FAILS
    near = [{"encoder": "e", "vectors": "raw", "cosine": value} for value in (0.2, 0.7)]
    assert common.rare_tokens_are_nearer(near).word == HOLDS
    assert common.rare_tokens_are_nearer(near[::-1]).word == FAILS


def test_repeated_scores_are_near_the_published_ones():
    rows = [
        {"encoder": "e", "set": "sts12", "metric": metric, "similarity": similarity, "difference": difference}
        for metric, similarity, difference in (
            ("spearman", "cosine", 0.01), ("pearson", "cosine", -0.09), ("pearson", "l1", 7.0),
        )
    ]  # fmt: skip
    outcome = mteb.scores_are_repeated(rows)
    assert (outcome.word, "-0.090 points (e, sts12, pearson)" in outcome.numbers) == (HOLDS, True)
    assert mteb.scores_are_repeated([*rows, {**rows[0], "difference": math.nan}]).word == UNDECIDED
    assert mteb.scores_are_repeated([{**row, "difference": 0.2} for row in rows]).word == FAILS
    assert mteb.scores_are_repeated(rows[2:]).word == NOT_RUN


def test_every_claim_names_an_experiment_that_is_there():
    assert all(find_config("experiment", claim.experiment) for claim in CLAIMS)
    assert {claim.paper for claim in CLAIMS} == {
        file.parent.name for file in ROOT.glob("experiments/*/published.yaml")
    }


def test_the_documentation_describes_every_check(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "site"))
    table = importlib.import_module("reference").write_claims().splitlines()[4:]
    assert len(table) == len(CLAIMS)
    text = (ROOT / "docs" / "reference" / "claims.md").read_text()
    checks = {word for line in table for word in re.findall(r"\| `(\w+)[^`]*` \|$", line)}
    assert len(checks) == 8
    assert [check for check in checks if f"**{check}**" not in text] == []
    assert f"I2 of at most {COLLAPSED_I2}." in text
    assert f"gain of {claims.RELEVANT_GAIN:g} point on every task" in text
    assert f"lies between -{run_claims.NO_RELATION:g} and {run_claims.NO_RELATION:g} (our".replace("0.", ".") in text


@pytest.mark.slow
@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if claim.settings], ids=lambda claim: claim.text[:20])
def test_a_claims_command_runs_what_it_compares(claim, tmp_path):
    import shlex

    from isobench.config.command_line import MULTIRUN_FLAGS
    from isobench.sweep.rows import find_sweep_rows

    _, _, _, *arguments = shlex.split(claim.command)  # python -m isobench
    _, rows = find_sweep_rows([a for a in arguments if a not in MULTIRUN_FLAGS])
    made = [{**r, "score": 70.0 + r["seed"], "status": "finished"} for r in build_runs(rows).to_dict("records")]
    for run in made:
        run |= {"candidates": 1, "failure": None, "selected": True}
    assert {run["seed"] for run in made} == {1, 2, 3, 4, 5}
    if "Table 1" not in claim.text:  # that claim reads tables, not runs
        assert claim.check(report({}, runs=made)).word == UNDECIDED  # it has what it needs, and finds no difference


def test_a_claim_that_lacks_runs_names_its_own_command(tmp_path):
    lacking = [claim for claim in CLAIMS if "Modified" in claim.text or "Subtracting the mean" in claim.text]
    for claim, method in zip(lacking, ("isobn_original", "[center,isobn_paper]"), strict=True):
        for found in (None, report({}, runs=runs([(1.0, 50.0)]))):
            outcome, _ = judge_claim(claim, lambda experiment, found=found: found, tmp_path)
            assert outcome.word == NOT_RUN
            assert outcome.numbers.endswith(claim.command)
            assert method in claim.command


@pytest.fixture
def reporting(command):
    from isobench.cli import report as entry

    return partial(command, entry.main)


@pytest.mark.slow
def test_the_page_of_claims_over_what_was_run(cli, small, outputs, reporting):
    code, _, err = reporting(f"output_dir={outputs}")
    assert (code, f"{outputs} does not exist: nothing was run there; set output_dir=FOLDER" in err) == (2, True)
    assert not outputs.exists()
    outputs.mkdir()
    code, out, _ = reporting(f"output_dir={outputs}")
    assert (code, out.count("not run")) == (0, len(CLAIMS))  # nothing was run, nothing is made up
    assert cli("+experiment=isobn_ev", *small, "encoder.pooling=cls", "task.train_samples=100")[0] == 0
    code, out, _ = reporting(f"output_dir={outputs}")
    assert code == 0
    assert "encoder local is not the paper's" in out.replace("\n", " ")
    rows = {row["claim"]: row for row in csv.DictReader((outputs / "reports" / "claims.csv").open())}
    assert len(rows) == len(CLAIMS)
    assert sum(row["outcome"] == NOT_RUN for row in rows.values()) == len(CLAIMS) - 1
    page = (outputs / "reports" / "claims.html").read_text()
    assert page.count("Not the paper's setting: ") == 1
    assert (outputs / "reports" / "claims.md").read_text().count("\n| ") == len(CLAIMS) + 2


@pytest.mark.slow
def test_what_can_not_be_read_is_unknown_not_not_run(reporting, outputs):
    (outputs / "commands").mkdir(parents=True)
    (outputs / "commands" / "x.json").write_text("{")
    damaged = outputs / "reports" / "isobn_ev"
    damaged.mkdir(parents=True)
    (damaged / "about.json").write_text("{")
    assert reporting(f"output_dir={outputs}")[0] == 0
    rows = list(csv.DictReader((outputs / "reports" / "claims.csv").open()))
    of_runs = {claim.text for claim in CLAIMS if not claim.rows_file}
    for row in rows:
        if row["claim"] in of_runs:
            assert row["outcome"] == UNKNOWN
            assert "x.json is damaged" in row["numbers"]
        else:
            assert row["outcome"] == (UNKNOWN if row["experiment"] == "isobn_ev" else NOT_RUN)
    page = (outputs / "reports" / "claims.html").read_text()
    assert page.count(f"{OUTCOME_SYMBOLS[UNKNOWN]}&nbsp;unknown") == len(of_runs) + 1


def test_changed_rows_of_an_analysis_are_unknown(tmp_path):
    claim = next(claim for claim in CLAIMS if claim.rows_file)
    write_rows(tmp_path, claim.rows_file, [{"x": 1.0}])
    file = tmp_path / f"{claim.rows_file}.parquet"
    about = {"sha256": {file.name: hashlib.sha256(file.read_bytes()).hexdigest()}}
    assert read_analysis_rows(tmp_path, claim.rows_file, about) == [{"x": 1.0}]
    write_rows(tmp_path, claim.rows_file, [{"x": 2.0}])
    (tmp_path / "about.json").write_text(json.dumps(about | {"scale": {"differs": []}}))
    outcome, _ = judge_claim(claim, lambda experiment: None, tmp_path)
    assert outcome.word == UNKNOWN
    assert "was changed after the analysis wrote it; run the analysis again" in outcome.numbers
    assert read_analysis_rows(tmp_path, claim.rows_file, {}) == [{"x": 2.0}]  # an earlier version noted no sums


def test_a_changed_description_of_an_analysis_is_unknown(tmp_path):
    claim = next(claim for claim in CLAIMS if claim.rows_file)
    write_rows(tmp_path, claim.rows_file, [{"x": 1.0}])
    about = add_json_checksum({"scale": {"name": "embedded", "differs": ["not the paper's data"]}})
    (tmp_path / "about.json").write_text(json.dumps(about).replace("not the paper's", "yes the paper's"))
    outcome, scale = judge_claim(claim, lambda experiment: None, tmp_path)
    assert (outcome.word, scale) == (UNKNOWN, "")
    assert "its checksum is not that of its content; run the analysis again" in outcome.numbers


def test_an_impossible_selection_is_unknown_and_said(tmp_path):
    def impossible(experiment):
        raise UserError("experiment.selection.rule=magic is not known")

    claim, *_ = (claim for claim in CLAIMS if claim.check is claims.nothing_improves)
    assert judge_claim(claim, impossible, tmp_path)[0] == (UNKNOWN, "experiment.selection.rule=magic is not known")
    assert judge_claim(claim, lambda experiment: None, tmp_path)[0].word == NOT_RUN


@pytest.mark.slow
def test_the_report_of_a_sweep_end_to_end(cli, small, outputs, reporting):
    sweep = [*small, "-m", "calibration=none,isobn_paper", "seed=1,2"]
    code, _, err = reporting("+experiment=glue_isobn", f"output_dir={outputs}")
    assert (code, err.count("\n")) == (2, 1)
    assert cli("+experiment=glue_isobn", *sweep)[0] == 0
    code, out, err = reporting("+experiment=glue_isobn", f"output_dir={outputs}")
    assert code == 0, err
    folder = outputs / "reports" / "glue_isobn"
    names = {"report.html", "report.json", "report.md", "tables.tex"} | {
        f"{n}.{k}" for n in ("runs", "epochs") for k in ("csv", "parquet")
    }
    assert {file.name for file in folder.iterdir()} == names
    rows = list(csv.DictReader((folder / "runs.csv").open()))
    assert len(rows) == 4
    assert {row["status"] for row in rows} == {"finished"}
    assert len(list(csv.DictReader((folder / "epochs.csv").open()))) == 8
    page = (folder / "report.html").read_text()
    for text in ("isobn_paper", "Not the paper", "of 4</strong> runs done"):
        assert text in page
    assert "\n- " in out  # the evidence, in sentences


@pytest.mark.slow
def test_an_analysis_and_a_wrong_selection_are_one_line(reporting, outputs, cli, small):
    code, _, err = reporting("+experiment=isobn_ev", f"output_dir={outputs}")
    assert (code, err.count("\n")) == (2, 1)
    assert "trains nothing" in err
    cli("+experiment=glue_isobn", *small, "-m", "calibration=none", "seed=1")
    code, _, err = reporting("+experiment=glue_isobn", *small, "calibration=none", "experiment.selection.rule=magic")
    assert (code, err.count("\n")) == (2, 1)
    assert "experiment.selection.rule=magic is not known" in err
    code, _, err = reporting(f"output_dir={outputs}", "experiment.selection.rule=magic")  # of the claims, too
    assert (code, err.count("\n")) == (2, 1)
    assert "experiment.selection.rule=magic is not known" in err


def test_text_on_the_page_is_escaped():
    row = {"paper": "p", "claim": "<script>", "outcome": HOLDS, "numbers": "<b>&", "scale": "", "experiment": "e"}
    page = render_claims([row])
    assert "<script>" not in page
    assert "&lt;b&gt;&amp;" in page
