"""Simulate the whitening map: how often each registered statement is supported or refuted.

    python benchmarks/power_whitening.py [--studies 300]

A set's change at n labels a class is gain - loss * (4 / n) ** decay, times a factor of the set, plus a part of the
encoder and a part of each cell. Nothing: no loss and no gain. Pilot: about what the pilot showed with its three sets.
"""

import argparse
from collections import Counter

from common import write_result

import numpy as np

from isobench.analyses.rows import group_rows
from isobench_papers.whitening_map import verdicts
from isobench_papers.whitening_map.show import sum_up

FITTED, HELD_OUT = ("trec", "cr", "mr", "sst2"), ("emotion", "mpqa", "subj", "tweet_sentiment", "amazon")
ENCODERS = 7
LABELS = (4, 8, 16, 32, 64, 128, 2000)
LOSSES = {0.0: 14.0, 0.01: 13.0, 0.1: 10.0, 0.5: 5.0, 0.9: 1.0}  # points at 4 labels a class, by shrinkage
WORLDS = {  # loss and gain, of the pilot's
    "nothing": (0.0, 0.0),
    "a tenth of the pilot": (0.1, 0.0),
    "the pilot": (1.0, 0.0),
    "the pilot, and a gain of 1 with all labels": (1.0, 1.0),
}
OF_SETS, OF_ENCODERS, OF_CELLS = 0.4, 0.3, 1.0  # standard deviations: of a logarithm, and of points
DECAY = 0.6


def simulate(rng: np.random.Generator, loss: float, gain: float) -> tuple[list[dict], list[dict]]:
    """Simulate the changes and the IsoScores of one study."""
    changes, isotropy = [], []
    for task in (*FITTED, *HELD_OUT):
        factor = np.exp(rng.normal(0, OF_SETS))
        for number in range(ENCODERS):
            names = {"encoder": f"e{number}", "pooling": "mean", "layer": None, "task": task}
            isotropy.append(names | {"isoscore": rng.uniform(0.01, 0.3)})
            own = rng.normal(0, OF_ENCODERS)
            for shrinkage, size in [*LOSSES.items(), (None, 0.0)]:
                for labels in LABELS:
                    mean = factor * (gain - loss * size * (4 / labels) ** DECAY) if shrinkage is not None else 0.0
                    change = mean + own * (shrinkage is not None) + rng.normal(0, OF_CELLS)
                    row = names | {
                        "held_out": task in HELD_OUT, "shrinkage": shrinkage, "change": change,
                        "labels_a_class": float(labels), "budget": labels, "classifier": "logistic",
                        "unit_length": "none" if shrinkage is not None else "after", "method": "none",
                    }  # fmt: skip
                    changes.append(row)
                    if shrinkage is None:
                        centred = {"classifier": "neighbours", "unit_length": "none", "method": "center"}
                        changes.append(row | centred | {"change": rng.normal(0, OF_CELLS)})
    return changes, isotropy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=300)
    studies = parser.parse_args().studies
    verdicts.RESAMPLES = 199  # of the permutations; the study has 10,000
    outcome = {}
    for world, (loss, gain) in WORLDS.items():
        counts: Counter[tuple[str, str]] = Counter()
        tests: Counter[str] = Counter()
        rng = np.random.default_rng(0)
        for _ in range(studies):
            rows = verdicts.judge(*simulate(rng, loss, gain))
            registered = [row for row in rows if row["scope"] == verdicts.HELD_OUT]
            for row in map(sum_up, group_rows(registered, "statement", "group").values()):
                name = f"{row['statement']}: {row['group']}"
                tests[name] += 1
                counts[name, row["verdict"]] += 1
        outcome[world] = {
            name: {verdict: counts[name, verdict] / total for verdict in (verdicts.SUPPORTED, verdicts.REFUTED)}
            for name, total in tests.items()
        }
        print(f"\n{world} ({studies} studies): share of tests supported, refuted")
        for name, shares in outcome[world].items():
            print(f"  {name:75} {shares[verdicts.SUPPORTED]:6.1%} {shares[verdicts.REFUTED]:6.1%}")
    write_result("power_whitening", {"studies": studies, "worlds": outcome})


if __name__ == "__main__":
    main()
