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
    without = {"glue_adaptation_large", "isotropy_norm"}  # at the paper's scale alone; being run
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


def test_the_scores_in_the_readme_are_those_of_the_bundle():
    file = ROOT / "experiments/mteb/results/sts_similarity/analysis/published.parquet"
    rows = pyarrow.parquet.read_table(file).to_pylist()
    text = (ROOT / "README.md").read_text()
    names = {"minilm": "all-MiniLM-L6-v2", "mpnet": "all-mpnet-base-v2"}
    for encoder, name in names.items():
        for label, column in (("isobench", "ours"), ("MTEB", "published")):
            scores = {
                row["set"]: f"{row[column]:.2f}"
                for row in rows
                if (row["encoder"], row["similarity"], row["metric"]) == (encoder, "cosine", "spearman")
            }
            cells = [scores[dataset] for dataset in ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb")]
            assert f"| {name}, {label} | {' | '.join(cells)} |" in text


@pytest.mark.slow
def test_the_page_of_results_is_written_from_the_bundles(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    module = importlib.import_module("results")
    assert module.write_page(module.find_bundles()) == (ROOT / "docs" / "results.md").read_text()
