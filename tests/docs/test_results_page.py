"""The results that ship: every bundle verifies, and the page of results says what the bundles say."""

import importlib
import re
from collections import Counter

import pytest
import yaml
from helpers import ROOT

from isobench.analyses.rows import read_about, read_stored_rows
from isobench.analyses.runner import show_rows
from isobench.papers.folders import find_papers
from isobench.sweep.find_runs import find_runs
from isobench.verification.folder import FAILS, HOLDS, UNCHECKED
from isobench.verification.reproduction import Options
from isobench.verification.verify import verify

WANTED = (ROOT / "docs" / "wanted.md").read_text()
BUNDLES = sorted(file.parent for file in ROOT.glob("experiments/*/results/*/bundle.json"))


@pytest.mark.slow
@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: bundle.name)
def test_a_shipped_bundle_verifies(bundle):
    outcomes = verify(bundle, Options())
    assert outcomes.list_entries(FAILS) == []
    runs = len(outcomes.manifest.runs)
    assert outcomes.count().get("scores", Counter())[HOLDS] == runs
    tables = len(list(bundle.glob("analysis/*.parquet")))
    assert outcomes.count().get("analysis", Counter())[HOLDS if runs else UNCHECKED] == (tables if runs else 1)


def list_targets():
    files = [file for folder in find_papers().values() for file in sorted(folder.glob("experiment/*.yaml"))]
    analyses = {file.stem: (yaml.safe_load(file.read_text()) or {}).get("analysis") for file in files}
    return {name: analysis["_target_"] for name, analysis in analyses.items() if analysis}


ANALYSES = sorted(ROOT.glob("experiments/*/results/*/analysis"))


@pytest.mark.slow
@pytest.mark.parametrize("folder", ANALYSES, ids=lambda folder: folder.parent.name)
def test_a_shipped_analysis_is_shown_from_its_rows_alone(folder):
    about = read_about(folder)
    about["analysis"]["_target_"] = list_targets()[about["experiment"]["name"]]
    rows = read_stored_rows(folder)
    shown = show_rows(about, rows)
    assert len(shown.tables) >= 1
    assert set(shown.draw()) == set(shown.figures)


@pytest.fixture
def page(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    return importlib.import_module("results")


@pytest.mark.slow
def test_the_pages_of_results_are_written_from_the_bundles(page):
    written = page.write_pages(page.find_bundles())
    assert written.keys() == {page.INDEX, *page.PAGES.glob("*.md")}
    assert [file for file, text in written.items() if file.read_text() != text] == []


def test_the_page_of_wanted_runs_is_written_from_the_papers(page):
    assert page.write_wanted() == page.WANTED.read_text()


LAPTOP_COMMANDS = re.findall(r"python -m isobench (\+experiment=\w+ scale=laptop .*)", WANTED)


@pytest.mark.slow
@pytest.mark.parametrize("command", LAPTOP_COMMANDS)
def test_laptop_scale_with_a_papers_encoder_has_the_papers_runs(command, monkeypatch):
    monkeypatch.delenv("ISOBENCH_DATA", raising=False)
    experiment, _, encoder, *_ = arguments = command.split()
    _, runs = find_runs(arguments)
    tasks, seeds = {run.cfg.task.name for run in runs}, {str(run.cfg.seed) for run in runs}
    restriction = [f"task={','.join(sorted(tasks))}", f"seed={','.join(sorted(seeds))}"]
    _, theirs = find_runs([experiment, "scale=paper", encoder, *restriction])
    methods, keys = {run.cfg.calibration["name"] for run in theirs}, {run.folder.key for run in theirs}
    own = {run.cfg.calibration["name"]: set() for run in runs}
    for run in runs:
        own[run.cfg.calibration["name"]].add(run.folder.key)
    shared = own.keys() & methods
    assert "none" in shared
    assert all(own[method] <= keys for method in shared)
