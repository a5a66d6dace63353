"""Output folders with real runs of two people, made once for all tests of bundles."""

import shutil
import sys
from pathlib import Path

import pytest
from helpers import tiny_overrides
from hydra.core.global_hydra import GlobalHydra

from isobench import __main__ as entry
from isobench.cli import export, import_, report


@pytest.fixture(scope="session")
def train(tiny, reviews, cache):
    """Train an experiment's runs into an output folder: two methods, the given seeds."""

    def sweep(outputs: Path, seeds: str) -> Path:
        settings = ["+experiment=glue_isobn", f"seed={seeds}", "calibration=none,isobn_paper"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["isobench", *tiny_overrides(tiny, reviews, cache, outputs), *settings])
            patch.delenv("HYDRA_FULL_ERROR", raising=False)
            GlobalHydra.instance().clear()
            entry.main()
        return outputs

    return sweep


@pytest.fixture(scope="session")
def trained(train, tmp_path_factory):
    """The output folders of Alice (seeds 1 and 2) and Bob (seed 3); tests copy them."""
    root = tmp_path_factory.mktemp("people")
    return {"alice": train(root / "alice", "1,2"), "bob": train(root / "bob", "3")}


@pytest.fixture
def alice(trained, tmp_path):
    return Path(shutil.copytree(trained["alice"], tmp_path / "alice"))


@pytest.fixture
def bob(trained, tmp_path):
    return Path(shutil.copytree(trained["bob"], tmp_path / "bob"))


@pytest.fixture
def run_export(command, reviews, cache):
    """Export an output folder's experiment; returns exit code, output and error."""

    def run(outputs: Path, target: Path, *more: str):
        settings = ["+experiment=glue_isobn", f"output_dir={outputs}", f"data.root={reviews}", f"data.cache={cache}"]
        return command(export.main, "--to", str(target), *settings, *more)

    return run


@pytest.fixture
def run_import(command):
    return lambda *places: command(import_.main, *map(str, places[:-1]), f"output_dir={places[-1]}")


@pytest.fixture
def run_report(command):
    """Report on an output folder's runs, without the data that they were trained on."""
    return lambda outputs: command(report.main, "+experiment=glue_isobn", f"output_dir={outputs}")


@pytest.fixture(scope="session")
def exported(trained, tmp_path_factory, reviews, cache):
    """Alice's bundle; tests copy it."""
    target = tmp_path_factory.mktemp("bundle") / "alice"
    settings = ["+experiment=glue_isobn", f"output_dir={trained['alice']}", f"data.root={reviews}"]
    export.export([*settings, f"data.cache={cache}"], target)
    return target


@pytest.fixture
def bundle(exported, tmp_path):
    return Path(shutil.copytree(exported, tmp_path / "bundle"))
