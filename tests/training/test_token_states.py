"""I-STAR on all tokens: the points are transformers' hidden states without padding; mistakes are one line."""

import pytest
import torch
from helpers import build_parts, switch_off_packing
from torch import nn

from isobench.metrics import isoscore
from isobench.models.dropout import CpuDropout

TOKENS = ["calibration=istar", "calibration.scope=tokens"]
LAYOUTS = {
    "packed": [], "padded": [], "chunks": [], "layer": ["encoder.layer=1", "encoder.pooling=mean"],
    "transformers' head": ["head=huggingface"],
}  # fmt: skip


def built(small, *overrides):
    module, loaders, *_ = build_parts(*small, *overrides)
    module.log = lambda *_, **__: None
    return module.eval(), next(iter(loaders.train)), loaders


def states_one_by_one(path, loaders, batch):
    from transformers import AutoModel

    model, tokens = AutoModel.from_pretrained(path).eval(), loaders.train_tokens
    states = []
    for i in batch["index"].tolist():
        span = slice(tokens.offsets[i], tokens.offsets[i + 1])
        ids, types = (torch.from_numpy(x[span].astype("int64"))[None] for x in (tokens.ids, tokens.types))
        with torch.no_grad():
            hidden = model(input_ids=ids, token_type_ids=types, output_hidden_states=True).hidden_states
        states += [layer[0] for layer in hidden[1:]]
    return torch.cat(states)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_points_are_all_layers_outputs_for_all_tokens_but_padding(small, tiny, layout, monkeypatch):
    if layout in ("padded", "chunks"):
        switch_off_packing(monkeypatch, 0 if layout == "chunks" else None)
    module, batch, loaders = built(small, *TOKENS, *LAYOUTS[layout], "calibration.strength=-3", "calibration.zeta=0")
    expected = states_one_by_one(tiny, loaders, batch)
    with torch.no_grad():
        vectors, states = module.encode_with_tokens(batch)
    assert states.shape == expected.shape
    order, expected_order = (x[:, 0].argsort() for x in (states, expected))
    torch.testing.assert_close(states[order], expected[expected_order], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(vectors, module.encode(batch))
    loss = module.training_step(batch, 0)
    task = module.compute_task_loss(module.head(module.embed(batch)), batch["labels"])
    assert (loss - task).item() == pytest.approx(-3 * (1 - isoscore(expected)), abs=1e-4)
    loss.backward()
    assert all(p.grad is not None for p in module.encoder.model.encoder.layer.parameters())


def test_gradient_checkpointing_keeps_the_states_gradients(small):
    gradients = []
    for override in ("encoder.gradient_checkpointing=false", "encoder.gradient_checkpointing=true"):
        module, batch, _ = built(small, *TOKENS, "calibration.zeta=0", "calibration.strength=100", override)
        for part in module.train().modules():
            if isinstance(part, nn.Dropout | CpuDropout):
                part.p = part.threshold = 0
        module.training_step(batch, 0).backward()
        gradients.append([p.grad for p in module.encoder.parameters() if p.grad is not None])
    assert len(gradients[0]) > 20
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
