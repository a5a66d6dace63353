"""Fixtures: a tiny model and tiny data made on the spot, the real files, the command line run in this process."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["WANDB_MODE"] = "offline"
os.environ["LOKY_MAX_CPU_COUNT"] = "1"  # sweeps run in this process unless a test names a number of processes
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

import gc
import multiprocessing
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import browser
import pytest
from helpers import (
    drop_replaced,
    review_columns,
    save_tiny,
    tiny_overrides,
    translation_columns,
    translation_overrides,
    write_parquet,
)
from hydra.core.global_hydra import GlobalHydra

from isobench import __main__ as entry

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so `nohup make test &` starts us; tests of Ctrl-C need it
    signal.signal(signal.SIGINT, signal.default_int_handler)


frozen_modules = 0


def pytest_runtest_setup():
    """Keep imported modules out of garbage collections: each run ends with a full one, which took half its time."""
    global frozen_modules
    if len(sys.modules) > frozen_modules + 100:
        gc.collect()
        gc.freeze()
        frozen_modules = len(sys.modules)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark tests by their fixtures: ``data`` reads real data or papers, ``browser`` opens pages."""
    for item in items:
        if "driver" in item.fixturenames:
            item.add_marker("browser")
        if {"glue", "papers", "sentence_pairs"} & set(item.fixturenames):
            item.add_marker("data")


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """One cache for the whole session: the packaged DistilBERT is converted once."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def processes():
    """Processes that start with everything imported, so that many of them take little time."""
    context = multiprocessing.get_context("forkserver")
    imported = ["isobench.training.train", "isobench.__main__", "hydra_plugins.isobench"]
    context.set_forkserver_preload([*imported, "transformers.models.bert.modeling_bert"])
    return context


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A headless Chromium, where it is installed."""
    if reason := browser.why_not():
        pytest.skip(reason)
    with browser.chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="session")
def glue() -> str:
    """The real GLUE files, where there are any."""
    root = os.environ.get("ISOBENCH_DATA")
    if not root or not (Path(root) / "glue").is_dir():
        pytest.skip("ISOBENCH_DATA does not name a folder with glue/<task>/<split>.parquet")
    return root


@pytest.fixture(scope="session")
def sentence_pairs() -> str:
    """The folder with the real sets of sentence pairs, where there is one."""
    root = os.environ.get("ISOBENCH_DATA")
    if not root or not (Path(root) / "sts").is_dir():
        pytest.skip("ISOBENCH_DATA does not name a folder with sts/*.parquet")
    return root


@pytest.fixture(scope="session")
def papers() -> Path:
    """The folder with the papers' texts, where there is one."""
    folder = os.environ.get("ISOBENCH_PAPERS")
    if not folder or not Path(folder).is_dir():
        pytest.skip("ISOBENCH_PAPERS does not name a folder with the papers' texts")
    return Path(folder)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> str:
    """A randomly initialised two-layer BERT with a word-level tokenizer, as a transformers folder."""
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder)
    return str(folder)


@pytest.fixture(scope="session")
def reviews(tmp_path_factory) -> str:
    """A data.root with a small sst2."""
    root = tmp_path_factory.mktemp("data")
    for seed, (split, n) in enumerate({"train": 160, "validation": 60}.items()):
        write_parquet(root / "glue" / "sst2" / f"{split}.parquet", review_columns(n, seed))
    return str(root)


@pytest.fixture
def small(tiny, reviews, cache, tmp_path):
    """Overrides of a run that takes about a second."""
    return tiny_overrides(tiny, reviews, cache, tmp_path / "outputs")


@pytest.fixture
def command(monkeypatch, capfd):
    """Run a command's main function in this process: returns exit code, standard output, standard error.

    A setting that is given again replaces the one before it, because tests change the settings of fixtures so.
    """

    def run(main: Callable[[], object], *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["isobench", *drop_replaced(arguments)])
        monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
        monkeypatch.setenv("ISOBENCH_PAPER_FOLDERS", "")  # --paper sets it
        GlobalHydra.instance().clear()
        capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        output = capfd.readouterr()
        return code, output.out, output.err

    return run


@pytest.fixture
def cli(command):
    """The same for ``python -m isobench``."""
    return partial(command, entry.main)


@pytest.fixture
def outputs(tmp_path):
    """The small run's output folder; removed with the test."""
    yield tmp_path / "outputs"
    shutil.rmtree(tmp_path / "outputs", ignore_errors=True)


@pytest.fixture(scope="session")
def translations(tmp_path_factory) -> str:
    """A data.root with a small multi30k."""
    root = tmp_path_factory.mktemp("translations")
    for seed, (split, n) in enumerate({"train": 96, "validation": 20}.items()):
        write_parquet(root / "multi30k" / f"{split}.parquet", translation_columns(n, seed))
    return str(root)


@pytest.fixture
def tiny_translation(translations, cache, tmp_path):
    """Overrides of a translation run that takes about two seconds."""
    return translation_overrides(translations, cache, tmp_path / "outputs")
