"""Forecast how much memory a training step needs, without weights, data or the device that it will run on.

A step of the run's own module goes forward and backward with fake tensors, which have shapes and no values. What is
alive at each moment is exact for the tensors that torch makes: weights, gradients, AdamW's state, activations, logits
and what an operator returns for a short time. Not included are the working memory inside kernels, what the allocator
loses between tensors, and the device's own context.
"""

import contextlib
import dataclasses
import warnings
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map

from isobench.config.schema import Config
from isobench.data.batches.loaders import ONE_CHUNK
from isobench.data.batches.pairs import PairCollator, PairTokens, TokenisedTexts
from isobench.data.batches.tokens import Collator, Tokens
from isobench.data.pairs import require_generation
from isobench.models import skeletons
from isobench.models.loading import read_max_positions
from isobench.training.classifier import Classifier
from isobench.training.gpu_functions import use_gpu_functions
from isobench.training.instantiate import instantiate_chain
from isobench.training.memory_watch import BLOCK, MemoryWatch
from isobench.training.seq2seq import Seq2Seq

AUTOCAST = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}  # precision -> what matrix products compute in
PARTS = ("weights", "gradients", "optimiser", "activations", "logits", "method", "workspace")
TOKEN = 7  # a word that is no padding


def forecast_memory(cfg: Config, config: Any, on_gpu: bool = True) -> Counter[str]:
    """Forecast the peak of the memory that training needs, if every text of a batch is as long as the limit.

    Args:
        cfg: the run's config.
        config: the encoder's transformers config.
        on_gpu: for a GPU; False for a CPU, which keeps more of attention and dropout.

    Returns:
        Bytes of each of ``PARTS`` at the moment of the peak. ``method`` is what the calibrations' losses make;
        ``workspace`` is what lives for a short time in the backward pass and in the optimiser.

    Raises:
        UserError: a setting does not fit the encoder.
    """
    # Neither compiling, nor dividing the loss, nor packing texts of one length changes what a step keeps.
    one_batch = dataclasses.replace(cfg.optimization, accumulate=1)
    encoder = dataclasses.replace(cfg.encoder, compile=False, packing=False)
    simple = dataclasses.replace(cfg, optimization=one_batch, encoder=encoder)
    with pretend(MemoryWatch(BLOCK if on_gpu else 1), on_gpu) as watch:
        module = build_module(simple, config)
        batch = make_longest_batch(simple, config)
        watch_step(watch, cfg, module, batch)
        return watch.measure_peak()


@contextlib.contextmanager
def pretend(watch: MemoryWatch, on_gpu: bool) -> Iterator[MemoryWatch]:
    """Make fake tensors in this context, watched, and on a GPU if so wanted."""
    functions = use_gpu_functions() if on_gpu else contextlib.nullcontext()
    with warnings.catch_warnings(), FakeTensorMode(allow_non_fake_inputs=True), watch, functions:
        warnings.simplefilter("ignore")  # of modules without a trainer, and of addresses that fake tensors lack
        yield watch


def build_module(cfg: Config, config: Any) -> Classifier | Seq2Seq:
    """Build a run's module with weights that have no meaning; UserError for a setting that does not fit."""
    if cfg.task.generation is None:
        loaded = skeletons.build_encoder(cfg.encoder, config, cfg.head.name)
        return Classifier(cfg, loaded, instantiate_chain(cfg.calibration, loaded.dim), 1).train()
    generator = skeletons.build_encoder_decoder(cfg.encoder, config)
    chain = instantiate_chain(cfg.calibration, generator.dim)
    tokenizer = SimpleNamespace(pad_token_id=config.pad_token_id, eos_token_id=config.eos_token_id)
    loaders: Any = SimpleNamespace(tokenizer=tokenizer, references=[], dev_tokens=[make_pairs(1, 2, 2)])
    return Seq2Seq(cfg, generator, chain, loaders, 1).train()


def count_longest_tokens(cfg: Config, config: Any) -> tuple[int, int, int]:
    """Return the examples of a batch, and the most tokens of an input and of a target (0 without targets)."""
    positions = read_max_positions(config)
    source, examples = min(cfg.task.max_length, positions), cfg.optimization.batch_size
    if cfg.task.generation is None:
        return examples, source, 0
    target = min(require_generation(cfg.task).max_length, positions)
    if cfg.optimization.batch_tokens is not None:
        examples = max(1, cfg.optimization.batch_tokens // (source + target))
    return examples, source, target


def make_longest_batch(cfg: Config, config: Any) -> dict[str, Any]:
    """Make a batch whose texts are all as long as the limits, by the collator of a run."""
    examples, source, target = count_longest_tokens(cfg, config)
    padding = getattr(config, "pad_token_id", None) or 0
    indices = list(range(examples))
    if target:
        pairs = make_pairs(examples, source, target)
        return PairCollator(pairs, padding, ONE_CHUNK)(indices)
    labels = np.zeros(examples, np.float32 if cfg.task.labels is None and not cfg.task.as_classes else np.int64)
    flat = make_texts(examples, source)
    tokens = Tokens(flat.ids, np.empty(0, np.uint8), flat.offsets, labels)
    return Collator(tokens, padding, ONE_CHUNK, False)(indices)


def make_pairs(examples: int, source: int, target: int) -> PairTokens:
    """Make examples whose sources and targets have these numbers of tokens."""
    return PairTokens(make_texts(examples, source), make_texts(examples, target))


def make_texts(examples: int, length: int) -> TokenisedTexts:
    """Make texts of ``length`` tokens each."""
    return TokenisedTexts(
        np.full(examples * length, TOKEN, np.int32), np.arange(examples + 1) * length, np.zeros(examples, bool)
    )


def watch_step(watch: MemoryWatch, cfg: Config, module: Classifier | Seq2Seq, batch: dict[str, Any]) -> None:
    """Update the weights once, which makes the optimiser's state, then go forward and backward, as Lightning does.

    Lightning deletes the gradients of the last update only after the forward pass, and with ``accumulate`` not at
    all before the next backward pass.
    """
    watch.relabel([*module.parameters(), *module.buffers()], "weights")
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    with watch.labelled("gradients"):
        for parameter in trained:
            parameter.grad = torch.empty_like(parameter)
    optimizer = module.configure_optimizers()["optimizer"]
    if cfg.optimization.clip is not None:
        torch.nn.utils.clip_grad_norm_(trained, cfg.optimization.clip)
    optimizer.step()
    watch.relabel(
        (x for state in optimizer.state.values() for x in state.values() if isinstance(x, Tensor)), "optimiser"
    )
    owner, loss = (module.projection, "sum_losses") if isinstance(module, Seq2Seq) else (module, "compute_task_loss")
    watch.label_calls(owner, loss, "logits")
    watch.label_calls(module.chain, "losses", "method")
    dtype = AUTOCAST.get(cfg.trainer.precision)
    with watch.labelled("activations"):
        batch = tree_map(lambda x: torch.empty_like(x) if isinstance(x, Tensor) else x, batch)
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            total = module.training_step(batch, 0)
    if cfg.optimization.accumulate == 1:
        optimizer.zero_grad()
    total.backward()
    watch.relabel((parameter.grad for parameter in trained), "gradients")


def compare_methods_memory(cfg: Config, config: Any) -> int:
    """Measure the memory that a run's methods need by themselves, to find the one of several that needs most.

    The methods get vectors and matrices of the run's sizes; no encoder is built. Returns bytes.
    """
    examples, source, target = count_longest_tokens(cfg, config)
    width, words = config.hidden_size, config.vocab_size
    classes = words if target else len(cfg.task.labels or [0])
    with pretend(MemoryWatch(), on_gpu=True) as watch:
        chain = instantiate_chain(cfg.calibration, width).train()
        head, vocabulary = (torch.empty(rows, width, requires_grad=True) for rows in (classes, words))
        vectors = torch.empty(examples * max(target, 1), width, requires_grad=True)
        points = examples * source * config.num_hidden_layers if chain.reads_token_states else 0
        token_states = torch.empty(points, width, requires_grad=True)
        h, inputs = chain(vectors, torch.nn.Identity())
        losses = chain.losses(inputs, {"head": lambda: head, "vocabulary": lambda: vocabulary}, token_states)
        sum(losses, h.sum()).backward()
        return watch.measure_peak().total()
