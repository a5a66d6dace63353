"""Simulate the whitening map: how often each registered statement is supported or refuted.

    python -m isobench_papers.whitening_map.power [--studies 100]

A set's change at n labels a class is gain - loss * (4 / n) ** decay, times a factor of the set, plus a part of the
encoding, noise that all encodings of a set share, and noise of each cell. Stronger whitening has more of both noises.
Nothing: no loss and no gain. Pilot: about what the pilot showed with its three sets. IsoScore and changes are
independent.
"""

import argparse
from collections import Counter

import numpy as np

from isobench.analyses.rows import group_rows
from isobench_papers.whitening_map import verdicts

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
NOISE = {0.0: 0.8, 0.01: 0.75, 0.1: 0.6, 0.5: 0.4, 0.9: 0.15, None: 0.3}  # points, of a set's cell and of its own
OF_SETS, OF_ENCODERS = 0.4, 0.3  # standard deviations: of a logarithm, and of points
DECAY = 0.6


def simulate(rng: np.random.Generator, loss: float, gain: float) -> tuple[list[dict], list[dict]]:
    """Simulate the changes and the IsoScores of one study."""
    changes, isotropy = [], []
    for task in (*FITTED, *HELD_OUT):
        factor, level = np.exp(rng.normal(0, OF_SETS)), rng.normal()
        shared = {z: rng.normal(0, sd, len(LABELS)) for z, sd in NOISE.items()}  # by all encodings
        for number in range(ENCODERS):
            names = {"encoder": f"e{number}", "pooling": "mean", "layer": None, "task": task}
            isotropy.append(names | {"isoscore": 0.1 * np.exp(0.5 * (level + rng.normal()))})
            own = rng.normal(0, OF_ENCODERS)
            for shrinkage, size in [*LOSSES.items(), (None, 0.0)]:
                for i, labels in enumerate(LABELS):
                    mean = factor * (gain - loss * size * (4 / labels) ** DECAY) + own if size else 0.0
                    change = mean + shared[shrinkage][i] + rng.normal(0, NOISE[shrinkage])
                    row = names | {
                        "held_out": task in HELD_OUT, "shrinkage": shrinkage, "change": change,
                        "classifier": "logistic",
                        "labels_a_class": float(labels), "budget": None if labels == LABELS[-1] else labels,
                        "unit_length": "none" if size else "after", "method": "zca" if size else "none",
                    }  # fmt: skip
                    changes.append(row)
                    if shrinkage is None:
                        centred = {"classifier": "neighbours", "unit_length": "none", "method": "center"}
                        changes.append(row | centred | {"change": change + rng.normal(0, NOISE[None])})
    return changes, isotropy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=100)
    studies = parser.parse_args().studies
    verdicts.RESAMPLES = 199  # of the permutations; the study has 10,000
    for world, (loss, gain) in WORLDS.items():
        counts: Counter[tuple[str, str]] = Counter()
        tests: Counter[str] = Counter()
        rng = np.random.default_rng(0)
        for _ in range(studies):
            rows = verdicts.judge(*simulate(rng, loss, gain))
            registered = [row for row in rows if row["scope"] == verdicts.REGISTERED]
            for (statement, group), own in group_rows(registered, "statement", "group").items():
                tests[f"{statement}: {group}"] += 1
                counts[f"{statement}: {group}", own[0]["group_verdict"]] += 1
        print(f"\n{world} ({studies} studies): share of tests supported, refuted")
        for name, total in tests.items():
            shares = [counts[name, verdict] / total for verdict in (verdicts.SUPPORTED, verdicts.REFUTED)]
            print(f"  {name:75} {shares[0]:6.1%} {shares[1]:6.1%}")


if __name__ == "__main__":
    main()
