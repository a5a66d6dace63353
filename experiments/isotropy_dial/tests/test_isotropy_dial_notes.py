"""The notes of the dose-response study: what is left out, the preregistration's commits, the power simulation."""

import json
import os
import subprocess

import pytest
from dial_study import DOSES, Study
from helpers import assert_contains

from isobench_papers.isotropy_dial import analysis as dial_analysis
from isobench_papers.isotropy_dial import design
from isobench_papers.isotropy_dial.rows import DIALS, collect_series


@pytest.fixture
def study(tmp_path):
    return Study(tmp_path)


def test_seeds_without_a_dose_are_left_out_of_this_dial_and_named(study):
    study.find("istar", -3, 2).record = None
    study.find("istar", 4, 5).record.status = "failed"
    study.find("istar", 1, 5).record = study.find("istar", 2, 5).record = None
    for subject in study.subjects:
        if subject.cfg.seed == 6:
            subject.record = None
    rows = dial_analysis.compute(study.subjects)
    series = collect_series(rows["doses"], "E", "T", DIALS[1])
    assert series.seeds == [1, 3, 4]
    assert series.left_out == {2: "dose -3 not yet run", 5: "doses 1, 2 not yet run, dose 4 failed", 6: "not yet run"}
    seeds = {row["dial"]: row["seeds"] for row in rows["slopes"] if row["quantity"] == "score"}
    assert seeds == {"isobn": 5, "istar": 3, "cosine": 5, "whitening": 5}
    across = [row["seeds"] for row in rows["correlations"] if row["measure"] == "embedding/i2" and not row["dial"]]
    assert across == [3, 3, 3]
    text = " ".join(dial_analysis.show(rows).text.split())
    assert_contains(text, "INCOMPLETE: 146 of 300 runs finished, 1 failed", "PROVISIONAL")
    assert text.count("Left out of") == 1  # seed 6 is named once, not for each dial


def test_the_preregistration_stands_beside_the_runs_code(tmp_path):
    file, analysis = tmp_path / "preregistration.md", tmp_path / "isobench" / "analyses" / "isotropy_dial.py"
    analysis.parent.mkdir(parents=True)

    def git(*arguments, seconds=0):
        command = ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@b", *arguments]
        when = {**os.environ, "GIT_COMMITTER_DATE": f"{seconds} +0000"}
        return subprocess.run(command, check=True, env=when, capture_output=True, text=True).stdout.strip()

    def commit(changed, text, seconds):
        changed.write_text(text)
        git("add", str(changed))
        git("commit", "-q", "-m", text, seconds=seconds)
        return git("rev-parse", "HEAD")

    def describe(*commits):
        code = [{"commit": commit, "changed": False, "runs": 3} for commit in commits]
        return design.describe_preregistration(code, file)

    git("init", "-q")
    assert describe("abc")[0].startswith("WARNING: there is no preregistration.md")
    early = commit(analysis, "analysis", 999_999_991)
    written = commit(file, "hypotheses", 1_000_000_000)
    notes = describe(written)
    assert_contains(notes[0], "of 2001-09-09 01:46 UTC", f"{written[:12]} (3 runs)")
    assert not any("WARNING" in note for note in notes)
    assert "The code of 6 runs is in no commit here" in describe(written, "abc", None)[1]
    assert "were not preregistered" in describe(written, early)[1]
    commit(file, "other hypotheses", 1_000_000_101)
    assert "was changed after the first run" in describe(written)[1]
    file.write_text("third hypotheses")
    assert any("has edits that are in no commit" in note for note in describe(written))


def test_the_power_simulation_is_quoted_if_it_is_of_this_grid(study, tmp_path):
    file, grid = tmp_path / "power.json", design.list_design(study.subjects[0].cfg)

    def tell(content):
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return design.describe_power(file, grid)

    assert design.describe_power(file, grid)[0].startswith("There is no power.json")
    shape = {"encoders": ["minilm"], "dials": DOSES, "seeds": 10}
    slope = {"encoder": "minilm", "dial": "istar", "points_over_the_dial": 0.514}
    power = {
        "studies": 9000, "shape": shape, "false_positives": {"one slope": 0.0512}, "coverage": {"slopes": 0.951},
        "smallest_slopes": [slope], "noise_sd": {"minilm": [1.0, 0.5, 1.5]},
    }  # fmt: skip
    for wrong in ({"false_positives": {"a": "x"}}, {"shape": {}}, {"scenarios": 1}):
        assert "can't be read" in tell(power | wrong)[0]
    assert "can't be read" in tell("{")[0]
    (found,) = tell(power)
    assert_contains(found, "9,000 simulated studies", "p < 0.05: 5.1%", "hold: 95.1%", "correction: 0.51 points")
    notes = tell(power | {"scenarios": {"skewed noise": 0.931, "normal noise": 0.95}})
    assert notes[1].endswith("where: skewed noise 93.1%.")
    assert tell(power | {"scenarios": {"skewed noise": {"coverage": 0.931, "false_positives": 0.05}}}) == notes
    (refused,) = tell(power | {"shape": shape | {"seeds": 9}})
    assert "was made for another grid" in refused
