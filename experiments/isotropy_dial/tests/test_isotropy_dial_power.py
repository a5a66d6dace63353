"""The simulation of the dose study: it analyses as the study does, and its scenarios have the stated truth."""

import numpy as np
import pytest

from isobench.statistics.dose_response import student_t
from isobench_papers.isotropy_dial.analysis import measure_correlations, measure_slopes
from isobench_papers.isotropy_dial.rows import FINISHED, GIVEN_DIAL, GIVEN_DOSE, MEASURES, VOCABULARY_MEASURES, WHOLE
from isobench_papers.isotropy_dial.simulation.correlations import CASES, correlate, draw_isotropy
from isobench_papers.isotropy_dial.simulation.power import STUDY
from isobench_papers.isotropy_dial.simulation.studies import Design, holm, read_pilot, simulate


def build_rows(design, scores, isotropy):
    return [
        {
            "encoder": encoder, "task": "T", "seed": seed, "dial": dial, "dose": dose, "state": FINISHED,
            "complete": False, "method": "none" if cell == 0 else dial, "score": own[seed, cell],
            **dict(zip(MEASURES, isotropy[encoder][seed, :, cell], strict=True)),
            **dict.fromkeys(VOCABULARY_MEASURES, 0.0),
        }
        for encoder, own in scores.items()
        for dial, doses in design.doses.items()
        for dose, cell in zip(doses, design.columns[dial], strict=True)
        for seed in range(len(own))
    ]  # fmt: skip


@pytest.mark.slow
def test_the_simulation_analyses_studies_as_the_study_does():
    design, rng = Design(), np.random.default_rng(0)
    studies, effects = 200, design.effects({"isobn": 1.0, "istar": -2.0, "whitening": 3.0})
    scores, isotropy, slopes, given = {}, {}, {}, {GIVEN_DIAL: {}, GIVEN_DOSE: {}}
    for name, noise in read_pilot(STUDY / "pilot.csv").items():
        drawn = simulate(rng, noise, effects, studies, design.seeds)
        scores[name] = drawn
        isotropy[name] = draw_isotropy(rng, design, drawn - effects, CASES[-1], len(MEASURES))
        slopes[name] = student_t(np.moveaxis(design.slopes(drawn), 1, -1))[1:]
        for kind in given:
            found = correlate(design, isotropy[name], drawn[:, :, None], kind == GIVEN_DOSE)
            given[kind][name] = student_t(np.moveaxis(found, 1, -1))
    families = [np.concatenate([own[-1] for own in part.values()], axis=-1) for part in (slopes, given[GIVEN_DIAL])]
    adjusted = [holm(p) for p in families]
    for i in range(studies):
        rows = build_rows(design, *({name: own[i] for name, own in part.items()} for part in (scores, isotropy)))
        found = [row for row in measure_slopes(rows) if row["quantity"] == "score" and row["doses"] == WHOLE]
        for row, p in zip(found, adjusted[0][i], strict=True):
            dial = list(design.doses).index(row["dial"])
            expected = [part[i, dial] for part in slopes[row["encoder"]]]
            assert [row["over_low"], row["over_high"], row["p"]] == pytest.approx(expected, rel=1e-6)
            assert row["p_holm"] == pytest.approx(p, rel=1e-6)
        found = measure_correlations(rows)
        for kind, own in given.items():
            for row in (row for row in found if row["kind"] == kind):
                place = list(MEASURES).index(row["measure"])
                expected = [part[i, place] for part in own[row["encoder"]]]
                assert [row[key] for key in ("correlation", "low", "high", "p")] == pytest.approx(expected, rel=1e-6)
        tested = [row["p_holm"] for row in found if row["kind"] == GIVEN_DIAL]
        assert tested == pytest.approx(list(adjusted[1][i]), rel=1e-6)
