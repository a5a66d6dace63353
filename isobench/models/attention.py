"""Let a transformers model compute only what a sentence's vector needs, and make masks without waiting for a GPU.

A batch can be one row of tokens without padding. Embeddings, projections, feed-forward layers and norms work on each
token by itself. Only attention must keep the sentences apart: it gets them in groups of like length.

If the vector is the first token's, the last layer's outputs for other tokens are never read. That layer needs the
others as keys and values only. Leaving out their queries, output and feed-forward part changes results by rounding
only and saves about 10/12 of the layer: 14% of a six-layer encoder, 7% of a twelve-layer one.
"""

import itertools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from pytorch_lightning.utilities import move_data_to_device
from torch import Tensor, nn

from isobench.data.batches.tokens import Packing, plan_packing
from isobench.models.dropout import CpuDropout, attend_with_dropout

PROBE_LENGTHS = (5, 3, 3, 2)  # tokens of the sentences that show whether a model can read a row
WINDOWS = ("sliding_window", "attention_chunk_size")  # a config's limits of how far a token reads
LONGEST_WINDOW = 256  # a model with a longer window would need too long a sentence to show that it keeps to it
PROBE_TOLERANCE = 1e-4  # relative to the largest value: float32 rounding is about 1e-6


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

    ``attention_mask`` [b, T] is 0 at padding, None without any. The result [b, 1, T, T] is true where a token is
    read, and None where every token is, and that is known.
    """
    from transformers.masking_utils import sdpa_mask

    if attention_mask is not None and attention_mask.device.type != "cpu":
        kwargs |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    mask: Tensor | None = sdpa_mask(*args, attention_mask=attention_mask, **kwargs)
    return mask


def register_packed_attention() -> None:
    """Make transformers' models with ``sdpa`` attention take the argument ``packing``; nothing else changes."""
    from transformers import AttentionInterface

    AttentionInterface.register("sdpa", _attend_in_groups)


def _attend_in_groups(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    packing: Packing | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute the attention of each group of sentences; stands in for transformers' ``sdpa_attention_forward``.

    Args:
        query: [1, heads, N, d / heads]; key and value too, or with fewer heads.
        attention_mask: used only without a packing.
        packing: where the sentences are in the row of N tokens; None if the tokens are not packed.
        sliding_window: a token reads only tokens that are less than this far away; None if it reads all.

    Returns:
        [1, N, heads, d / heads], and None in place of the attention's weights.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if packing is None:
        kwargs["sliding_window"] = sliding_window
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    causal = bool(getattr(module, "is_causal", False))
    dropout = _find_cpu_dropout(module, kwargs) if not causal and key.shape[1] == query.shape[1] else None
    outputs = []
    for group in packing.groups:
        q, k, v = (group.pad(x[0].transpose(0, 1)).transpose(1, 2) for x in (query, key, value))
        mask = make_group_mask(group.mask, group.length, causal, sliding_window, query.device)
        if dropout is None:
            output, _ = sdpa_attention_forward(module, q, k, v, mask, **kwargs)  # (b, T, heads, d / heads)
        else:
            output = attend_with_dropout(q, k, v, mask, kwargs["scaling"], dropout).transpose(1, 2)
        outputs.append(group.unpad(output))
    return torch.cat(outputs)[None], None


def _find_cpu_dropout(module: nn.Module, arguments: dict[str, Any]) -> CpuDropout | None:
    rate = arguments.get("dropout")  # 0 in evaluation
    if not rate or arguments.get("scaling") is None:
        return None
    return next((part for part in module.children() if isinstance(part, CpuDropout) and part.p == rate), None)


def make_group_mask(
    mask: Tensor | None, length: int, causal: bool, window: int | None, device: torch.device
) -> Tensor | None:
    """Make the mask of a group's attention, [b or 1, 1, T or 1, T], True where a token is read.

    It is None if attention needs no mask beside causality. ``mask`` [b, T] is False at padding. If ``causal``, tokens
    never read padding, which comes last. With ``window`` tokens read only tokens less than this far away.
    """
    near = None
    if window is not None and length > window:
        place = torch.arange(length, device=device)
        distance = place[:, None] - place
        near = (distance.abs() < window) & (distance >= 0 if causal else True)
    if causal or mask is None:
        return None if near is None else near[None, None]
    read = mask[:, None, None, :]
    return read if near is None else read & near


@torch.no_grad()
def find_first_position(model: Any) -> int | None:
    """Return the number of a sentence's first position, 0 for most models; None if the model can't read packed
    sentences.

    Its output is compared with that for padded ones. No list of architectures is kept, because what a model computes
    is what counts: some don't use transformers' attention interface, others take no positions.
    """
    words = model.get_input_embeddings()
    if words is None or words.weight.is_meta or model.config._attn_implementation != "sdpa":
        return None
    windows = [window for name in WINDOWS if (window := getattr(model.config, name, None))]
    if max(windows, default=0) > LONGEST_WINDOW:
        return None
    lengths = (*(window + 3 for window in windows), *PROBE_LENGTHS)
    padding = getattr(model.config, "pad_token_id", None)
    candidates = [0] if padding is None else [0, padding + 1]  # RoBERTa's family counts from the padding's number
    training = model.training
    model.eval()
    try:
        return next((first for first in candidates if _reads_packed(model, first, lengths)), None)
    finally:
        model.train(training)


def _reads_packed(model: Any, first_position: int, lengths: tuple[int, ...]) -> bool:
    """Compare the outputs for a few sentences of these numbers of tokens, packed and one by one."""
    words, padding = model.get_input_embeddings().weight, getattr(model.config, "pad_token_id", None)
    total, ordered = sum(lengths), sorted(lengths, reverse=True)
    numbers = itertools.cycle(i for i in range(min(total + 1, len(words))) if i != padding)
    ids = torch.tensor(list(itertools.islice(numbers, total)), device=words.device)
    positions = torch.cat([torch.arange(n) for n in ordered]).to(words.device) + first_position
    packing = move_data_to_device(plan_packing(np.array(ordered), [0, len(ordered)]), words.device)
    try:
        alone = torch.cat([model(input_ids=s[None]).last_hidden_state[0] for s in ids.split(ordered)])
        packed = model(**make_row_arguments(ids[None], positions[None], packing)).last_hidden_state[0]
    except Exception:  # a model that takes no such arguments fails in its own way
        return False
    return packed.shape == alone.shape and bool((packed - alone).abs().max() <= PROBE_TOLERANCE * alone.abs().max())


def make_row_arguments(input_ids: Tensor, positions: Tensor, packing: Packing) -> dict[str, Any]:
    """Return the arguments of a model's call that reads packed sentences: ids and positions of the row, [1, N]."""
    # transformers passes a mask of four dimensions on as it is: none is built, and the groups have their own.
    unused_mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=input_ids.device)
    return {"input_ids": input_ids, "position_ids": positions, "attention_mask": unused_mask, "packing": packing}


def restrict_to_first_token(model: Any) -> bool:
    """Make the last layer of a BERT, RoBERTa or DistilBERT model compute its first token only, in place.

    Return False, with the model unchanged, for other architectures, decoders and implementations of attention.
    """
    config: Any = model.config
    layer = _find_last_layer(model)
    if layer is None or getattr(config, "is_decoder", False) or config._attn_implementation not in ("sdpa", "eager"):
        return False
    forward: Callable[..., Tensor] = _distilbert_forward if config.model_type == "distilbert" else _bert_forward
    layer.forward = types.MethodType(forward, layer)
    return True


def compute_all_tokens(model: Any) -> None:
    """Undo ``restrict_to_first_token``: let the last layer compute all tokens again, in place."""
    del _find_last_layer(model).forward


def _find_last_layer(model: Any) -> Any:
    if model.config.model_type in ("bert", "roberta", "xlm-roberta"):
        return model.encoder.layer[-1]
    return model.transformer.layer[-1] if model.config.model_type == "distilbert" else None


def _bert_forward(
    self: Any,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    *_: Any,
    packing: Packing | None = None,
    **__: Any,
) -> Tensor:
    """Compute the layer's output for the first tokens; stands in for BertLayer.forward.

    ``hidden_states``: [b, T, d] -> [b, 1, d]; packed [1, N, d] -> [1, B, d]. The mask is read only without a packing.
    """
    attention = self.attention.self
    first = _take_first_tokens(hidden_states, packing)
    query, key, value = attention.query(first), attention.key(hidden_states), attention.value(hidden_states)
    heads = attention.num_attention_heads
    context = _attend(query, key, value, heads, attention_mask, attention.dropout, packing)
    return self.feed_forward_chunk(self.attention.output(context, first))


def _distilbert_forward(
    self: Any,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    packing: Packing | None = None,
    **_: Any,
) -> Tensor:
    """Compute the block's output for each sentence's first token alone; stands in for DistilBERT's own forward.

    Of a packed row [1, N, d] that is [1, B, d], as in ``_bert_forward``.
    """
    attention = self.attention
    first = _take_first_tokens(hidden_states, packing)
    query, key, value = attention.q_lin(first), attention.k_lin(hidden_states), attention.v_lin(hidden_states)
    attended = _attend(query, key, value, attention.n_heads, attention_mask, attention.dropout, packing)
    context = attention.out_lin(attended)
    context = self.sa_layer_norm(context + first)
    return self.output_layer_norm(self.ffn(context) + context)


def _take_first_tokens(hidden_states: Tensor, packing: Packing | None) -> Tensor:
    """Return each sentence's first token: [b, T, d] -> [b, 1, d]; packed [1, N, d] -> [1, B, d]."""
    return hidden_states[:, :1] if packing is None else hidden_states.index_select(1, packing.first)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    heads: int,
    mask: Tensor | None,
    dropout: nn.Module,
    packing: Packing | None,
) -> Tensor:
    """Compute multi-head scaled dot-product attention of the first tokens.

    Queries and result are [b, 1, d], packed [1, B, d]; keys and values of all tokens [b, T, d], packed [1, N, d]; the
    model's mask [b, 1, T, T] or [b, 1, 1, T], used only without a packing.
    """
    if packing is None:
        return _attend_to_one(query, key, value, heads, None if mask is None else mask[:, :, :1], dropout)
    queries = query[0].split([group.sentences for group in packing.groups])
    contexts = []
    for group, first in zip(packing.groups, queries, strict=True):
        read = None if group.mask is None else group.mask[:, None, None, :]
        contexts.append(_attend_to_one(first[:, None], group.pad(key[0]), group.pad(value[0]), heads, read, dropout))
    return torch.cat(contexts).transpose(0, 1)


def _attend_to_one(
    query: Tensor, key: Tensor, value: Tensor, heads: int, mask: Tensor | None, dropout: nn.Module
) -> Tensor:
    """Compute attention with one query a sentence: [b, 1, d], [b, T, d], [b, T, d] -> [b, 1, d]."""
    # [b, heads, 1 or T, d / heads]
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (query, key, value))
    if isinstance(dropout, CpuDropout) and dropout.training:
        context = attend_with_dropout(q, k, v, mask, q.shape[-1] ** -0.5, dropout)
    else:
        rate = float(dropout.p) if dropout.training else 0.0  # type: ignore[arg-type]
        context = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=rate)
    return context.transpose(1, 2).flatten(2)
