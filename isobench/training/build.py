"""Build what a run trains with from its config: data, encoder, calibrations and head, as one Lightning module."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from isobench.calibration.base import Calibration
from isobench.calibration.batch_statistics import count_effective_rows, is_distributed
from isobench.calibration.chain import Chain, find_prepared_once
from isobench.common.errors import UserError
from isobench.common.files import sha256_json
from isobench.config.schema import Config, format_method_name, split_chain
from isobench.data.batches.loaders import Loaders, ModelInputs, uses_gpu
from isobench.data.batches.seq2seq import PairLoaders
from isobench.data.batches.windows import WindowLoaders
from isobench.metrics.generated_text import build_metric_signatures
from isobench.models import encoders, tokenization
from isobench.models.dropout import DropoutNumbers, replace_dropout
from isobench.runs.identity import Identity, choose_dropout, identify, resolve_seeds, seed_everything
from isobench.runs.record import RecordedGeneration
from isobench.training.classifier import Classifier
from isobench.training.instantiate import instantiate_chain, refuse_what_generation_lacks
from isobench.training.language_model import LanguageModel
from isobench.training.preparation import iterate_decoder_states, load_pretrained_embeddings
from isobench.training.seq2seq import IDENTITY_POOLER, Seq2Seq

FEW_ROWS = 16  # moving averages of fewer rows are warned of; our choice


class RunParts(NamedTuple):
    """The module, data and warnings of a run; the rest is for its record.

    ``effective_rows``: method -> rows on which its moving averages stand after an epoch.
    """

    module: Classifier | Seq2Seq | LanguageModel
    loaders: Loaders | PairLoaders | WindowLoaders
    warnings: list[str]
    generation: RecordedGeneration | None = None
    effective_rows: dict[str, float] | None = None


def build_run_parts(cfg: Config, identity: Identity) -> RunParts:
    """Build the module and the data of a run: a text generator if the task generates text, else a classifier."""
    if cfg.task.language:
        built = _build_language_model(cfg, identity, cfg.task.language.objective)
    else:
        built = _build_seq2seq(cfg, identity) if cfg.task.generation else _build_classifier(cfg, identity)
    if identify(cfg) != identity:
        raise UserError("data or weights were changed while they were read: repeat the command")
    return built


def _build_classifier(cfg: Config, identity: Identity) -> RunParts:
    tokenizer = tokenization.load_tokenizer(cfg.encoder, cfg.data.cache)
    seeds = resolve_seeds(cfg)
    loaded = encoders.load_encoder(
        cfg.encoder, cfg.data.cache, seeds["init"], cfg.head.name, max_length=cfg.task.max_length
    )
    loaders = make_loaders(cfg, identity, tokenizer, loaded)
    chain = build_chain(cfg, loaded.dim)
    seed_everything(seeds["init"])  # every method's run starts with the same head, whatever it drew before
    module = Classifier(cfg, loaded, chain, _count_training_steps(cfg, loaders))
    if uses_cpu_dropout(cfg):
        module.dropout_numbers = DropoutNumbers(seeds["dropout"])
        replace_dropout(module, module.dropout_numbers)
    chain.adjust(module.matrices())
    for calibration in chain:
        calibration.reparametrize_layer(module.head)
    if positions := find_prepared_once(chain):
        vectors = load_pretrained_embeddings(cfg, identity, loaders, loaded)
        module.eval()
        for position in positions:
            chain.prepare(position, vectors.split(1024), module.pooler)
    module.train()  # from_pretrained returns a model in evaluation mode, and Lightning does not change modes
    methods = _name_methods(cfg, chain)
    effective_rows = _count_effective_rows(cfg, methods, len(loaders.train_tokens))
    few = [
        f"{name} evaluates by averages of {rows:.1f} rows, nearly those of an epoch's last batch alone "
        "(optimization.drop_last=true leaves out one that is not full)"
        for name, rows in effective_rows.items()
        if rows < FEW_ROWS
    ]
    if cfg.optimization.batch_size == 1 and not is_distributed():
        few = [
            f"{name} compares the rows of a batch, which has one row: it changes nothing but the mean "
            "(raise optimization.batch_size)"
            for name, method in methods.items()
            if method.compares_rows
        ]
    return RunParts(module, loaders, [*loaded.warnings, *loaders.warnings, *few], effective_rows=effective_rows)


def _name_methods(cfg: Config, chain: Chain) -> dict[str, Calibration]:
    """Return the methods of a chain by name."""
    methods = sorted(split_chain(cfg.calibration), key=lambda method: method["placement"], reverse=True)  # as in it
    return dict(zip((str(method["name"]) for method in methods), chain, strict=True))


def _count_effective_rows(cfg: Config, methods: Mapping[str, Calibration], examples: int) -> dict[str, float]:
    """Count, for each method with moving averages, the rows on which they stand when an epoch ends."""
    size, (full, rest) = cfg.optimization.batch_size, divmod(examples, cfg.optimization.batch_size)
    epoch = [*([rest] if rest and not cfg.optimization.drop_last else []), *([size] * full)]  # the newest first
    momenta = {name: getattr(method, "momentum", None) for name, method in methods.items()}
    return {
        name: round(count_effective_rows(momentum, epoch * cfg.optimization.epochs), 1)
        for name, momentum in momenta.items()
        if momentum is not None
    }


def uses_cpu_dropout(cfg: Config) -> bool:
    """Return whether this run's dropout uses the random numbers of isobench/models/dropout.py, not torch's."""
    on_mps = cfg.trainer.accelerator in ("auto", "mps") and torch.backends.mps.is_available()
    on_cpu = not (uses_gpu(cfg) or on_mps)
    return choose_dropout(cfg) != "torch" and on_cpu


def make_loaders(cfg: Config, identity: Identity, tokenizer: Any, loaded: encoders.LoadedEncoder) -> Loaders:
    """Make the loaders of sentence batches."""
    fingerprint = tokenization.fingerprint_tokenizer(tokenizer)
    packed = loaded.encoder.first_position is not None
    words = count_words(loaded.encoder.model)
    inputs = ModelInputs(tokenizer, fingerprint, loaded.max_positions, loaded.dim, packed, words)
    return Loaders(cfg, inputs, identity.data, resolve_seeds(cfg)["order"])


def count_words(model: Any) -> int | None:
    """Return how many tokens a transformers model has vectors for; None if it doesn't say."""
    try:
        return int(model.get_input_embeddings().num_embeddings)
    except (AttributeError, NotImplementedError):
        return None


def _build_seq2seq(cfg: Config, identity: Identity) -> RunParts:
    tokenizer = tokenization.load_seq2seq_tokenizer(cfg, identity)
    loaded = encoders.load_generator(cfg.encoder, cfg.data.cache, resolve_seeds(cfg)["init"], tokenizer, "seq2seq")
    target_language = getattr(tokenizer, "tgt_lang", None)
    fingerprint = sha256_json([tokenization.fingerprint_tokenizer(tokenizer), target_language])
    inputs = ModelInputs(tokenizer, fingerprint, loaded.max_positions, loaded.dim)
    loaders = PairLoaders(cfg, inputs, (identity.data, identity.encoder), resolve_seeds(cfg)["order"])
    chain = build_generator_chain(cfg, loaded)
    module = Seq2Seq(cfg, loaded, chain, loaders, _count_training_steps(cfg, loaders))
    chain.adjust(module.matrices())
    if positions := find_prepared_once(chain):
        module.eval().to("cuda" if uses_gpu(cfg) else "cpu")
        for position in positions:
            chain.prepare(position, iterate_decoder_states(module, loaders), IDENTITY_POOLER)
    module.train()
    signatures = build_metric_signatures(list(cfg.task.metrics))
    generation = RecordedGeneration(search=module.describe_search(), signatures=signatures)
    return RunParts(module, loaders, [*loaded.warnings, *loaders.warnings], generation)


def _build_language_model(cfg: Config, identity: Identity, objective: str) -> RunParts:
    tokenizer = tokenization.load_language_tokenizer(cfg, identity)
    loaded = encoders.load_generator(cfg.encoder, cfg.data.cache, resolve_seeds(cfg)["init"], tokenizer, objective)
    inputs = ModelInputs(tokenizer, tokenization.fingerprint_tokenizer(tokenizer), loaded.max_positions, loaded.dim)
    loaders = WindowLoaders(cfg, inputs, identity.data, resolve_seeds(cfg)["order"])
    chain = build_generator_chain(cfg, loaded)
    if find_prepared_once(chain) or any(method.epoch_sample for method in chain):
        name = format_method_name(cfg.calibration)
        raise UserError(f"calibration={name} is prepared with vectors of sentences: language modelling has none")
    module = LanguageModel(cfg, loaded, chain, loaders, _count_training_steps(cfg, loaders))
    chain.adjust(module.matrices())
    module.train()
    return RunParts(module, loaders, [*loaded.warnings, *loaders.warnings])


def build_generator_chain(cfg: Config, loaded: encoders.LoadedGenerator) -> Chain:
    """Make the chain of methods for the states that an output embedding reads."""
    chain, method = build_chain(cfg, loaded.dim), format_method_name(cfg.calibration)
    if chain.out_dim != loaded.dim:
        raise UserError(
            f"calibration={method}: {chain.out_dim} columns don't fit the output embedding's {loaded.dim}; choose "
            "methods that keep the width"
        )
    refuse_what_generation_lacks(method, chain)
    return chain


def build_chain(cfg: Config, dim: int) -> Chain:
    """Make the chain of methods for embeddings of width ``dim``, seeded so that its random weights are repeatable."""
    seed_everything(resolve_seeds(cfg)["init"])
    return instantiate_chain(cfg.calibration, dim)


def _count_training_steps(cfg: Config, loaders: Loaders | PairLoaders | WindowLoaders) -> int:
    return math.ceil(len(loaders.train) / cfg.optimization.accumulate) * cfg.optimization.epochs
