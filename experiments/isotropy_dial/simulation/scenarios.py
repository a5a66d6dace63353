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
from isobench_papers.isotropy_dial.simulation.studies import PLANTED, Design, Noise, chunks, make_scores

COLLAPSE = 20.0  # points that a seed loses
STEEP, STEEP_SD = 15.0, 3.0  # points that full whitening costs: the mean over seeds, and their standard deviation
NEIGHBOURS = 0.7  # correlation of the noise of neighbouring doses


@dataclass(frozen=True)
class Scenario:
    """Say how scores come about: effects, noise, and rare losses.

    Attributes:
        dials: the places of the dials whose slopes are judged.
        effects: what all seeds have in common, in points. [cells]
        shape: what seeds have in different depths, which have mean 1 and standard deviation ``depth_sd``. [cells]
        depth_sd: see ``shape``.
        losses: the probability that a seed loses ``COLLAPSE`` points in a cell. [cells]
        mixing: turns independent noise of the pilot's size into the scenario's. [cells, cells]
    """

    dials: list[int]
    effects: np.ndarray
    shape: np.ndarray
    depth_sd: float
    losses: np.ndarray
    mixing: np.ndarray

    def draw(self, rng: np.random.Generator, noise: Noise, studies: int, seeds: int) -> np.ndarray:
        """Draw scores. [studies, seeds, cells]"""
        own = noise.draw(rng, studies, seeds, len(self.effects)) @ self.mixing.T
        depth = 1 + self.depth_sd * rng.normal(size=(studies, seeds, 1))
        lost = COLLAPSE * (rng.random(own.shape) < self.losses)
        return make_scores(rng, noise, self.effects + own + depth * self.shape - lost)

    def true_slopes(self, design: Design) -> np.ndarray:
        """Return the true mean slopes of the dials that are judged, times their range of doses. [dials]"""
        return design.slopes(self.effects + self.shape - COLLAPSE * self.losses)[self.dials]


def make_scenarios(design: Design) -> dict[str, tuple[Scenario, Scenario]]:
    """Make the scenarios: by a name that says what happens, the scenario and its variant with mean slopes of 0."""
    names, nothing = list(design.doses), np.zeros(design.cells)
    plain = Scenario(list(range(len(names))), nothing, nothing, 0.0, nothing, np.eye(design.cells))
    planted = replace(plain, effects=design.effects(PLANTED))
    scenarios = {"noise like the pilot's: one size, independent": (planted, plain)}
    istar, ends = replace(plain, dials=[names.index("istar")]), design.columns["istar"][[0, -1]]
    for share in (0.05, 0.1, 0.3):
        one_end, both_ends = nothing.copy(), nothing.copy()
        one_end[ends[1]], both_ends[ends] = share, share
        name = f"collapse: a seed loses {COLLAPSE:g} points at I-STAR's largest dose with probability {share:g}"
        scenarios[name] = replace(istar, losses=one_end), replace(istar, losses=both_ends)
    sizes = np.ones(design.cells)
    sizes[[cell for own in design.columns.values() for cell in own[[0, -1]]]] = 3
    for name, mixing in {
        "noise three times larger at each dial's lowest and highest dose": np.diag(sizes),
        f"noise of neighbouring doses of a seed correlated by {NEIGHBOURS:g}": np.linalg.cholesky(
            correlate_neighbours(design)
        ),
    }.items():
        scenarios[name] = replace(planted, mixing=mixing), replace(plain, mixing=mixing)
    bend, arch = nothing.copy(), nothing.copy()
    turn = design.turns["whitening"]  # -1 at full whitening, 0 at the largest epsilon
    bend[design.columns["whitening"]] = -STEEP * turn**2
    arch[design.columns["whitening"]] = -STEEP * (2 * turn + 1) ** 2
    steep = replace(plain, dials=[names.index("whitening")], depth_sd=STEEP_SD / STEEP)
    name = f"whitening costs {STEEP:g} points (SD over seeds {STEEP_SD:g}), on a curve"
    scenarios[name] = replace(steep, shape=bend), replace(steep, shape=arch)
    return scenarios


def correlate_neighbours(design: Design) -> np.ndarray:
    """Return correlations of cells that fall by a factor from dose to dose of a dial. [cells, cells]

    Doses of different dials are correlated by way of plain fine-tuning, where both dials start there.
    """
    steps = np.full((design.cells, design.cells), np.inf)
    np.fill_diagonal(steps, 0)
    for cells in design.columns.values():
        places = np.arange(len(cells))
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


def measure_scenarios(rng: np.random.Generator, design: Design, noise: dict[str, Noise], studies: int) -> Any:
    """Count how often interval and tests err in each scenario, over encoders and the dials that are judged.

    Coverage is counted in the scenario, false positives in its variant with mean slopes of 0.
    """
    measured = {}
    for name, pair in make_scenarios(design).items():
        counts: dict[str, list[np.ndarray]] = {}
        for count in chunks(studies):
            for own in noise.values():
                for scenario, is_null in zip(pair, (False, True), strict=True):
                    found = design.slopes(scenario.draw(rng, own, count, design.seeds))[..., scenario.dials]
                    rest = np.moveaxis(found - scenario.true_slopes(design), 1, -1).reshape(-1, design.seeds)
                    # p of the true mean slope: < .05 is not covered
                    for test, p in (("", student_t(rest)[3]), ("_sign_flip", flip_signs(rest))):
                        key, hits = ("false_positives", p < ALPHA) if is_null else ("coverage", p >= ALPHA)
                        counts.setdefault(key + test, []).append(hits)
        measured[name] = {key: float(np.mean(np.concatenate(own))) for key, own in sorted(counts.items())}
    return measured
