"""A hub that can't be reached, in any way, is found out in time, and a full disk is named."""

import os
import socket
import subprocess
import sys
import time

import pytest
from waiting import PATIENCE

from isobench.data import hub


@pytest.fixture
def endpoint(monkeypatch):

    def forget_answer():
        hub.is_reachable.cache_clear()
        hub.start_asking.cache_clear()

    def choose(address, seconds=PATIENCE):
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setattr(hub, "ANSWER_SECONDS", seconds)

    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    forget_answer()
    yield choose
    forget_answer()


@pytest.fixture
def silent_port():
    with socket.create_server(("127.0.0.1", 0)) as server:  # takes connections and never answers
        yield server.getsockname()[1]


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "nonsense", "http://[", "http://127.0.0.1:SILENT"])
def test_an_address_without_a_hub_takes_the_time_limit_at_most(endpoint, silent_port, address):
    endpoint(address.replace("SILENT", str(silent_port)), 0.5 if "SILENT" in address else PATIENCE)
    started = time.monotonic()
    assert not hub.is_reachable()
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert time.monotonic() - started < PATIENCE


@pytest.mark.slow
def test_a_sweep_whose_hub_never_answers_says_so_once(silent_port, tmp_path):
    variables = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": f"http://127.0.0.1:{silent_port}", "HF_HOME": str(tmp_path)}
    settings = [f"output_dir={tmp_path}/outputs", "tracking=none", "task=rte", "data.root=null", "seed=1,2", "-m"]
    command = [sys.executable, "-m", "isobench", *settings]
    answer = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
