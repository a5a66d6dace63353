"""A diagnosis of anisotropic random vectors, for tests of how it is shown."""

import numpy as np

from isobench.frozen.diagnosis import Diagnosis, Effect, Finding, Level

CHANGES = {"centring": (0.004, -0.006, 0.014), "ZCA whitening": (0.031, 0.012, 0.05), "PCA": (-0.02, -0.03, -0.01)}


def make(changes=CHANGES, score="accuracy", source="vectors.npy", notes=("The matrix has rank 63 of 64.",)):
    """Make a diagnosis of 500 vectors in 64 coordinates; ``changes``: method -> its change, low and high."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(500, 64)) * np.geomspace(1, 0.05, 64) + 1.5
    vectors[:, 7] *= 8
    centred = vectors - vectors.mean(0)
    variances = np.linalg.svd(centred, compute_uv=False) ** 2
    findings = [
        Finding("EV1", 0.5125, (0.03, 0.25), "One direction holds half of the variance."),
        Finding("average cosine", 0.9375, (0.01, 0.6), "All vectors point in about the same direction, so that "
                "every similarity is high, whatever the texts."),
        Finding("effective rank", 12.5, (10.0, 400.0), "The vectors use about 12 directions."),
        Finding("duplicates", 12345.0, None, "No two vectors should be equal."),
        Finding("alignment", float("nan"), (0.1, 0.2), "There are no pairs."),
    ]  # fmt: skip
    plain = Effect("none", 0.0625, 0.5125, 0.9375, 0.75, 0.0, 0.0, 0.0, 64)
    others = [
        Effect(name, 0.1 + 0.25 * k, 0.4 / (k + 1), float("nan"), 0.75 + change[0], *change, 64)
        for k, (name, change) in enumerate(changes.items())
    ]
    levels = [
        Level(effect.method, "random pairs", [0.1, 0.2, 0.3, 0.4, 0.5], (0.52, 0.5, 0.54), (0.6, 0.55, 0.65))
        for effect in [plain, *others]
    ]
    coordinates = centred.var(0)
    return Diagnosis(
        source, 500, 64, findings, (variances / variances.sum()).tolist(),
        np.sort(np.linalg.norm(vectors, axis=1)).tolist(), (coordinates / coordinates.sum()).tolist(),
        [plain, *others], score, list(notes), levels=levels,
    )  # fmt: skip
