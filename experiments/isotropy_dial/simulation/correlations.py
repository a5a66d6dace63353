"""Draw isotropies for the synthetic studies of power.py; count how their correlations with the score err.

Six measures describe the same embeddings, so their noise is correlated. A study has one family of tests: every
measure with every encoder.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from isobench.statistics.dose_response import correlate_partially, student_t
from isobench.statistics.seeds import ALPHA, POWER
from isobench_papers.isotropy_dial.rows import MEASURES
from isobench_papers.isotropy_dial.simulation.studies import Design, Noise, chunks, holm, simulate

TURNED = 3.0  # by which a dial moves isotropy over its range, in standard deviations of isotropy's noise
COMMON = 0.7  # correlation of the noise of two measures
SHARED = 0.5  # correlation of a measure's noise with the score's own noise, where a correlation is planted
TRUTH_SEEDS = 200_000  # seeds whose mean is taken as a partial correlation's true value
POWER_STUDIES = 10_000  # at most, for the smallest correlation, which is searched for
DIAL = "given the dial"
GIVEN = {DIAL: False, "given the dial and the dose": True}  # what is held fixed, and whether the dose is too


@dataclass(frozen=True)
class Case:
    """Say what score and isotropy follow.

    Attributes:
        title: words for the reader.
        follows_dose: whether the score follows the dose as in the pilot.
        moved: by how many standard deviations of its noise a dial moves isotropy over its range.
        shared: correlation of the noise of isotropy and score.
    """

    title: str
    follows_dose: bool
    moved: float
    shared: float

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


def follow_pilot(design: Design, noise: Noise) -> np.ndarray:
    """Return true effects like those of the pilot's cells, evenly along the dials; 0 for the other dials. [cells]"""
    points = {"isobn": noise.changes["isobn_paper beta 1"], "whitening": -noise.changes["whitening_zca epsilon 0.0"]}
    return design.effects(*[points.get(name, 0.0) for name in design.names])


def draw_isotropy(
    rng: np.random.Generator,
    design: Design,
    scores: np.ndarray,
    effects: np.ndarray,
    measures: int,
    moved: float,
    shared: float,
) -> np.ndarray:
    """Draw the measures of isotropy of each run: what its dial does, and noise that the measures partly share.

    Args:
        rng: draws the noise.
        design: of the study.
        scores: of the runs, [studies, seeds, cells].
        effects: true effects on the score, [cells]; what is left of the scores is their own noise.
        measures: how many measures of isotropy.
        moved: by how many standard deviations of its noise a dial moves isotropy over its range.
        shared: correlation of the noise of isotropy and score; of the first measure alone.

    Returns:
        [studies, seeds, measures, cells]
    """
    common = rng.normal(size=(*scores.shape[:2], 1, design.cells))
    own = rng.normal(size=(*scores.shape[:2], measures, design.cells))
    noise = np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * own
    if shared:
        noise[:, :, 0] = mix(noise[:, :, 0], standardise(scores - effects), shared)
    return moved * move_isotropy(design) + noise


def move_isotropy(design: Design) -> np.ndarray:
    """Return how far the dials move isotropy in each cell: 0 at plain fine-tuning, 1 at the end of a dial. [cells]

    Doses raise isotropy where dose 0 is plain fine-tuning; I-STAR's negative doses lower it. Whitening's doses lower
    it from full whitening, at 1.
    """
    moved = np.zeros(design.cells)
    for dial, cells in enumerate(design.columns):
        moved[cells] = design.turn(dial) if design.from_plain[dial] else -design.turn(dial)
    return moved


def standardise(rest: np.ndarray) -> np.ndarray:
    """Scale the scores' noise to mean 0 in each seed and standard deviation 1 over all. [studies, seeds, cells]"""
    rest = rest - rest.mean(-1, keepdims=True)
    return rest / rest.std()


def mix(noise: np.ndarray, rest: np.ndarray, shared: float) -> np.ndarray:
    """Mix two noises of standard deviation 1 so that the result has this correlation with the second."""
    return np.sqrt(1 - shared**2) * noise + shared * rest


def correlate(design: Design, isotropy: np.ndarray, scores: np.ndarray, with_dose: bool) -> np.ndarray:
    """Correlate isotropy and score in each seed, given the dial, and the dose too if asked: -> [...].

    Args:
        design: of the study.
        isotropy: [..., cells]
        scores: [..., cells]
        with_dose: whether the dose within each dial is given too.
    """
    cells, dials, turn = design.entries()
    given = np.hstack([dials, dials * turn[:, None]]) if with_dose else dials
    return correlate_partially(isotropy[..., cells], scores[..., cells], given)


def measure_correlations(
    rng: np.random.Generator, design: Design, noise: dict[str, Noise], studies: int, seeds: int
) -> Any:
    """Measure false positives where the true correlations are 0, and coverage where they are not."""
    false, coverage = dict[str, float](), dict[str, float]()
    for case in CASES:
        family = [judge(rng, design, name, own, case, studies, seeds) for name, own in noise.items()]
        if not case.is_null:
            for part in family:
                coverage |= part["coverage"]
        else:
            for kind in GIVEN:
                false[f"{case.title}: one correlation {kind}"] = float(np.mean([p["false"][kind] for p in family]))
            p = np.concatenate([part["p"] for part in family], axis=-1)  # [studies, encoders x measures]
            false[f"{case.title}: any of {p.shape[-1]} correlations {DIAL}, after Holm"] = float(
                (holm(p) < ALPHA).any(-1).mean()
            )
    return {"false_positives": false, "coverage": coverage}


def judge(
    rng: np.random.Generator, design: Design, encoder: str, noise: Noise, case: Case, studies: int, seeds: int
) -> dict[str, Any]:
    """Simulate one case with one encoder: coverage and false positives of the first measure, p of all measures."""
    effects = follow_pilot(design, noise) if case.follows_dose else np.zeros(design.cells)

    def draw(count: int, seeds: int, measures: int) -> tuple[np.ndarray, np.ndarray]:
        scores = simulate(rng, noise, effects, count, seeds)
        isotropy = draw_isotropy(rng, design, scores, effects, measures, case.moved, case.shared)
        return isotropy, scores[:, :, None]

    truths: dict[str, list[float]] = {kind: [] for kind in GIVEN}
    for _ in range(TRUTH_SEEDS // 10_000):
        isotropy, scores = draw(1, 10_000, 1)
        for kind, with_dose in GIVEN.items():
            truths[kind].append(float(correlate(design, isotropy, scores, with_dose).mean()))
    hits, false, p_values = ({kind: [] for kind in GIVEN} for _ in range(3))
    for count in chunks(studies):
        isotropy, scores = draw(count, seeds, len(MEASURES) if case.is_null else 1)
        for kind, with_dose in GIVEN.items():
            measured = isotropy[:, :, :1] if with_dose else isotropy
            found = correlate(design, measured, scores, with_dose)  # [studies, seeds, measures]
            _, low, high, p = student_t(np.moveaxis(found, 1, -1))
            truth = float(np.mean(truths[kind]))
            hits[kind].append((low[:, 0] <= truth) & (truth <= high[:, 0]))
            false[kind].append(p[:, 0] < ALPHA)
            p_values[kind].append(p)
    names = {
        kind: f"{case.title}, {encoder}: correlation {kind}, truly {write_correlation(float(np.mean(own)))}"
        for kind, own in truths.items()
    }
    return {
        "coverage": {name: float(np.mean(np.concatenate(hits[kind]))) for kind, name in names.items()},
        "false": {kind: float(np.mean(np.concatenate(own))) for kind, own in false.items()},
        "p": np.concatenate(p_values[DIAL]),
    }


def write_correlation(value: float) -> str:
    """Write a correlation with two digits, and 0 without a sign."""
    return f"{value:+.2f}" if abs(value) >= 0.005 else "0.00"


def find_smallest_correlations(
    rng: np.random.Generator, design: Design, noise: dict[str, Noise], studies: int, seeds: int
) -> list[dict[str, Any]]:
    """Find for each encoder the smallest correlation given the dial that 80% of studies find after Holm.

    It is that of one measure, which has a part in common with the score's noise. All others of the family are 0.
    """
    studies, nothing = min(studies, POWER_STUDIES), np.zeros(design.cells)
    drawn, p_null = {}, {}
    for name, own in noise.items():
        scores = [simulate(rng, own, nothing, count, seeds) for count in chunks(studies)]
        isotropies, p_values = [], []
        for part in scores:
            isotropy = draw_isotropy(rng, design, part, nothing, len(MEASURES), TURNED, 0.0)
            found = correlate(design, isotropy, part[:, :, None], with_dose=False)
            p_values.append(student_t(np.moveaxis(found, 1, -1))[3])
            isotropies.append(isotropy[:, :, 0])
        drawn[name] = np.concatenate(isotropies), np.concatenate(scores)
        p_null[name] = np.concatenate(p_values)
    dial, rows = TURNED * move_isotropy(design), []
    for name, (isotropy, scores) in drawn.items():
        rest = standardise(scores)
        others = np.concatenate([p_null[name][:, 1:], *(p for other, p in p_null.items() if other != name)], axis=-1)
        low, high, correlation = 0.0, 1.0, np.nan
        while high - low > 0.002:
            shared = (low + high) / 2
            found = correlate(design, dial + mix(isotropy - dial, rest, shared), scores, with_dose=False)
            family = np.concatenate([student_t(found)[3][:, None], others], axis=-1)
            if (holm(family)[:, 0] < ALPHA).mean() >= POWER:
                high, correlation = shared, float(found.mean())
            else:
                low = shared
        rows.append({"encoder": name, "correlation_given_the_dial": round(correlation, 3)})
    return rows
