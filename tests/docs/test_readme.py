"""README: its numbers are those of the bundles, its picture is drawn by its script, its commands plan."""

import importlib
import re
import shlex
import textwrap

import pandas as pd
import pyarrow.parquet
import pytest
from helpers import ROOT

TEXT = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"`((?:python -m )?isobench [^`]+)`|^    ((?:python -m )?isobench .+)$", TEXT, re.MULTILINE)
COMMANDS = sorted({one or other for one, other in COMMANDS})
MAP = (ROOT / "experiments" / "README.md").read_text()
FOUND = TEXT.partition("## What we found")[2].partition("\nAll: ")[0]


def read_table(place):
    return pd.DataFrame(pyarrow.parquet.read_table(ROOT / "experiments" / f"{place}.parquet").to_pylist())


def test_it_is_short():
    assert len(TEXT.split()) <= 700


def test_the_picture_is_drawn_by_its_script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "site")
    clouds = importlib.import_module("clouds")
    assert clouds.draw() == clouds.FILE.read_bytes()


def test_isobn_in_pytorch_lowers_ev1(capsys):
    block = TEXT.partition("## IsoBN in PyTorch")[2].partition("## ")[0]
    exec(textwrap.dedent(block), {})
    before, after = map(float, capsys.readouterr().out.split())
    assert after < before


@pytest.fixture
def report(cli, outputs, monkeypatch):
    """Return what ``isobench report`` prints of a shipped bundle's runs."""
    monkeypatch.chdir(ROOT)

    def print_report(paper, name, *restriction):
        code, _, err = cli("import", f"experiments/{paper}/results/{name}", f"output_dir={outputs}")
        assert code == 0, err
        code, out, err = cli("report", f"+experiment={name}", *restriction, f"output_dir={outputs}")
        assert code == 0, err
        return " ".join(out.split())

    return print_report


@pytest.mark.slow
def test_the_lines_of_the_demo_are_printed(report):
    out = report("isobn", "glue_isobn", "calibration=none,isobn_paper", "seed=1,2,3,4,5")
    _, lines = TEXT.split("It ends with:\n\n")
    head, *lines = [" ".join(line.split()) for line in lines.split("\n\n")[0].splitlines()[:-1]]
    assert len(lines) == 3
    assert [line for line in (head, *lines) if line not in out] == []


@pytest.mark.slow
def test_the_smallest_p_of_few_examples_is_in_the_report(report):
    out = report("glue_few_sample", "glue_few_sample")
    assert "No method differs from plain by more than chance" in out
    assert re.search(r"smallest p = ([\d.]+)", out)[1] in FOUND


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
        f"{-own.difference[0]:.1f} points",
        f"{-full.groupby('task').change.mean().mean():.1f} points",
        f"{sgd:.3f} with SGD",
        f"{adamw:.3f} with AdamW",
        f"Of {len(ledger)} published",
        f"[{ledger.hit.sum()}]",
    ]
    assert [number for number in numbers if number not in FOUND] == []
    sentences = re.sub(r"\]\([^)]*\)|L6-v2", "]", FOUND)
    assert len(re.findall(r"\d[\d.,]*", sentences)) == len(numbers) + 2  # the smallest p, and 0.0001


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_is_one(line, cli, tmp_path, monkeypatch):
    words = shlex.split(line)
    if words[0] == "isobench":
        names = {file.stem for file in ROOT.glob("isobench/cli/*.py")} | {"methods", "papers"}
        assert words[1] in names
    elif f"`{line}`" not in MAP:  # whose commands plan
        monkeypatch.chdir(tmp_path)
        for file in ("a.csv", "b.csv"):
            rows = [f"text {i} of {file},{'ab'[i % 2]}" for i in range(20)]
            (tmp_path / file).write_text("\n".join(["text,label", *rows]))
        (tmp_path / "FOLDER" / "calibration").mkdir(parents=True)
        own = (ROOT / "conf" / "calibration" / "center.yaml").read_text()
        (tmp_path / "FOLDER" / "calibration" / "mine.yaml").write_text(own)
        code, out, err = cli(*words[3:], "dry_run=true", f"output_dir={tmp_path / 'outputs'}")
        assert code == 0, err
        assert " 10 " in out or " 15 " in out
