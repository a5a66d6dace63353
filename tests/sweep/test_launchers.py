"""The same sweep through every launcher; SLURM has its own file."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from helpers import check_done, drop_replaced, install_programs, read_records

HERE = Path(__file__).resolve().parents[1]  # tests/


def results(outputs) -> dict[str, tuple]:
    return {
        name: (record["history"], record["predictions"]["sha256"], record["attempts"])
        for name, record in read_records(outputs).items()
    }


def read_beats(outputs) -> list[dict]:
    return [json.loads(file.read_text()) for file in outputs.glob("runs/*/progress.json")]


@pytest.fixture
def quick(small, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    return drop_replaced([*small, "optimization.epochs=1", "trainer.threads=1"])


def drop_times(table):
    """Remove the times of a table, which differ between sweeps, and what is as wide as they are."""
    return re.sub(r"\d+\.\d s|[ ─]+", " ", table)


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher",
    [
        ["hydra/launcher=sequential"],
        ["hydra/launcher=auto", "hydra.launcher.processes=2"],
    ],
    ids=["sequential", "auto"],
)
def test_every_launcher_gives_the_same_results_and_table(cli, quick, outputs, tmp_path, launcher):
    grid = ["-m", "seed=1,2,3"]
    code, table, _ = cli(*quick, f"output_dir={tmp_path}/reference", *grid)
    assert code == 0
    out, _ = check_done(cli(*quick, *launcher, *grid))
    assert results(outputs) == results(tmp_path / "reference")
    assert drop_times(out.replace(str(outputs), "")) == drop_times(table.replace(f"{tmp_path}/reference", ""))
    code, again, err = cli(*quick, *launcher, *grid)
    assert "3 runs: 3 finished, 0 to do" in err
    assert again == out


@pytest.mark.slow
def test_runs_that_are_killed_don_t_take_the_others_with_them(cli, quick, outputs, monkeypatch):
    """Two of four runs take their process; the others still end."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("ISOBENCH_TEST_SLEEP", "0.2")
    grid = ["calibration._target_=slow_calibration.Either", "+calibration.kind=killing,slow", "seed=1,2", "-m"]
    code, out, err = cli(*quick, *grid, "hydra.launcher.processes=2")
    assert "a process was killed (out of memory?)" in err
    assert code == 1
    assert len(results(outputs)) == 2
    assert "2 interrupted" in out


@pytest.mark.parametrize(
    ("launcher", "setting", "message"),
    [
        ("slurm", "hydra.launcher.setup=module", "hydra.launcher.setup=module"),
        ("slurm", "hydra.launcher.extra=[reservation]", "hydra.launcher.extra"),
        ("slurm", "hydra.launcher.memory_gb=abc", "hydra.launcher.memory_gb=abc"),
        ("auto", "hydra.launcher.processes=0", "hydra.launcher.processes=0"),
        ("auto", "hydra.launcher.proceses=2", "there is no setting hydra.launcher.proceses"),
        ("joblib", "hydra.launcher.n_jobs=2", "set hydra.launcher.processes=N"),
        ("local", "hydra.launcher.wait=false", "set hydra.launcher.processes=N"),
        ("basic", "seed=2", "write hydra/launcher=sequential"),
    ],
)
def test_every_setting_is_checked_before_anything_is_submitted(cli, quick, outputs, launcher, setting, message):
    code, _, err = cli(*quick, f"hydra/launcher={launcher}", setting, "-m")
    assert code == 2
    assert message in err
    assert len([line for line in err.splitlines() if "runs:" not in line]) == 1
    assert not outputs.exists()


def wait_until_training(outputs, runs: int) -> None:
    deadline = time.monotonic() + 120
    while sum('"training"' in file.read_text() for file in outputs.glob("runs/*/progress.json")) < runs:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def start_slow_sweep(quick, monkeypatch, seeds="1,2,3,4", sleep="0.5", stderr=subprocess.DEVNULL) -> subprocess.Popen:
    """Start a sweep of slow runs in two processes."""
    monkeypatch.setenv("ISOBENCH_TEST_SLEEP", sleep)
    slow = [*quick, "calibration._target_=slow_calibration.Slow", f"seed={seeds}", "-m"]
    command = [sys.executable, "-m", "isobench", *slow, "hydra.launcher.processes=2"]
    return subprocess.Popen(command, stderr=stderr, text=True, start_new_session=True)


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_sweep_saves_what_its_processes_do_and_starts_nothing_more(quick, outputs, monkeypatch, signum):
    process = start_slow_sweep(quick, monkeypatch, stderr=subprocess.PIPE)
    wait_until_training(outputs, 2)
    os.kill(process.pid, signum)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 128 + signum, err
    assert err.splitlines()[-1].startswith("isobench: interrupted")
    assert len(list(outputs.glob("runs/*/checkpoints/*.ckpt"))) == 2
    states = [beat["state"] for beat in read_beats(outputs)]
    assert states.count("interrupted") == 2
    assert not results(outputs)


@pytest.mark.slow
def test_a_signal_that_python_drops_in_a_worker_still_stops_the_run(cli, quick, outputs, monkeypatch):
    """It arrives in the ``__del__`` of an object. The run saves at its first step, and nothing more is begun."""
    monkeypatch.syspath_prepend(str(HERE))
    destroying = [*quick, "calibration._target_=slow_calibration.Destroying"]
    code, _, err = cli(*destroying, "hydra.launcher.processes=2", "seed=1,2,3,4", "-m")
    assert code == 143, err
    assert not results(outputs)
    states = [beat["state"] for beat in read_beats(outputs)]
    assert set(states) == {"interrupted"}
    assert len(states) <= 2
    assert len(list(outputs.glob("runs/*/checkpoints/*.ckpt"))) == len(states)


def kill_alone(process: subprocess.Popen) -> list[psutil.Process]:
    """Kill a process, and return the processes that it and its children had started."""
    descendants = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    return descendants


def wait_for_ends(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=60)
    try:
        assert not [one for one in alive if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    finally:
        for one in alive:
            one.kill()


@pytest.mark.slow
def test_workers_save_and_end_when_their_parent_is_killed(quick, outputs, monkeypatch):
    process = start_slow_sweep(quick, monkeypatch)
    wait_until_training(outputs, 2)
    descendants = kill_alone(process)
    assert {beat["pid"] for beat in read_beats(outputs)} <= {one.pid for one in descendants}
    wait_for_ends(descendants)
    assert len(list(outputs.glob("runs/*/checkpoints/*.ckpt"))) == 2
    states = [beat["state"] for beat in read_beats(outputs)]
    assert states == ["interrupted"] * 2  # and no other run was begun
    assert not results(outputs)


@pytest.mark.slow
def test_a_sweep_that_was_killed_is_finished_by_the_same_command_at_once(quick, outputs, tmp_path, monkeypatch):
    """Its orphaned workers are in a step of eight seconds, and still run when the second command plans its runs."""
    sleep = tmp_path / "sleep"
    sleep.write_text("0.3")
    process = start_slow_sweep(quick, monkeypatch, "1,2", str(sleep))
    wait_until_training(outputs, 2)
    sleep.write_text("8")
    time.sleep(1)
    kill_alone(process)
    sleep.write_text("0")
    again = subprocess.run(process.args, capture_output=True, text=True, timeout=240)
    assert "2 running" in again.stderr
    assert again.returncode == 0, again.stderr
    assert [attempts for *_, attempts in results(outputs).values()] == [2, 2]


@pytest.mark.slow
def test_workers_that_are_starting_end_when_their_parent_is_killed(quick, outputs, monkeypatch):
    process = start_slow_sweep(quick, monkeypatch)
    deadline = time.monotonic() + 60
    while not any(is_worker(child) for child in psutil.Process(process.pid).children(recursive=True)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    wait_for_ends(kill_alone(process))
    assert not results(outputs)


def is_worker(process: psutil.Process) -> bool:
    """True if a process has begun to become a worker of a pool."""
    try:
        return any("spawn_main" in word for word in process.cmdline())
    except psutil.Error:
        return False


def test_a_scheduler_that_does_not_answer_has_lost_no_job(cli, quick, outputs, tmp_path, monkeypatch):
    from isobench.runs.state import Submission, find_queued_jobs

    outputs.mkdir()
    Submission("12", {"12_0": ["ab" * 8]}, time.time()).save(outputs)
    for script, holds in (("echo 12_0", True), ("echo 13", False)):
        install_programs(monkeypatch, tmp_path / "bin", {"squeue": script})
        assert ("ab" * 8 in find_queued_jobs(outputs)) == holds
    install_programs(monkeypatch, tmp_path / "bin", {"squeue": "exit 1"})
    code, _, err = cli(*quick, "-m")
    assert code == 2
    assert "SLURM doesn't say which jobs it has" in err


@pytest.mark.slow
def test_a_crash_starts_anew_when_it_is_tried_again(cli, quick, outputs, monkeypatch):
    """Its code may have been mended: neither its checkpoints nor its state may stand in the way."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("ISOBENCH_TEST_CRASH", "1")
    crash = [*quick, "calibration._target_=slow_calibration.Mended", "checkpoint.steps=2"]
    assert cli(*crash)[0] == 1
    monkeypatch.setenv("ISOBENCH_TEST_CRASH", "0")
    assert cli(*crash)[0] == 1  # recorded as it was
    check_done(cli(*crash, "retry_failed=true"))
