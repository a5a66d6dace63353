"""Build a run of sentence classification or regression: data, encoder, calibrations and head."""

import math
from collections.abc import Mapping
from typing import Any

from isobench.calibration.base import Calibration
from isobench.calibration.batch_statistics import count_effective_rows, is_distributed
from isobench.calibration.chain import Chain, find_prepared_once
from isobench.config.schema import Config, split_chain
from isobench.data.batches.loaders import ModelInputs
from isobench.kinds.classification.loaders import Loaders
from isobench.kinds.classification.module import Classifier
from isobench.models import encoders, tokenization
from isobench.models.dropout import DropoutNumbers, replace_dropout
from isobench.runs.identity import Identity, resolve_seeds, seed_everything
from isobench.training.build import RunParts, build_chain, count_training_steps, uses_cpu_dropout
from isobench.training.preparation import load_pretrained_embeddings


def build_parts(cfg: Config, identity: Identity) -> RunParts:
    """Build the module and the loaders of a run."""
    tokenizer = tokenization.load_tokenizer(cfg.encoder, cfg.data.cache)
    seeds = resolve_seeds(cfg)
    loaded = encoders.load_encoder(
        cfg.encoder, cfg.data.cache, seeds["init"], cfg.head.name, max_length=cfg.task.max_length
    )
    loaders = make_loaders(cfg, identity, tokenizer, loaded)
    chain = build_chain(cfg, loaded.dim)
    seed_everything(seeds["init"])  # every method's run starts with the same head, whatever it drew before
    module = Classifier(cfg, loaded, chain, count_training_steps(cfg, loaders))
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
    methods = _name_methods(cfg, chain)
    effective_rows = _count_effective_rows(cfg, methods, len(loaders.train_tokens))
    few = _warn_of_few_rows(cfg, methods, len(loaders.train_tokens), effective_rows)
    return RunParts(module, loaders, [*loaded.warnings, *loaders.warnings, *few], effective_rows=effective_rows)


def _name_methods(cfg: Config, chain: Chain) -> dict[str, Calibration]:
    """Return the methods of a chain by name."""
    placed = sorted(split_chain(cfg.calibration), key=lambda part: part["placement"] != "before_pooler")  # as in it
    return dict(zip((str(part["name"]) for part in placed), chain, strict=True))


def _warn_of_few_rows(
    cfg: Config, methods: Mapping[str, Calibration], examples: int, effective_rows: Mapping[str, float]
) -> list[str]:
    """Warn of each method whose statistic stands on fewer rows than it needs: an epoch's batches, or its averages."""
    size = cfg.optimization.batch_size
    last = 0 if cfg.optimization.drop_last else examples % size
    smallest = math.inf if is_distributed() else last or size  # statistics gather the rows of all processes
    warnings = []
    for name, method in methods.items():
        of_averages = effective_rows.get(name, math.inf)
        if smallest < (needed := method.least_batch):
            few = f"a batch of {smallest:g}"
        elif of_averages < (needed := method.least_average):
            few = f"about {of_averages:g} examples (the last batches weigh most)"
        else:
            continue
        advice = "raise optimization.batch_size, or set optimization.drop_last=true"
        warnings.append(f"{name} estimates its statistics from {few}, and needs {needed}: {advice}")
    return warnings


def _count_effective_rows(cfg: Config, methods: Mapping[str, Calibration], examples: int) -> dict[str, float]:
    """Count, for each method with moving averages, the rows on which they stand when the last epoch ends."""
    full, rest = divmod(examples, cfg.optimization.batch_size)
    last = [rest] if rest and not cfg.optimization.drop_last else []
    epoch = last + [cfg.optimization.batch_size] * full  # rows of each batch, the newest first
    return {
        name: round(count_effective_rows(momentum, epoch * cfg.optimization.epochs, method.starts_from_constants), 1)
        for name, method in methods.items()
        if (momentum := getattr(method, "momentum", None)) is not None
    }


def make_loaders(cfg: Config, identity: Identity, tokenizer: Any, loaded: encoders.LoadedEncoder) -> Loaders:
    """Make the loaders of sentence batches."""
    fingerprint = tokenization.fingerprint_tokenizer(tokenizer)
    packed = loaded.encoder.first_position is not None
    inputs = ModelInputs(tokenizer, fingerprint, loaded.max_positions, loaded.dim, packed)
    return Loaders(cfg, inputs, identity.data, resolve_seeds(cfg)["order"])
