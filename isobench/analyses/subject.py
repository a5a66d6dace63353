"""What an analysis looks at: one encoder on one task under one calibration."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from isobench.analyses.names import SubjectNames, name_subjects
from isobench.calibration.base import overrides_hook
from isobench.common.errors import UserError
from isobench.common.terminal import format_count
from isobench.data.loaders import Loaders
from isobench.models import encoders, tokenization
from isobench.models.encoders import NO_POOLER_WARNING
from isobench.papers.scale import find_encoder_differences, find_task_differences
from isobench.runs.identity import identify
from isobench.runs.row import Row
from isobench.runs.seeding import resolve_seeds
from isobench.training import embeddings
from isobench.training.build import build_chain, make_loaders, prepare_chain, should_show_progress
from isobench.training.train import configure_process


class Subject:
    """The pretrained encoder, its vectors of the training set and its vocabulary, each loaded when asked for.

    ``encoder``, ``task`` and ``method`` are what tables and figures call it. ``warnings`` says what has to be known
    of all vectors that were asked for so far, such as weights that the checkpoint lacks. It only grows, so that the
    order in which they are asked for does not matter.

    Args:
        row: a run of the experiment's grid; its record is None unless it was trained.
        names: what to call it, where its config's names do not tell it from others.
    """

    def __init__(self, row: Row, names: SubjectNames | None = None) -> None:
        self.cfg, self.record, self.folder = row.cfg, row.record, row.folder
        self.encoder, self.task, self.method = names or name_subjects([row])[0]
        self.encoder_notes, self.task_notes = find_encoder_differences(row.cfg), find_task_differences(row.cfg)
        self.warnings: list[str] = []

    @cached_property
    def tokenizer(self) -> Any:
        """The encoder's."""
        return tokenization.load_tokenizer(self.cfg.encoder, self.cfg.data.cache)

    @cached_property
    def loaded(self) -> encoders.LoadedEncoder:
        """Encoder and pooler, on the CPU, in evaluation mode."""
        configure_process(self.cfg)
        loaded = encoders.load_encoder(self.cfg.encoder, self.cfg.data.cache, resolve_seeds(self.cfg)["init"])
        loaded.encoder.eval()
        return loaded

    @cached_property
    def loaders(self) -> Loaders:
        """The task's tokens."""
        return make_loaders(self.cfg, identify(self.cfg), self.tokenizer, self.loaded)

    def release(self) -> None:
        """Forget what is large; it is loaded again if it is asked for again."""
        for name in ("tokenizer", "loaded", "loaders"):
            self.__dict__.pop(name, None)

    def _add_warnings(self, with_pooler: bool) -> None:
        """Add the loaded encoder's warnings; that it has no pooler concerns only vectors that a pooler gave."""
        self.warnings = [
            text for text in self.loaded.warnings if with_pooler or text != NO_POOLER_WARNING or text in self.warnings
        ]

    def encoded(self) -> Tensor:
        """The encoder's vectors of the training set before any pooler, [N, d] float32, memory-mapped, in its order.

        Of ``encoder.layer`` and ``encoder.pooling``; computed once and kept in the cache.
        """
        show = should_show_progress(self.cfg)
        self._add_warnings(with_pooler=False)
        return embeddings.load_pretrained_embeddings(self.cfg, identify(self.cfg), self.loaders, self.loaded, show)

    @torch.no_grad()
    def embeddings(self) -> Tensor:
        """What a head would read without calibration, [N, d] float32: after the pooler if there is one."""
        vectors = self.encoded()
        self._add_warnings(with_pooler=True)
        return torch.cat([self.loaded.pooler(h) for h in vectors.split(1024)])

    @torch.no_grad()
    def calibrated(self) -> Tensor:
        """The same through the subject's calibrations, float64, the whole set as one batch of training.

        A method with moving statistics is updated by that one batch (``calibration.momentum=1`` makes them its own).
        """
        vectors = self.encoded()
        self._add_warnings(with_pooler=True)
        chain = build_chain(self.cfg, self.loaded.dim)
        prepare_chain(chain, vectors.split(1024), self.loaded.pooler)
        if not any(overrides_hook(calibration, "forward") for calibration in chain):
            return self.embeddings().double()
        pooler = self.loaded.pooler.double()
        h = chain.double().train()(vectors.double(), pooler)[0]
        pooler.float()
        return h

    def labels(self) -> np.ndarray:
        """Of the training set, [N]: classes, or scores of a regression."""
        return self.loaders.train.dataset.labels  # type: ignore[attr-defined]

    def vocabulary(self) -> Tensor:
        """The input embedding matrix, all rows, [V, d]."""
        return self.loaded.encoder.vocabulary().detach()


def iterate_subjects(subjects: list[Subject], what: str) -> Iterator[Subject]:
    """The subjects one after the other, with a bar on long work; each is released once its turn is over."""
    shown = should_show_progress(subjects[0].cfg)
    for subject in track(subjects, what, console=Console(stderr=True), transient=True, disable=not shown):
        yield subject
        subject.release()


def collect_scale_notes(subjects: list[Subject], *kinds: str) -> list[str]:
    """How the subjects differ from the paper's: of ``encoder``, ``task`` or both."""
    found = [note for subject in subjects for kind in kinds for note in getattr(subject, f"{kind}_notes")]
    return list(dict.fromkeys(found))


def check_no_calibration(subjects: Sequence[Subject]) -> None:
    """Raise UserError if a run has a calibration, for an analysis that would silently ignore it."""
    if any(subject.method != "none" for subject in subjects):
        name = subjects[0].cfg.experiment.name or "this analysis"
        raise UserError(f"{name} looks at embeddings without calibration: leave calibration out")


def no_variance_error(subject: Subject, examples: int) -> UserError:
    """The error to raise where all embeddings are the same."""
    what = f"the embeddings of {subject.encoder} on {subject.task} do not vary"
    return UserError(
        f"{what} over {format_count(examples, 'training example')}; take more of them (task.train_samples)"
    )
