"""Measure what post-hoc methods change: each is fitted on one half of the vectors, and measured on the other."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from isobench.calibration import center, whiten
from isobench.common.errors import doing, refuse
from isobench.common.linalg import cosine, divide_by_length, imitate
from isobench.common.packages import conf_dir
from isobench.common.progress import track_progress
from isobench.common.terminal import format_count
from isobench.frozen.diagnosis import Effect
from isobench.frozen.posthoc import Transform, check_post_hoc, fit_method
from isobench.frozen.probe import predict_tuned
from isobench.metrics import IsotropyAccumulator
from isobench.metrics.cosines import Level, draw_rows, find_related, measure_level, measure_true
from isobench.statistics.changes import RESAMPLES, compare_correlations, compare_paired, measure_spread
from isobench.statistics.paired_bootstrap import resample_metric

PROBE_ROWS = 2_000  # that one classifier is trained on
PROBE_WORK = 20_000_000  # rows x coordinates x classes of one training
FOLDS = 5  # of the cross-validation of all rows
FEWEST_ROWS = 8
REFITS = 4  # of each method, on bootstrap samples of what it was fitted on
REFIT_PROBE_ROWS = 500  # that a refit's classifier is trained on: the spread of refits is rather too large
SOFT = (0.1, 1.0)  # epsilon of soft ZCA, times the mean variance
METHODS: dict[str, tuple[str, dict[str, Any]]] = {  # a row's name -> the YAML of conf/calibration, and what differs
    "centre": ("center", {}),
    "all-but-the-top": ("all_but_the_top", {}),
    "ZCA whitening": ("whitening_zca", {"shrinkage": 0.0}),
    "PCA whitening": ("whitening_pca", {"shrinkage": 0.0}),
    "IsoBN": ("isobn_paper", {}),
}


def measure_effects(
    vectors: Tensor,
    classes: np.ndarray | None,
    pairs: tuple[np.ndarray, np.ndarray] | None,
    own: Mapping[str, dict[str, Any]],
    counts: np.ndarray | None,
    seed: int,
) -> tuple[list[Effect], list[Level], list[str]]:
    """Measure what each method changes of isotropy, and of a classifier or the order of scored pairs.

    Args:
        vectors: [n, d] float64.
        classes: of the vectors, [n]: a logistic regression is trained on half of them (`predict_tuned`).
        pairs: row numbers [P, 2] and scores [P], without classes: Spearman's correlation of the cosines.
        own: settings of further methods by name.
        counts: how often each row occurs, [n]: Zipfian methods are added (Yokoi et al. 2024).
        seed: of the halves.

    Returns:
        The effects, that of no method first, what cosines are after each method, and notes. An interval is for new
        rows or pairs, and for new rows to fit the method on: what differs between refits widens it.
    """
    if len(vectors) < FEWEST_ROWS or (pairs is not None and len(pairs[1]) < FEWEST_ROWS):
        return [], [], [f"What methods change is not measured with fewer than {FEWEST_ROWS} rows or pairs."]
    rng = np.random.default_rng(seed)
    fitted, measured, tested, notes = _divide_rows(len(vectors), classes, pairs, rng)
    half, before = vectors[fitted], vectors[measured]
    judge: ByLabels | ByPairs | None = None
    if classes is not None:
        limit = _limit_training(vectors.shape[1], classes)
        judge = ByLabels(half, classes[fitted], classes[measured], rng.permutation(len(half))[:limit])
        notes.append(judge.describe())
    elif pairs is not None:
        related = find_related(pairs[1])[tested]
        judge = ByPairs(np.searchsorted(measured, pairs[0][tested]), pairs[1][tested], related, seed)
    transforms, said = fit_methods(half, own, None if counts is None else torch.from_numpy(counts)[fitted], seed)
    refits = draw_refits(half, own, seed) if judge else []
    effects: list[Effect] = []
    levels: list[Level] = []
    plain = np.array([])  # the outcome with no method
    for name, transform in track_progress(list(transforms.items()), "methods"):
        with doing(f"applying {name}"):
            after = transform(vectors[measured])  # a copy, which a method of the user's may change
        if name != "none" and after.shape == before.shape and torch.allclose(after, before, 1e-3, 0):
            notes.append(f"{name} leaves these vectors as they are: its settings may be made for another scale.")
        found = IsotropyAccumulator(after.shape[1]).update(after).compute(k=(1,))
        score, compared = math.nan, (math.nan, math.nan, math.nan)  # change, and the ends of its interval
        level = measure_level(name, after[draw_rows(len(after), seed)])
        if not after.isfinite().all():
            notes.append(f"{name} gives NaN or infinity: nothing is measured.")
        elif judge:
            outcome = judge.measure(transform, after)
            score = judge.summarise(outcome)
            if isinstance(judge, ByPairs):
                level = measure_true(level, outcome[judge.related])
            if effects:
                again = [judge.measure(fit[name], fit[name](vectors[measured]), REFIT_PROBE_ROWS) for fit in refits]
                compared = judge.compare(outcome, plain, measure_spread([judge.summarise(one) for one in again]))
            else:
                plain, compared = outcome, (score - score, math.nan, math.nan)  # not compared with itself
        levels += [level] if level else []
        isotropy = found["isoscore"], found["ev1"], found["average_cosine"]
        effects.append(Effect(name, *isotropy, score, *compared, after.shape[1]))
    return effects, levels, [*notes, *said]


@dataclass(frozen=True)
class ByLabels:
    """Judge methods by a classifier, trained on vectors that they were fitted on and scored on others."""

    half: Tensor  # what methods are fitted on, [F, d]
    classes: np.ndarray  # [F]
    true_classes: np.ndarray  # of the measured rows, [M]
    trained: np.ndarray  # rows of ``half``

    def measure(self, function: Transform, moved: Tensor, limit: int | None = None) -> np.ndarray:
        """Return whether the classifier is right, 0 or 1, for each measured row, which are ``moved`` [M, k]."""
        rows = self.trained[:limit]
        return (_predict(function(self.half[rows]), self.classes[rows], moved) == self.true_classes).astype(float)

    def summarise(self, outcome: np.ndarray) -> float:
        """Compute the accuracy."""
        return float(outcome.mean())

    def compare(self, outcome: np.ndarray, plain: np.ndarray, spread: float) -> tuple[float, float, float]:
        """Return the change of accuracy and its interval."""
        return compare_paired(outcome - plain, spread)

    def describe(self) -> str:
        """Say what the classifier is trained on."""
        return (
            f"The probe of methods is trained on {len(self.trained):,} rows and scored on {len(self.true_classes):,} "
            "others; its strength is tuned inside the training rows. The interval is Bonett and Price's over the "
            f"scored rows, widened by what {REFITS} refits of the method differ in."
        )


@dataclass(frozen=True)
class ByPairs:
    """Judge methods by how the cosines of pairs order as their scores do."""

    ends: np.ndarray  # places of the pairs among the measured rows, [P, 2]
    scores: np.ndarray  # [P]
    related: np.ndarray  # whether a pair's score is a high one, [P]
    seed: int

    def measure(self, _: Transform, moved: Tensor, limit: int | None = None) -> np.ndarray:
        """Return the cosine of each pair of the measured rows, which are ``moved`` [M, k]."""
        ends = moved[self.ends]
        return cosine(ends[:, 0], ends[:, 1]).numpy()

    def summarise(self, outcome: np.ndarray) -> float:
        """Compute Spearman's correlation."""
        return _spearman(outcome, self.scores)

    def compare(self, outcome: np.ndarray, plain: np.ndarray, spread: float) -> tuple[float, float, float]:
        """Return the change of the correlation and its interval."""
        return compare_correlations(outcome, plain, self.scores, spread, self.seed)


def _divide_rows(
    count: int, classes: np.ndarray | None, pairs: tuple[np.ndarray, np.ndarray] | None, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """Divide ``count`` rows into those that methods are fitted on [F] and those that they are measured on [M].

    ``classes`` [count] are divided evenly. Of ``pairs``, rows [P, 2] and scores [P], a random half is tested: its
    rows are measured. Returns both, the tested pairs' places [P / 2], and notes.
    """
    if pairs is None:
        folds = assign_folds(np.zeros(count, int) if classes is None else classes, 2, rng)
        return np.flatnonzero(folds == 0), np.flatnonzero(folds == 1), np.array([], np.int64), []
    tested, others = np.split(rng.permutation(len(pairs[1])), [len(pairs[1]) // 2])
    measured, notes = np.unique(pairs[0][tested]), list[str]()
    fitted = np.setdiff1d(np.arange(count), measured)
    if len(fitted) < count / 4:  # too few to fit on: most rows are in several pairs
        fitted = np.unique(pairs[0][others])
        notes.append("Pairs share rows: methods are fitted on rows that the measured pairs have too.")
    notes.append(
        f"Methods are measured on {len(tested):,} pairs; the interval is a bootstrap over them ({RESAMPLES:,} "
        f"resamples, percentiles) and over {REFITS} refits of the method."
    )
    return fitted, measured, tested, notes


def fit_methods(
    half: Tensor, own: Mapping[str, dict[str, Any]], counts: Tensor | None, seed: int, like: Tensor | None = None
) -> tuple[dict[str, Transform], list[str]]:
    """Fit all methods on half of the vectors [M, d]; return the functions that apply them to others, and notes.

    ``own``: settings of the user's methods. ``counts`` [M]: how often each row occurs, for Zipfian methods. ``like``:
    fewer rows with the mean and covariance of ``half``, on which isobench's methods are fitted sooner.
    """
    dim, mean_variance = half.shape[1], half.var(0, correction=0).mean().item()
    kept = max(1, dim // 3)
    settings: dict[str, dict[str, Any]] = {}
    for name, (file, changes) in METHODS.items():
        settings[name] = yaml.safe_load(Path(conf_dir(), "calibration", f"{file}.yaml").read_text("utf-8")) | changes
    settings["PCA whitening"] |= {"k": kept}
    for factor in SOFT:
        settings[f"soft ZCA, {factor:g}"] = settings["ZCA whitening"] | {"epsilon": factor * mean_variance}
    transforms: dict[str, Transform] = {"none": lambda h: h, "unit length": divide_by_length}
    for name, calibration in [*settings.items(), *own.items()]:
        check_post_hoc(calibration)
        with doing(f"applying {name}"), torch.random.fork_rng([]):
            transforms[name] = fit_method(calibration, half if like is None or name in own else like, seed)
    if counts is not None and bool((counts > 0).sum() > 1):

        def zipfian(function: Callable[..., Tensor]) -> Transform:
            def transform(h: Tensor) -> Tensor:
                weights = torch.cat([counts.double(), counts.new_zeros(len(h)).double()])  # h does not count
                return function(torch.cat([half, h]), weights=weights)[len(half) :]

            return transform

        transforms |= {"Zipfian centring": zipfian(center), "Zipfian whitening": zipfian(whiten)}
    return transforms, _describe_methods(dim, kept, mean_variance)


def _describe_methods(dim: int, kept: int, mean_variance: float) -> list[str]:
    """Say how many components methods remove or keep, and what `isobench fit` calls each method."""
    epsilons = " or ".join(f"{factor * mean_variance:.3g}" for factor in SOFT)
    return [
        f"All-but-the-top removes {format_count(math.ceil(dim / 100), 'component')}. "
        f"PCA whitening keeps {kept}, and its IsoScore and EV1 are of these alone.",
        "To keep a method: isobench fit X calibration=NAME --to cure.safetensors. NAME is center (centre), "
        "all_but_the_top, isobn_paper (IsoBN), whitening_zca calibration.shrinkage=0 (ZCA whitening), the same with "
        f"calibration.epsilon={epsilons} (soft ZCA; {' or '.join(map(str, SOFT))} times the mean variance), or "
        f"whitening_pca calibration.shrinkage=0 calibration.components={kept} (PCA whitening).",
    ]


def draw_refits(half: Tensor, own: Mapping[str, dict[str, Any]], seed: int) -> list[dict[str, Transform]]:
    """Fit all methods on bootstrap samples of the rows that they were fitted on."""
    rng, (count, dim), refits = np.random.default_rng(seed), half.shape, []
    for _ in range(REFITS):
        drawn = half[np.sort(rng.integers(count, size=count))]
        # Fewer rows of the same mean and covariance are the same to isobench's methods, which see no more of them.
        like = drawn
        if count >= 4 * dim:
            like = imitate(drawn.mean(0), torch.cov(drawn.T, correction=0).reshape(dim, dim))
        refits.append(fit_methods(drawn, own, None, seed, like)[0])
    return refits


def assign_folds(classes: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """Assign rows to folds at random, each with the classes' shares as far as their counts allow: [N] -> [N]."""
    order = rng.permutation(len(classes))
    order = order[np.argsort(classes[order], kind="stable")]
    assigned = np.empty(len(classes), np.int64)
    assigned[order] = np.arange(len(classes)) % folds
    return assigned


def score_probe(vectors: Tensor, classes: np.ndarray, seed: int) -> tuple[float, list[str]]:
    """Return the accuracy of a tuned logistic regression by stratified cross-validation, and notes."""
    rng = np.random.default_rng(seed)
    limit = _limit_training(vectors.shape[1], classes) * FOLDS // (FOLDS - 1)  # training gets all folds but one
    chosen = rng.permutation(len(vectors))[:limit]
    vectors, classes = vectors[chosen], classes[chosen]
    folds = assign_folds(classes, FOLDS, rng)
    right = 0
    for fold in track_progress(range(FOLDS), "probe"):
        train, test = folds != fold, folds == fold
        refuse((len(np.unique(classes[train])) < 2, "labels: nearly all rows have one class"))
        right += int((_predict(vectors[train], classes[train], vectors[test]) == classes[test]).sum())
    noted = f"The probe's accuracy is by {FOLDS}-fold cross-validation over {len(chosen):,} rows"
    return right / len(chosen), [f"{noted}{' drawn at random' if len(chosen) == limit else ''}."]


def _limit_training(dim: int, classes: np.ndarray) -> int:
    """Return how many rows a classifier is trained on, fewer if there are many classes, so that it takes seconds."""
    return min(PROBE_ROWS, max(PROBE_WORK // (dim * len(np.unique(classes))), 10 * len(np.unique(classes))))


def _predict(train: Tensor, classes: np.ndarray, test: Tensor) -> np.ndarray:
    """Predict classes; the intercept is not penalised, so that subtracting the mean helps the optimiser alone."""
    mean = train.mean(0)
    return predict_tuned((train - mean).numpy(), classes, (test - mean).numpy())[0]


def score_pairs(vectors: Tensor, rows: np.ndarray, scores: np.ndarray) -> float:
    """Compute Spearman's correlation of scores [P] with the cosines of the vectors of row numbers [P, 2]."""
    ends = vectors[rows]
    return _spearman(cosine(ends[:, 0], ends[:, 1]).numpy(), scores)


def _spearman(values: np.ndarray, scores: np.ndarray) -> float:
    return float(resample_metric("spearman", scores, values[None], np.ones((1, len(scores))))[0, 0])
