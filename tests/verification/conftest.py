"""Made-up folders that agree with themselves, for all tests of verification."""

import shutil
from pathlib import Path

import pytest
from made_up_runs import make_bundle, write_runs


@pytest.fixture(scope="session")
def places(tmp_path_factory):
    """An intact output folder, an intact bundle of it, the data and the encoder."""
    root = tmp_path_factory.mktemp("made_up")
    write_runs(root, root / "outputs")
    make_bundle(root / "outputs", root / "bundle")
    return root


@pytest.fixture(params=["outputs", "bundle"])
def folder(request, places, tmp_path):
    """A copy of each kind of folder, to tamper with."""
    return Path(shutil.copytree(places / request.param, tmp_path / request.param))


@pytest.fixture
def bundle(places, tmp_path):
    return Path(shutil.copytree(places / "bundle", tmp_path / "bundle"))
