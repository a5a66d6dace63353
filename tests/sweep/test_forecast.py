"""The memory that a dry run forecasts: the formula against what was counted, and no weights are read for it."""

import pytest
import torch
from helpers import check_done, make_config

from isobench.sweep.forecast import GIB, estimate_bytes
from isobench.training.train import build_failure_entry


@pytest.mark.slow
def test_a_dry_run_estimates_the_largest_run_and_reads_no_weights(cli, small, monkeypatch):
    monkeypatch.setattr("safetensors.safe_open", None)
    sweep = [*small, "calibration=none,isobn_paper", "optimization.batch_size=8,16", "-m", "dry_run=true"]
    assert "roughly" in check_done(cli(*sweep))[0]


# GiB of tensors at the peak of a step, counted by torch's fake tensors: as it is, with checkpointing, in bf16.
COUNTED = [
    ("bert", {}, ["task.max_length=256"], (6.1, 2.1, 4.7)),
    ("bert", {"hidden_size": 1024, "num_hidden_layers": 24}, ["task.max_length=128"], (11.0, 5.5, 9.4)),
    ("distilbert", {}, ["task.max_length=128"], (2.0, 1.2, 1.7)),
    ("bart", {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6},
     ["task=cnn_dailymail", "task.max_length=1024", "optimization.batch_size=48"], (22.4, 6.1, 15.9)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "sizes", "overrides", "counted"), COUNTED)
def test_the_formula_is_within_a_third_of_what_was_counted(kind, sizes, overrides, counted):
    from transformers import AutoConfig

    model = AutoConfig.for_model(kind, **sizes)
    settings = ([], ["encoder.gradient_checkpointing=true"], ["trainer.precision=bf16-mixed"])
    for more, expected in zip(settings, counted, strict=True):
        size = estimate_bytes(make_config(*overrides, "optimization.accumulate=1", *more), model) / GIB
        assert expected / 1.34 < size < expected * 1.34, (more, size, expected)


def test_a_lack_of_memory_during_a_run_has_a_name():
    failure = build_failure_entry(torch.OutOfMemoryError("CUDA out of memory"), 3)
    assert (failure.name, failure.step) == ("out_of_memory", 3)
