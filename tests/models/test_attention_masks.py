"""Attention masks that are always built on a GPU: the same attention, and on a CPU nothing changes."""

import pytest
import torch
from transformers import AutoModel
from transformers.masking_utils import AttentionMaskInterface, bidirectional_mask_function, causal_mask_function

from isobench.models.attention import keep_masks_on_gpu, make_sdpa_mask

SIZES = {"batch_size": 2, "q_length": 4, "kv_length": 4}
KINDS = {
    "bidirectional": {"mask_function": bidirectional_mask_function, "allow_is_causal_skip": False},
    "causal": {"mask_function": causal_mask_function, "allow_is_causal_skip": True},
}


def make_mask(kind, real, **settings):
    skip = {"allow_is_bidirectional_skip": kind == "bidirectional"}
    return make_sdpa_mask(**SIZES, **skip, **KINDS[kind], attention_mask=real, device=real.device, **settings)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_without_padding_is_left_out_on_a_cpu_only(kind):
    real = torch.ones(2, 4, dtype=torch.bool)
    assert make_mask(kind, real) is None
    assert make_mask(kind, real.to("meta")).shape == (2, 1, 4, 4)
    assert make_mask(kind, real & torch.tensor([True, True, True, False])).shape == (2, 1, 4, 4)


def test_a_mask_that_is_always_there_gives_the_same_vectors(tiny, monkeypatch):
    model = AutoModel.from_pretrained(tiny).eval()
    inputs = {"input_ids": torch.tensor([[2, 7, 8, 3], [2, 9, 5, 3]]), "attention_mask": torch.ones(2, 4)}
    keep_masks_on_gpu()
    registered = AttentionMaskInterface._global_mapping["sdpa"]
    assert registered is make_sdpa_mask
    masks = []

    def always(*args, **kwargs):
        masks.append(registered(*args, **kwargs | {"allow_is_bidirectional_skip": False}))
        return masks[-1]

    with torch.no_grad():
        expected = model(**inputs).last_hidden_state
        monkeypatch.setitem(AttentionMaskInterface._global_mapping, "sdpa", always)
        found = model(**inputs).last_hidden_state
    assert all(mask.all() for mask in masks)
    assert len(masks) == 1
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
