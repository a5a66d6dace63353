"""Draw studies whose noise breaks what power.py assumes elsewhere, and count how the tests err there.

Elsewhere the noise is nearly normal, has one size for all doses, and is independent from dose to dose. Student's
t-test over the seeds can hardly fail with that. Each scenario here has a truth of its own, so that two things can be
counted: how often the 95% interval of a slope holds the true mean slope, and how often p < .05 in a variant of the
scenario whose true mean slope is 0.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isobench.statistics.dose_response import student_t
from isobench.statistics.seeds import ALPHA
from isobench_papers.isotropy_dial.simulation.studies import Design, Noise, chunks, make_scores

COLLAPSE = 20.0  # points that a seed loses
STEEP, STEEP_SD = 15.0, 3.0  # points that full whitening costs: the mean over seeds, and their standard deviation
NEIGHBOURS = 0.7  # correlation of the noise of neighbouring doses
PLANTED = 1.0  # points over a dial's whole range, where a scenario has no effect of its own


@dataclass(frozen=True)
class Scenario:
    """Say how scores come about: effects, noise, and rare losses.

    Attributes:
        dials: the places of the dials whose slopes are judged.
        effects: what all seeds have in common, in points. [cells]
        sizes: of the noise in each cell, relative to the pilot's. [cells]
        mixing: turns independent noise into correlated noise; None leaves it. [cells, cells]
        shape: what seeds have in different depths, which have mean 1 and standard deviation ``depth_sd``. [cells]
        depth_sd: see ``shape``.
        losses: the probability that a seed loses ``COLLAPSE`` points in a cell. [cells]
    """

    dials: tuple[int, ...]
    effects: np.ndarray
    sizes: np.ndarray
    mixing: np.ndarray | None
    shape: np.ndarray
    depth_sd: float
    losses: np.ndarray

    def draw(self, rng: np.random.Generator, noise: Noise, studies: int, seeds: int) -> np.ndarray:
        """Draw scores. [studies, seeds, cells]"""
        own = noise.draw(rng, studies, seeds, len(self.effects))
        own = self.sizes * (own if self.mixing is None else own @ self.mixing.T)
        depth = 1 + self.depth_sd * rng.normal(size=(studies, seeds, 1))
        lost = COLLAPSE * (rng.random(own.shape) < self.losses)
        return make_scores(rng, noise, self.effects + own + depth * self.shape - lost)

    def true_slopes(self, design: Design) -> np.ndarray:
        """Return the true mean slopes of the dials that are judged, times their range of doses. [dials]"""
        return design.slopes(self.effects + self.shape - COLLAPSE * self.losses)[list(self.dials)]


def make_scenarios(design: Design) -> dict[str, tuple[Scenario, Scenario]]:
    """Make the scenarios: by a name that says what happens, the scenario and its variant with mean slopes of 0."""
    every, nothing = tuple(range(len(design.names))), np.zeros(design.cells)
    plain = Scenario(every, nothing, np.ones(design.cells), None, nothing, 0.0, nothing)
    planted = replace(plain, effects=design.effects(*[PLANTED] * len(every)))
    scenarios = {"noise like the pilot's: one size, independent": (planted, plain)}
    istar, whitening = design.names.index("istar"), design.names.index("whitening")
    lowest, highest = design.columns[istar][0], design.columns[istar][-1]
    for share in (0.05, 0.1, 0.3):
        one_end, both_ends = nothing.copy(), nothing.copy()
        one_end[highest], both_ends[[lowest, highest]] = share, share
        name = f"collapse: a seed loses {COLLAPSE:g} points at I-STAR's largest dose with probability {share:g}"
        collapse = replace(plain, dials=(istar,))
        scenarios[name] = replace(collapse, losses=one_end), replace(collapse, losses=both_ends)
    sizes = np.ones(design.cells)
    sizes[[cell for own in design.columns for cell in (own[0], own[-1])]] = 3
    scenarios["noise three times larger at each dial's lowest and highest dose"] = (
        replace(planted, sizes=sizes),
        replace(plain, sizes=sizes),
    )
    mixing = np.linalg.cholesky(correlate_neighbours(design))
    scenarios[f"noise of neighbouring doses of a seed correlated by {NEIGHBOURS:g}"] = (
        replace(planted, mixing=mixing),
        replace(plain, mixing=mixing),
    )
    bend, arch = nothing.copy(), nothing.copy()
    turn = design.turn(whitening)  # -1 at full whitening, 0 at the largest epsilon
    bend[design.columns[whitening]] = -STEEP * turn**2
    arch[design.columns[whitening]] = -STEEP * (2 * turn + 1) ** 2
    steep = replace(plain, dials=(whitening,), depth_sd=STEEP_SD / STEEP)
    name = f"whitening costs {STEEP:g} points (SD over seeds {STEEP_SD:g}), on a curve"
    scenarios[name] = replace(steep, shape=bend), replace(steep, shape=arch)
    return scenarios


def correlate_neighbours(design: Design) -> np.ndarray:
    """Return correlations of cells that fall by a factor from dose to dose of a dial. [cells, cells]

    Doses of different dials are correlated by way of plain fine-tuning, where both dials start there.
    """
    steps = np.full((design.cells, design.cells), np.inf)
    np.fill_diagonal(steps, 0)
    for doses, cells in zip(design.doses, design.columns, strict=True):
        places = np.arange(len(doses))
        steps[np.ix_(cells, cells)] = np.abs(places[:, None] - places)
    steps = np.minimum(steps, steps[:, :1] + steps[:1])  # by way of plain fine-tuning
    return NEIGHBOURS**steps


def flip_signs(values: np.ndarray) -> np.ndarray:
    """Compute the two-sided p of a permutation test that flips the seeds' signs: [n, seeds] -> [n].

    p is the share of all patterns of signs whose mean is at least as far from 0 as the observed one. It is exact if
    each seed's value is distributed symmetrically around 0.
    """
    seeds = values.shape[-1]
    patterns = 1 - 2.0 * ((np.arange(2 ** (seeds - 1))[:, None] >> np.arange(seeds)) & 1)  # the other half mirrors it
    observed = np.abs(values.sum(-1))
    slack = 1e-9 * (1 + np.abs(values).sum(-1))  # so that sums that differ by rounding are equal
    return np.mean(np.abs(values @ patterns.T) >= (observed - slack)[:, None], axis=1)


def measure_scenarios(
    rng: np.random.Generator, design: Design, noise: dict[str, Noise], studies: int, seeds: int
) -> Any:
    """Count for each scenario how often interval and tests err, over encoders and the dials that are judged."""
    return {name: judge(rng, design, noise, pair, studies, seeds) for name, pair in make_scenarios(design).items()}


def judge(
    rng: np.random.Generator,
    design: Design,
    noise: dict[str, Noise],
    pair: tuple[Scenario, Scenario],
    studies: int,
    seeds: int,
) -> dict[str, float]:
    """Count the coverage in a scenario, and the false positives in its variant with mean slopes of 0."""
    counts: dict[str, list[np.ndarray]] = {}
    for count in chunks(studies):
        for own in noise.values():
            for scenario, is_null in zip(pair, (False, True), strict=True):
                found = design.slopes(scenario.draw(rng, own, count, seeds))[..., list(scenario.dials)]
                rest = np.moveaxis(found - scenario.true_slopes(design), 1, -1).reshape(-1, seeds)
                p, flipped = student_t(rest)[3], flip_signs(rest)  # of the true mean slope: < .05 is not covered
                for name, own_p in (("", p), ("_sign_flip", flipped)):
                    key, hits = ("false_positives", own_p < ALPHA) if is_null else ("coverage", own_p >= ALPHA)
                    counts.setdefault(key + name, []).append(hits)
    return {name: float(np.mean(np.concatenate(own))) for name, own in sorted(counts.items())}
