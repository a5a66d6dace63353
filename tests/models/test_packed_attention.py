"""Packed sentences: each architecture's outputs and gradients in float64, against one sentence at a time."""

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel

from isobench.data.batches.tokens import plan_packing
from isobench.models.attention import find_first_position, register_packed_attention, restrict_to_first_token
from isobench.models.sentence_encoder import SentenceEncoder

LENGTHS = [9, 9, 7, 6, 6, 1]
COMMON = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 20, "pad_token_id": 1,
}  # fmt: skip
SPECIAL = {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
DISTILBERT = {
    "vocab_size": 40, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 20,
}  # fmt: skip
SETTINGS = {
    "bert": COMMON, "roberta": COMMON, "electra": COMMON | {"embedding_size": 8},
    "albert": COMMON | {"embedding_size": 8}, "distilbert": DISTILBERT,
    "modernbert": COMMON | SPECIAL | {"num_hidden_layers": 4, "local_attention": 4},
    "gpt2": {"vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 20} | SPECIAL,
    "mistral": COMMON | {"num_key_value_heads": 1, "sliding_window": 4},
}  # fmt: skip
FIRST_POSITION = {"roberta": 2}


def build_model(kind, settings):
    torch.manual_seed(0)
    register_packed_attention()
    return AutoModel.from_config(AutoConfig.for_model(kind, **settings)).eval()


def make_row(lengths, groups):
    torch.manual_seed(1)
    return {
        "input_ids": torch.randint(5, 40, (1, sum(lengths))),
        "positions": torch.cat([torch.arange(n) for n in lengths])[None],
        "packing": plan_packing(np.array(lengths), groups),
    }


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("groups", [[0, 6], [0, 2, 3, 6]], ids=["one group", "three groups"])
def test_packed_sentences_are_encoded_as_alone(kind, groups):
    model = build_model(kind, SETTINGS[kind])
    assert find_first_position(model) == FIRST_POSITION.get(kind, 0)
    model.double()
    row = make_row(LENGTHS, groups)
    parts = [part[None] for part in row["input_ids"][0].split(LENGTHS)]
    for pooling, layer in (("mean", None), ("cls", None), ("last", 1)):
        encoder = SentenceEncoder(model, pooling, layer, first_position=find_first_position(model))
        gradients = []
        alone = torch.cat([encoder(input_ids=part, attention_mask=torch.ones_like(part)) for part in parts])
        packed = encoder(**row)
        torch.testing.assert_close(packed, alone, rtol=1e-10, atol=1e-12)
        weight = torch.randn(alone.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        for output in (alone, packed):
            model.zero_grad()
            (output * weight).sum().backward()
            gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
        assert gradients[0].keys() == gradients[1].keys()
        for name, gradient in gradients[0].items():
            torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-9, atol=1e-11, msg=name)


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
@pytest.mark.parametrize("form", ["packed", "padded", "full"])
def test_the_last_layers_first_tokens_are_those_of_the_whole_layer(kind, form):
    row = make_row(LENGTHS, [0, 2, 3, 6])
    if form != "packed":
        mask = torch.arange(9) < torch.tensor(LENGTHS if form == "padded" else [9] * 6)[:, None]
        row = {"input_ids": torch.randint(5, 40, mask.shape).masked_fill(~mask, 1), "attention_mask": mask.long()}
    outputs = []
    for restricted in (False, True):
        model = build_model(kind, SETTINGS[kind])
        first = find_first_position(model)
        assert not restricted or restrict_to_first_token(model)
        encoder = SentenceEncoder(model.double(), "cls", None, restricted, first)
        output = encoder(**row)
        output.square().sum().backward()
        outputs.append((output, {n: p.grad for n, p in model.named_parameters() if p.grad is not None}))
    assert form == "packed" or model(**row).last_hidden_state.shape == (6, 1, 16)
    torch.testing.assert_close(outputs[1][0], outputs[0][0], rtol=1e-10, atol=1e-12)
    assert outputs[0][1].keys() == outputs[1][1].keys()
    for name, gradient in outputs[0][1].items():
        torch.testing.assert_close(outputs[1][1][name], gradient, rtol=1e-9, atol=1e-11, msg=name)


def test_a_model_that_can_not_read_a_row_is_found_out():
    bart = {"vocab_size": 40, "d_model": 16, "encoder_layers": 2, "decoder_layers": 1}
    t5 = {"vocab_size": 40, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
    assert find_first_position(build_model("bart", bart).get_encoder()) is None  # takes no positions
    assert find_first_position(build_model("t5", t5).get_encoder()) is None  # positions inside attention
    assert find_first_position(build_model("deberta-v2", COMMON)) is None  # attention of its own
    eager = build_model("bert", COMMON)
    eager.config._attn_implementation = "eager"
    assert find_first_position(eager) is None
    model = build_model("bert", COMMON)
    forward = model.forward
    model.forward = lambda packing=None, **arguments: forward(**arguments)  # which does not keep sentences apart
    assert find_first_position(model) is None


@pytest.mark.parametrize(("name", "window"), [("sliding_window", 8), ("attention_chunk_size", 8), ("x", 300)])
def test_the_probe_sees_a_window_that_packed_attention_is_not_told_of(name, window):
    attention = {"num_key_value_heads": 1, "head_dim": 8}
    if name == "sliding_window":
        model = build_model("phimoe", COMMON | attention | {"sliding_window": window})
    elif name == "attention_chunk_size":
        moe = {"num_local_experts": 2, "interleave_moe_layer_step": 1, "intermediate_size_mlp": 24}
        model = build_model("llama4_text", COMMON | attention | moe | {"attention_chunk_size": window})
    else:
        model = build_model("mistral", COMMON | attention | {"sliding_window": window})
    assert find_first_position(model) is None
