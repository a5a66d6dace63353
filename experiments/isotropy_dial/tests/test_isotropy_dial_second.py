"""The second registration's tests on made-up runs: verdicts (the bundles have its contrasts)."""

import numpy as np
import pytest

from isobench_papers.isotropy_dial import second
from isobench_papers.isotropy_dial.analysis import (
    leave_one_cell_out,
    measure_contrasts,
    measure_correlations,
    measure_slopes,
)
from isobench_papers.isotropy_dial.rows import DIAL, MEASURES, VOCABULARY_MEASURES
from isobench_papers.isotropy_dial.second import TASK, judge_statements

SEEDS = range(1, 11)
DOSES = {"isobn": (0, 0.5, 1), "istar": (-1, 0, 1), "cosine": (0, 1, 2), "whitening": (0, 1, 2, 3)}
GROUP = ("minilm", TASK)


def make_rows(effects, group=GROUP, noise=0.2, turned=("isobn", "istar", "whitening", "whitening_norm")):
    rng = np.random.default_rng(3)
    plain = {seed: 70 + rng.normal(0, 3) for seed in SEEDS}
    rows = []
    for dial, effect in effects.items():
        for seed in SEEDS:
            for dose in DOSES[dial.removesuffix("_norm")]:
                is_plain = DIAL[dial].starts_plain and dose == 0
                score = plain[seed] + (0 if is_plain else effect(dose) + rng.normal(0, noise))
                values = dict.fromkeys(VOCABULARY_MEASURES, 0.5) | {name: rng.normal() for name in MEASURES}
                if dial in turned:
                    values["embedding/ev1"] = -dose + rng.normal(0, 0.01)
                method = "none" if is_plain else DIAL[dial].method
                about = {"encoder": group[0], "task": group[1], "seed": seed, "dial": dial, "dose": float(dose)}
                about |= {"method": method, "state": "finished", "complete": True, "score": score}
                rows.append(about | values)
    if not any(DIAL[dial].starts_plain for dial in effects):
        isobn = {"encoder": group[0], "task": group[1], "dial": "isobn", "dose": 0.0, "method": "none"}
        rows += [{**rows[0], **isobn, "seed": seed, "score": plain[seed]} for seed in SEEDS]
    return rows


@pytest.fixture(autouse=True)
def of_one_group(monkeypatch):
    """Let the families be those of one encoder and task: the other tests of the registered families are left out."""
    monkeypatch.setattr(second, "FAMILY_A", (4, 6))
    monkeypatch.setattr(second, "FAMILY_B", (2, 0))


def judge(rows):
    measured = {"slopes": measure_slopes(rows), "correlations": measure_correlations(rows)}
    measured |= {"contrasts": measure_contrasts(rows), "left_out_cells": leave_one_cell_out(rows)}
    return {row["statement"]: row["verdict"] for row in judge_statements(measured)}


NOTHING = {"isobn": lambda _: 0, "istar": lambda _: 0, "cosine": lambda _: 0, "whitening": lambda _: 0}


MORE, LESS = "more isotropy helps (IsoBN's authors)", "less isotropy helps (I-STAR's authors)"
NONE, FULL = "calibration does not help (Ding et al.)", "full whitening costs"


@pytest.mark.parametrize(
    ("planted", "noise", "statement", "verdict"),
    [
        ({"isobn": lambda dose: 3 * dose}, 0.2, MORE, "supported"),
        ({"isobn": lambda dose: -3 * dose}, 0.2, MORE, "refuted"), ({}, 4, MORE, "can't tell"),
        ({}, 0.2, MORE, "refuted"),  # equivalent to no slope
        ({"isobn": lambda dose: 3 * (dose == 1)}, 0.01, MORE, "can't tell"),  # one cell makes this slope
        ({"isobn": lambda dose: 0.5 * (dose == 1)}, 0.01, MORE, "can't tell"),
        ({"isobn": lambda dose: 0.5 * dose}, 0.02, MORE, "can't tell"),  # within 1
        ({"istar": lambda dose: -2 * dose}, 0.2, LESS, "supported"), ({}, 4, NONE, "can't tell"),
        ({}, 0.2, NONE, "supported"), ({"cosine": lambda dose: dose}, 0.2, NONE, "refuted"),
        ({"whitening": lambda dose: -5 * (dose == 0)}, 0.2, FULL, "supported"), ({}, 0.2, FULL, "refuted"),
    ],
)  # fmt: skip
def test_verdicts_of_the_replication(planted, noise, statement, verdict):
    assert judge(make_rows(NOTHING | planted, noise=noise))[statement] == verdict


def test_a_dial_that_turns_nothing_answers_nothing(monkeypatch):
    for effects, group, statement in (
        (NOTHING | {"istar": lambda dose: -2 * dose}, GROUP, LESS),
        ({"whitening": lambda _: -4, "whitening_norm": lambda _: 0}, ("minilm", "rotten_tomatoes"), None),
    ):
        rows = make_rows(effects, group, turned=())
        for row in rows:
            row["embedding/ev1"] = row["embedding/isoscore"] = 0.5
        verdicts = judge(rows)
        assert {verdicts[name] for name in ([statement] if statement else verdicts)} == {"not answerable"}
    monkeypatch.undo()  # nor is there a verdict before the registered families are complete
    assert judge(make_rows(NOTHING)) == {}


@pytest.mark.parametrize(
    ("kept", "alone", "directions", "part"),
    [
        (lambda dose: -4 + dose, "refuted", "supported", "refuted"),
        (lambda dose: 0 * dose, "supported", "refuted", "supported"),
        (lambda dose: -2 + 0.5 * dose, "refuted", "supported", "supported"),
    ],
)
def test_verdicts_of_the_kept_norm(kept, alone, directions, part):
    group = ("minilm", "rotten_tomatoes")
    rows = make_rows({"whitening": lambda dose: -4 + dose, "whitening_norm": kept}, group)
    verdicts = judge(rows)
    assert [verdicts[name] for name in verdicts] == [alone, directions, part]
    slopes = [row for row in measure_slopes(rows) if row["quantity"] == "score"]
    assert [row["dial"] for row in slopes] == ["whitening_norm", "norm_effect"]  # the registered family
    assert not any(row["kind"] == "across" for row in measure_correlations(rows))
