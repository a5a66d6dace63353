"""README: its numbers are those of the bundles, its picture is drawn by its script, its commands plan."""

import importlib
import re

import pandas as pd
import pyarrow.parquet
import pytest
from helpers import ROOT, check_done

TEXT = (ROOT / "README.md").read_text()
FOUND = TEXT.partition("## What we found")[2].partition("\nAll: ")[0]


def read_table(place):
    return pd.DataFrame(pyarrow.parquet.read_table(ROOT / "experiments" / f"{place}.parquet").to_pylist())


def test_the_picture_is_drawn_by_its_script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    clouds = importlib.import_module("clouds")
    assert clouds.draw() == clouds.FILE.read_bytes()


@pytest.mark.slow
def test_the_demo_and_the_few_examples_are_printed(cli, outputs, monkeypatch):
    monkeypatch.chdir(ROOT)
    printed = {}
    for paper, name, restriction in (
        ("isobn", "glue_isobn", ["calibration=none,isobn_paper", "seed=1,2,3,4,5"]),
        ("glue_few_sample", "glue_few_sample", []),
    ):
        check_done(cli("import", f"experiments/{paper}/results/{name}", f"output_dir={outputs}"))
        out, _ = check_done(cli("report", f"+experiment={name}", *restriction, f"output_dir={outputs}"))
        printed[name] = " ".join(out.split())
    lines = TEXT.split("It ends with:\n\n")[1].split("\n\n")[0].splitlines()[:-1]
    assert len(lines) == 4
    assert [line for line in lines if " ".join(line.split()) not in printed["glue_isobn"]] == []
    assert re.search(r"smallest p = ([\d.]+)", printed["glue_few_sample"])[1] in FOUND


def test_what_it_says_was_found_is_in_the_bundles():
    costs = read_table("isotropy_dial/results/isotropy_dial/analysis/contrasts")
    own = costs[(costs.encoder == "minilm") & (costs.task == "rotten_tomatoes") & (costs.dial == "whitening")]
    own = own.set_index("dose")
    assert own.high[0] < 0 < own.high[5]  # epsilon 0 and 1
    changes = read_table("whitening_map/results/whitening_map/analysis/changes")
    full = changes.query("shrinkage == 0 and budget == 4 and classifier == 'logistic' and unit_length == 'none'")
    models = read_table("causes/results/causes/analysis/models").groupby(["cause", "lr"])["head/average_cosine"]
    ledger = read_table("mteb/results/mteb/analysis/ledger")
    ledger = ledger[ledger.recipe == "MTEB's"]
    sgd, adamw = (models.mean()[place] for place in (("SGD", 0.3), ("base", 0.001)))
    numbers = [
        f"{-own.difference[0]:.1f} points", f"{-full.groupby('task').change.mean().mean():.1f} points",
        f"{sgd:.3f} with SGD", f"{adamw:.3f} with AdamW", f"Of {len(ledger)} published", f"[{ledger.hit.sum()}]",
    ]  # fmt: skip
    assert [number for number in numbers if number not in FOUND] == []
