"""Let fake tensors, which pretend to be on a CPU, need the memory that they would need on a GPU.

A GPU computes attention without a matrix of weights [b, heads, T, T], and its dropout keeps one byte for each entry.
Under autocast it normalises and takes softmaxes in float32.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional

from isobench.common import linalg


@contextmanager
def use_gpu_functions() -> Iterator[None]:
    """Replace, in this context, torch's functions that keep other tensors on a GPU; Gram matrices read more rows."""
    functions: dict[str, Any] = {"dropout": drop_out, "scaled_dot_product_attention": attend_without_weights}
    for name in ("layer_norm", "softmax", "log_softmax"):
        functions[name] = compute_in_float32(getattr(functional, name))
    rows = mock.patch.object(linalg, "GRAM_ROWS_ON_CPU", linalg.PIECE_ROWS)
    with rows, mock.patch.multiple(functional, **functions):
        yield


def compute_in_float32(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Convert a function's first argument to float32 if autocast is on."""

    def converted(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return function(input.float() if is_autocast() else input, *args, **kwargs)

    return converted


def is_autocast() -> bool:
    """Return whether fake tensors, which pretend to be on a CPU, are in autocast."""
    return torch.is_autocast_enabled("cpu")


def attend_without_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Stand in for ``scaled_dot_product_attention`` as a GPU computes it (torch's memory-efficient attention).

    Args:
        query: [b, heads, T, k].
        key: [b, heads, S, k], with fewer heads if ``enable_gqa``.
        value: as the key.
        attn_mask: broadcasts to [b, heads, T, S]; a mask of booleans becomes one of numbers.
        dropout_p, is_causal, scale: as of torch's function.
        enable_gqa: several heads of the query share one of the key.

    Returns:
        [b, heads, T, k].
    """
    dtype = torch.get_autocast_dtype("cpu") if is_autocast() else query.dtype
    query, key, value = (x.to(dtype) for x in (query, key, value))
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    bias = None
    if attn_mask is not None:
        bias = attn_mask.to(dtype).expand(*query.shape[:3], key.shape[2])
    attention = torch.ops.aten._scaled_dot_product_efficient_attention
    output: Tensor = attention(query, key, value, bias, True, dropout_p, is_causal, scale=scale)[0]
    return output


def drop_out(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Stand in for ``dropout`` as a GPU computes it, with a mask of booleans."""
    return torch.native_dropout(input, p, True)[0] if training and p > 0 else input
