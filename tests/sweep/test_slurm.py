"""Real SLURM: arrays, time-outs, cancelling, preemption, a node that dies, failures, two sweeps at once."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import slurm_cluster
from helpers import check_done, drop_replaced, read_records, review_columns, write_parquet
from slurm_cluster import squeue
from waiting import wait_until, watch_folder

from isobench.runs.state import is_process_alive

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]

HERE = Path(__file__).resolve().parents[1]  # tests/


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if reason := slurm_cluster.why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("slurm")
    before = os.environ.get("SLURM_CONF")
    slurm_cluster.up(folder)
    yield folder
    slurm_cluster.down(folder)
    os.environ.pop("SLURM_CONF")
    if before:
        os.environ["SLURM_CONF"] = before


def through_slurm(small: list[str]) -> list[str]:
    """Overrides that send a run of 30 steps through SLURM."""
    return drop_replaced([
        *small, "calibration._target_=slow_calibration.Slow", "optimization.epochs=3", "trainer.threads=1",
        "checkpoint.steps=2", "hydra/launcher=slurm", "hydra.launcher.cpus=1", "hydra.launcher.memory_gb=2",
        "hydra.launcher.gpus=null",
    ])  # fmt: skip


@pytest.fixture
def pace(tmp_path):
    """The file with the seconds that a step takes longer in the jobs."""
    (tmp_path / "pace").write_text("0.15")
    return tmp_path / "pace"


@pytest.fixture
def slurm(cluster, small, outputs, pace, monkeypatch):
    """Overrides of a run through SLURM."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("ISOBENCH_TEST_SLEEP", str(pace))
    yield through_slurm(small)
    for job in jobs_of(outputs):
        subprocess.run(["scancel", job], check=False)
    until(lambda: not mine(outputs), "the jobs are gone", outputs)


@pytest.fixture(scope="module")
def timing_out(cluster, tiny, reviews, cache, tmp_path_factory):
    """A run of 90 s in a job of two minutes, warned after one; it goes its way beside the other tests."""
    outputs = tmp_path_factory.mktemp("timeout") / "outputs"
    overrides = through_slurm([
        "task=sst2", f"data.root={reviews}", f"data.cache={cache}", "encoder=local", f"encoder.path={tiny}",
        f"output_dir={outputs}", "tracking=none", "optimization.batch_size=16", "optimization.lr=3e-3", "seed=1",
    ])  # fmt: skip
    limit = ["hydra.launcher.time=2", "hydra.launcher.signal_seconds=60"]
    environment = {**os.environ, "PYTHONPATH": str(HERE), "ISOBENCH_TEST_SLEEP": "3"}
    command = [sys.executable, "-m", "isobench", *overrides, *limit, "-m"]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return overrides, outputs


def jobs_of(outputs) -> list[str]:
    return [json.loads(file.read_text())["job"] for file in outputs.glob("jobs/array-*.json")]


def mine(outputs) -> str:
    """What the queue still holds of an output folder's jobs."""
    return "".join(squeue("--jobs", job) for job in jobs_of(outputs))


def records(outputs) -> dict[int, dict]:
    return {record["config"]["seed"]: record for record in read_records(outputs).values()}


def beats(outputs) -> list[dict]:
    found = []
    for file in outputs.glob("runs/*/progress.json"):
        try:
            found.append(json.loads(file.read_text()))
        except (FileNotFoundError, ValueError):
            continue
    return found


def until(condition, what: str, outputs: Path):
    """Wait as long as jobs of the output folder run, which changes their time in the queue, or write into it."""
    watch = watch_folder(outputs)
    return wait_until(condition, what, lambda: (mine(outputs), watch()), pause=0.3)


def a_checkpoint(outputs):
    return list(outputs.glob("runs/*/checkpoints/step-*.ckpt"))


def submit(cli, *arguments: str) -> str:
    """Submit; returns the job's number."""
    out, err = check_done(cli(*arguments, "-m"))
    assert "Submitted" in out, err
    return out.split("slurm job ")[1].split(",")[0]


def same_as_uninterrupted(cli, slurm, outputs, record, monkeypatch, tmp_path):
    """The run's record and predictions are those of a run in this process that nothing disturbed."""
    monkeypatch.setenv("ISOBENCH_TEST_SLEEP", "0")
    monkeypatch.syspath_prepend(str(HERE))
    local = [a for a in slurm if "launcher" not in a and not a.startswith("output_dir=")]
    check_done(cli(*local, f"seed={record['config']['seed']}", f"output_dir={tmp_path}/undisturbed"))
    (expected,) = read_records(tmp_path / "undisturbed").values()
    assert record["key"] == expected["key"]
    assert record["history"] == expected["history"]
    assert record["predictions"] == expected["predictions"]  # sha256 of the file
    assert not a_checkpoint(outputs)


@pytest.fixture
def check_resumed(cli, slurm, pace, outputs, monkeypatch, tmp_path):
    """Let the run of seed 1 go on to its end, and check that it is the one that nothing disturbed."""

    def check() -> dict:
        pace.write_text("0")
        record = until(lambda: records(outputs).get(1), "the run is finished", outputs)
        assert record["attempts"] == 2
        same_as_uninterrupted(cli, slurm, outputs, record, monkeypatch, tmp_path)
        return record

    return check


def test_a_grid_of_six_over_two_nodes_and_a_failing_run(cli, slurm, timing_out, outputs, monkeypatch):
    monkeypatch.setenv("ISOBENCH_TEST_SLEEP", "0.05")
    grid = [a for a in slurm if "_target_" not in a]
    grid += ["calibration._target_=slow_calibration.Either", "+calibration.kind=slow,failing", "seed=1,2,3"]
    code, _, err = cli(*grid, "hydra.launcher.wait=true", "-m")
    assert code == 1, err
    found = list(read_records(outputs).values())
    assert sorted(r["status"] for r in found) == ["failed"] * 3 + ["finished"] * 3
    assert {r["where"]["host"] for r in found} == set(slurm_cluster.NODES)
    assert all(r["attempts"] == 1 for r in found)
    failed = next(r for r in found if r["status"] == "failed")
    assert "as meant" in failed["failure"]["traceback"]
    assert Path(failed["where"]["log"]).is_file()
    assert "3 done, 3 failed" in status(*grid)


@pytest.mark.parametrize("signame", ["USR2", "TERM", None])
def test_scancel_saves_and_a_signal_requeues_and_resumes(cli, slurm, pace, outputs, check_resumed, signame):
    pace.write_text("2")  # it must still be training when the signal comes
    job = submit(cli, *slurm, "seed=1", "checkpoint.steps=null")
    until(lambda: any(beat["state"] == "training" for beat in beats(outputs)), "it trains", outputs)
    subprocess.run(["scancel", *([f"--signal={signame}"] if signame else []), job], check=True)
    if signame is None:  # it is not brought back, and the sweep goes on from there
        until(lambda: not mine(outputs), "the job is gone", outputs)
        assert "1 interrupted" in status(*slurm, "seed=1")
    until(lambda: a_checkpoint(outputs), "a checkpoint is saved", outputs)
    if signame is None:
        pace.write_text("0")
        submit(cli, *slurm, "seed=1")
    check_resumed()


def test_preemption_with_a_grace_time_requeues_and_resumes(cli, slurm, pace, outputs, check_resumed):
    pace.write_text("2")  # the run must still be training when the urgent job comes
    submit(cli, *slurm, "seed=1", "hydra.launcher.partition=cheap")
    until(lambda: a_checkpoint(outputs), "it trains", outputs)
    (beat,) = beats(outputs)
    where = ["--partition=main", f"--nodelist={beat['host']}", "--cpus-per-task=4"]
    urgent = ["sbatch", "--parsable", *where, "--output=/dev/null", "--wrap=sleep 3"]
    job = subprocess.run(urgent, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    until(lambda: not squeue("--jobs", job, "--states=PENDING"), "the urgent job has its place", outputs)
    check_resumed()


def test_a_node_that_dies_under_a_job(cli, slurm, pace, cluster, outputs, check_resumed):
    pace.write_text("2")
    submit(cli, *slurm, "seed=1")
    until(lambda: a_checkpoint(outputs), "it trains", outputs)
    (beat,) = beats(outputs)
    slurm_cluster.stop_node(cluster, beat["host"])
    until(lambda: not is_process_alive(beat["pid"]), "its processes are dead", outputs)
    assert check_resumed()["where"]["host"] != beat["host"]
    slurm_cluster.start_node(beat["host"])
    slurm_cluster.wait_until_idle(cluster)


def test_the_same_sweep_submitted_twice_and_its_processes_killed_runs_each_point_once(cli, slurm, pace, outputs):
    pace.write_text("2")  # no run ends before the last command has seen its job
    command = [sys.executable, "-m", "isobench", *slurm, "seed=1,2,3", "-m"]
    killed = subprocess.Popen([*command, "hydra.launcher.wait=true"], stdout=subprocess.DEVNULL)
    other = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until(lambda: list(outputs.glob("jobs/array-*.json")), "it has submitted", outputs)
    assert other.wait() == 0
    killed.kill()
    killed.wait()
    _, _, err = cli(*slurm, "seed=1,2,3", "-m")  # by now their jobs are there to be seen
    assert "3 runs: 0 finished, 3 running or queued, 0 to do" in err
    pace.write_text("0")
    until(lambda: len(records(outputs)) == 3 and not mine(outputs), "all is over", outputs)
    assert [record["attempts"] for record in records(outputs).values()] == [1, 1, 1]
    results = [file.stat().st_mtime_ns for file in outputs.glob("runs/*/result.json")]
    assert "3 runs: 3 finished, 0 to do" in check_done(cli(*slurm, "seed=1,2,3", "-m"))[1]
    assert results == [file.stat().st_mtime_ns for file in outputs.glob("runs/*/result.json")]


def test_few_jobs_divide_many_runs_and_have_other_options(cli, slurm, outputs, monkeypatch):
    """An array has no more jobs than SLURM takes."""
    from isobench.sweep import slurm as launcher

    assert launcher.read_array_limit() == 1000  # SLURM's default
    monkeypatch.setattr(launcher, "read_array_limit", lambda: 2)
    monkeypatch.setenv("ISOBENCH_TEST_SLEEP", "0")
    options = ['hydra.launcher.extra=["comment=mine","nice=1"]', 'hydra.launcher.setup=["export FOO=1","true"]']
    submit(cli, *slurm, *options, "seed=1,2,3,4,5")
    assert len(jobs_of(outputs)) == 1
    script = next(outputs.glob("jobs/*/job.sh")).read_text()
    assert "#SBATCH --comment=mine" in script
    assert "\nexport FOO=1\ntrue\n" in script
    until(lambda: len(records(outputs)) == 5, "all are finished", outputs)
    assert len({record["where"]["job"] for record in records(outputs).values()}) <= 2


def test_workers_share_a_job_and_its_gpu(cli, slurm, outputs, monkeypatch):
    monkeypatch.setenv("ISOBENCH_TEST_SLEEP", "0.05")
    shape = ["hydra.launcher.workers=2", 'hydra.launcher.extra=["ntasks=2"]', "hydra.launcher.gpus=1"]
    check_done(cli(*slurm, *shape, "seed=1,2,3,4,5,6", "hydra.launcher.wait=true", "-m"))
    found = records(outputs)
    assert len(found) == 6
    assert all((record["attempts"], record["where"]["share"]) == (1, 2) for record in found.values())
    assert len({record["where"]["job"] for record in found.values()}) == 2
    assert len({record["where"]["log"] for record in found.values()}) == 2


def test_a_job_keeps_its_settings_and_refuses_data_that_have_changed(cli, slurm, reviews, outputs, tmp_path, pace):
    """The plan of the same command may be replaced while its job waits; other data make another run."""
    pace.write_text("hold")
    shutil.copytree(reviews, tmp_path / "data")
    moved = [*slurm, f"data.root={tmp_path}/data", "hydra.launcher.workers=1"]
    submit(cli, *moved, "seed=1,2")
    until(lambda: any(beat["state"] == "training" for beat in beats(outputs)), "it trains", outputs)
    for plan in outputs.glob("plans/*.json"):
        plan.unlink()
    write_parquet(tmp_path / "data/glue/sst2/train.parquet", review_columns(100, seed=9))
    pace.write_text("0")
    until(lambda: not mine(outputs), "the job is gone", outputs)
    assert list(records(outputs)) == [1]  # its data were read before
    assert "have changed since it was planned" in next(outputs.glob("jobs/*/*.log")).read_text()


def test_a_timeout_requeues_and_resumes(cli, timing_out, monkeypatch, tmp_path):
    """Submitted by the first test of this file."""
    overrides, outputs = timing_out
    record = until(lambda: records(outputs).get(1), "the run is finished", outputs)
    assert record["attempts"] >= 2
    same_as_uninterrupted(cli, overrides, outputs, record, monkeypatch, tmp_path)


def status(*arguments: str) -> str:
    """What isobench status prints, without the line breaks that a terminal's width put in."""
    command = [sys.executable, "-m", "isobench", "status", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return "".join(done.stdout.split("\n")).replace("  ", " ")
