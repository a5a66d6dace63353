"""Make attention masks on a GPU without waiting for it."""

from typing import Any

from torch import Tensor


def keep_masks_on_gpu() -> None:
    """Let transformers' models build their masks on a GPU without reading whether any token is padding.

    transformers leaves a mask out where no token of a batch is padding. To find out, it reads one value of the mask
    in every call of a model, and the program waits until the GPU has reached it. A mask that is always there gives
    the same attention up to rounding. On a CPU, where reading costs nothing, nothing changes. The attention
    implementation ``eager`` never leaves the mask out.
    """
    from transformers import masking_utils

    masking_utils.AttentionMaskInterface.register("sdpa", make_sdpa_mask)


def make_sdpa_mask(*args: Any, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor | None:
    """Build the mask of scaled dot-product attention; stands in for transformers' ``sdpa_mask``.

    Args:
        args: passed on to transformers, as ``kwargs`` are.
        attention_mask: [b, T], 0 or False where a token is padding; None if none is.

    Returns:
        The mask, [b, 1, T, T], true where a token is read; None where every token is, and that is known.
    """
    from transformers.masking_utils import sdpa_mask

    if attention_mask is not None and attention_mask.device.type != "cpu":
        kwargs |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    mask: Tensor | None = sdpa_mask(*args, attention_mask=attention_mask, **kwargs)
    return mask
