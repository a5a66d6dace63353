"""The base class of all methods: a method overrides only the hooks it needs; the others do nothing."""

import math
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from isobench.common.linalg import Array, as_vectors


class Calibration(nn.Module):
    """Define a calibration method between encoder and head. The base class changes nothing: plain fine-tuning.

    The first argument of every method is ``dim``, the width d of the embeddings. A method raises ValueError for a
    setting that is out of range.
    """

    dim: int
    out_dim: int  # width of what ``forward`` returns: dim, unless a method sets it
    # True: ``regularize`` and ``prepare`` get the states of all tokens in all layers, [M, d], in place of embeddings.
    reads_token_states: bool = False
    # True: ``reparametrize_layer`` puts parameters of the method's own in the place of the classifier's weight.
    reparametrizes_head: bool = False
    # The fewest rows on which its statistic says something: those of each batch, and those of its moving averages
    # (the setting ``momentum``). A run with fewer has a warning in its record. 16 is our choice.
    least_batch: int = 1
    least_average: int = 16
    # True: its moving averages start from constants, not from the first batch.
    starts_from_constants: bool = False
    # How many rows of the current model ``prepare`` gets at the start of every epoch, 0 for none. None: ``prepare``
    # is called once before training, with the pretrained embeddings of the whole training set.
    epoch_sample: int | None = None
    # False: `__call__` has looked for statistics already, or needs not, because a chain trains the method.
    warns: bool = True

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = self.out_dim = require_whole_number("dim", dim)

    def __call__(self, h: Array) -> Any:
        """Call ``forward`` with embeddings [B, d], a tensor or NumPy array; warn once if it lacks its statistics."""
        h = self.check_width(h)
        if self.warns and not self.training:
            self.warns = False  # a GPU is waited for once, not at every call
            if not self.has_statistics():
                warnings.warn(
                    f"{type(self).__name__} has seen no embeddings yet, so eval() changes nothing: call it in "
                    "train() or call prepare() first, or load its state",
                    stacklevel=2,
                )
        return super().__call__(h)

    def check_width(self, h: Array) -> Tensor:
        """Return embeddings [B, d] as a tensor; raise ValueError for another width, which would be broadcast."""
        h = as_vectors(h, may_be_empty=True)
        if h.shape[1] != self.dim:
            raise ValueError(f"{type(self).__name__} takes embeddings of width {self.dim}, not {h.shape[1]}")
        return h

    def read_batches(self, batches: Iterable[Array]) -> Iterator[Tensor]:
        """Yield the batches [B, d] that ``prepare`` is given, each checked, without those that are empty."""
        return (h for h in map(self.check_width, batches) if len(h))

    def has_statistics(self) -> bool:
        """Return False if ``forward`` needs statistics of embeddings and has none yet: a buffer ``batches`` is 0."""
        return bool(getattr(self, "batches", True))

    def prepare(self, embeddings: Iterable[Tensor]) -> None:
        """Take statistics before training from the training set's pretrained embeddings, batches [B, d]."""

    def adjust(self, weight: Tensor) -> None:
        """Change the matrix that ``penalty`` acts on, [V, d], in place, once before training."""

    def reparametrize_layer(self, layer: nn.Module) -> None:
        """Replace the classifier's parameter ``weight``, [V, d], once before training: ``reparametrizes_head``."""

    def forward(self, h: Tensor) -> Tensor:
        """Calibrate embeddings before they reach the head: [B, d] -> [B, out_dim]."""
        return h

    def penalty(self, weight: Tensor) -> Tensor:
        """Compute a scalar that is added to the task loss, from the head or the vocabulary, [V, d]."""
        return torch.zeros((), device=weight.device)

    def objective(self, h: Tensor) -> Tensor:
        """Compute the method's own loss from detached embeddings [B, d]: it trains the method, not the encoder."""
        return torch.zeros((), device=h.device)

    def regularize(self, h: Tensor) -> Tensor:
        """Compute a scalar that is added to the task loss, from embeddings before this method changes them, [B, d].

        Its gradient reaches the encoder. With gradient accumulation it is called for each accumulated batch, and the
        step's gradient is the mean. In a distributed run compute it from the whole batch (batch_statistics.py).
        """
        return torch.zeros((), device=h.device)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """List optimiser groups for the method's own parameters; by default none."""
        return []


def promote_to_float32(h: Tensor) -> Tensor:
    """Convert half precision to float32 and leave float32 and float64 alone: half is too coarse for statistics."""
    return h.to(torch.promote_types(h.dtype, torch.float32))


def overrides_hook(calibration: Calibration, hook: str) -> bool:
    """Return True if a method defines the hook of this name itself; hooks that it inherits need not be called."""
    return getattr(type(calibration), hook) is not getattr(Calibration, hook)


def require_bool(name: str, value: object) -> bool:
    """Return a setting; raise ValueError unless it is true or false: a text such as "false" would count as true."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, not {value!r}")
    return value


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Return a setting; raise ValueError unless it is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be {', '.join(choices[:-1])} or {choices[-1]}, not {value!r}")
    return value


def require_number(
    name: str, value: Any, at_least: float = -math.inf, at_most: float = math.inf, above: float = -math.inf
) -> float:
    """Return a setting as a float; raise ValueError unless it is a finite number within its bounds."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if is_number and abs(value) <= sys.float_info.max and at_least <= value <= at_most and value > above:
        return float(value)
    limits = (("at least", at_least), ("above", above), ("at most", at_most))
    bounds = "".join(f", {side} {bound:g}" for side, bound in limits if math.isfinite(bound))
    raise ValueError(f"{name} must be a finite number{bounds}, not {value!r}")


def require_whole_number(name: str, value: object, at_least: int = 1) -> int:
    """Return a setting as an int; raise ValueError unless it is a whole number of at least a bound."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < at_least:
        raise ValueError(f"{name} must be a whole number, at least {at_least}, not {value!r}")
    return int(value)
