"""The analysis of the dose-response study: planted slopes and correlations are found."""

import math

import numpy as np
import pytest
from dial_study import DOSES, SEEDS, SLOPES, Study
from helpers import check_done, fails, read_analysis_rows
from scipy import stats

from isobench.analyses.rows import select_rows
from isobench.cli import report
from isobench.common.plots import use_figure_style
from isobench.statistics.seeds import holm
from isobench_papers.isotropy_dial import analysis as dial_analysis
from isobench_papers.isotropy_dial.rows import (
    ACROSS,
    GIVEN_DIAL,
    GIVEN_DOSE,
    VOCABULARY_MEASURES,
    WHOLE,
    WITHIN,
    build_rows,
    is_primary,
)


def test_planted_slopes_are_found_with_students_interval_over_seeds(study):
    rows = build_rows(study.subjects)
    slopes = dial_analysis.measure_slopes(rows)
    primary = [row for row in slopes if row["quantity"] == "score" and row["doses"] == WHOLE]
    assert [row["dial"] for row in primary] == list(SLOPES)
    for row in primary:
        own = select_rows(rows, {"dial": row["dial"]})
        by_seed = [
            stats.linregress(*zip(*[(r["dose"], r["score"]) for r in own if r["seed"] == seed], strict=True)).slope
            for seed in SEEDS
        ]
        low, high = stats.ttest_1samp(by_seed, 0).confidence_interval(0.95)
        assert (row["slope"], row["low"], row["high"]) == pytest.approx((np.mean(by_seed), low, high), rel=1e-9)
        assert row["slope"] == pytest.approx(SLOPES[row["dial"]], abs=0.2)
        span = max(DOSES[row["dial"]]) - min(DOSES[row["dial"]])
        assert (row["over_dial"], row["seeds"]) == (pytest.approx(row["slope"] * span), len(SEEDS))
    assert [row["p_holm"] for row in primary] == pytest.approx(holm([row["p"] for row in primary]))
    assert not any(row["complete"] for row in slopes)
    halves = [row for row in slopes if row["doses"] != WHOLE]
    assert {(row["dial"], row["doses"]) for row in halves} == {("istar", "up to 0"), ("istar", "from 0")}
    assert all(math.isnan(row["p_holm"]) for row in halves)
    ev1 = {row["dial"]: row["slope"] for row in slopes if row["quantity"] == "embedding/ev1"}
    assert ev1["istar"] == pytest.approx(0.1)
    assert {row["dial"] for row in slopes if row["quantity"] in VOCABULARY_MEASURES} == {"cosine"}


def test_planted_correlations_are_found(study):
    found = dial_analysis.measure_correlations(build_rows(study.subjects))
    of_ev1 = {row["dial"] or row["kind"]: row for row in found if row["measure"] == "embedding/ev1"}
    assert of_ev1["isobn"]["correlation"] > 0.7  # the score rises with the dose, and so does the measure
    assert of_ev1["istar"]["correlation"] < -0.7
    of_i1 = {row["dial"] or row["kind"]: row for row in found if row["measure"] == "embedding/i1"}
    kinds = (*DOSES, ACROSS, GIVEN_DIAL, GIVEN_DOSE)
    assert [of_i1[kind]["correlation"] for kind in kinds] == pytest.approx([1] * 7)
    family = [row for row in found if row["kind"] == GIVEN_DIAL and not math.isnan(row["p"])]
    assert [row["p_holm"] for row in family] == pytest.approx(holm([row["p"] for row in family]))
    assert all(math.isnan(row["p_holm"]) for row in found if row["kind"] != GIVEN_DIAL)
    noise = next(row for row in found if (row["kind"], row["measure"]) == (GIVEN_DIAL, "embedding/i2"))
    assert abs(noise["correlation"]) < 0.4


def test_across_dials_plain_fine_tuning_counts_once(study):
    rows = build_rows(study.subjects)
    found = dial_analysis.measure_correlations(rows)
    (across,) = (row for row in found if (row["kind"], row["measure"]) == (ACROSS, "embedding/i2"))
    by_seed = []
    for seed in SEEDS:
        seeds = [row for row in rows if row["seed"] == seed]
        own = {(r["method"], r["dial"] if r["method"] != "none" else "", r["dose"]): r for r in seeds}
        assert len(own) == 30
        points = [(row["embedding/i2"], row["score"]) for row in own.values()]
        by_seed.append(stats.spearmanr(*zip(*points, strict=True)).statistic)
    assert across["correlation"] == pytest.approx(np.mean(by_seed), rel=1e-9)


def test_a_cell_that_decides_is_found_by_leaving_it_out(tmp_path):
    study = Study(tmp_path, range(1, 11))  # the whole grid of an encoder
    for seed in range(1, 11):
        study.find("cosine", 6, seed).record.best.score += 0.05
    rows = dial_analysis.compute(study.subjects)
    found = rows["left_out_cells"]
    assert len({row["left_out"] for row in found}) == 31  # 30 cells, and none
    of_cosine = {row["left_out"]: row for row in found if row["dial"] == "cosine"}
    assert [name for name, row in of_cosine.items() if row["p_holm"] >= 0.05] == ["cosine strength=1"]
    for cell, is_left_out in (
        ("I-STAR strength=-0.3", lambda row: (row["dial"], row["dose"]) == ("istar", -4)),
        ("plain fine-tuning", lambda row: row["method"] == "none"),
    ):
        kept = [row for row in rows["doses"] if not is_left_out(row)]
        tests = (*dial_analysis.measure_slopes(kept), *dial_analysis.measure_correlations(kept))
        expected = [{"left_out": cell, "measure": "", **row} for row in tests if is_primary(row)]
        assert [row for row in found if row["left_out"] == cell] == expected


def test_undefined_values_one_seed_and_none(study):
    for subject in study.subjects:
        subject.record.best.isotropy["embedding/ev1"] = None  # undefined
        subject.record.best.isotropy["embedding/isoscore"] = 0.5  # the same everywhere
        if subject.cfg.seed > 1:
            subject.record.best.score = 0.5  # a constant predictor
    study.find("cosine", 4, 1).record.best.isotropy["embedding/i2"] = None
    rows = dial_analysis.compute(study.subjects)
    for row in rows["correlations"]:
        if row["measure"] in ("embedding/ev1", "embedding/isoscore"):
            assert (math.isnan(row["correlation"]), row["seeds"]) == (True, 0)
        elif row["measure"] == "embedding/i1":
            assert row["seeds"] == 1
        elif (row["kind"], row["measure"], row["dial"]) == (WITHIN, "embedding/i2", "cosine"):
            assert row["seeds"] == 0
    with use_figure_style():
        assert "nan" not in dial_analysis.show(rows).text
    rows = dial_analysis.compute([subject for subject in study.subjects if subject.cfg.seed == 1])
    (row,) = (r for r in rows["slopes"] if (r["dial"], r["quantity"]) == ("isobn", "score"))
    assert row["slope"] == pytest.approx(2, abs=1)
    assert all(math.isnan(row[name]) for name in ("low", "high", "p", "p_holm"))
    for subject in study.subjects:
        subject.record = None
    with fails():
        dial_analysis.compute(study.subjects)


@pytest.mark.slow
def test_a_growing_study_is_analysed_by_a_sweep_and_again_by_a_report(cli, small, outputs):
    methods = ["calibration=none,isobn_paper", "calibration.beta=0.5,1.0", "seed=1,2"]
    study = ["+experiment=isotropy_dial", *small, *methods, "optimization.epochs=1", "task.train_samples=48"]
    out, _ = check_done(cli(*study))
    assert "INCOMPLETE: 6 of 300 runs finished" in " ".join(out.split())
    assert len(read_analysis_rows(outputs, "isotropy_dial")["doses"]) == 2 * (3 + 1 + 1)  # plain is a dose of 3 dials
    next(outputs.glob("runs/*/result.json")).unlink()
    page = outputs / "reports" / "isotropy_dial" / "report.html"
    report.report([f"output_dir={outputs}", "+experiment=isotropy_dial"])
    assert "INCOMPLETE: 5 of 300 runs finished" in page.read_text()
    other = ["calibration=istar", "calibration.strength=0.1", "seed=1", "optimization.epochs=2"]
    check_done(cli(*study))
    check_done(cli("+experiment=isotropy_dial", *small, *other, "task.train_samples=48"))
    report.report([f"output_dir={outputs}", "+experiment=isotropy_dial"])  # of both sweeps, which can't be one study
    assert "data:image/svg+xml" not in page.read_text()
    assert "optimization.epochs (1, 2)" in page.read_text()
    check_done(cli("verify", str(outputs)))
