"""The line that a dry run prints on memory: a rough size, which run it is for, and what is unknown and why."""

import pytest
import torch
from helpers import assert_contains, make_config

from isobench.sweep.forecast import GIB, estimate_bytes
from isobench.training.train import build_failure_entry


def test_without_the_hub_a_dry_run_says_what_is_unknown(cli, tmp_path):
    code, out, _ = cli("scale=paper", "data.root=null", "dry_run=true", f"output_dir={tmp_path}")
    assert code == 0
    assert "Memory: unknown, because encoder=bert-base-cased: the hub can't be reached" in out
    assert "Memory of the largest" not in out


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["task.labels=[a,b,c]", "task.metrics=[accuracy]"],
        ["task=captions", "encoder=bart-scratch", "encoder.scratch.d_model=7"],
        ["+experiment=isobn_ev", "calibration._target_=nowhere.A"],
    ],
)
def test_a_dry_run_refuses_what_can_not_work(cli, tmp_path, settings):
    code, _, err = cli(*settings, f"output_dir={tmp_path}", "dry_run=true")
    assert (code, err.count("\n")) == (2, 1)


@pytest.mark.slow
def test_a_dry_run_says_what_slurm_gets_and_what_few_seeds_show(cli, tmp_path):
    sweep = ["+experiment=glue_isobn", "-m", "seed=1,2,3", "tracking=none", f"output_dir={tmp_path}", "dry_run=true"]
    code, out, _ = cli(*sweep, "hydra/launcher=slurm", "hydra.launcher.workers=5")
    assert code == 0
    assert_contains(
        out,
        "SLURM: 5 jobs of gpus-per-node=1, cpus-per-task=4, mem=32768M, time=240;",
        "3 seeds show a difference",
        "5 seeds find one of 2.1",
    )
    assert "seeds show" not in cli(*sweep, "calibration=none")[1]


@pytest.mark.slow
def test_a_dry_run_estimates_the_largest_run_and_reads_no_weights(cli, small, monkeypatch):
    import safetensors

    monkeypatch.setattr(safetensors, "safe_open", None)
    code, out, _ = cli(*small, "calibration=none,isobn_paper", "optimization.batch_size=8,16", "-m", "dry_run=true")
    lines = [line for line in out.splitlines() if "Memory" in line]
    assert (code, len(lines)) == (0, 1)
    assert_contains(lines[0], "roughly", "sst2 local", "32-true")


# GiB of tensors at the peak of a step, counted by torch's fake tensors: as it is, with checkpointing, in bf16.
COUNTED = [
    ("bert", {}, ["task.max_length=256"], (6.1, 2.1, 4.7)),
    ("bert", {"hidden_size": 1024, "num_hidden_layers": 24}, ["task.max_length=128"], (11.0, 5.5, 9.4)),
    ("distilbert", {}, ["task.max_length=128"], (2.0, 1.2, 1.7)),
    (
        "bart",
        {"d_model": 768, "encoder_layers": 6, "decoder_layers": 6},
        ["task=cnn_dailymail", "task.max_length=1024", "optimization.batch_size=48"],
        (22.4, 6.1, 15.9),
    ),
]


@pytest.mark.parametrize(("kind", "sizes", "overrides", "counted"), COUNTED)
def test_the_formula_is_within_a_third_of_what_was_counted(kind, sizes, overrides, counted):
    from transformers import AutoConfig

    model = AutoConfig.for_model(kind, **sizes)
    settings = ([], ["encoder.gradient_checkpointing=true"], ["trainer.precision=bf16-mixed"])
    for more, expected in zip(settings, counted, strict=True):
        size = estimate_bytes(make_config(*overrides, "optimization.accumulate=1", *more), model) / GIB
        assert expected / 1.34 < size < expected * 1.34, (more, size, expected)


def test_a_lack_of_memory_during_a_run_has_a_name_and_advice():
    failure = build_failure_entry(torch.OutOfMemoryError("CUDA out of memory"), 3)
    assert (failure.name, failure.step) == ("out_of_memory", 3)
    assert "encoder.gradient_checkpointing=true" in failure.message
