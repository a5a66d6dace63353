"""The analysis of the dose-response study: planted slopes are found (the bundles have the rest)."""

import math

import numpy as np
import pytest
from dial_study import DOSES, SEEDS, SLOPES
from helpers import check_done, read_analysis_rows
from scipy import stats

from isobench.analyses.rows import select_rows
from isobench.cli import report
from isobench.common.plots import use_figure_style
from isobench.statistics.seeds import holm
from isobench_papers.isotropy_dial import analysis as dial_analysis
from isobench_papers.isotropy_dial.rows import VOCABULARY_MEASURES, WHOLE, WITHIN, build_rows


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
    check_done(cli(*study))
    check_done(cli("verify", str(outputs)))
