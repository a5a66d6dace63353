"""The results that ship: every bundle verifies, and the page of results says what the bundles say."""

import importlib
import json
import re
import shutil
from collections import Counter

import pytest
from bundle_tools import edit_rows, repair, write_signed_json
from helpers import ROOT

from isobench.common.files import sha256_file
from isobench.sweep.find_runs import find_runs
from isobench.verification.folder import FAILS, HOLDS, UNCHECKED
from isobench.verification.reproduction import Options
from isobench.verification.verify import verify

WANTED = (ROOT / "docs" / "wanted.md").read_text()
BUNDLES = sorted(file.parent for file in ROOT.glob("experiments/*/results/*/bundle.json"))


def test_every_experiment_has_a_bundle():
    experiments = {file.stem for file in ROOT.glob("experiments/*/experiment/*.yaml")}
    without = {"glue_adaptation_large"}  # it is at the paper's scale alone
    assert experiments - without <= {bundle.name for bundle in BUNDLES}


@pytest.mark.slow
@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: bundle.name)
def test_a_shipped_bundle_verifies(bundle):
    outcomes = verify(bundle, Options())
    assert outcomes.list_entries(FAILS) == []
    runs = len(outcomes.manifest.runs)
    assert outcomes.count().get("scores", Counter())[HOLDS] == runs
    tables = len(list(bundle.glob("analysis/*.parquet")))
    assert outcomes.count().get("analysis", Counter())[HOLDS if runs else UNCHECKED] == (tables if runs else 1)


@pytest.fixture
def page(monkeypatch):
    """The module that writes the pages."""
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    return importlib.import_module("results")


def copy_as_laptop(bundle, copy):
    """Copy an analysis' bundle as one of scale=laptop in which all of Figure 3's correlations are .9."""
    shutil.copytree(bundle, copy)
    plan, about = (json.loads((copy / name).read_text()) for name in ("plan.json", "analysis/about.json"))
    plan["settings"]["scale"] = ["laptop"]
    edit_rows(copy / "analysis" / "summary.parquet", lambda rows: [row | {"spearman": 0.9} for row in rows])
    about["sha256"]["summary.parquet"] = sha256_file(copy / "analysis" / "summary.parquet")
    about["scale"]["differs"] = ["encoder x in the place of y"]
    write_signed_json(copy / "plan.json", plan)
    write_signed_json(copy / "analysis" / "about.json", about)
    repair(copy)


@pytest.mark.slow
def test_two_bundles_of_one_experiment_are_judged_apart(page, tmp_path, monkeypatch):
    """The laptop's claims are shown, and the embedded scale's are folded away, one line each."""
    name = "adaptation_embeddings"
    embedded = ROOT / "experiments" / "task_adaptation" / "results" / name
    copy_as_laptop(embedded, tmp_path / f"{name}_laptop")
    bundles = [page.Bundle(embedded), page.Bundle(tmp_path / f"{name}_laptop")]
    claims = page.judge_claims(bundles)
    found = {
        claim["bundle"]: claim["numbers"]
        for claim in claims
        if claim["experiment"] == name and "large variances" in claim["claim"]
    }
    assert "mrpc +0.90" in found[f"{name}_laptop"]
    assert "mrpc -0.01" in found[name]
    assert len(claims) == len({claim["claim"] + claim["criterion"] + claim["bundle"] for claim in claims})
    monkeypatch.setattr(page, "judge_claims", lambda _: claims)
    text = page.write_pages(bundles)[page.PAGES / f"{name}.md"]
    _, laptop, small = re.split(rf"## {name}\w*, scale=(?:laptop|embedded)", text)
    shown, _ = laptop.split(page.FOLD)
    assert "mrpc +0.90" in shown
    assert "Not the paper's setting: encoder x in the place of y." in shown
    assert "mrpc" not in small.split(page.FOLD)[0]
    assert small.count("large variances do not correspond") == 1
    assert "mrpc -0.01" not in small


@pytest.mark.slow
def test_the_pages_of_results_are_written_from_the_bundles(page):
    written = page.write_pages(page.find_bundles())
    assert written.keys() == {page.INDEX, *page.PAGES.glob("*.md")}
    assert [file for file, text in written.items() if file.read_text() != text] == []


def test_the_page_of_wanted_runs_is_written_from_the_papers(page):
    assert page.write_wanted() == page.WANTED.read_text()


LAPTOP_COMMANDS = re.findall(r"python -m isobench (\+experiment=\w+ scale=laptop .*)", WANTED)


def test_every_laptop_grid_has_a_command_with_the_papers_encoder():
    files = ROOT.glob("experiments/*/experiment/*.yaml")
    named = {re.match(r"\+experiment=(\w+)", command)[1] for command in LAPTOP_COMMANDS}
    assert named == {file.stem for file in files if re.search(r"^ +laptop:", file.read_text(), re.MULTILINE)}


@pytest.mark.slow
@pytest.mark.parametrize("command", LAPTOP_COMMANDS)
def test_laptop_scale_with_a_papers_encoder_has_the_papers_runs(command, monkeypatch):
    """Each run of a method of the paper's grid is one of this grid's, with the same key."""
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
    row = re.search(rf"\| {experiment.partition('=')[2]} \| {encoder.partition('=')[2]} \| (\S+)", WANTED)[1]
    assert row in (str(len(runs)), "trains")
