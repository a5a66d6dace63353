"""From a run's config to its parts: data, encoder, calibration, head, checked and ready to be trained."""

import math
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

from isobench.calibration.base import overrides_hook
from isobench.calibration.chain import Chain
from isobench.common.errors import UserError
from isobench.config.schema import Config, format_method_name
from isobench.data.loaders import Loaders, ModelInputs, uses_gpu
from isobench.data.pair_loaders import PairLoaders
from isobench.metrics.generated_text import build_metric_signatures
from isobench.models import encoder_decoders, encoders
from isobench.runs.identity import Identity
from isobench.runs.record import RecordedGeneration
from isobench.runs.seeding import resolve_seeds, seed_everything
from isobench.training.classifier import Classifier
from isobench.training.embeddings import load_pretrained_embeddings
from isobench.training.instantiate import instantiate_chain
from isobench.training.seq2seq import IDENTITY_POOLER, Seq2Seq


class RunParts(NamedTuple):
    """A run's parts, checked and ready; ``generation`` is for its record."""

    module: Classifier | Seq2Seq
    loaders: Loaders | PairLoaders
    warnings: list[str]
    generation: RecordedGeneration | None = None


def build_run_parts(cfg: Config, identity: Identity) -> RunParts:
    """Everything a run needs before it can be trained."""
    return build_seq2seq(cfg, identity) if cfg.task.generation else build_classifier(cfg, identity)


def build_classifier(cfg: Config, identity: Identity) -> RunParts:
    """A sentence classifier or regressor."""
    tokenizer = encoders.load_tokenizer(cfg.encoder, cfg.data.cache)
    seeds = resolve_seeds(cfg)
    loaded = encoders.load_encoder(cfg.encoder, cfg.data.cache, seeds["init"])
    loaders = make_loaders(cfg, identity, tokenizer, loaded)
    chain = build_chain(cfg, loaded.dim)
    seed_everything(seeds["init"])  # the head starts alike under every method, whatever the method drew
    module = Classifier(cfg, loaded, chain, count_training_steps(cfg, loaders))
    if any(overrides_hook(calibration, "prepare") for calibration in chain):
        vectors = load_pretrained_embeddings(cfg, identity, loaders, loaded, should_show_progress(cfg))
        module.eval()
        prepare_chain(chain, vectors.split(1024), loaded.pooler)
    module.train()  # from_pretrained gives a model in evaluation mode, and Lightning leaves modes as they are
    return RunParts(module, loaders, loaded.warnings)


def make_loaders(cfg: Config, identity: Identity, tokenizer: Any, loaded: encoders.LoadedEncoder) -> Loaders:
    """Make the batches of sentences for a loaded encoder."""
    inputs = ModelInputs(tokenizer, encoders.fingerprint_tokenizer(tokenizer), loaded.positions, loaded.dim)
    return Loaders(cfg, inputs, identity.data, resolve_seeds(cfg)["order"])


def build_seq2seq(cfg: Config, identity: Identity) -> RunParts:
    """Translation or summarisation."""
    tokenizer = encoder_decoders.load_seq2seq_tokenizer(cfg, identity)
    loaded = encoder_decoders.load_encoder_decoder(cfg.encoder, cfg.data.cache, resolve_seeds(cfg)["init"], tokenizer)
    fingerprint = encoder_decoders.fingerprint_seq2seq_tokenizer(tokenizer)
    inputs = ModelInputs(tokenizer, fingerprint, loaded.positions, loaded.dim)
    order = resolve_seeds(cfg)["order"]
    loaders = PairLoaders(cfg, inputs, (identity.data, identity.encoder), order, should_show_progress(cfg))
    chain = build_chain(cfg, loaded.dim)
    check_output_width(cfg, chain, loaded.dim)
    module = Seq2Seq(cfg, loaded, chain, loaders, count_training_steps(cfg, loaders))
    if any(overrides_hook(calibration, "prepare") for calibration in chain):
        module.eval().to("cuda" if uses_gpu(cfg) else "cpu")
        prepare_chain(chain, DecoderStates(module, loaders), IDENTITY_POOLER)
    module.train()
    signatures = build_metric_signatures(list(cfg.task.metrics))
    generation = RecordedGeneration(search=module.describe_search(), signatures=signatures)
    return RunParts(module, loaders, loaded.warnings, generation)


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


def check_output_width(cfg: Config, chain: Chain, dim: int) -> None:
    """Raise UserError for methods that change the width, which the output embedding has fixed."""
    if chain.out_dim != dim:
        name = format_method_name(cfg.calibration)
        raise UserError(f"calibration={name}: {chain.out_dim} columns don't fit the output embedding's {dim}")


def build_chain(cfg: Config, dim: int) -> Chain:
    """The methods; what they draw is drawn from the seed of initialisation."""
    seed_everything(resolve_seeds(cfg)["init"])
    return instantiate_chain(cfg.calibration, dim)


def count_training_steps(cfg: Config, loaders: Loaders | PairLoaders) -> int:
    """Optimiser steps of the whole run."""
    return math.ceil(len(loaders.train) / cfg.optimization.accumulate) * cfg.optimization.epochs


def prepare_chain(chain: Chain, vectors: Iterable[Tensor], pooler: nn.Module) -> None:
    """Show every method that asks for it, in the chain's order, the pretrained embeddings at its own place, once."""
    for position, calibration in enumerate(chain):
        if overrides_hook(calibration, "prepare"):
            chain.prepare(position, vectors, pooler)


def should_show_progress(cfg: Config) -> bool:
    """Whether bars are wanted: as configured, else on a terminal."""
    return cfg.trainer.progress_bar if cfg.trainer.progress_bar is not None else sys.stderr.isatty()
