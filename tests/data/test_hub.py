"""A hub that can't be reached, in any way, is found out in time, and a full disk is named."""

import http.server
import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from helpers import make_config
from waiting import PATIENCE

from isobench.common.errors import UserError
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


@pytest.mark.parametrize(("status", "reachable"), [(200, True), (404, True), (401, True), (503, False), (502, False)])
def test_the_hubs_own_errors_are_answers_and_a_gateways_are_not(endpoint, status, reachable):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint(f"http://127.0.0.1:{server.server_port}")
        assert hub.is_reachable() == reachable
        server.shutdown()


def test_only_what_the_caches_surely_lack_is_absent(monkeypatch, tmp_path):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "prepared"))
    assert hub.is_absent("models", "google-bert/bert-base-cased")
    assert hub.is_absent("datasets", "nyu-mll/glue")
    (tmp_path / "hub" / "models--google-bert--bert-base-cased").mkdir(parents=True)
    assert not hub.is_absent("models", "google-bert/bert-base-cased")
    assert hub.is_absent("models", "google-bert/bert-base-uncased")
    assert hub.is_absent("datasets", "nyu-mll/glue")
    (tmp_path / "prepared" / "nyu-mll___glue").mkdir(parents=True)
    assert not hub.is_absent("datasets", "nyu-mll/glue")


def test_a_sweep_goes_on_if_one_of_its_runs_needs_nothing_of_the_hub(monkeypatch, tmp_path):
    from isobench.data.availability import require_hub_files_of_some

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    far, near = make_config("task=rte", "data.root=null"), make_config("task=rotten_tomatoes")
    require_hub_files_of_some([far, near])
    require_hub_files_of_some([])
    with pytest.raises(UserError):
        require_hub_files_of_some([far, far])


@pytest.mark.slow
def test_a_sweep_whose_hub_never_answers_says_so_once(silent_port, tmp_path):
    variables = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": f"http://127.0.0.1:{silent_port}", "HF_HOME": str(tmp_path)}
    settings = [f"output_dir={tmp_path}/outputs", "tracking=none", "task=rte", "data.root=null", "seed=1,2", "-m"]
    command = [sys.executable, "-m", "isobench", *settings]
    answer = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
