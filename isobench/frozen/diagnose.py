"""Diagnose vectors: measure them, say what the values mean, and try what would change them.

The vectors are read in batches, twice: memory does not grow with their number, but for 9 bytes a row.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isobench.common.errors import refuse
from isobench.common.linalg import Array, eigh, imitate
from isobench.common.terminal import format_count, name_some
from isobench.frozen.diagnosis import Diagnosis, Finding, Retrieval
from isobench.frozen.effects import measure_effects, score_pairs, score_probe
from isobench.frozen.matrix import describe_missing, find_first_rows, find_whole_numbers, read_rows, split_rows
from isobench.frozen.retrieval import Search, measure_retrieval
from isobench.metrics import IsotropyAccumulator, alignment, isoscore, silhouette, trimmed_isoscore, uniformity
from isobench.metrics.cosines import find_related
from isobench.metrics.duplicates import RowHashes
from isobench.metrics.isotropy import alpha_req_of, average_cosine_of, gram_eigenvalues, rankme_of, sum_unit_rows
from isobench.metrics.partition import partition_isotropy_of

Measured = tuple[str, float, str]  # a measure, its value and its sentence

SAMPLE = 10_000  # rows for norms, silhouette, and what methods change
UNIFORMITY_ROWS = 2_000  # whose pairs are all compared
SHOWN = 2_000  # norms that a picture is drawn from
MOST_MISSING = 0.5  # share of rows with NaN or infinity above which nothing is diagnosed
OUTLIER_FACTOR = 5  # times the mean variance makes a coordinate an outlier (Rudman et al. 2023, Outlier Dimensions)
NOISE = 2.0**-23  # float32's precision: components with a smaller share of the variance are noise, as for Whitening
DECIDED = 2  # a trimmed IsoScore above this many times IsoScore gets a remark
MOST_AXES = 10  # a direction that is spread over more coordinates than these is no axis
UNDEFINED = "It is not defined for these vectors: there are too few, or too few directions vary."
NORMAL_DIMS = (192, 1536)  # most measures depend on d: its range is half and twice that of the encoders compared with
# Labels a class: by how many points full and weak whitening (shrinkage 0.9) changed the mean accuracy in
# experiments/whitening_map, and weak whitening's lowest and highest of an encoding. The last row is all labels.
WHITENED = {
    4: (-7.2, -0.6, -5.7, 2.2),
    8: (-9.5, -0.8, -5.5, 1.7),
    16: (-11.0, -0.5, -4.6, 1.7),
    32: (-12.3, -0.4, -3.2, 1.0),
    64: (-12.1, -0.2, -1.7, 0.6),
    128: (-10.6, -0.2, -0.8, 0.2),
    1910: (-1.4, 0.0, -0.3, 0.2),
}
NORMAL = Path(__file__).with_name("normal.json")


def diagnose(
    vectors: Array,
    labels: np.ndarray | None = None,
    pairs: tuple[np.ndarray, np.ndarray] | None = None,
    *,
    source: str = "vectors",
    methods: Mapping[str, dict[str, Any]] | None = None,
    counts: np.ndarray | None = None,
    texts: bool = True,
    notes: Sequence[str] = (),
    seed: int = 0,
    search: Search | None = None,
) -> Diagnosis:
    """Diagnose vectors [N, d], and measure what post-hoc methods would change.

    Args:
        vectors: as `isobench.frozen.matrix.check_vectors` returns them; rows with NaN or infinity are left out.
        labels: classes, [N], numbered from 0.
        pairs: row numbers [P, 2] and scores [P].
        source: the name in the result.
        methods: settings of further methods by name, each a chain as in a config.
        counts: how often each row occurs, [N], as words do in texts: without labels and pairs, Zipfian methods are
            tried too.
        texts: whether the rows are vectors of texts, so that well-known encoders of texts can be compared with.
        notes: what else a reader must know.
        seed: of samples and halves.
        search: queries whose answers among the vectors are measured.
    """
    scan, rng = Scan(vectors), np.random.default_rng(seed)
    drawn = np.sort(rng.choice(len(vectors), min(len(vectors), SAMPLE), replace=False))
    drawn = drawn[~scan.missing[drawn]]
    sample = torch.from_numpy(read_rows(vectors, drawn)).double()
    norms = torch.linalg.vector_norm(sample, dim=1).sort().values
    classes = None if labels is None else labels[drawn]
    judged, measured, said = _judge(vectors, scan.missing, sample, classes, pairs, seed)
    noted = [*notes, *scan.list_notes(), *_describe_sample(sample, scan, seed), *said]
    if labels is not None and texts:
        noted.append(_advise_on_whitening(len(labels) / len(np.unique(labels))))
    found = [*scan.list_findings(), *_measure_sample(sample, norms, rng), *measured]
    findings, said = _add_reference(found, scan.dim, texts)
    noted += said
    counted = None if counts is None or judged.score else counts[drawn]
    # Levels: the cosines that few random pairs reach, with each method.
    effects, levels, said = measure_effects(judged.rows, judged.classes, judged.pairs, methods or {}, counted, seed)
    noted += said
    retrieval: list[Retrieval] = []
    if search:
        # Methods are fitted on fewer rows, which have the mean and the covariance of all.
        like = imitate(scan.accumulator.mean, scan.accumulator.scatter / scan.rows)
        retrieval, levels_of_search, said = measure_retrieval(vectors, sample, like, search, methods or {}, seed)
        noted += said
        levels = levels_of_search + levels
    return Diagnosis(
        source=source,
        rows=scan.rows,
        dim=scan.dim,
        findings=findings,
        variances=scan.shares.tolist(),
        norms=_thin(norms),
        coordinates=scan.coordinates.tolist(),
        effects=effects,
        score=judged.score,
        notes=noted,
        retrieval=retrieval,
        levels=levels,
    )


@dataclass(frozen=True)
class Judged:
    """Rows that methods are measured on, and what judges them: their classes, or scored pairs of them, or neither."""

    rows: Tensor  # [n, d] float64
    classes: np.ndarray | None = None  # [n]
    pairs: tuple[np.ndarray, np.ndarray] | None = None  # places among the rows [P, 2] and scores [P]

    @property
    def score(self) -> str | None:
        """Name what methods are judged by."""
        return "accuracy" if self.classes is not None else "spearman" if self.pairs else None


def _judge(
    vectors: Array,
    missing: np.ndarray,
    sample: Tensor,
    labels: np.ndarray | None,
    pairs: tuple[np.ndarray, np.ndarray] | None,
    seed: int,
) -> tuple[Judged, list[Measured], list[str]]:
    """Measure what labels of the sample [n] and scored pairs tell; methods are judged by labels if there are both."""
    judged, found, notes = Judged(sample), list[Measured](), list[str]()
    if pairs is not None:
        rows, kept, notes = _leave_out(missing, *pairs)
        judged = Judged(torch.from_numpy(read_rows(vectors, rows)).double(), pairs=kept)
        found = _describe_pairs(judged.rows, *kept)
    if labels is not None:
        once = find_first_rows(sample.numpy())  # no row is trained on and tested
        classes = labels[once]
        judged = Judged(sample[torch.from_numpy(once)], classes)
        if repeated := len(sample) - len(once):
            notes.append(f"Labels are judged without the rows that repeat another: {repeated:,}.")
        accuracy, said = score_probe(judged.rows, classes, seed)
        found += _describe_classes(silhouette(judged.rows, torch.from_numpy(classes)), accuracy, classes)
        notes += said
        if pairs is not None:
            notes.append("With labels and pairs, methods are judged by the labels.")
    return judged, found, notes


class Scan:
    """Hold what two passes over all vectors find: the sums, the rows that can't be used, duplicates, I1 and I2."""

    def __init__(self, vectors: Array) -> None:
        self.dim = int(vectors.shape[1])
        self.missing = np.zeros(len(vectors), bool)  # rows with NaN or infinity
        self.accumulator = sums = IsotropyAccumulator(self.dim)
        hashes = RowHashes()

        def read(label: str) -> Iterator[Tensor]:
            for part in split_rows(vectors, label):
                batch = read_rows(vectors, part)
                finite = np.isfinite(batch).all(1)
                self.missing[part] = ~finite
                if finite.any():
                    yield torch.from_numpy(batch if finite.all() else batch[finite])

        for batch in read("reading vectors"):
            sums.update(batch)
            hashes.add(batch.numpy())
        self.rows = sums.count
        self._check()
        self.duplicates, self.hashed_share = hashes.count_duplicates()
        self.values = gram_eigenvalues(sums.scatter)[: self.rows]
        self.squares = gram_eigenvalues(sums.second_moment)[: self.rows]  # squared singular values, not centred
        self.shares = self.values / self.values.sum()
        self.rank = int((self.shares > NOISE).sum())
        self.coordinates = sums.scatter.diagonal() / sums.scatter.trace()
        units, directed = torch.zeros_like(sums.mean), 0  # of the centred rows

        def read_again() -> Iterator[Tensor]:
            nonlocal directed
            for batch in read("reading again"):
                part, count = sum_unit_rows(batch.double() - sums.mean)
                units.add_(part)
                directed += count
                yield batch

        self.i1, self.i2 = partition_isotropy_of(read_again, sums.second_moment, sums.total)
        self.centred_cosine = average_cosine_of(units, directed)

    def _check(self) -> None:
        refuse((len(self.missing) < 2, f"a diagnosis needs two rows, not {len(self.missing)}"))
        missing, first = int(self.missing.sum()), int(self.missing.argmax())
        is_rest = missing > MOST_MISSING * len(self.missing) or self.rows < 2
        refuse((is_rest, f"{missing:,} of {len(self.missing):,} rows have NaN or infinity, the first is row {first}"))
        scatter = self.accumulator.scatter.trace()
        refuse((not (scatter > 0 and scatter.isfinite()), "all rows are equal, or their squares overflow or vanish"))

    def list_notes(self) -> list[str]:
        """Say what of the matrix a reader must know before the measures mean anything."""
        notes = [describe_missing(self.missing)] if self.missing.any() else []
        if constant := np.flatnonzero(self.accumulator.scatter.diagonal().numpy() == 0).tolist():
            notes.append(f"Constant coordinates (from 0): {name_some(list(map(str, constant)))}.")
        if self.dim > self.rows:
            notes.append(
                f"There are fewer rows ({self.rows:,}) than coordinates ({self.dim:,}): at most {self.rows - 1:,} "
                "components have any variance, and a whitening that is fitted on them does not fit other rows."
            )
        elif self.rank < self.dim:
            notes.append(
                f"{self.dim - self.rank} of {self.dim} components have less than 1.2e-7 of the variance (float32's "
                "precision): full whitening would divide by nearly nothing. ZCA and PCA whitening drop them."
            )
        if self.hashed_share < 1:
            notes.append(f"Duplicates are estimated from {100 * self.hashed_share:.2g}% of the rows, chosen by hash.")
        return notes

    def list_findings(self) -> list[Measured]:
        """List the measures of all vectors, each with what it means."""
        found, shares, even = self.accumulator.compute(k=(1, 3)), self.coordinates.numpy(), 1 / self.dim
        rank, cosine, centred = found["effective_rank"], found["average_cosine"], self.centred_cosine
        ratio, score, rankme = found["mean_ratio"], found["isoscore"], rankme_of(self.squares)
        order = np.argsort(-shares, kind="stable")
        loads = eigh(self.accumulator.scatter)[1][:, -1].numpy() ** 2  # of the largest direction, which sum to 1
        axes, ev1 = 1 / (loads**2).sum(), found["ev1"]  # among how many coordinates it is spread
        own = shares - ev1 * loads if axes > MOST_AXES else shares
        outliers = [int(i) for i in order if own[i] > OUTLIER_FACTOR * even]
        named = name_some([f"{i} ({_percent(shares[i])})" for i in outliers]) or "none"
        zero = self.rows - self.accumulator.nonzero_count
        # fmt: off
        return [
            ("EV1", ev1, f"One direction holds {_percent(ev1)} of the variance; an even share is {_percent(even)}."
             + f" It is no axis: {axes:.0f} coordinates share it." * bool(axes > MOST_AXES and ev1 > 0.25)),
            ("EV3", found["ev3"], f"The three largest directions hold {_percent(found['ev3'])} of the variance."),
            ("IsoScore", score, "1 means that all directions have the same variance, 0 that one has all: it is as if "
             f"{1 + (self.dim - 1) * score:.3g} of {self.dim} directions were used evenly."),
            ("I1", self.i1, "The smallest sum of exp(v . w) over directions v, as a share of the largest: 1 is "
             "isotropic, and a large mean or long vectors lower it."),
            ("I2", self.i2, "The relative spread of these sums over directions: 0 is isotropic."),
            ("average cosine", cosine, f"Two rows have a cosine of {_round(cosine)} on average; after the mean is "
             f"subtracted it is {_round(centred)}."),
            ("average cosine, centred", centred, f"After the mean is subtracted it is {_round(centred)}."),
            ("mean ratio", ratio, f"The mean vector is {_percent(ratio)} as long as a vector is on average."),
            ("effective rank", rank, f"The singular values spread as over {rank:.3g} of {self.dim} directions."),
            ("RankMe", rankme, f"The same without subtracting the mean: {rankme:.3g} directions."),
            ("alpha-ReQ", alpha_req_of(self.values), "How fast the variances decay over the directions, as a power: "
             "0 is even, far above 1 few do all. Agrawal et al. (2022) find about 1 best for classifiers."),
            ("numerical rank", float(self.rank), f"{self.rank} of {self.dim} directions have more than 1.2e-7 of the "
             "variance."),
            ("largest coordinate", float(shares.max()), f"Coordinate {order[0]} holds {_percent(shares.max())} of "
             f"the variance; an even share is {_percent(even)}."),
            ("outlier coordinates", float(len(outliers)), f"Coordinates with more than {OUTLIER_FACTOR} times the "
             f"mean variance, without the largest direction if it is no axis: {named}."),
            ("duplicates", float(self.duplicates), f"{format_count(self.duplicates, 'row')} equal to a row before."),
            ("zero rows", float(zero), f"{format_count(zero, 'row')} of zeros, without a direction"
             + (": cosines leave them out." if zero else ".")),
        ]
        # fmt: on


def _describe_sample(sample: Tensor, scan: Scan, seed: int) -> list[str]:
    """Say which coordinates of the sampled rows number them, and what is measured of a sample alone."""
    said = []
    numbering = np.flatnonzero(find_whole_numbers(sample.numpy(), each_once=True))
    if 0 < 2 * len(numbering) <= scan.dim:  # in a matrix of whole numbers nearly all may differ
        said.append(f"Coordinates that number the rows, as ids do (from 0): {name_some(list(map(str, numbering)))}.")
    if scan.rows > SAMPLE:
        said.append(
            "Norms, silhouette, trimmed IsoScore and, unless pairs alone judge them, what methods change are of "
            f"{len(sample):,} rows drawn at random (seed {seed}), uniformity and the probe of fewer of them; all "
            f"other measures are of all {scan.rows:,} rows."
        )
    elif len(sample) > UNIFORMITY_ROWS:
        said.append(f"Uniformity is of {UNIFORMITY_ROWS:,} rows drawn at random (seed {seed}).")
    return said


def _measure_sample(sample: Tensor, norms: Tensor, rng: np.random.Generator) -> list[Measured]:
    """Measure the sampled rows: IsoScore without the 2% farthest from the median, lengths (ascending), uniformity."""
    trimmed, whole = trimmed_isoscore(sample), isoscore(sample)
    far = " A few far rows decide IsoScore." if trimmed > DECIDED * whole else ""
    low, median, high = np.quantile(norms.numpy(), (0.25, 0.5, 0.75)).tolist()
    spread = (high - low) / median if median > 0 else math.nan
    said = "Cosine and dot product rank alike." if spread < 0.01 else "Dot products mix length and direction."
    few = sample[torch.from_numpy(rng.permutation(len(sample)))[:UNIFORMITY_ROWS]]
    text = "How evenly the directions cover the sphere: 0 if all are one direction, about -4 if they cover it evenly."
    return [
        ("IsoScore, trimmed", trimmed, f"Without the 2% of rows farthest from the median it is {trimmed:.3g}.{far}"),
        ("median norm", median, f"Half of the vectors are longer than {median:.4g}."),
        ("spread of norms", spread, f"The middle half of the lengths differs by {_percent(spread)}. {said}"),
        ("uniformity", uniformity(few), text),
    ]


def _describe_classes(score: float, accuracy: float, classes: np.ndarray) -> list[Measured]:
    count, largest = len(np.unique(classes)), np.bincount(classes).max() / len(classes)
    said = "overlap" if score < 0.1 else "form clusters" if score < 0.5 else "are far apart"
    text = (
        f"A logistic regression is right for {_percent(accuracy)} of rows that it was not trained on; always "
        f"naming the most frequent class is right for {_percent(largest)}."
    )
    return [
        ("silhouette", score, f"The {count} classes {said}, by squared distances: 1 is far apart, 0 mixed."),
        ("probe accuracy", accuracy, text),
    ]


def _advise_on_whitening(labels: float) -> str:
    """Say what whitening changed where a classifier had as many labels a class, or a few less and a few more."""
    below, above = [n for n in WHITENED if n <= labels], [n for n in WHITENED if n >= labels]
    known = [
        f"with {number:,} a class by {full:+} and {weak:+} ({lowest:+} to {highest:+} by encoder)"
        for number in dict.fromkeys([*below[-1:], *above[:1]])
        for full, weak, lowest, highest in [WHITENED[number]]
    ]
    return (
        f"These are {labels:,.0f} labels a class. Full and weak whitening (shrinkage 0.9) changed the accuracy of a "
        f"logistic regression {', '.join(known)}: points, means over eight or nine sets of texts. With nearest "
        "neighbours, weak whitening gained for some encoders (isobench papers whitening_map)."
    )


def _leave_out(
    missing: np.ndarray, ends: np.ndarray, scores: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray], list[str]]:
    """Leave out pairs, of rows ``ends`` [P, 2] and with ``scores`` [P], that have a row which is ``missing`` [N].

    Returns the rows [M] that the others have, the others numbered by their places in these, and notes.
    """
    kept = ~missing[ends].any(1)
    refuse((kept.sum() < 3 or np.ptp(scores[kept]) == 0, "pairs: fewer than three, or of one score, are left"))
    rows, places = np.unique(ends[kept], return_inverse=True)
    lost = int((~kept).sum())
    notes = [f"{format_count(lost, 'pair')} with such a row left out."] if lost else []
    return rows, (places.reshape(-1, 2), scores[kept]), notes


def _describe_pairs(vectors: Tensor, ends: np.ndarray, scores: np.ndarray) -> list[Measured]:
    left, right = vectors[ends[find_related(scores)]].unbind(1)
    distance, spearman = alignment(left, right), score_pairs(vectors, ends, scores)
    which = f"{format_count(len(left), 'pair')} with a score in the top fifth of the range"
    return [
        ("alignment", distance, f"The mean squared distance on the sphere of {which}: 0 is one direction."),
        ("Spearman", spearman, f"Cosine orders {len(scores):,} pairs nearly as the scores do if this is near 1."),
    ]


def _add_reference(found: Sequence[Measured], dim: int, texts: bool) -> tuple[list[Finding], list[str]]:
    """Put ranges of well-known encoders of texts beside measures, if the vectors are of such; return notes too.

    For measures that count directions the ranges are kept as shares of d.
    """
    normal: dict[str, Any] = json.loads(NORMAL.read_text(encoding="utf-8"))
    is_like = NORMAL_DIMS[0] <= dim <= NORMAL_DIMS[1]
    findings = []
    for name, value, text in found:
        span = normal["ranges"].get(name) if texts and is_like else None
        if span and name in normal["shares_of_dim"]:
            span = [dim * end for end in span]
        findings.append(Finding(name, value, span and tuple(span), text if math.isfinite(value) else UNDEFINED))
    unlike = f"The reference is of encoders with 384 and 768 coordinates: none is shown for {dim}."
    return findings, [unlike] if texts and not is_like else []


def _thin(values: Tensor) -> list[float]:
    """Take ``SHOWN`` of sorted values, evenly; all if there are fewer."""
    chosen = np.linspace(0, len(values) - 1, min(len(values), SHOWN)).round().astype(int)
    found: list[float] = values[chosen].tolist()
    return found


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _round(cosine: float) -> str:
    return f"{round(cosine, 2) + 0:.2f}"  # never -0.00
