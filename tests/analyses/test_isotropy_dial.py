"""The analysis of the dose-response study: planted slopes and correlations are found, incomplete seeds are named."""

import itertools
import json
import math
import os
import subprocess
import types
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers import make_composer, make_record
from hydra.core.global_hydra import GlobalHydra
from scipy import stats

from isobench.analyses import isotropy_dial as dial_analysis
from isobench.analyses import isotropy_dial_notes as notes
from isobench.analyses.isotropy_dial_figures import average_within_seeds
from isobench.analyses.isotropy_dial_rows import (
    ACROSS,
    DIALS,
    GIVEN_DIAL,
    GIVEN_DOSE,
    MEASURES,
    VOCABULARY_MEASURES,
    WHOLE,
    WITHIN,
    build_rows,
    collect_series,
)
from isobench.analyses.rows import select_rows
from isobench.cli import report
from isobench.common.errors import UserError
from isobench.common.plots import use_figure_style
from isobench.common.resources import conf_dir
from isobench.report.seed_statistics import holm
from isobench.sweep.plan import compose_sweep, plan_runs
from isobench.sweep.sweeper import find_places

SEEDS = range(1, 7)
DOSES = {
    "isobn": [0, 0.125, 0.25, 0.375, 0.5, 0.75, 1],
    "istar": [*range(-5, 6)],
    "cosine": [*range(7)],
    "whitening": [*range(7)],
}
SLOPES = {"isobn": 2.0, "istar": -0.5, "cosine": 0.0, "whitening": 0.8}


@pytest.fixture(scope="module")
def configs():
    """The configs of the study's runs, in the order of its grid, without reading data or weights."""
    text = Path(conf_dir(), "experiment", "isotropy_dial.yaml").read_text()
    grid = yaml.safe_load(text)["experiment"]["grid"]["embedded"]
    runs = [
        [f"{key}={value}" for key, value in zip(part, values, strict=True)]
        for part in grid
        for values in itertools.product(*part.values())
    ]
    return [make_composer().compose(["+experiment=isotropy_dial", *run]) for run in runs]


def test_the_grid_has_every_dose_of_every_dial_with_ten_seeds_and_two_encoders(configs):
    assert len(configs) == len({repr((c.seed, c.encoder.name, c.calibration)) for c in configs}) == 600
    for dial in DIALS:
        found = [(c.encoder.name, dial.read_dose(c.calibration), c.seed) for c in configs]
        found = sorted(run for run in found if run[1] is not None)
        encoders = sorted({c.encoder.name for c in configs})
        assert found == [(e, dose, seed) for e in encoders for dose in DOSES[dial.name] for seed in range(1, 11)]
    assert {(c.task.name, c.task.train_samples, c.evaluation.every) for c in configs} == {
        ("rotten_tomatoes", 512, "last")
    }
    settings = {(o.epochs, o.lr, o.batch_size, o.patience, o.report) for o in (c.optimization for c in configs)}
    assert settings == {(2, 1e-4, 16, None, "last")}


def test_only_the_dials_own_settings_are_its_doses():
    isobn, _, cosine, whitening = DIALS
    epsilons = [0.0, 1e-4, 1e-3, 0.01, 0.1, 1, 10]
    method = {"name": "whitening_zca", "shrinkage": 0.0}
    assert [whitening.read_dose({**method, "epsilon": e}) for e in epsilons] == list(range(7))
    assert whitening.read_dose({**method, "epsilon": 1.0, "shrinkage": 0.01}) is None
    assert cosine.read_dose({"name": "cosine", "target": "head", "strength": 1.0}) is None
    assert [dial.read_dose({"name": "none"}) for dial in DIALS] == [0, 0, 0, None]
    chain = {"name": "isobn_paper", "beta": 0.5, "then": {"name": "cosine"}}
    assert isobn.read_dose(chain) is None


def test_the_runs_are_started_encoder_by_encoder_and_seed_by_seed(configs):
    rows = [types.SimpleNamespace(cfg=cfg, folder=types.SimpleNamespace(key=i)) for i, cfg in enumerate(configs)]
    places = find_places(configs[0].experiment.order, rows)
    started = [rows[i].cfg for i in sorted(places, key=places.__getitem__)]
    assert [(c.encoder.name, c.seed) for c in started] == [
        (name, seed)
        for name in dict.fromkeys(c.encoder.name for c in configs)
        for seed in range(1, 11)
        for _ in range(30)
    ]
    with pytest.raises(UserError, match=r"no run has the setting calibration\.gain"):
        find_places(["calibration.gain"], rows)


@pytest.mark.slow
def test_other_tasks_are_asked_for_on_the_command_line(glue, tmp_path):
    more = ["task=rte,mrpc", "task.train_samples=1000", "seed=1,2", f"data.root={glue}", f"output_dir={tmp_path}"]
    try:
        with compose_sweep(["+experiment=isotropy_dial", *more]) as parts:
            planned = [run.row.cfg for run in plan_runs(*parts).values()]
    finally:
        GlobalHydra.instance().clear()
    assert len(planned) == 30 * 2 * 2 * 2
    assert {(c.task.name, c.task.train_samples) for c in planned} == {("rte", 1000), ("mrpc", 1000)}


class Study:
    """Subjects with made-up records: the score is linear in the dose, with a level for each seed and some noise."""

    def __init__(self, configs, tmp_path, noise=0.2):
        self.file, self.noise, self.rng = tmp_path / "result.json", noise, np.random.default_rng(0)
        self.file.write_text("")
        self.levels = {seed: self.rng.normal(70, 5) for seed in SEEDS}
        chosen = [c for c in configs if c.seed in SEEDS and c.encoder.name == configs[0].encoder.name]
        self.record = make_record(chosen[0])
        self.subjects = [self.make_subject(cfg) for cfg in chosen]

    def make_subject(self, cfg):
        dose, slope, turned = next(
            (dose, SLOPES[dial.name], dial.name)
            for dial in DIALS
            if (dose := dial.read_dose(cfg.calibration)) is not None
        )
        score = (self.levels[cfg.seed] + slope * dose + self.rng.normal(0, self.noise)) / 100
        values = {name: self.rng.normal() for name in MEASURES}
        values["embedding/ev1"] = 0.5 + 0.1 * dose if turned != "cosine" else 0.5  # follows the dose
        values["embedding/i1"] = score  # follows the score
        epoch = types.SimpleNamespace(score=score, isotropy=values)
        record = types.SimpleNamespace(
            best=epoch, status="finished", provenance=self.record.provenance, cost=self.record.cost
        )
        folder = types.SimpleNamespace(result_file=self.file)
        return types.SimpleNamespace(encoder="E", task="T", cfg=cfg, record=record, folder=folder)

    def find(self, dial, dose, seed):
        of_dial = next(one for one in DIALS if one.name == dial)
        (found,) = (s for s in self.subjects if s.cfg.seed == seed and of_dial.read_dose(s.cfg.calibration) == dose)
        return found


@pytest.fixture
def study(configs, tmp_path):
    return Study(configs, tmp_path)


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
    assert math.isnan(of_ev1["whitening"]["low"]) or of_ev1["whitening"]["high"] <= 1
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
        own = {
            (r["method"], r["dial"] if r["method"] != "none" else "", r["dose"]): r for r in rows if r["seed"] == seed
        }
        assert len(own) == 30
        points = [(row["embedding/i2"], row["score"]) for row in own.values()]
        by_seed.append(stats.spearmanr(*zip(*points, strict=True)).statistic)
    assert across["correlation"] == pytest.approx(np.mean(by_seed), rel=1e-9)


def test_seeds_without_a_dose_are_left_out_of_this_dial_and_named(study):
    study.find("istar", -3, 2).record = None
    study.find("istar", 4, 5).record.status = "failed"
    findings = dial_analysis.analyse(study.subjects)
    rows = findings.numbers["doses"]
    series = collect_series(rows, "E", "T", DIALS[1])
    assert series.seeds == [1, 3, 4, 6]
    assert series.left_out == {2: "dose -3 is missing", 5: "dose 4 failed"}
    seeds = {row["dial"]: row["seeds"] for row in findings.numbers["slopes"] if row["quantity"] == "score"}
    assert seeds == {"isobn": 6, "istar": 4, "cosine": 6, "whitening": 6}
    across = [
        row["seeds"]
        for row in findings.numbers["correlations"]
        if row["measure"] == "embedding/i2" and not row["dial"]
    ]
    assert across == [4, 4, 4]
    text = " ".join(findings.render_text().split())
    assert "INCOMPLETE: 178 of 180 runs." in text
    assert "E, T: 178 of 180 planned runs finished, 1 failed (the experiment's own grid has 300)." in text
    assert "Left out of I-STAR (strength) on E, T: seed 2 (dose -3 is missing); seed 5 (dose 4 failed)" in text
    for figure in findings.figures.values():
        assert figure._suptitle.get_text().startswith("INCOMPLETE: 178 of 180 runs.")


def test_undefined_values_give_dashes_and_no_error(study):
    for subject in study.subjects:
        subject.record.best.isotropy["embedding/ev1"] = None  # undefined
        subject.record.best.isotropy["embedding/isoscore"] = 0.5  # the same everywhere
        if subject.cfg.seed > 1:
            subject.record.best.score = 0.5  # a constant predictor
    study.find("cosine", 4, 1).record.best.isotropy["embedding/i2"] = None
    with use_figure_style():
        findings = dial_analysis.analyse(study.subjects)
    found = findings.numbers["correlations"]
    for row in found:
        if row["measure"] in ("embedding/ev1", "embedding/isoscore"):
            assert (math.isnan(row["correlation"]), row["seeds"]) == (True, 0)
        elif row["measure"] == "embedding/i1":
            assert row["seeds"] == 1
    (one,) = (r for r in found if (r["kind"], r["measure"], r["dial"]) == (WITHIN, "embedding/i2", "cosine"))
    assert one["seeds"] == 0
    assert "nan" not in findings.render_text()


def test_without_a_finished_dose_nothing_is_analysed(study):
    for subject in study.subjects:
        subject.record = None
    with pytest.raises(UserError, match="no finished run is a dose"):
        dial_analysis.analyse(study.subjects)


def test_one_finished_seed_has_means_without_intervals(study):
    study.subjects = [subject for subject in study.subjects if subject.cfg.seed == 1]
    findings = dial_analysis.analyse(study.subjects)
    (row,) = (r for r in findings.numbers["slopes"] if (r["dial"], r["quantity"]) == ("isobn", "score"))
    assert row["slope"] == pytest.approx(2, abs=1)
    assert all(math.isnan(row[name]) for name in ("low", "high", "p", "p_holm"))


def test_intervals_within_seeds_do_not_see_the_seeds_levels():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(5, 4))
    means, margins = average_within_seeds(scores)
    shifted = average_within_seeds(scores + 100 * np.arange(5)[:, None])
    assert shifted[1] == pytest.approx(margins)
    rest = (scores - scores.mean(1, keepdims=True))[:, 2]
    assert means[2] == pytest.approx(rest.mean())
    rest = rest * math.sqrt(4 / 3)
    assert margins[2] == pytest.approx(stats.t.ppf(0.975, 4) * rest.std(ddof=1) / math.sqrt(5))
    assert average_within_seeds(scores[:1])[1] is None


def test_the_preregistration_stands_beside_the_first_run(study, tmp_path):
    file = tmp_path / "preregistration.md"
    assert notes.describe_preregistration(study.subjects, file)[0].startswith(
        "WARNING: there is no preregistration.md"
    )
    file.write_text("hypotheses")
    assert "sha256 " in notes.describe_preregistration(study.subjects, file)[0]
    git = ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@b"]

    def commit(seconds):
        when = {**os.environ, "GIT_COMMITTER_DATE": f"{seconds} +0000"}
        subprocess.run([*git, "commit", "-q", "-am", "hypotheses"], check=True, env=when)

    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", file.name], check=True)
    commit(1_000_000_000)
    (note,) = notes.describe_preregistration(study.subjects, file)
    assert "of 2001-09-09 01:46 UTC" in note
    assert "code abc." in note
    began = 1_000_000_100
    os.utime(study.file, (began + 9, began + 9))  # the run took 9 seconds
    assert len(notes.describe_preregistration(study.subjects, file)) == 1
    file.write_text("other hypotheses")
    commit(began + 1)
    assert "was changed after the first run" in notes.describe_preregistration(study.subjects, file)[1]
    os.utime(study.file, (999_999_999, 999_999_999))
    assert "nothing was preregistered" in notes.describe_preregistration(study.subjects, file)[1]


def test_the_power_simulation_is_quoted(tmp_path):
    file = tmp_path / "power.json"
    assert notes.describe_power(file)[0].startswith("There is no power.json")
    for text in ("[]", "{", '{"studies": 9, "false_positives": {"a": "x"}, "coverage": {}, "smallest_slopes": []}'):
        file.write_text(text)
        assert "can't be read" in notes.describe_power(file)[0]
    slope = {"encoder": "minilm", "dial": "istar", "points_over_the_dial": 0.514}
    power = {"false_positives": {"one slope": 0.0512}, "coverage": {"slopes": 0.951}, "smallest_slopes": [slope]}
    file.write_text(json.dumps({"studies": 9000, **power}))
    false, covered, smallest = notes.describe_power(file)
    assert false == "9,000 simulated studies: false positives at p < 0.05: one slope 5.1%."
    assert covered.endswith("intervals hold: slopes 95.1%.")
    assert smallest.endswith("80% of them find after Holm's correction, in points: minilm, istar 0.51.")


@pytest.mark.slow
def test_a_growing_study_is_analysed_by_a_sweep_and_again_by_a_report(cli, small, outputs):
    methods = ["calibration=none,isobn_paper", "calibration.beta=0.5,1.0", "seed=1,2"]
    study = ["+experiment=isotropy_dial", *small, *methods, "optimization.epochs=1", "task.train_samples=48"]
    code, out, err = cli(*study)
    assert code == 0, err
    assert "INCOMPLETE" not in out
    folder = outputs / "reports" / "isotropy_dial"
    assert len((folder / "doses.csv").read_text().splitlines()) == 1 + 2 * (
        3 + 1 + 1
    )  # plain is dose 0 of three dials
    assert not (folder / "report.html").exists()
    next(outputs.glob("runs/*/result.json")).unlink()
    report.report([f"output_dir={outputs}", "+experiment=isotropy_dial"])
    page = (folder / "report.html").read_text()
    assert "INCOMPLETE: 5 of 6 runs." in (folder / "tables.txt").read_text()
    assert page.count("data:image/svg+xml;base64,") == 2
    assert "INCOMPLETE: 5 of 6 runs." in page
