"""Test how a sweep's runs share the machine: cores, GPUs and memory."""

import sys
from types import SimpleNamespace

import pytest
from helpers import make_config, make_record

from isobench.runs.folder import RunFolder
from isobench.runs.run import Run
from isobench.sweep import launchers
from isobench.sweep.forecast import BASE_BYTES, GIB, MemoryForecast
from isobench.sweep.launchers import divide_machine
from isobench.sweep.pool import Division, measure_free_memory, read_memory_limits


@pytest.fixture
def cores(monkeypatch):
    """Set the number of cores; there is no GPU, and the user has set no threads."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(launchers, "list_gpus", list)
    monkeypatch.setattr(launchers, "has_apple_gpu", lambda: False)
    return lambda count: monkeypatch.setattr(launchers, "_count_cores", lambda: count)


@pytest.mark.parametrize(
    ("count", "planned", "processes", "division"),
    [
        (1, 15, None, Division(1)),
        (2, 15, None, Division(2, 1)),
        (2, 1, None, Division(1)),
        (8, 15, None, Division(8, 1)),
        (8, 4, None, Division(4, 2)),
        (8, 15, 2, Division(2, 4)),
        (8, 15, 1, Division(1)),
        (2, 15, 5, Division(5, 1)),
    ],
)
def test_every_run_has_a_core_or_a_share_of_the_cores(cores, count, planned, processes, division):
    cores(count)
    assert divide_machine([make_config()] * planned, planned, processes) == division


def test_a_user_chooses_the_threads_of_a_run(cores, monkeypatch):
    cores(8)
    assert divide_machine([make_config("trainer.threads=4")] * 15, 15) == Division(2, 4)
    assert divide_machine([make_config("trainer.threads=8")] * 15, 15) == Division(1)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert divide_machine([make_config()] * 15, 15) == Division(4, 2)


def test_every_gpu_has_a_process(cores, monkeypatch):
    cores(8)
    monkeypatch.setattr(launchers, "list_gpus", lambda: ["0", "1"])
    assert divide_machine([make_config()] * 15, 15) == Division(2, 4, ("0", "1"))
    assert divide_machine([make_config("trainer.accelerator=cpu")] * 15, 15) == Division(8, 1)
    monkeypatch.setattr(launchers, "list_gpus", lambda: ["0"])
    assert divide_machine([make_config()] * 15, 15) == Division(1, None, ("0",))


@pytest.mark.parametrize(("visible", "count", "names"), [(None, 2, ["0", "1"]), ("3,5", 2, ["3", "5"]), ("", 0, [])])
def test_gpus_have_the_names_that_the_user_s_shell_gives_them(monkeypatch, visible, count, names):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: count)))
    assert launchers.list_gpus() == names


def test_a_measured_peak_replaces_the_formula():
    forecast, cfg = MemoryForecast(), make_config()
    assert BASE_BYTES < forecast.estimate(cfg) < 4 * GIB
    forecast.add(cfg, 7e9)
    forecast.add(cfg, 6e9)
    assert forecast.estimate(cfg) == pytest.approx(1.15 * 7e9)
    other = make_config("optimization.batch_size=8")  # of another shape
    assert BASE_BYTES < forecast.estimate(other) < forecast.estimate(cfg)
    unknown = make_config("encoder=bert-base-cased")  # from the hub, which can't be reached
    assert forecast.estimate(unknown) is None


def write_group(folder, files):
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def test_memory_limits_of_control_groups_are_read(tmp_path):
    own = tmp_path / "cgroup"
    own.write_text("4:memory:/job\n1:cpu:/job\n0::/slice/step\n")
    write_group(
        tmp_path / "memory" / "job",
        {
            "memory.limit_in_bytes": "1000",
            "memory.usage_in_bytes": "600",
            "memory.stat": "cache 9\ntotal_inactive_file 100",
        },
    )
    parts = {"memory.current": "50", "memory.stat": "inactive_file 20"}
    write_group(tmp_path / "slice" / "step", {"memory.max": "max\n", **parts})
    (tmp_path / "slice" / "memory.max").write_text("400\n")
    (tmp_path / "slice" / "memory.current").write_text("300\n")
    (tmp_path / "slice" / "memory.stat").write_text("inactive_file 0\n")
    assert sorted(read_memory_limits(tmp_path, own)) == [(400.0, 300.0), (1000.0, 500.0)]
    assert read_memory_limits(tmp_path, tmp_path / "none") == []
    assert measure_free_memory() > 0


def test_finished_runs_of_the_sweep_give_the_first_forecast():
    forecast, cfg = MemoryForecast(), make_config()
    on_cpu = make_record(cfg, cost={"peak_memory_mib": {"resident": 700.0}})
    failed = make_record(
        cfg, cost={"peak_memory_mib": {"resident": 90_000.0}}, failure={"name": "crash", "message": ""}
    )
    on_gpu = make_record(cfg, cost={"peak_memory_mib": {"resident": 300.0}})
    on_gpu.provenance.gpus.append("H100")
    rows = [Run(cfg, RunFolder("nowhere", "0" * 64), record) for record in (None, on_cpu, failed, on_gpu)]
    forecast.add_finished(rows, with_gpu=False)
    assert forecast.estimate(cfg) == pytest.approx(1.15 * 700 * 2**20)
    forecast = MemoryForecast()
    forecast.add_finished(rows, with_gpu=True)
    assert forecast.estimate(cfg) == pytest.approx(1.15 * 300 * 2**20)
