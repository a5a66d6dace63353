"""The line that a dry run prints on memory: which run it is for, and what is unknown and why."""

import pytest
from helpers import assert_contains, make_config

from isobench.sweep import memory_forecast
from isobench.sweep.memory_forecast import describe_memory, find_largest


def test_without_the_hub_a_dry_run_says_what_is_unknown(cli, tmp_path):
    code, out, _ = cli("scale=paper", "data.root=null", "dry_run=true", f"output_dir={tmp_path}")
    assert code == 0
    reason = "the hub can't be reached and the model's config is not in its cache"
    assert f"Memory: unknown, because encoder=bert-base-cased: {reason}" in out
    assert "Memory of the largest" not in out


@pytest.mark.slow
def test_a_dry_run_forecasts_the_largest_run_and_reads_no_weights(cli, small, monkeypatch):
    import safetensors

    monkeypatch.setattr(safetensors, "safe_open", None)
    code, out, _ = cli(*small, "calibration=none,isobn_paper", "optimization.batch_size=8,16", "-m", "dry_run=true")
    lines = [line for line in out.splitlines() if "Memory" in line]
    assert (code, len(lines)) == (0, 1)
    expected = ["Memory of the largest run on a GPU (forecast):", "16 texts of 40 tokens, 32-true", "sst2 local"]
    assert_contains(lines[0], *expected)


def test_finished_runs_need_no_memory():
    assert describe_memory([]) == []


@pytest.mark.slow
def test_the_largest_run_has_the_largest_batch_and_method():
    from transformers import BertConfig

    config = BertConfig(num_hidden_layers=1)
    runs = [
        make_config("scale=paper", f"optimization.batch_size={size}", f"calibration={method}", *more)
        for size in (16, 32)
        for method, more in [("none", []), ("spectrum_polynomial", ["calibration.target=vocabulary"]), ("cosine", [])]
    ]
    cfg, _ = find_largest([(run, config) for run in runs])
    assert (cfg.optimization.batch_size, cfg.calibration["name"]) == (32, "spectrum_polynomial")


@pytest.mark.slow
def test_a_step_that_fails_without_values_is_said(monkeypatch):
    from transformers import BertConfig

    def fail(*_):
        raise RuntimeError("needs a value\nand more")

    monkeypatch.setattr("isobench.models.skeletons.read_encoder_config", lambda _: BertConfig())
    monkeypatch.setattr("isobench.training.memory.forecast_memory", fail)
    expected = "Memory: unknown, because a step without values failed: needs a value"
    assert describe_memory([make_config("scale=paper")]) == [expected]
    assert memory_forecast.format_gib(1 << 20) == "1 MiB"
