"""Simulate the study of isotropy_dial: how often its tests and intervals err, and what it can find.

    python -m isobench_papers.isotropy_dial.simulation.power [--studies 50000] [--seed 0] [--write]

Every synthetic study has the shape of the real one: its encoders, dials, doses and seeds, taken from the study's
experiment/isotropy_dial.yaml. Scores are slope x dose, plus an effect of the seed, plus noise: residuals of our pilot
runs (experiments/isotropy_dial/pilot.csv), drawn at random and scaled to the degrees of freedom that fitting their
means took. Scores are rounded to whole examples of the dev set. Slopes, partial correlations, intervals and
p-values come from isobench.statistics, as in the study's analysis. Arranging the runs of many studies at a time is
written anew here; a test compares it with the analysis itself
(experiments/isotropy_dial/tests/test_isotropy_dial_power.py).

Five parts are printed, and --write puts them into experiments/isotropy_dial/power.json:

1. the standard deviation of the pilot's noise, with its 95% interval: it has few degrees of freedom;
2. false positives and coverage of the 95% intervals of slopes and partial correlations, for one test, and for the
   whole family after Holm's correction;
3. the smallest effect of a dial's whole range that is found in 80% of studies after Holm's correction, in points;
   the same for the two ends of the noise's interval;
4. the smallest partial correlation that is found in 80% of studies after Holm's correction;
5. scenarios with worse noise (scenarios.py): coverage and false positives of the preregistered t-test, and
   of a permutation test that flips the signs of the seeds' slopes. The latter is no test of the study.
"""

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from isobench.statistics.dose_response import student_t
from isobench.statistics.seeds import ALPHA
from isobench_papers.isotropy_dial.simulation.correlations import find_smallest_correlations, measure_correlations
from isobench_papers.isotropy_dial.simulation.scenarios import measure_scenarios
from isobench_papers.isotropy_dial.simulation.studies import (
    PLANTED,
    Design,
    Noise,
    chunks,
    find_smallest,
    holm,
    read_pilot,
    simulate,
    test_seeds,
)

STUDY = Path(__file__).resolve().parents[1]


def measure_slopes(rng: np.random.Generator, design: Design, noise: dict[str, Noise], studies: int) -> Any:
    """Measure false positives, family-wise false positives and coverage of slopes."""
    covered: dict[float, list[np.ndarray]] = {0.0: [], PLANTED: []}
    p_values: dict[str, list[np.ndarray]] = {name: [] for name in noise}
    for count, (name, own), points in product(chunks(studies), noise.items(), covered):
        scores = simulate(rng, own, design.effects(points), count, design.seeds)
        _, low, high, p = test_seeds(design.slopes(scores))
        covered[points].append((low <= points) & (high >= points))
        if not points:
            p_values[name].append(p)
    family = np.concatenate([np.concatenate(own) for own in p_values.values()], axis=-1)
    shares = {points: float(np.mean(np.concatenate(own))) for points, own in covered.items()}
    return {
        "false_positives": {
            "one slope": float(np.mean(family < ALPHA)),
            "any slope of a study, after Holm": float(np.mean((holm(family) < ALPHA).any(-1))),
        },
        "coverage": {"slopes without effect": shares[0.0], f"slopes of {PLANTED:g} point": shares[PLANTED]},
    }


def find_smallest_slopes(rng: np.random.Generator, design: Design, noise: dict[str, Noise], studies: int) -> Any:
    """Find for each encoder and dial the smallest effect that 80% of studies find after Holm, all others being 0.

    It grows with the noise's standard deviation, so ``low`` and ``high`` are it times the ends of that one's interval
    over its value. Rounding to whole examples, which does not grow, is small beside the noise.
    """
    drawn: dict[str, list[np.ndarray]] = {name: [] for name in noise}
    for count, (name, own) in product(chunks(studies), noise.items()):
        drawn[name].append(design.slopes(simulate(rng, own, design.effects(0.0), count, design.seeds)))
    slopes = {  # [studies, seeds] of each test
        (name, dial): values
        for name, own in drawn.items()
        for dial, values in zip(design.doses, np.moveaxis(np.concatenate(own), -1, 0), strict=True)
    }
    p_null, found = {place: student_t(values)[3] for place, values in slopes.items()}, []
    for (name, dial), values in slopes.items():
        others = [p for place, p in p_null.items() if place != (name, dial)]
        points = find_smallest(lambda points, values=values: student_t(values + points)[3], others, 100.0, 0.005)
        sd, *ends = noise[name].estimate_sd()
        low, high = (round(points * end / sd, 2) for end in ends)
        row = {"points_over_the_dial": round(points, 2), "low": low, "high": high}
        found.append({"encoder": name, "dial": dial} | row)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write experiments/isotropy_dial/power.json")
    arguments = parser.parse_args()
    design, noise = Design(), read_pilot(STUDY / "pilot.csv")
    parts = (np.random.default_rng(arguments.seed), design, noise, arguments.studies)
    slopes, correlations = measure_slopes(*parts), measure_correlations(*parts)
    command = "python -m isobench_papers.isotropy_dial.simulation.power"
    result = {
        "command": f"{command} --studies {arguments.studies} --seed {arguments.seed} --write",
        "studies": arguments.studies,
        "shape": {"encoders": list(noise), "dials": design.doses, "seeds": design.seeds},
        "noise_sd": {name: [round(value, 3) for value in own.estimate_sd()] for name, own in noise.items()},
        **{part: slopes[part] | correlations[part] for part in ("false_positives", "coverage")},
        "smallest_slopes": find_smallest_slopes(*parts),
        "smallest_correlations": find_smallest_correlations(*parts),
        "scenarios": measure_scenarios(*parts),
    }
    text = json.dumps(result, indent=2) + "\n"
    print(text)
    if arguments.write:
        (STUDY / "power.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
