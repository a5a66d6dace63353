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
from helpers import drop_replaced

from isobench.common.errors import UserError

HERE = Path(__file__).resolve().parents[1]  # tests/


def results(outputs) -> dict[str, tuple]:
    found = {}
    for file in outputs.glob("runs/*/result.json"):
        record = json.loads(file.read_text())
        found[file.parent.name] = (record["history"], record["predictions"]["sha256"], record["attempts"])
    return found


def logs(outputs) -> list[str]:
    return [file.read_text() for file in outputs.glob("jobs/*/*_log.err")]


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
        ["hydra/launcher=basic"],
        ["hydra/launcher=local", "hydra.launcher.processes=2"],
        ["hydra/launcher=auto", "hydra.launcher.processes=2"],
    ],
    ids=["basic", "local", "auto"],
)
def test_every_launcher_gives_the_same_results_and_table(cli, quick, outputs, tmp_path, launcher):
    grid = ["-m", "seed=1,2,3"]
    code, table, _ = cli(*quick, f"output_dir={tmp_path}/reference", *grid)
    assert code == 0
    code, out, err = cli(*quick, *launcher, *grid)
    assert code == 0, err
    assert results(outputs) == results(tmp_path / "reference")
    assert drop_times(out.replace(str(outputs), "")) == drop_times(table.replace(f"{tmp_path}/reference", ""))
    code, again, err = cli(*quick, *launcher, *grid)
    assert "3 runs: 3 finished, 0 to do" in err
    assert again == out


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher",
    [
        ["hydra/launcher=local", "hydra.launcher.processes=2"],
        ["hydra/launcher=auto", "hydra.launcher.processes=2"],
    ],
    ids=["local", "auto"],
)
def test_runs_that_are_killed_don_t_take_the_others_with_them(cli, quick, outputs, monkeypatch, launcher):
    """Two of four runs take their process; the others still end."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("ISOBENCH_TEST_SLEEP", "0.2")
    grid = ["calibration._target_=slow_calibration.Either", "+calibration.kind=killing,slow", "seed=1,2", "-m"]
    code, out, err = cli(*quick, *grid, *launcher)
    if "local" not in launcher[0]:
        assert "a process was killed (out of memory?)" in err
    assert code == 1
    assert len(results(outputs)) == 2
    assert "2 interrupted" in out


@pytest.mark.slow
def test_local_processes_go_on_without_a_wait_and_log(cli, quick, outputs):
    code, out, err = cli(*quick, "hydra/launcher=local", "hydra.launcher.wait=false", "seed=1,2", "-m")
    assert code == 0, err
    assert "Submitted 2 runs in local job" in out
    assert "isobench status" in out
    last = out.splitlines()[-1]
    assert last.startswith("When the runs have ended, get table and page by: isobench report task=")
    code, out, err = cli(*quick, "seed=1,2", "-m")  # the same sweep at once: nothing is started twice
    assert code == 3
    assert "2 running or queued, 0 to do" in err
    deadline = time.monotonic() + 120
    while len(results(outputs)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert all(attempts == 1 for _, _, attempts in results(outputs).values())
    while not all(any(f"seed {seed}: accuracy" in log for log in logs(outputs)) for seed in (1, 2)):
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.slow
def test_ctrl_c_while_waiting_for_local_processes_saves_their_work(quick, outputs, monkeypatch):
    monkeypatch.setenv("ISOBENCH_TEST_SLEEP", "0.5")
    slow = [*quick, "calibration._target_=slow_calibration.Slow", "hydra/launcher=local", "-m"]
    process = subprocess.Popen([sys.executable, "-m", "isobench", *slow], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not any('"training"' in file.read_text() for file in outputs.glob("runs/*/progress.json")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.splitlines()[-1].startswith("isobench: interrupted")
    assert len(list(outputs.glob("runs/*/checkpoints/*.ckpt"))) == 1
    (beat,) = outputs.glob("runs/*/progress.json")
    assert json.loads(beat.read_text())["state"] == "interrupted"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("hydra.launcher.processes=0", "hydra.launcher.processes=0 must be at least 1"),
        ("hydra.launcher.proceses=2", "there is no setting hydra.launcher.proceses"),
    ],
)
def test_a_launchers_settings_are_checked(cli, quick, outputs, setting, message):
    code, _, err = cli(*quick, "hydra/launcher=local", setting, "-m")
    assert code == 2
    assert message in err
    assert len([line for line in err.splitlines() if "runs:" not in line]) == 1
    assert not outputs.exists()


@pytest.mark.slow
def test_slurm_where_there_is_none_is_one_line(cli, quick, outputs, monkeypatch):
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))  # noqa: PTH120
    code, _, err = cli(*quick, "hydra/launcher=slurm", "-m")
    assert code == 2
    assert "isobench: hydra/launcher=slurm: there is no srun here" in err
    assert "Traceback" not in err
    assert not outputs.exists()


@pytest.mark.slow
def test_after_a_run_the_signals_are_their_owners_again(cli, quick):
    stop_signals = (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT, signal.SIGHUP)
    handlers = {signum: signal.getsignal(signum) for signum in stop_signals}
    assert cli(*quick)[0] == 0
    assert {signum: signal.getsignal(signum) for signum in handlers} == handlers


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_reaches_only_the_waiting_process(quick, outputs, monkeypatch):
    """A terminal signals its whole foreground group; the local processes must be told by us, once, to save."""
    monkeypatch.setenv("ISOBENCH_TEST_SLEEP", "0.5")
    slow = [*quick, "calibration._target_=slow_calibration.Slow", "hydra/launcher=local", "seed=1,2", "-m"]
    process = subprocess.Popen(
        [sys.executable, "-m", "isobench", *slow], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while sum('"training"' in file.read_text() for file in outputs.glob("runs/*/progress.json")) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert len(list(outputs.glob("runs/*/checkpoints/*.ckpt"))) == 2


@pytest.mark.parametrize(
    ("launcher", "setting", "message"),
    [
        ("slurm", "hydra.launcher.setup=module", "hydra.launcher.setup=module must be a list"),
        (
            "slurm",
            "hydra.launcher.extra=[reservation]",
            "hydra.launcher.extra[0]=reservation must be an sbatch option with its value",
        ),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("slurm", "hydra.launcher.wait=maybe", "hydra.launcher.wait=maybe must be true or false"),
                ("slurm", "hydra.launcher.memory_gb=abc", "hydra.launcher.memory_gb=abc must be a number, above 0"),
                ("slurm", "hydra.launcher.max_timeouts=-2", "hydra.launcher.max_timeouts=-2 must be at least 1"),
                ("slurm", "hydra.launcher.time=4h", "hydra.launcher.time=4h must be a whole number"),
            )
        ),
        ("auto", "hydra.launcher.processes=0", "hydra.launcher.processes=0 must be at least 1"),
        ("joblib", "hydra.launcher.n_jobs=0", "hydra.launcher.n_jobs=0 must be a number of processes"),
        ("local", "hydra.launcher.wait=maybe", "hydra.launcher.wait=maybe must be true or false"),
    ],
)
def test_every_setting_is_checked_before_anything_is_submitted(cli, quick, outputs, launcher, setting, message):
    code, _, err = cli(*quick, f"hydra/launcher={launcher}", setting, "-m")
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert not outputs.exists()


def wait_until_training(outputs, runs: int) -> None:
    deadline = time.monotonic() + 120
    while sum('"training"' in file.read_text() for file in outputs.glob("runs/*/progress.json")) < runs:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("launcher", ["local", "auto"])
def test_a_stopped_sweep_saves_what_its_processes_do_and_starts_nothing_more(
    quick, outputs, monkeypatch, launcher, signum
):
    monkeypatch.setenv("ISOBENCH_TEST_SLEEP", "0.5")
    slow = [*quick, "calibration._target_=slow_calibration.Slow", f"hydra/launcher={launcher}", "seed=1,2,3,4", "-m"]
    command = [sys.executable, "-m", "isobench", *slow, "hydra.launcher.processes=2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_until_training(outputs, 2)
    os.kill(process.pid, signum)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 128 + signum, err
    assert err.splitlines()[-1].startswith("isobench: interrupted")
    assert len(list(outputs.glob("runs/*/checkpoints/*.ckpt"))) == 2
    states = [json.loads(file.read_text())["state"] for file in outputs.glob("runs/*/progress.json")]
    assert states.count("interrupted") == 2
    assert not results(outputs)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["auto", "local"])
def test_a_signal_that_python_drops_in_a_worker_still_stops_the_run(cli, quick, outputs, monkeypatch, launcher):
    """It arrives in the ``__del__`` of an object. The run saves at its first step, and nothing more is begun."""
    monkeypatch.syspath_prepend(str(HERE))
    destroying = [*quick, "calibration._target_=slow_calibration.Destroying", f"hydra/launcher={launcher}"]
    code, _, err = cli(*destroying, "hydra.launcher.processes=2", "seed=1,2,3,4", "-m")
    assert code == (143 if launcher == "auto" else 1), err  # under local, a job that ends without a result
    assert not results(outputs)
    states = [json.loads(file.read_text())["state"] for file in outputs.glob("runs/*/progress.json")]
    assert set(states) == {"interrupted"}
    assert len(states) <= 2
    assert len(list(outputs.glob("runs/*/checkpoints/*.ckpt"))) == len(states)


def start_slow_sweep(quick, monkeypatch, launcher) -> subprocess.Popen:
    """Start a sweep of four slow runs in two processes."""
    monkeypatch.setenv("ISOBENCH_TEST_SLEEP", "0.5")
    count = "n_jobs=2" if launcher == "joblib" else "processes=2"
    slow = [*quick, "calibration._target_=slow_calibration.Slow", f"hydra/launcher={launcher}", "seed=1,2,3,4", "-m"]
    command = [sys.executable, "-m", "isobench", *slow, f"hydra.launcher.{count}"]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)


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
@pytest.mark.parametrize("launcher", ["auto", "local", "joblib"])
def test_workers_save_and_end_when_their_parent_is_killed(quick, outputs, monkeypatch, launcher):
    process = start_slow_sweep(quick, monkeypatch, launcher)
    wait_until_training(outputs, 2)
    descendants = kill_alone(process)
    beats = [json.loads(file.read_text()) for file in outputs.glob("runs/*/progress.json")]
    assert {beat["pid"] for beat in beats} <= {one.pid for one in descendants}
    wait_for_ends(descendants)
    assert len(list(outputs.glob("runs/*/checkpoints/*.ckpt"))) == 2
    states = [json.loads(file.read_text())["state"] for file in outputs.glob("runs/*/progress.json")]
    assert states == ["interrupted"] * 2  # and no other run was begun
    assert not results(outputs)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["auto", "local"])
def test_workers_that_are_starting_end_when_their_parent_is_killed(quick, outputs, monkeypatch, launcher):
    process = start_slow_sweep(quick, monkeypatch, launcher)
    deadline = time.monotonic() + 60
    while not any(is_worker(child) for child in psutil.Process(process.pid).children(recursive=True)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    wait_for_ends(kill_alone(process))
    assert not results(outputs)


def is_worker(process: psutil.Process) -> bool:
    """True if a process has begun to become a worker of a pool, or the job of submitit's controller."""
    try:
        return any("spawn_main" in word or "submitit.core._submit" in word for word in process.cmdline())
    except psutil.Error:
        return False


def test_a_scheduler_that_does_not_answer_has_lost_no_job(cli, quick, outputs, tmp_path, monkeypatch):
    from isobench.runs.jobs import Submission, find_queued_jobs

    outputs.mkdir()
    Submission("slurm", "12", {"12_0": ["ab" * 8]}, time.time()).save(outputs)
    program = tmp_path / "bin" / "squeue"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    for body, holds in (("echo 12_0", True), ("echo 13", False)):
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        assert ("ab" * 8 in find_queued_jobs(outputs)) == holds
    program.write_text("#!/bin/sh\nexit 1\n")
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
    code, _, err = cli(*crash, "retry_failed=true")
    assert code == 0, err


@pytest.mark.parametrize(("n_jobs", "processes"), [(3, 3), (-1, 8), (-2, 7), (-20, 1)])
def test_joblib_is_carried_out_by_our_own_processes(monkeypatch, n_jobs, processes):
    from hydra_plugins.hydra_joblib_launcher.joblib_launcher import JoblibLauncher

    from isobench.sweep import auto

    monkeypatch.setattr(auto, "count_cores", lambda: 8)
    launcher = auto.replace_joblib(JoblibLauncher(n_jobs=n_jobs, prefer="processes", verbose=0))
    assert isinstance(launcher, auto.AutomaticLauncher)
    assert launcher.processes == processes
    with pytest.raises(UserError, match=r"hydra.launcher.verbose=3: .* takes n_jobs only"):
        auto.replace_joblib(JoblibLauncher(n_jobs=n_jobs, verbose=3))
