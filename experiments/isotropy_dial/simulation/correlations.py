"""Draw isotropies for the synthetic studies of power.py; count how their correlations with the score err.

Six measures describe the same embeddings, so their noise is correlated. A study has one family of tests: every
measure with every encoder.
"""

from typing import Any, NamedTuple

import numpy as np

from isobench.statistics.dose_response import correlate_partially, student_t
from isobench.statistics.seeds import ALPHA
from isobench_papers.isotropy_dial.rows import MEASURES
from isobench_papers.isotropy_dial.simulation.studies import (
    Design,
    Noise,
    chunks,
    find_smallest,
    holm,
    simulate,
    test_seeds,
)

TURNED = 3.0  # by which a dial moves isotropy over its range, in standard deviations of isotropy's noise
COMMON = 0.7  # correlation of the noise of two measures
SHARED = 0.5  # correlation of a measure's noise with the score's own noise, where a correlation is planted
TRUTH_SEEDS = 200_000  # seeds whose mean is taken as a partial correlation's true value
POWER_STUDIES = 10_000  # at most, for the smallest correlation, which is searched for
DIAL = "given the dial"
GIVEN = {DIAL: False, "given the dial and the dose": True}  # what is held fixed, and whether the dose is too


class Case(NamedTuple):
    """Say what score and isotropy follow."""

    title: str
    follows_dose: bool  # whether the score follows the dose as in the pilot
    moved: float  # by how many standard deviations of its noise a dial moves isotropy over its range
    shared: float  # correlation of the noise of isotropy and score

    @property
    def is_null(self) -> bool:
        """Return True if the true correlations are 0: the dials move at most one of score and isotropy."""
        return not self.shared and not (self.follows_dose and self.moved)


CASES = (
    Case("dials move isotropy but not the score", False, TURNED, 0.0),
    Case("dials move the score as in the pilot but not isotropy", True, 0.0, 0.0),
    Case("dials move both", True, TURNED, 0.0),
    Case("dials move both, which have noise in common", True, TURNED, SHARED),
)


def draw_isotropy(
    rng: np.random.Generator, design: Design, rest: np.ndarray, case: Case, measures: int
) -> np.ndarray:
    """Draw measures of isotropy of each run: what its dial does, and noise that the measures partly share.

    What the noise of score and isotropy share is of the first measure alone. ``rest``: the scores less their true
    effects, [studies, seeds, cells] -> [studies, seeds, measures, cells].
    """
    common = rng.normal(size=(*rest.shape[:2], 1, design.cells))
    own = rng.normal(size=(*rest.shape[:2], measures, design.cells))
    noise = np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * own
    if case.shared:
        noise[:, :, 0] = mix(noise[:, :, 0], rest, case.shared)
    return case.moved * move_isotropy(design) + noise


def move_isotropy(design: Design) -> np.ndarray:
    """Return how far the dials move isotropy in each cell: 0 at plain fine-tuning, 1 at the end of a dial. [cells]

    I-STAR's negative doses lower isotropy. Whitening's doses lower it from full whitening, at 1.
    """
    return design.effects({name: -1.0 if name == "whitening" else 1.0 for name in design.doses})


def mix(noise: np.ndarray, rest: np.ndarray, shared: float) -> np.ndarray:
    """Mix noise of standard deviation 1 with that of scores, so that it has this correlation with the latter."""
    rest = rest - rest.mean(-1, keepdims=True)
    return np.sqrt(1 - shared**2) * noise + shared * (rest / rest.std())


def correlate(design: Design, isotropy: np.ndarray, scores: np.ndarray, with_dose: bool) -> np.ndarray:
    """Correlate isotropy and score in each seed, given the dial, and the dose within it too if asked.

    [..., cells] and [..., cells] -> [...]
    """
    cells, turns = (np.concatenate(list(own.values())) for own in (design.columns, design.turns))
    dials = np.repeat(np.eye(len(design.doses)), [len(doses) for doses in design.doses.values()], axis=0)
    given = np.hstack([dials, dials * turns[:, None]]) if with_dose else dials
    return correlate_partially(isotropy[..., cells], scores[..., cells], given)


def draw_correlations(
    rng: np.random.Generator, design: Design, noise: Noise, case: Case, studies: int, seeds: int, measures: int
) -> dict[str, np.ndarray]:
    """Draw studies of an encoder; return their correlations by what is given, [studies, seeds, measures].

    Given the dose too, they are those of the first measure alone.
    """
    pilot = {"isobn": noise.changes["isobn_paper beta 1"], "whitening": -noise.changes["whitening_zca epsilon 0.0"]}
    effects = design.effects(pilot if case.follows_dose else 0.0)
    scores = simulate(rng, noise, effects, studies, seeds)
    isotropy = draw_isotropy(rng, design, scores - effects, case, measures)
    return {
        kind: correlate(design, isotropy[:, :, :1] if with_dose else isotropy, scores[:, :, None], with_dose)
        for kind, with_dose in GIVEN.items()
    }


def measure_correlations(rng: np.random.Generator, design: Design, noise: dict[str, Noise], studies: int) -> Any:
    """Measure false positives where the true correlations are 0, and coverage where they are not."""
    false, coverage = dict[str, float](), dict[str, float]()
    for case in CASES:
        p: dict[str, list[np.ndarray]] = {kind: [] for kind in GIVEN}  # [studies, measures] of each encoder
        for encoder, own in noise.items():
            known = [draw_correlations(rng, design, own, case, 1, 10_000, 1) for _ in range(TRUTH_SEEDS // 10_000)]
            count = len(MEASURES) if case.is_null else 1
            drawn = [draw_correlations(rng, design, own, case, n, design.seeds, count) for n in chunks(studies)]
            for kind in GIVEN:
                truth = float(np.mean([part[kind].mean() for part in known]))
                _, low, high, own_p = (
                    np.concatenate(own) for own in zip(*(test_seeds(part[kind]) for part in drawn), strict=True)
                )
                p[kind].append(own_p)
                if not case.is_null:
                    written = f"{truth:+.2f}" if abs(truth) >= 0.005 else "0.00"
                    name = f"{case.title}, {encoder}: correlation {kind}, truly {written}"
                    coverage[name] = float(np.mean((low[:, 0] <= truth) & (truth <= high[:, 0])))
        if case.is_null:
            for kind, own_ps in p.items():
                means = [float(np.mean(one[:, 0] < ALPHA)) for one in own_ps]
                false[f"{case.title}: one correlation {kind}"] = float(np.mean(means))
            family = holm(np.concatenate(p[DIAL], axis=-1))  # [studies, encoders x measures]
            name = f"{case.title}: any of {family.shape[-1]} correlations {DIAL}, after Holm"
            false[name] = float((family < ALPHA).any(-1).mean())
    return {"false_positives": false, "coverage": coverage}


def find_smallest_correlations(
    rng: np.random.Generator, design: Design, noise: dict[str, Noise], studies: int
) -> list[dict[str, Any]]:
    """Find for each encoder the smallest correlation given the dial that 80% of studies find after Holm.

    It is that of one measure, which has a part in common with the score's noise. All others of the family are 0.
    """
    nothing, dial = np.zeros(design.cells), TURNED * move_isotropy(design)
    drawn, p_null = {}, {}
    for name, own in noise.items():
        scores = [simulate(rng, own, nothing, n, design.seeds) for n in chunks(min(studies, POWER_STUDIES))]
        first, p_values = [], []
        for part in scores:
            isotropy = draw_isotropy(rng, design, part, CASES[0], len(MEASURES))
            p_values.append(test_seeds(correlate(design, isotropy, part[:, :, None], with_dose=False))[3])
            first.append(isotropy[:, :, 0] - dial)
        drawn[name] = np.concatenate(first), np.concatenate(scores)
        p_null |= {(name, i): p for i, p in enumerate(np.concatenate(p_values).T)}

    def share(name: str, shared: float) -> np.ndarray:
        own, scores = drawn[name]
        return correlate(design, dial + mix(own, scores, shared), scores, with_dose=False)

    rows = []
    for name in noise:
        others = [p for place, p in p_null.items() if place != (name, 0)]
        shared = find_smallest(lambda shared, name=name: student_t(share(name, shared))[3], others, 1.0, 0.002)
        rows.append({"encoder": name, "correlation_given_the_dial": round(float(share(name, shared).mean()), 3)})
    return rows
