"""Output folders with real runs of two people, made once for all tests of bundles."""

import shutil
from pathlib import Path

import pytest
from helpers import carry_out, tiny_overrides

from isobench.cli import export, import_, report


@pytest.fixture(scope="session")
def trained(tiny, reviews, cache, tmp_path_factory):
    """The output folders of Alice (seeds 1 and 2) and Bob (seed 3), with two methods; tests copy them."""
    root = tmp_path_factory.mktemp("people")
    for name, seeds in (("alice", "1,2"), ("bob", "3")):
        settings = ["+experiment=glue_isobn", f"seed={seeds}", "calibration=none,isobn_paper"]
        carry_out(*tiny_overrides(tiny, reviews, cache, root / name), *settings)
    return {name: root / name for name in ("alice", "bob")}


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
