"""Whose random numbers dropout uses: ours where it can be, else torch's, and what a resumed run says."""

import pytest
import torch
from helpers import build_parts, make_config

from isobench.models.dropout import CpuDropout
from isobench.training.build import uses_cpu_dropout

TORCH = "encoder.gradient_checkpointing=true"


def build(*overrides):
    return build_parts(*overrides).module


def list_dropout(module):
    return {type(child) for child in module.modules() if "Dropout" in type(child).__name__}


@pytest.mark.parametrize("overrides", [[], ["head=huggingface"]])
def test_encoder_and_head_get_lanes(small, overrides):
    module = build(*small, *overrides)
    assert list_dropout(module) == {CpuDropout}
    assert isinstance(module.dropout, CpuDropout)
    assert all(child.source is module.dropout_numbers for child in module.modules() if isinstance(child, CpuDropout))


def test_gradient_checkpointing_has_torch_s_dropout(small):
    module = build(*small, TORCH)
    assert module.dropout_numbers is None
    assert list_dropout(module) == {torch.nn.Dropout}


def test_a_gpu_gets_torch_s_dropout(monkeypatch):
    assert uses_cpu_dropout(make_config())
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert not uses_cpu_dropout(make_config())
    assert uses_cpu_dropout(make_config("trainer.accelerator=cpu"))
