"""Messages between processes: what is noted can be read, and no other module knows the variables' names."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import ROOT

from isobench.common import environment


@pytest.fixture(autouse=True)
def no_messages(monkeypatch):
    for name in list(os.environ):
        if name.startswith("ISOBENCH_"):
            monkeypatch.delenv(name)
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]


def test_only_one_module_knows_the_variables():
    files = [*(ROOT / "isobench").rglob("*.py"), *(ROOT / "hydra_plugins").rglob("*.py")]
    assert len(files) > 100
    users = [file for file in files if "ISOBENCH_" in file.read_text()]
    assert users == [Path(environment.__file__).resolve()]


def test_without_a_message_there_are_defaults():
    before = time.time()
    assert not environment.is_debugging()
    assert before <= environment.read_command_start() <= time.time()
    assert environment.read_run_count() is None
    assert (environment.read_job(), environment.read_log()) == (None, None)
    assert environment.read_device_share() == 1
    assert environment.read_beat_seconds() is None


def test_what_is_noted_is_read():
    before = time.time()
    environment.note_command(debugging=True)
    assert environment.is_debugging()
    time.sleep(0.01)
    start = environment.read_command_start()
    assert before <= start <= time.time() - 0.01
    environment.note_command(debugging=False)
    assert not environment.is_debugging()
    environment.note_run_count(12)
    assert environment.read_run_count() == 12
    environment.note_job("17_3", "/logs/17_3.err")
    assert (environment.read_job(), environment.read_log()) == ("17_3", "/logs/17_3.err")
    environment.note_beat_seconds(0.5)
    assert environment.read_beat_seconds() == 0.5
    environment.note_device_share(4)
    assert environment.read_device_share() == 4


@pytest.mark.parametrize("chosen", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY"])
def test_idle_threads_sleep_soon_unless_the_user_has_chosen(monkeypatch, chosen):
    for name in environment.SPIN_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    environment.share_processor()
    assert os.environ.pop("GOMP_SPINCOUNT") == "1000"
    monkeypatch.setenv(chosen, "7")
    environment.share_processor()
    assert [os.environ.get(name) for name in environment.SPIN_SETTINGS if name != chosen] == [None]
    assert os.environ[chosen] == "7"


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [
        "from isobench.cli.guard import run_guarded; run_guarded(lambda: __import__('torch'))",
        "from isobench.sweep.worker import Worker; Worker([])._prepare(JOB); import torch",
    ],
)
def test_every_command_and_worker_sets_it_before_torch_is_imported(start):
    code = (
        "import os, sys\n"
        "from types import SimpleNamespace as N\n"
        "JOB = N(job_id='1', num_tasks=1, paths=N(stderr='log'))\n"
        "class Watch:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'torch': print('TORCH', os.environ.get('GOMP_SPINCOUNT'))\n"
        f"sys.meta_path.insert(0, Watch())\n{start}\n"
    )
    clean = {name: value for name, value in os.environ.items() if name not in environment.SPIN_SETTINGS}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=clean)
    assert done.stdout.split() == ["TORCH", "1000"]
