"""The results that ship: every bundle verifies, and the page of results says what the bundles say."""

import importlib
from collections import Counter

import pyarrow.parquet
import pytest
from helpers import ROOT

from isobench.verification.folder import FAILS, HOLDS, UNCHECKED
from isobench.verification.reproduction import Options
from isobench.verification.verify import verify

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
    runs = len(list(bundle.glob("runs/*/predictions.parquet")))
    assert outcomes.count().get("scores", Counter())[HOLDS] == runs
    tables = len(list(bundle.glob("analysis/*.parquet")))
    assert outcomes.count().get("analysis", Counter())[HOLDS if runs else UNCHECKED] == (tables if runs else 1)


def test_what_the_readme_says_of_the_ledger_is_in_the_bundle():
    file = ROOT / "experiments/mteb/results/mteb/analysis/ledger.parquet"
    rows = pyarrow.parquet.read_table(file).to_pylist()
    ours, wrong = ([row for row in rows if (row["recipe"] == "MTEB's") is right] for right in (True, False))
    hits, chance = (sum(row["hit"] for row in own) for own in (ours, wrong))
    missed = [row["task"] for row in ours if not row["hit"]]
    text = " ".join((ROOT / "README.md").read_text().split())
    assert f"It hits {hits} of {len(ours)} to within 0.0001" in text
    assert f"Of the {len(missed)} others, {missed.count('BIOSSES')} are of a set" in text
    assert f"hit {chance} of {len(wrong)}." in text


@pytest.mark.slow
def test_the_page_of_results_is_written_from_the_bundles(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    module = importlib.import_module("results")
    assert module.write_page(module.find_bundles()) == module.PAGE.read_text()


def test_the_page_of_wanted_runs_is_written_from_the_papers(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    module = importlib.import_module("results")
    assert module.write_wanted() == module.WANTED.read_text()
