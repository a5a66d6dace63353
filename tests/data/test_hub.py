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


def forget_answer():
    hub.is_reachable.cache_clear()
    hub.start_asking.cache_clear()


@pytest.fixture
def endpoint(monkeypatch):
    """Set the hub's address and the time limit of its answer; the hub is asked again in every test."""

    def choose(address, seconds=PATIENCE):
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setattr(hub, "ANSWER_SECONDS", seconds)

    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    forget_answer()
    yield choose
    forget_answer()


@pytest.fixture
def silent_port():
    """A port of this machine that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def measure_refusal() -> float:
    """Assert that the hub can't be reached; returns the seconds that it took."""
    started = time.monotonic()
    assert not hub.is_reachable()
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    return time.monotonic() - started


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "nonsense", "http://[", "http://127.0.0.1:99999"])
def test_an_address_without_a_hub_is_found_before_the_time_limit(endpoint, address):
    endpoint(address)
    assert measure_refusal() < PATIENCE


def test_a_hub_that_never_answers_takes_the_time_limit(endpoint, silent_port):
    endpoint(f"http://127.0.0.1:{silent_port}", 0.5)
    assert measure_refusal() > 0.4


def test_a_look_up_of_the_name_that_hangs_takes_the_time_limit(endpoint, monkeypatch):
    """urllib has no time limit for it."""
    release = threading.Event()

    def hang(*_, **__):
        release.wait()
        raise OSError("as meant")

    endpoint("http://hub.invalid", 0.5)
    monkeypatch.setattr(socket, "getaddrinfo", hang)
    measure_refusal()
    release.set()


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
    with pytest.raises(UserError, match="task=rte: the hub can't be reached and nyu-mll/glue/rte is not in"):
        require_hub_files_of_some([far, far])


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["task=rte", "data.root=null", "seed=1,2", "-m"],
        ["task=sst2", "data.root=REVIEWS", "encoder=bert-base-cased", "seed=1,2", "-m"],
    ],
    ids=["data", "encoder"],
)
def test_a_sweep_whose_hub_never_answers_says_so_once(silent_port, reviews, tmp_path, settings):
    """Before anything is started, and without the imports that a run needs."""
    variables = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": f"http://127.0.0.1:{silent_port}", "HF_HOME": str(tmp_path)}
    folders = [f"output_dir={tmp_path}/outputs", f"data.cache={tmp_path}/cache"]
    settings = [setting.replace("REVIEWS", reviews) for setting in settings]
    command = [sys.executable, "-m", "isobench", *folders, "tracking=none", *settings]
    answer = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert answer.stderr.count("\n") == 1
    assert (answer.stdout + answer.stderr).count("the hub can't be reached") == 1
