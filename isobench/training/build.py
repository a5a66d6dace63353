"""From a run's config to its parts: data, encoder, calibration, head, checked and ready to be trained."""

import math
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

from isobench.calibration.base import overrides
from isobench.calibration.chain import Chain
from isobench.common.errors import UserError
from isobench.config.schema import Config, method_name
from isobench.data.loaders import Loaders, ModelInputs, uses_gpu
from isobench.data.pair_loaders import PairLoaders
from isobench.metrics.generation import signatures
from isobench.models import encoder_decoders, encoders
from isobench.runs.identity import Identity
from isobench.runs.seeding import resolve_seeds, seed_everything
from isobench.training.calibrations import make
from isobench.training.classifier import Classifier
from isobench.training.embeddings import pretrained
from isobench.training.seq2seq import STRAIGHT, Seq2Seq


class Built(NamedTuple):
    """A run's parts, checked and ready; ``notes`` are parts of its record."""

    module: Classifier | Seq2Seq
    loaders: Loaders | PairLoaders
    warnings: list[str]
    notes: dict[str, Any]


def build(cfg: Config, identity: Identity) -> Built:
    """Everything a run needs before it can be trained."""
    return build_seq2seq(cfg, identity) if cfg.task.generation else build_classifier(cfg, identity)


def build_classifier(cfg: Config, identity: Identity) -> Built:
    """A sentence classifier or regressor."""
    tokenizer = encoders.load_tokenizer(cfg.encoder, cfg.data.cache)
    seeds = resolve_seeds(cfg)
    loaded = encoders.load(cfg.encoder, cfg.data.cache, seeds["init"])
    loaders = make_loaders(cfg, identity, tokenizer, loaded)
    chain = chain_of(cfg, loaded.dim)
    seed_everything(seeds["init"])  # the head starts alike under every method, whatever the method drew
    module = Classifier(cfg, loaded, chain, total_steps(cfg, loaders))
    if any(overrides(calibration, "prepare") for calibration in chain):
        vectors = pretrained(cfg, identity, loaders, loaded, shows_progress(cfg))
        module.eval()
        prepare(chain, vectors.split(1024), loaded.pooler)
    module.train()  # from_pretrained gives a model in evaluation mode, and Lightning leaves modes as they are
    return Built(module, loaders, loaded.warnings, {})


def make_loaders(cfg: Config, identity: Identity, tokenizer: Any, loaded: encoders.Loaded) -> Loaders:
    """Make the batches of sentences for a loaded encoder."""
    inputs = ModelInputs(tokenizer, encoders.tokenizer_fingerprint(tokenizer), loaded.positions, loaded.dim)
    return Loaders(cfg, inputs, identity.data, resolve_seeds(cfg)["order"])


def build_seq2seq(cfg: Config, identity: Identity) -> Built:
    """Translation or summarisation."""
    tokenizer = encoder_decoders.load_tokenizer(cfg, identity)
    loaded = encoder_decoders.load(cfg.encoder, cfg.data.cache, resolve_seeds(cfg)["init"], tokenizer)
    fingerprint = encoder_decoders.tokenizer_fingerprint(tokenizer)
    inputs = ModelInputs(tokenizer, fingerprint, loaded.positions, loaded.dim)
    order = resolve_seeds(cfg)["order"]
    loaders = PairLoaders(cfg, inputs, (identity.data, identity.encoder), order, shows_progress(cfg))
    chain = chain_of(cfg, loaded.dim)
    check_width(cfg, chain, loaded.dim)
    module = Seq2Seq(cfg, loaded, chain, loaders, total_steps(cfg, loaders))
    if any(overrides(calibration, "prepare") for calibration in chain):
        module.eval().to("cuda" if uses_gpu(cfg) else "cpu")
        prepare(chain, DecoderStates(module, loaders), STRAIGHT)
    module.train()
    notes = {"search": module.search_record(), "signatures": signatures(list(cfg.task.metrics))}
    return Built(module, loaders, loaded.warnings, {"generation": notes})


class DecoderStates:
    """The model's states of the training set's targets, batches [n, d]: computed anew by every pass, never kept."""

    def __init__(self, module: Seq2Seq, loaders: PairLoaders) -> None:
        self.module, self.loaders = module, loaders

    @torch.no_grad()
    def __iter__(self) -> Iterator[Tensor]:
        device = self.module.device
        batches = self.loaders.by_length(self.loaders.train_tokens, self.module.cfg.trainer.eval_batch_size)
        console, hidden = Console(stderr=True), not self.loaders.progress_bar
        for batch in track(batches, "decoder states", console=console, transient=True, disable=hidden):
            chunks = [{name: tensor.to(device) for name, tensor in chunk.items()} for chunk in batch["chunks"]]
            yield self.module.states({"chunks": chunks})[0]


def check_width(cfg: Config, chain: Chain, dim: int) -> None:
    """Raise UserError for methods that change the width, which the output embedding has fixed."""
    if chain.out_dim != dim:
        name = method_name(cfg.calibration)
        raise UserError(f"calibration={name}: {chain.out_dim} columns don't fit the output embedding's {dim}")


def chain_of(cfg: Config, dim: int) -> Chain:
    """The methods; what they draw is drawn from the seed of initialisation."""
    seed_everything(resolve_seeds(cfg)["init"])
    return make(cfg.calibration, dim)


def total_steps(cfg: Config, loaders: Loaders | PairLoaders) -> int:
    """Optimiser steps of the whole run."""
    return math.ceil(len(loaders.train) / cfg.optimization.accumulate) * cfg.optimization.epochs


def prepare(chain: Chain, vectors: Iterable[Tensor], pooler: nn.Module) -> None:
    """Show every method that asks for it, in the chain's order, the pretrained embeddings at its own place, once."""
    for position, calibration in enumerate(chain):
        if overrides(calibration, "prepare"):
            chain.prepare(position, vectors, pooler)


def shows_progress(cfg: Config) -> bool:
    """Whether bars are wanted: as configured, else on a terminal."""
    return cfg.trainer.progress_bar if cfg.trainer.progress_bar is not None else sys.stderr.isatty()
