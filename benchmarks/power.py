"""Simulate the study of isotropy_dial: how often its tests and intervals err, and which slopes it can find.

    python benchmarks/power.py [--studies 50000] [--seed 0] [--write]

Every synthetic study has the shape of the real one: its encoders, dials, doses and seeds, taken from
conf/experiment/isotropy_dial.yaml. Scores are slope x dose, plus an effect of the seed, plus noise: residuals of our
pilot runs (experiments/isotropy_dial/pilot.csv), drawn at random and scaled to the degrees of freedom that fitting
their means took. Scores are rounded to whole examples of the dev set. The study's own functions then analyse it.
Isotropies are the dose's ranks plus noise, some of which they share with the score.

Three figures come out, and --write puts them into experiments/isotropy_dial/power.json, which the study's page reads:

1. false positives: of one slope, and of any slope of a study after Holm's correction, both 5%; the same for partial
   correlations;
2. coverage of the 95% intervals: of slopes and of partial correlations (94 to 96%), with and without true effects;
3. the smallest effect of a dial's whole range that is found in 80% of studies after Holm's correction, in points.
"""

import argparse
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from common import write_result

import numpy as np
import yaml
from synthetic_studies import Design, Noise, read_pilot, simulate

from isobench.analyses.isotropy_dial_rows import DIALS, MEASURES
from isobench.report.dose_response import correlate_partially, student_t
from isobench.report.effects import ALPHA, POWER

ROOT = Path(__file__).resolve().parents[1]
STUDY, CONF = ROOT / "experiments" / "isotropy_dial", ROOT / "conf"
PLANTED = 1.0  # points over a dial's whole range, where coverage is measured with a true effect
SHARED = 0.5  # share of the isotropy's noise that is the score's own noise, where a correlation is planted
CHUNK = 1000  # studies at a time, to bound memory
TRUTH_SEEDS = 200_000  # seeds whose mean is taken as a partial correlation's true value


def holm(p: np.ndarray) -> np.ndarray:
    """Adjust p-values by Holm's method along the last axis."""
    count = p.shape[-1]
    order = np.argsort(p, axis=-1)
    stepped = np.take_along_axis(p, order, -1) * np.arange(count, 0, -1)
    adjusted = np.minimum(np.maximum.accumulate(stepped, axis=-1), 1)
    result = np.empty_like(adjusted)
    np.put_along_axis(result, order, adjusted, -1)
    return result


def test_slopes(design: Design, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return interval and p of every dial: [studies, seeds, cells] -> low, high, p, each [studies, dials]."""
    _, low, high, p = student_t(np.moveaxis(design.slopes(scores), 1, -1))
    return low, high, p


def chunks(studies: int) -> Iterator[int]:
    """Split the studies into chunks."""
    while studies > 0:
        yield min(studies, CHUNK)
        studies -= CHUNK


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
            planted = sum(design.effects(dial, PLANTED) for dial in range(len(design.names)))
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
    """Find for each encoder and dial the smallest effect that 80% of studies find after Holm, all others being 0."""
    null = {name: [] for name in noise}
    for count in chunks(studies):
        for name, own in noise.items():
            scores = simulate(rng, own, np.zeros(design.cells), count, seeds)
            null[name].append(np.moveaxis(design.slopes(scores), 1, -1))
    slopes = {name: np.concatenate(own) for name, own in null.items()}  # [studies, dials, seeds]
    p_null = {name: student_t(own)[3] for name, own in slopes.items()}
    found = []
    for name in noise:
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
            found.append({"encoder": name, "dial": label, "points_over_the_dial": round(high, 2)})
    return found


def draw_isotropy(rng: np.random.Generator, design: Design, scores: np.ndarray, shared: float) -> np.ndarray:
    """Draw an isotropy for each run: what the dial does, and noise of which a share is the score's own noise."""
    cells, _, doses = design.entries()
    turned = np.zeros(design.cells)
    turned[cells] = 3 * doses  # a dial moves it by three standard deviations of its noise
    own = scores - scores.mean(-1, keepdims=True)
    own = own / own.std()
    return turned + np.sqrt(1 - shared**2) * rng.normal(size=scores.shape) + shared * own


def correlate(design: Design, isotropy: np.ndarray, scores: np.ndarray, with_dose: bool) -> np.ndarray:
    """Correlate isotropy and score in each seed, given the dial, and the dose too if asked: -> [..., seeds]."""
    cells, dials, doses = design.entries()
    given = np.hstack([dials, dials * (doses - 0.5)[:, None]]) if with_dose else dials
    return correlate_partially(isotropy[..., cells], scores[..., cells], given)


def measure_correlations(
    rng: np.random.Generator, design: Design, noise: dict[str, Noise], studies: int, seeds: int
) -> Any:
    """Measure false positives and coverage of partial correlations, without and with a shared part."""
    own, false, any_false, coverage = next(iter(noise.values())), [], [], dict[str, float]()
    nothing = np.zeros(design.cells)
    for shared in (0.0, SHARED):
        for with_dose in (False, True):
            scores = simulate(rng, own, nothing, 1, TRUTH_SEEDS)
            truth = correlate(design, draw_isotropy(rng, design, scores, shared), scores, with_dose).mean()
            hits = []
            for count in chunks(studies):
                scores = simulate(rng, own, nothing, count, seeds)
                p_values = []
                for _ in range(len(MEASURES) if not shared and not with_dose else 1):
                    isotropy = draw_isotropy(rng, design, scores, shared)
                    _, low, high, p = student_t(correlate(design, isotropy, scores, with_dose))
                    p_values.append(p)
                hits.append((low <= truth) & (truth <= high))
                if not shared:
                    false.append(p_values[0] < ALPHA)
                if len(p_values) > 1:
                    any_false.append((holm(np.stack(p_values, -1)) < ALPHA).any(-1))
            name = f"correlations of {truth:.2f}, given the dial" + " and the dose" * with_dose
            coverage[name] = float(np.mean(np.concatenate(hits)))
    return {
        "false_positives": {
            "one partial correlation": float(np.mean(np.concatenate(false))),
            f"any of {len(MEASURES)} partial correlations, after Holm": float(np.mean(np.concatenate(any_false))),
        },
        "coverage": coverage,
    }


def read_dials() -> tuple[Design, int]:
    """Read the study's dials and the number of its seeds from its experiment file."""
    grid = yaml.safe_load((CONF / "experiment" / "isotropy_dial.yaml").read_text())["experiment"]["grid"]["embedded"]
    doses = {dial.name: [0.0] if dial.starts_plain else [] for dial in DIALS}
    for cells, dial in product(grid, DIALS):
        names = [name for name in cells if name.startswith("calibration.")]
        for values in product(*(cells[name] for name in names)):
            settings = {name.removeprefix("calibration."): value for name, value in zip(names, values, strict=True)}
            dose = dial.read_dose({"name": cells["calibration"][0], **settings})
            if dose is not None and dose not in doses[dial.name]:
                doses[dial.name].append(dose)
    dials = {name: sorted(own) for name, own in doses.items()}
    return Design(dials, {dial.name: dial.starts_plain for dial in DIALS}), len(grid[0]["seed"])


def main() -> None:
    """Simulate, print the three figures and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write experiments/isotropy_dial/power.json")
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    design, seeds = read_dials()
    noise = read_pilot(STUDY / "pilot.csv")
    slopes = measure_slopes(rng, design, noise, arguments.studies, seeds)
    correlations = measure_correlations(rng, design, noise, arguments.studies, seeds)
    result = {
        "command": f"python benchmarks/power.py --studies {arguments.studies} --seed {arguments.seed} --write",
        "studies": arguments.studies,
        "shape": {
            "encoders": list(noise),
            "dials": dict(zip(design.names, design.doses, strict=True)),
            "seeds": seeds,
        },
        "noise_sd": {name: round(float(own.residuals.std()), 3) for name, own in noise.items()},
        "false_positives": slopes["false_positives"] | correlations["false_positives"],
        "coverage": slopes["coverage"] | correlations["coverage"],
        "smallest_slopes": find_smallest(rng, design, noise, arguments.studies, seeds),
    }
    for part in ("noise_sd", "false_positives", "coverage"):
        print(part.replace("_", " "))
        for name, value in result[part].items():
            print(f"  {name:60}{value:8.4f}")
    print("smallest effect of a dial's whole range that 80% of studies find after Holm, in points")
    for row in result["smallest_slopes"]:
        print(f"  {row['encoder']:20}{row['dial']:40}{row['points_over_the_dial']:8.2f}")
    if arguments.write:
        (STUDY / "power.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    write_result("power", result)


if __name__ == "__main__":
    main()
