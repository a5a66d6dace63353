"""Test how a sweep's runs share the machine: cores, GPUs and memory."""

import sys
from types import SimpleNamespace

import pytest
from helpers import make_config, make_ended_run, make_record

from isobench.runs.folder import RunFolder
from isobench.runs.run import Run
from isobench.sweep import machine
from isobench.sweep.forecast import BASE_BYTES, GIB, MIB, Forecast, estimate_bytes, forecast_memory
from isobench.sweep.machine import Division, divide_machine, limit_by_memory, measure_free_memory


def test_every_gpu_has_a_process(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(machine, "_count_cores", lambda: 8)
    monkeypatch.setattr(machine, "list_gpus", lambda: ["0", "1"])
    assert divide_machine([make_config()] * 15, 15) == Division(2, 4, ("0", "1"))
    assert divide_machine([make_config("trainer.accelerator=cpu")] * 15, 15) == Division(8, 1)
    monkeypatch.setattr(machine, "list_gpus", lambda: ["0"])
    assert divide_machine([make_config()] * 15, 15) == Division(1, None, ("0",))


@pytest.mark.parametrize(("visible", "count", "names"), [(None, 2, ["0", "1"]), ("3,5", 2, ["3", "5"]), ("", 0, [])])
def test_gpus_have_the_names_that_the_user_s_shell_gives_them(monkeypatch, visible, count, names):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: count)))
    assert machine.list_gpus() == names


def end(cfg, mib, gpus=(), **parts):
    record = make_record(cfg, cost={"peak_memory_mib": {"resident": mib}}, **parts)
    record.provenance.gpus.extend(gpus)
    return Run(cfg, RunFolder("nowhere", "0" * 64), record)


def test_measured_peaks_replace_the_formula_for_runs_of_their_shape():
    cfg = make_config()
    by_formula = forecast_memory([cfg], [], with_gpu=False)
    assert BASE_BYTES < by_formula < 4 * GIB
    ended = [end(cfg, 700), end(cfg, 600), end(cfg, 300, ["H100"]), Run(cfg, RunFolder("nowhere", "0" * 64), None)]
    ended.append(end(cfg, 90_000, failure={"name": "crash", "message": ""}))
    assert forecast_memory([cfg], ended, with_gpu=False) == pytest.approx(1.15 * 700 * MIB)
    assert forecast_memory([cfg], ended, with_gpu=True) == pytest.approx(1.15 * 300 * MIB)
    smaller = make_config("optimization.batch_size=8")  # of another shape
    assert BASE_BYTES < forecast_memory([cfg, smaller], ended, with_gpu=False) < by_formula
    unknown = make_config("encoder=bert-base-cased")  # from the hub, which can't be reached
    assert forecast_memory([cfg, unknown], ended, with_gpu=False) is None
    assert BASE_BYTES < forecast_memory([cfg], [], with_gpu=True) < 0.2 * by_formula + BASE_BYTES  # its weights alone


def test_a_start_is_forecast_once_and_not_for_every_epoch():
    cost = {"seconds": 14.0, "training_seconds": 6.0, "evaluation_seconds": 2.0}
    ended = [make_ended_run(0.7, "optimization.epochs=9", epochs=4, cost=cost)]  # early stopping left 4 of 9 epochs
    longer, same = (make_config("data.root=null", f"optimization.epochs={epochs}") for epochs in (30, 9))
    assert [Forecast(ended).estimate_seconds(cfg) for cfg in (longer, same)] == [6 + 30 * 2, 14]


def test_memory_decides_how_many_workers_there_are(monkeypatch):
    monkeypatch.setattr(machine, "measure_free_memory", lambda: 1.9 * GIB)
    for need, workers in ((0.5 * GIB, 3), (1.8 * GIB, 1), (5 * GIB, 1), (None, 1)):
        assert limit_by_memory(Division(4, 1), need) == Division(workers, 1)


def test_memory_limits_of_control_groups_are_read(tmp_path):
    def write(folder, limit, use, inactive):
        folder.mkdir(exist_ok=True)
        (folder / "memory.max").write_text(limit)
        (folder / "memory.current").write_text(use)
        (folder / "memory.stat").write_text(f"anon 3\ninactive_file {inactive}\n")

    own = tmp_path / "cgroup"
    own.write_text("4:memory:/job\n0::/slice/step\n")
    write(tmp_path / "slice", "400\n", "300\n", "20")
    write(tmp_path / "slice/step", "max\n", "50\n", "0")
    assert measure_free_memory(tmp_path, own) == 120
    write(tmp_path / "slice/step", "90\n", "50\n", "0")
    assert measure_free_memory(tmp_path, own) == 40
    assert measure_free_memory(tmp_path, tmp_path / "none") > 400


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
