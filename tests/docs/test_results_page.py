"""The results that ship: every bundle verifies, and the page of results says what the bundles say."""

import importlib

import pytest
from helpers import ROOT

from isobench.verification.ledger import FAILS
from isobench.verification.verify import Options, verify

BUNDLES = sorted(file.parent for file in ROOT.glob("experiments/*/results/*/manifest.json"))


def test_every_experiment_has_a_bundle():
    experiments = {file.stem for file in ROOT.glob("conf/experiment/*.yaml")}
    only_at_paper_scale = {"glue_adaptation_large"}
    assert experiments - only_at_paper_scale <= {bundle.name for bundle in BUNDLES}


@pytest.mark.slow
@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: bundle.name)
def test_a_shipped_bundle_verifies(bundle):
    ledger = verify(bundle, Options())
    assert [entry for entry in ledger.entries if entry.outcome == FAILS] == []
    assert len(ledger.entries) > 5


@pytest.mark.slow
def test_the_page_of_results_is_written_from_the_bundles(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    page = importlib.import_module("results").write_page(BUNDLES)
    assert page == (ROOT / "docs" / "results.md").read_text()
