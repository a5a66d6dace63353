"""Sentence similarity by frozen encoders: what calibrations do to it, beside MTEB's published numbers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import hydra.utils
import numpy as np
import torch
from torch import Tensor, nn

from isobench.analyses.findings import Findings
from isobench.analyses.subject import Subject
from isobench.calibration.base import Calibration
from isobench.common.errors import UserError
from isobench.common.files import cache_dir, sha256_json, shorten_digest
from isobench.common.progress import track_progress
from isobench.config.bounds import NOT_EMPTY, one_of
from isobench.config.schema import split_chain
from isobench.data.cache import load_cached_arrays, save_cached_arrays
from isobench.data.scored_pairs import SETS, ScoredPairs, load_sentence_pairs
from isobench.data.weights import format_encoder_name
from isobench.metrics.coordinates import coordinate_share
from isobench.metrics.similarity import SIMILARITIES
from isobench.metrics.task import METRIC_FUNCTIONS
from isobench.runs.identity import drop_targets_of_chain
from isobench.training.build import build_chain, should_show_progress
from isobench.training.preparation import find_prepared_once, prepare_chain
from isobench.training.sentence_vectors import FrozenEncoder, SentenceVectors
from isobench_papers.mteb.figure import draw_gains
from isobench_papers.mteb.tables import (
    average_over_sets,
    build_mean_table,
    build_published_table,
    build_set_table,
    compare_with_published,
    list_differences,
    list_notes,
)

SetName = Annotated[str, one_of(*SETS)]
Rows = list[dict[str, Any]]
CORRELATIONS = ("spearman", "pearson")
VERSION = 2  # of the cached correlations, part of their name: raise it when they are computed otherwise


def analyse(
    subjects: list[Subject], sets: Annotated[list[SetName], NOT_EMPTY], fit: SetName | None, unit_length: bool
) -> Findings:
    """Correlate human scores of sentence pairs with similarities of their vectors, by encoder, layer, method and set.

    Args:
        subjects: encoders x layers x calibrations.
        sets: the sets of sentence pairs.
        fit: the set on whose sentences calibrations are fitted; None for each set's own.
        unit_length: divide each vector by its length before it is calibrated.

    Raises:
        UserError: sentence pairs are missing, an encoder's pooling does not fit, or a method can't be applied.
    """
    check_pooling(subjects)
    check_methods(subjects)
    names = list(dict.fromkeys([*sets, *([fit] if fit else [])]))
    pairs = load_sentence_pairs(subjects[0].cfg.data, names)
    rows: Rows = []
    cut: dict[str, int] = {}
    for group in group_by_encoder(subjects):
        encoder = FrozenEncoder(group[0].cfg, list(dict.fromkeys(subject.cfg.encoder.layer for subject in group)))
        vectors = {name: encoder.encode(name, [*pairs[name].first, *pairs[name].second]) for name in names}
        del encoder  # its weights are not needed any more
        cut[format_encoder_name(group[0].cfg.encoder)] = sum(
            max(layer.cut for layer in by_layer.values()) for by_layer in vectors.values()
        )
        steps = [(name, layer) for layer in vectors[names[0]] for name in sets]
        for name, layer in track_progress(steps, "sentence similarity", should_show_progress(group[0].cfg)):
            here = [subject for subject in group if subject.cfg.encoder.layer == layer]
            measured = SimilarityMeasurer(pairs[name], vectors[name][layer], vectors[fit or name][layer], unit_length)
            rows += [{**name_row(subject, name), **row} for subject in here for row in measured.measure(subject)]
    means = average_over_sets(rows)
    published = compare_with_published(rows, unit_length)
    return Findings(
        numbers={"similarity": rows, "means": means, "published": published},
        figures={"gains": draw_gains(rows)},
        tables=[
            *([build_published_table(published)] if published else []),
            build_set_table(rows),
            build_mean_table(means),
        ],
        notes=list_notes(rows, cut, fit, unit_length),
        differs=list_differences(rows, pairs, subjects[0].cfg.data.root is not None),
    )


def check_pooling(subjects: Sequence[Subject]) -> None:
    """Raise UserError if a subject's vectors would go through a pooler, which is made for classification."""
    for subject in subjects:
        if subject.cfg.encoder.pooling == "pooler":
            raise UserError(
                "encoder.pooling=pooler: a pooler is made for classification: set encoder.pooling=mean, cls or last"
            )


def check_methods(subjects: Sequence[Subject]) -> None:
    """Raise UserError for a method that changes no vector, or has to be trained: nothing is trained here."""
    for subject in subjects:
        method = subject.cfg.calibration["name"]
        classes: list[Any] = [
            hydra.utils.get_class(part["_target_"]) for part in split_chain(subject.cfg.calibration)
        ]
        if any(kind.objective is not Calibration.objective for kind in classes):
            raise UserError(f"calibration={method} has to be trained, and this analysis trains nothing: leave it out")
        changes = any(kind.forward is not Calibration.forward for kind in classes)
        if not changes and classes != [Calibration]:
            raise UserError(f"calibration={method} changes no vector of a frozen encoder: leave it out")


def group_by_encoder(subjects: Sequence[Subject]) -> list[list[Subject]]:
    """Group the subjects that differ in layer and calibration only: one pass of the encoder serves them all."""
    groups: dict[str, list[Subject]] = {}
    for subject in subjects:
        groups.setdefault(repr(replace(subject.cfg.encoder, layer=None)), []).append(subject)
    return list(groups.values())


def name_row(subject: Subject, name: str) -> dict[str, Any]:
    """Name a tidy row: the encoder with its layer, then encoder, layer and pooling alone, method and set."""
    encoder = subject.cfg.encoder
    return {
        "encoder": subject.encoder.replace(" layer=None", ""),  # the model's output
        "model": format_encoder_name(encoder),
        "layer": encoder.layer,
        "pooling": encoder.pooling,
        "method": subject.method,
        "set": name,
    }


class SimilarityMeasurer:
    """Measure methods on one set of sentence pairs, by the vectors of one encoder and layer.

    Args:
        pairs: the N pairs.
        own: the vectors of their 2N sentences, the first ones before the second ones.
        fitted_on: the vectors that calibrations are fitted on.
        unit_length: divide each vector by its length first.
    """

    def __init__(
        self, pairs: ScoredPairs, own: SentenceVectors, fitted_on: SentenceVectors, unit_length: bool
    ) -> None:
        self.scores, self.key = pairs.scores, [own.key, fitted_on.key, unit_length, pairs.scores.tolist()]
        self.own = prepare_vectors(own.vectors, unit_length)
        self.fitted_on = self.own if fitted_on.key == own.key else prepare_vectors(fitted_on.vectors, unit_length)
        self.raw = compute_correlations(self.own, self.scores)
        self.top_share = coordinate_share(self.own)

    def measure(self, subject: Subject) -> Rows:
        """Return a row a similarity: the correlations x 100, and what the method adds to that without calibration.

        They are read from the cache where they were computed before with the same vectors, scores and method.
        """
        method = drop_targets_of_chain(subject.cfg.calibration)
        key = sha256_json([VERSION, torch.__version__, self.key, method])
        file = (
            cache_dir(subject.cfg.data.cache) / "sentence_vectors" / f"similarity-{shorten_digest(key)}.safetensors"
        )
        arrays = load_cached_arrays(file, dict)
        if arrays is None:
            vectors = calibrate(subject, self.fitted_on, self.own)
            arrays = {"correlations": compute_correlations(vectors, self.scores)}
            save_cached_arrays(arrays, file)
        return [
            {
                "similarity": similarity,
                "pairs": len(self.scores),
                **dict(zip(CORRELATIONS, values.tolist(), strict=True)),
                "gain": float(values[0] - raw[0]),
                "top_share": self.top_share,
            }
            for similarity, values, raw in zip(SIMILARITIES, arrays["correlations"], self.raw, strict=True)
        ]


def prepare_vectors(vectors: Tensor, unit_length: bool) -> Tensor:
    """Convert vectors [N, d] to float64, each divided by its length if asked; a zero vector stays zero."""
    precise = vectors.double()
    return nn.functional.normalize(precise, eps=torch.finfo(torch.float64).tiny) if unit_length else precise


@torch.no_grad()
def calibrate(subject: Subject, fitted_on: Tensor, vectors: Tensor) -> Tensor:
    """Fit the subject's calibrations on vectors [M, d], as one batch; apply them to others, [N, d] -> [N, out_dim].

    Moving averages take the batch whole (momentum 1), because there is no other batch.
    """
    cfg = replace(subject.cfg, calibration=take_batch_whole(subject.cfg.calibration))
    chain, pooler = build_chain(cfg, vectors.shape[1]).double(), nn.Identity()
    prepare_chain(chain, find_prepared_once(chain), fitted_on.split(1024), pooler)
    chain.train()(fitted_on, pooler)
    return chain.eval()(vectors, pooler)[0]


def take_batch_whole(calibration: dict[str, Any]) -> dict[str, Any]:
    """Copy the settings of a chain of methods with every ``momentum`` set to 1."""
    settings = {**calibration, **({"momentum": 1.0} if "momentum" in calibration else {})}
    if settings.get("then"):
        settings["then"] = take_batch_whole(settings["then"])
    return settings


def compute_correlations(vectors: Tensor, scores: np.ndarray) -> np.ndarray:
    """Correlate human scores with each of ``SIMILARITIES``.

    Args:
        vectors: of the N first and the N second sentences, [2N, d].
        scores: the human scores, [N].

    Returns:
        Spearman's and Pearson's correlation x 100 of each similarity, [4, 2]; NaN where one is undefined.
    """
    left, right = vectors.chunk(2)
    similarities = [function(left, right).numpy() for function in SIMILARITIES.values()]
    return np.array(
        [[100 * METRIC_FUNCTIONS[kind](scores, values) for kind in CORRELATIONS] for values in similarities]
    )
