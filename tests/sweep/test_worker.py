"""Test what one worker takes, in which order, what it leaves to others, and which plans it refuses."""

import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import orjson
import pytest
from bundle_tools import write_signed_json
from helpers import ROOT, check_done, check_refused, make_config, read_records, record_content

from isobench.cli.prune import find_orphans
from isobench.common.files import write_json
from isobench.runs.folder import RunFolder, jobs_folder
from isobench.runs.plan import Plan, write_plan
from isobench.runs.record import Beat, format_record
from isobench.runs.run import Run
from isobench.sweep import worker
from isobench.sweep.worker import EXIT_BUSY, EXIT_DONE, EXIT_FAILED, work


@pytest.fixture
def taken(monkeypatch):
    """Runs that are carried out: their seeds, in the order in which they were."""
    seeds = []

    def execute(run, label, since):
        with run.folder.lock() as is_ours:
            if not is_ours:
                return EXIT_BUSY
            seeds.append(run.cfg.seed)
            run.folder.result_file.write_bytes(format_record(record_content(run.cfg, key=run.folder.key)))
        return EXIT_DONE

    monkeypatch.setattr(worker, "execute_run", execute)
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.05)
    return seeds


@pytest.fixture
def runs(tmp_path):
    configs = [make_config(f"seed={seed}", f"output_dir={tmp_path}/outputs") for seed in range(4)]
    return [Run(cfg, RunFolder(cfg.output_dir, f"{n:02d}" * 32), None) for n, cfg in enumerate(configs)]


def write_beat(run: Run, updated: float, **parts) -> None:
    """Write the heartbeat of a process that is no more."""
    run.folder.path.mkdir(parents=True, exist_ok=True)
    where = {"machine": "x", "host": "x", "job": None, "log": None, "share": 1}
    beat = {"state": "training", "step": 0, "steps": 0, "pid": 1, "since": 0, "updated": updated, "attempt": 1}
    beat = Beat(**(beat | where | parts))
    write_json(run.folder.path / "progress.json", beat.model_dump(), owner=run.folder.path.name)
    os.utime(run.folder.path / "progress.json", (0, 0))  # a file of this minute would mean that the run is going on


def test_what_has_ended_well_or_not_is_not_taken(runs, taken):
    for run, parts in ((runs[0], {}), (runs[1], {"failure": {"name": "crash", "message": "x"}})):
        run.folder.path.mkdir(parents=True)
        run.folder.result_file.write_bytes(format_record(record_content(run.cfg, key=run.folder.key, **parts)))
    runs[2].folder.path.mkdir()
    runs[2].folder.result_file.write_text("{")
    assert work(runs, since=time.time() + 60) == EXIT_DONE
    assert taken == [3]
    again = [replace(run, cfg=replace(run.cfg, retry_failed=True)) for run in runs]
    assert work(again, since=time.time() - 60) == EXIT_DONE
    assert work(again, since=time.time() + 60) == EXIT_DONE
    assert taken == [3, 1]


@contextmanager
def hold(run: Run, seconds: float):
    """Hold a run's lock for a while, in another process."""
    code = (
        f"import time; from isobench.runs.folder import RunFolder; lock = RunFolder({run.cfg.output_dir!r}, "
        f"{run.folder.key!r}).lock(); lock.__enter__(); print('held', flush=True); time.sleep({seconds})"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline()
    yield
    process.kill()
    process.wait()


@pytest.mark.slow
def test_a_run_that_another_process_holds_comes_when_it_is_free(runs, taken):
    with hold(runs[1], 1):
        assert work(runs, since=time.time()) == EXIT_DONE
    assert taken == [0, 2, 3, 1]


@pytest.mark.parametrize(("beats", "limit"), [(True, "OTHERS_SECONDS"), (False, "LOCK_SECONDS")])
def test_a_worker_waits_for_others_and_for_a_dead_machines_lock_but_not_for_ever(
    runs, taken, monkeypatch, beats, limit
):
    monkeypatch.setattr(worker, limit, 0.2)
    with hold(runs[1], 100):
        if beats:
            write_beat(runs[1], updated=time.time())
        assert work(runs, since=time.time()) == EXIT_BUSY
    assert taken == [0, 2, 3]


def test_a_killed_run_is_taken_although_the_clock_was_set_back(runs, taken):
    """Its last beat, of a process that is gone, lies two hours ahead."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    write_beat(runs[1], updated=time.time() + 7200, machine=socket.gethostname(), pid=gone.pid)
    assert work(runs, since=time.time()) == EXIT_DONE
    assert sorted(taken) == [0, 1, 2, 3]


def test_a_run_that_killed_two_machines_is_left(runs, taken):
    for attempt in (1, 2):
        write_beat(runs[attempt], updated=time.time() - 600, attempt=attempt)
    assert work(runs, time.time(), killed_since=time.time() - 3600) == EXIT_FAILED
    assert sorted(taken) == [0, 1, 3]


@pytest.fixture
def planned(cli, small, outputs):
    """The plan of a sweep whose two runs have no record, and the command that carries it out."""
    quick = [*small, "optimization.epochs=1", "seed=1,2", "-m"]
    check_done(cli(*quick))
    (plan,) = outputs.glob("plans/*.json")
    shutil.rmtree(outputs / "runs")
    return plan


def call_work(*arguments: object, **variables: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "isobench", "work", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=os.environ | variables)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_a_plan_is_carried_out_where_it_lies_and_elsewhere(planned, outputs, tmp_path):
    check_done(call_work(planned))
    first = read_records(outputs)
    assert len(first) == 2
    moved = shutil.copy(planned, tmp_path / "plan.json")
    check_refused(call_work(moved))
    check_done(call_work(moved, f"output_dir={tmp_path}/elsewhere"))
    again = read_records(tmp_path / "elsewhere")
    assert find_orphans(str(tmp_path / "elsewhere")) == ([], [])  # its plan is there too
    assert {key: r["history"] for key, r in again.items()} == {key: r["history"] for key, r in first.items()}
    command = first.popitem()[1]["provenance"]["command"]
    assert {"isobench", "seed=1,2"} <= set(command)
    assert "work" not in command


STRANGER = """
from pathlib import Path
Path("{mark}").touch()
from isobench.calibration import Calibration
class Calibration(Calibration):
    pass
class Other(Calibration):
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"_target_": "stranger.Other"}, {"settings": {"_target_": "stranger.Other"}},
        {"then": {"_target_": "stranger.Other", "name": "isobn_paper"}},
    ],
)  # fmt: skip
def test_a_strangers_plan_runs_no_code_of_his_without_trust(planned, outputs, tmp_path, change):
    mark = tmp_path / "was run"
    (tmp_path / "stranger.py").write_text(STRANGER.format(mark=mark))
    content = orjson.loads(planned.read_bytes())
    content["settings"]["calibration"] = [content["settings"]["calibration"][0] | change]
    write_signed_json(planned, content)
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    check_refused(call_work(planned, PYTHONPATH=path), "--trust")
    assert not mark.exists()
    assert not read_records(outputs)
    if change == {"_target_": "stranger.Other"}:
        check_done(call_work(planned, "--trust", PYTHONPATH=path))
        assert mark.exists()
        assert len(read_records(outputs)) == 2


def test_configs_of_the_users_own_folder_name_classes_that_may_run(tmp_path):
    (tmp_path / "calibration").mkdir()
    (tmp_path / "calibration" / "mine.yaml").write_text("name: mine\n_target_: stranger.Other\n")
    cfg = make_config(f"output_dir={tmp_path}/outputs")
    cfg = replace(cfg, calibration=cfg.calibration | {"name": "mine", "_target_": "stranger.Other"})
    identity = replace(Run(cfg, RunFolder("", "0" * 64), None).identity, key="0" * 64)
    file = write_plan(tmp_path / "outputs", Plan(None, ["x"], [(cfg, identity)]))
    with pytest.raises(worker.UntrustedError):
        worker.read_plan(file, None, [], is_trusted=False)
    assert not worker.is_foreign(jobs_folder(tmp_path) / "1" / "plan.json", tmp_path)
    _, (run,) = worker.read_plan(file, None, [tmp_path], is_trusted=False)
    assert run.cfg.calibration["_target_"] == "stranger.Other"


@pytest.mark.slow
def test_a_run_that_cannot_start_stops_no_other_of_two_workers(cli, small, outputs, planned, tmp_path):
    """Its folder is a link. A worker prints one line about it, as the sweep would, and goes on."""
    key = orjson.loads(planned.read_bytes())["runs"][0]["key"]
    (outputs / "runs").mkdir()
    (tmp_path / "elsewhere").mkdir()
    RunFolder(str(outputs), key).path.symlink_to(tmp_path / "elsewhere")
    code, _, err = cli(*small, "optimization.epochs=1", "seed=1,2", "-m", "hydra.launcher.workers=2")
    assert code == 2
    assert "Traceback" not in err
    assert len(read_records(outputs)) == 1
