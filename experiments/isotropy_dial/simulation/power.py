"""Simulate the study of isotropy_dial: how often its tests and intervals err, and what it can find.

    python -m isobench_papers.isotropy_dial.simulation.power [--studies 50000] [--seed 0] [--write]

Every synthetic study has the shape of the real one: its encoders, dials, doses and seeds, taken from the study's
experiment/isotropy_dial.yaml. Scores are slope x dose, plus an effect of the seed, plus noise: residuals of our pilot
runs (experiments/isotropy_dial/pilot.csv), drawn at random and scaled to the degrees of freedom that fitting their
means took. Scores are rounded to whole examples of the dev set. Slopes, partial correlations, intervals and
p-values come from isobench.statistics, as in the study's analysis. Arranging the runs of many
studies at a time, and Holm's correction, are written anew here; a test compares both with the analysis itself
(experiments/isotropy_dial/tests/test_isotropy_dial_power.py).

Five parts come out, and --write puts them into experiments/isotropy_dial/power.json:

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
import yaml

from isobench.statistics.dose_response import student_t
from isobench.statistics.seeds import ALPHA, POWER
from isobench_papers.isotropy_dial.rows import DIAL, DIALS
from isobench_papers.isotropy_dial.simulation.correlations import find_smallest_correlations, measure_correlations
from isobench_papers.isotropy_dial.simulation.scenarios import measure_scenarios
from isobench_papers.isotropy_dial.simulation.studies import Design, Noise, chunks, holm, read_pilot, simulate

STUDY = Path(__file__).resolve().parents[1]
PLANTED = 1.0  # points over a dial's whole range, where coverage is measured with a true effect


def test_slopes(design: Design, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return interval and p of every dial: [studies, seeds, cells] -> low, high, p, each [studies, dials]."""
    _, low, high, p = student_t(np.moveaxis(design.slopes(scores), 1, -1))
    return low, high, p


def measure_slopes(
    rng: np.random.Generator, design: Design, noise: dict[str, Noise], studies: int, seeds: int
) -> Any:
    """Measure false positives, family-wise false positives and coverage of slopes."""
    false, any_false, covered, covered_planted = [], [], [], []
    for count in chunks(studies):
        p_values = []
        for own in noise.values():
            low, high, p = test_slopes(design, simulate(rng, own, np.zeros(design.cells), count, seeds))
            false.append(p < ALPHA)
            covered.append((low <= 0) & (high >= 0))
            p_values.append(p)
            planted = design.effects(*[PLANTED] * len(design.names))
            low, high, _ = test_slopes(design, simulate(rng, own, planted, count, seeds))
            covered_planted.append((low <= PLANTED) & (high >= PLANTED))
        any_false.append((holm(np.concatenate(p_values, axis=-1)) < ALPHA).any(-1))
    return {
        "false_positives": {
            "one slope": float(np.mean(np.concatenate(false))),
            "any slope of a study, after Holm": float(np.mean(np.concatenate(any_false))),
        },
        "coverage": {
            "slopes without effect": float(np.mean(np.concatenate(covered))),
            f"slopes of {PLANTED:g} point": float(np.mean(np.concatenate(covered_planted))),
        },
    }


def find_smallest(rng: np.random.Generator, design: Design, noise: dict[str, Noise], studies: int, seeds: int) -> Any:
    """Find for each encoder and dial the smallest effect that 80% of studies find after Holm, all others being 0.

    It grows with the noise's standard deviation, so ``low`` and ``high`` are it times the ends of that one's interval
    over its value. Rounding to whole examples, which does not grow, is small beside the noise.
    """
    null = {name: [] for name in noise}
    for count in chunks(studies):
        for name, own in noise.items():
            scores = simulate(rng, own, np.zeros(design.cells), count, seeds)
            null[name].append(np.moveaxis(design.slopes(scores), 1, -1))
    slopes = {name: np.concatenate(own) for name, own in null.items()}  # [studies, dials, seeds]
    p_null = {name: student_t(own)[3] for name, own in slopes.items()}
    found = []
    for name, its_noise in noise.items():
        sd, sd_low, sd_high = its_noise.estimate_sd()
        others = [p for other, p in p_null.items() if other != name]
        for dial, label in enumerate(design.names):

            def power(points: float, name: str = name, dial: int = dial, others: list = others) -> float:
                own = p_null[name].copy()
                own[:, dial] = student_t(slopes[name][:, dial] + points)[3]
                return float((holm(np.concatenate([own, *others], axis=-1))[:, dial] < ALPHA).mean())

            low, high = 0.0, 100.0
            while high - low > 0.005:
                middle = (low + high) / 2
                low, high = (low, middle) if power(middle) >= POWER else (middle, high)
            points = {"points_over_the_dial": high, "low": high * sd_low / sd, "high": high * sd_high / sd}
            found.append({"encoder": name, "dial": label, **{key: round(own, 2) for key, own in points.items()}})
    return found


def read_grid() -> list[dict]:
    """Read the parts of the study's grid from its experiment file."""
    file = STUDY / "experiment" / "isotropy_dial.yaml"
    parts: list[dict] = yaml.safe_load(file.read_text())["experiment"]["grid"]["embedded"]
    return parts


def read_dials() -> tuple[Design, int]:
    """Read the study's dials and the number of its seeds."""
    grid = read_grid()
    doses = {dial.name: [0.0] if dial.starts_plain else [] for dial in DIALS}
    for cells, dial in product(grid, DIALS):
        names = [name for name in cells if name.startswith("calibration.")]
        for values in product(*(cells[name] for name in names)):
            settings = {name.removeprefix("calibration."): value for name, value in zip(names, values, strict=True)}
            dose = dial.read_dose({"name": cells["calibration"][0], **settings})
            if dose is not None and dose not in doses[dial.name]:
                doses[dial.name].append(dose)
    dials = {name: sorted(own) for name, own in doses.items() if own}  # others are of the second registration
    return Design(dials, {name: DIAL[name].starts_plain for name in dials}), len(grid[0]["seed"])


def print_result(result: Any) -> None:
    """Print all parts of the result."""
    print("standard deviation of the noise in points, with its 95% interval")
    for name, (sd, low, high) in result["noise_sd"].items():
        print(f"  {name:20}{sd:8.3f}  {low:.3f} to {high:.3f}")
    for part in ("false_positives", "coverage"):
        print(part.replace("_", " "))
        for name, value in result[part].items():
            print(f"  {name:115}{value:8.4f}")
    print(
        "smallest effect of a dial's whole range that 80% of studies find after Holm, in points; at the noise's ends"
    )
    for row in result["smallest_slopes"]:
        ends = f"{row['low']:8.2f} to {row['high']:.2f}"
        print(f"  {row['encoder']:20}{row['dial']:12}{row['points_over_the_dial']:8.2f}{ends}")
    print("smallest correlation given the dial that 80% of studies find after Holm")
    for row in result["smallest_correlations"]:
        print(f"  {row['encoder']:20}{row['correlation_given_the_dial']:8.3f}")
    print("scenarios: coverage and false positives of the t-test; of the permutation test by sign flips")
    for name, row in result["scenarios"].items():
        figures = (row[key + test] for test in ("", "_sign_flip") for key in ("coverage", "false_positives"))
        print(f"  {name:85}" + "".join(f"{figure:8.4f}" for figure in figures))


def main() -> None:
    """Simulate, print the figures and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write experiments/isotropy_dial/power.json")
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    design, seeds = read_dials()
    noise = read_pilot(STUDY / "pilot.csv")
    parts = (rng, design, noise, arguments.studies, seeds)
    slopes, correlations = measure_slopes(*parts), measure_correlations(*parts)
    command = "python -m isobench_papers.isotropy_dial.simulation.power"
    result = {
        "command": f"{command} --studies {arguments.studies} --seed {arguments.seed} --write",
        "studies": arguments.studies,
        "shape": {
            "encoders": list(noise),
            "dials": dict(zip(design.names, design.doses, strict=True)),
            "seeds": seeds,
        },
        "noise_sd": {name: [round(value, 3) for value in own.estimate_sd()] for name, own in noise.items()},
        "false_positives": slopes["false_positives"] | correlations["false_positives"],
        "coverage": slopes["coverage"] | correlations["coverage"],
        "smallest_slopes": find_smallest(*parts),
        "smallest_correlations": find_smallest_correlations(*parts),
        "scenarios": measure_scenarios(*parts),
    }
    print_result(result)
    if arguments.write:
        (STUDY / "power.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
