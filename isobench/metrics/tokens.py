"""Choose which token states a measure takes: a few tokens of a decoder can decide any measure of all of them."""

from collections.abc import Collection

import torch
from torch import Tensor

from isobench.common.linalg import Array, as_tensor, as_vectors, row_norms

KINDS = ("first", "special", "outlying")  # of tokens that can be left out
NORM_LIMIT = 5.0  # times the median norm


def mask_tokens(
    states: Array,
    positions: Array,
    special: Array,
    without: Collection[str] = KINDS,
    norm_limit: float = NORM_LIMIT,
) -> Tensor:
    """Say of each token whether it is kept: states [M, d] -> [M] bool, on the device of the states.

    ``first`` leaves out the tokens at position 0 of their texts, which attention uses as a sink (Xiao et al. 2024).
    ``special`` leaves out special tokens, such as [CLS] and [SEP]. ``outlying`` leaves out states whose norm is above
    ``norm_limit`` times the median norm of all M states, as massive activations are (Sun et al. 2024). The median
    does not move with them as long as they are fewer than half. The limit is our choice.

    Args:
        states: of M tokens.
        positions: of the tokens in their texts, [M], from 0.
        special: whether a token is a special one, [M].
        without: which of ``KINDS`` are left out.
        norm_limit: above 1.

    Raises:
        ValueError: a kind is unknown, a length is wrong, or the limit is 1 or less.
    """
    vectors = as_vectors(states)
    if unknown := set(without) - set(KINDS):
        raise ValueError(f"tokens are left out by {', '.join(KINDS)}, not by {min(unknown)}")
    if not norm_limit > 1:
        raise ValueError(f"norm_limit must be above 1, not {norm_limit}")
    places, specials = (as_tensor(values).to(vectors.device) for values in (positions, special))
    if not places.shape == specials.shape == vectors.shape[:1]:
        raise ValueError(f"there must be a position and a mark for each of {len(vectors)} states")
    kept = torch.ones(len(vectors), dtype=torch.bool, device=vectors.device)
    if "first" in without:
        kept &= places != 0
    if "special" in without:
        kept &= ~specials.bool()
    if "outlying" in without:
        norms = row_norms(vectors)
        kept &= ~(norms > norm_limit * norms.nanmedian())
    return kept
