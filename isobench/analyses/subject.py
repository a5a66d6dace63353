"""The subject of an analysis: one encoder on one task under one calibration, loaded when it is asked for."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from isobench.analyses.rows import SubjectNames, name_subjects
from isobench.calibration.base import overrides_hook
from isobench.common.errors import UserError, refuse
from isobench.common.progress import track_progress
from isobench.common.terminal import format_count
from isobench.data.scale import find_encoder_differences
from isobench.runs.identity import identify, resolve_seeds
from isobench.runs.run import Run
from isobench.tasks.kind import kind_of

if TYPE_CHECKING:  # importing models and training takes seconds, and analyses of trained runs load no vectors
    from isobench.models.encoders import LoadedEncoder


class Subject:
    """A pretrained encoder with its vectors of a training set and its vocabulary, each loaded when asked for.

    ``encoder``, ``task`` and ``method`` are its names in tables and figures. ``warnings`` are about all vectors that
    it returned so far, such as weights that the checkpoint lacks. The list only grows, so that the order in which
    vectors are asked for does not matter.

    Args:
        run: a run of the experiment's grid; its record is None unless it was trained.
        names: its names in tables and figures, if the config's own don't tell it from other subjects.
    """

    def __init__(self, run: Run, names: SubjectNames | None = None) -> None:
        self.cfg, self.folder = run.cfg, run.folder
        self.record = run.record and run.folder.read_record()  # a Run's record lacks what monitors noted
        self.encoder, self.task, self.method = names or name_subjects([run])[0]
        self.warnings: list[str] = []

    @cached_property
    def tokenizer(self) -> Any:
        """The encoder's tokenizer."""
        from isobench.models.tokenization import load_tokenizer

        return load_tokenizer(self.cfg.encoder, self.cfg.data.cache)

    @cached_property
    def loaded(self) -> "LoadedEncoder":
        """The encoder with its pooler, on the CPU, the encoder in evaluation mode."""
        from isobench.models.encoders import load_encoder
        from isobench.training.train import configure_process

        configure_process(self.cfg)
        seed, longest = resolve_seeds(self.cfg)["init"], self.cfg.task.max_length
        loaded = load_encoder(self.cfg.encoder, self.cfg.data.cache, seed, max_length=longest)
        loaded.encoder.eval()
        return loaded

    @cached_property
    def loaders(self) -> Any:
        """The loaders of the task's tokens."""
        return kind_of(self.cfg.task).make_loaders(self.cfg, identify(self.cfg), self.tokenizer, self.loaded)

    def release(self) -> None:
        """Free encoder, tokenizer and data; they are loaded again when asked for."""
        for name in ("tokenizer", "loaded", "loaders"):
            self.__dict__.pop(name, None)

    def _add_warnings(self, with_pooler: bool) -> None:
        """Add the loaded encoder's warnings; that it has no pooler concerns only vectors that a pooler gave."""
        from isobench.models.encoders import NO_POOLER_WARNING

        self.warnings = [
            text for text in self.loaded.warnings if with_pooler or text != NO_POOLER_WARNING or text in self.warnings
        ]

    def encoded(self) -> Tensor:
        """Return the training set's vectors before the pooler, [N, d] float32, memory-mapped, in the data's order.

        ``encoder.layer`` and ``encoder.pooling`` say which vectors; they are computed once and kept in the cache.
        """
        from isobench.training.preparation import load_pretrained_embeddings

        self._add_warnings(with_pooler=False)
        return load_pretrained_embeddings(self.cfg, identify(self.cfg), self.loaders, self.loaded)

    @torch.no_grad()
    def embeddings(self) -> Tensor:
        """Return the vectors that a head reads without calibration, [N, d] float32: after any pooler."""
        vectors = self.encoded()
        self._add_warnings(with_pooler=True)
        return torch.cat([self.loaded.pooler(h) for h in vectors.split(1024)])

    @torch.no_grad()
    def calibrated(self) -> Tensor:
        """Return the vectors that a head reads after the subject's calibrations, [N, out_dim] float64.

        The whole set goes through the calibrations as one training batch. It updates moving statistics once;
        with ``calibration.momentum=1`` they are the statistics of the set.
        """
        from isobench.training.build import build_chain

        vectors = self.encoded()
        self._add_warnings(with_pooler=True)
        chain = build_chain(self.cfg, self.loaded.dim).eval()  # as a run prepares: earlier methods are untrained
        for position, method in enumerate(chain):
            if overrides_hook(method, "prepare"):
                chain.prepare(position, vectors.split(1024), self.loaded.pooler)
        if not any(overrides_hook(calibration, "forward") for calibration in chain):
            return self.embeddings().double()
        pooler = self.loaded.pooler.double()  # in place, so it is put back below
        h = chain.double().train()(vectors.double(), pooler)[0]
        pooler.float()
        return h

    def labels(self) -> np.ndarray:
        """Return the training set's labels, [N]: classes, or scores of a regression."""
        return self.loaders.train.dataset.labels

    def vocabulary(self) -> Tensor:
        """Return the input embedding matrix, [V, d]."""
        return self.loaded.encoder.vocabulary().detach()


def iterate_subjects(subjects: list[Subject], what: str) -> Iterator[Subject]:
    """Iterate over subjects with a progress bar labelled ``what``; release each before the next one."""
    for subject in track_progress(subjects, what):
        yield subject
        subject.release()


def list_encoder_differences(subjects: Sequence[Subject]) -> list[str]:
    """List, each once, how the subjects' encoders differ from the paper's."""
    return list(dict.fromkeys(phrase for subject in subjects for phrase in find_encoder_differences(subject.cfg)))


def check_no_calibration(subjects: Sequence[Subject]) -> None:
    """Raise UserError if a subject has a calibration, for an analysis that would silently ignore it."""
    name = subjects[0].cfg.experiment.name if subjects else None
    has_one = any(subject.method != "none" for subject in subjects)
    refuse((has_one, f"{name or 'this analysis'} looks at embeddings without calibration: leave calibration out"))


def no_variance_error(subject: Subject, examples: int) -> UserError:
    """Build the error for a subject whose embeddings are all the same."""
    return UserError(
        f"the embeddings of {subject.encoder} on {subject.task} do not vary over "
        f"{format_count(examples, 'training example')}; take more of them (task.train_samples)"
    )
