"""What the kinds build a run's parts with: its chain of methods, its dropout, its number of steps."""

import math
from typing import Any, NamedTuple

from isobench.calibration.chain import Chain
from isobench.common.errors import refuse
from isobench.config.schema import Config, format_method_name
from isobench.data.batches.loaders import uses_gpu
from isobench.runs.identity import Identity, choose_dropout, identify, resolve_seeds, seed_everything
from isobench.runs.record import RecordedGeneration
from isobench.tasks.kind import kind_of
from isobench.training.fine_tuned import FineTuningModule
from isobench.training.instantiate import instantiate_chain, refuse_unmet


class RunParts(NamedTuple):
    """The module, data and warnings of a run; the rest is for its record.

    ``loaders`` has the training batches, ``train``, and those of each dev split, ``dev``; ``train_tokens``, whose
    ``lengths`` [N] are those of the training examples; their ``sampler``, and ``batch_size``, how many of its items
    make a batch; ``inputs``; and ``describe_data``, the record's entries on the data.
    ``effective_rows``: method -> rows on which its moving averages stand after an epoch.
    """

    module: FineTuningModule
    loaders: Any
    warnings: list[str]
    generation: RecordedGeneration | None = None
    effective_rows: dict[str, float] | None = None


def build_run_parts(cfg: Config, identity: Identity) -> RunParts:
    """Build the module and the data of a run, as the kind of its task does."""
    parts: RunParts = kind_of(cfg.task).build(cfg, identity)
    refuse((identify(cfg) != identity, "data or weights were changed while they were read: repeat the command"))
    parts.module.train()  # from_pretrained returns a model in evaluation mode, and Lightning does not change modes
    return parts


def uses_cpu_dropout(cfg: Config) -> bool:
    """Return whether this run's dropout uses the random numbers of isobench/models/dropout.py, not torch's."""
    return choose_dropout(cfg) != "torch" and not uses_gpu(cfg)


def build_chain(cfg: Config, dim: int) -> Chain:
    """Make the chain of methods for embeddings of width ``dim``, seeded so that its random weights are repeatable."""
    seed_everything(resolve_seeds(cfg)["init"])
    chain = instantiate_chain(cfg.calibration, dim)
    refuse_unmet(format_method_name(cfg.calibration), chain, kind_of(cfg.task))
    return chain


def count_training_steps(cfg: Config, loaders: Any) -> int:
    """Count the optimiser steps of a run."""
    return math.ceil(len(loaders.train) / cfg.optimization.accumulate) * cfg.optimization.epochs
