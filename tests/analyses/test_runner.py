"""Analyses: planned like a sweep, carried out once, whole files or none; IsoBN's Table 2 against numpy."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from helpers import make_config
from matplotlib.figure import Figure
from rich.table import Table
from safetensors.torch import load_file, save_file

from isobench.analyses.findings import Findings, build_comparison_tables
from isobench.analyses.runner import load_analysis_function
from isobench.analyses.subject import Subject
from isobench.common.checksums import add_json_checksum, read_json
from isobench.common.errors import UserError
from isobench.models.encoders import NO_POOLER_WARNING
from isobench.runs.identity import identify
from isobench.runs.row import Row

pytestmark = pytest.mark.slow


@pytest.fixture
def ev(small):
    return ["+experiment=isobn_ev", *small, "encoder.pooling=cls", "task.train_samples=100", "analysis.curve=32"]


def numbers(outputs, name="explained_variance"):
    return list(csv.DictReader((outputs / "reports" / "isobn_ev" / f"{name}.csv").open()))


def test_explained_variance_is_that_of_an_svd_under_every_method(cli, ev, small, outputs):
    code, out, err = cli(*ev)
    assert code == 0, err
    cfg = make_config(*small, "encoder.pooling=cls", "task.train_samples=100")
    h = Subject(Row.of(cfg, identify(cfg).key)).encoded().double().numpy()
    correlation = np.corrcoef(h.T)
    theta = 1 / (h.std(0) * (correlation**2).sum(1) + 0.1)
    # IsoBN's last factor, which keeps the sum of variances, is one number: explained variance ignores it.
    expected = {"none": h, "batch_norm": h / np.sqrt(h.var(0) + 1e-5), "isobn_paper": h * theta}
    for method, matrix in expected.items():
        values = np.linalg.svd(matrix - matrix.mean(0), compute_uv=False) ** 2
        found = [float(row["ev"]) for row in numbers(outputs) if row["method"] == method]
        np.testing.assert_allclose(found, np.cumsum(values) / values.sum(), rtol=1e-5, err_msg=method)
    for text in ("bert-base-cased", "0.76/0.87/0.89", "NOT the paper's setting", "encoder local is not the paper's"):
        assert text in out


def test_files_are_whole_and_say_where_they_come_from(cli, ev, outputs):
    cli(*ev)
    folder = outputs / "reports" / "isobn_ev"
    kinds = {
        "about.json",
        "tables.txt",
        "figure7.png",
        "figure7.svg",
        "explained_variance.csv",
        "explained_variance.parquet",
    }
    assert {file.name for file in folder.iterdir()} == kinds
    about = json.loads((folder / "about.json").read_text())
    assert {run["calibration"]["name"] for run in about["runs"]} == {
        "none",
        "batch_norm",
        "isobn_paper",
        "isobn_released",
    }
    assert about["analysis"]["curve"] == 32
    assert about["provenance"]["versions"]["torch"]
    table = pyarrow.parquet.read_table(folder / "explained_variance.parquet").to_pylist()
    rows = numbers(outputs)
    assert [(row["method"], row["k"], row["ev"]) for row in table] == [
        (row["method"], int(row["k"]), float(row["ev"])) for row in rows
    ]
    assert "Not the paper's setting" in (folder / "figure7.svg").read_text()


def test_the_same_command_writes_the_same_bytes(cli, ev, outputs):
    folder, found = outputs / "reports" / "isobn_ev", []
    for _ in range(2):
        assert cli(*ev)[0] == 0
        found.append(
            {name: (folder / name).read_bytes() for name in ("figure7.svg", "explained_variance.csv", "tables.txt")}
        )
    assert found[0] == found[1]


def test_a_method_of_ones_own_stands_beside_the_papers(cli, ev, outputs):
    assert cli(*ev, "-m", "calibration=none,whitening_zca")[0] == 0
    rows = numbers(outputs)
    assert {row["method"] for row in rows} == {"none", "whitening_zca"}
    assert float(rows[32]["ev"]) < 0.1 < float(rows[0]["ev"])  # whitened: every direction alike


def test_layers_stand_beside_each_other(cli, ev, outputs):
    assert cli(*ev, "-m", "calibration=none", "encoder.layer=0,1,2")[0] == 0
    rows = numbers(outputs)
    assert [row["encoder"] for row in rows[::32]] == [f"local layer={number}" for number in range(3)]
    assert len({row["ev"] for row in rows[::32]}) == 3


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["+analysis.kurve=3"], "analysis.kurve is no setting"),
        (["analysis._target_=isobench.nowhere.f"], "analysis._target_=isobench.nowhere.f can't be imported"),
        (["analysis.curve=3,4"], "analysis.curve can't be swept over"),
        (["hydra/launcher=slurm"], "isobn_ev trains nothing: leave hydra/launcher out"),
        (["hydra.mode=RUN"], "an analysis needs an experiment's grid"),
        (["encoder.path=/nowhere"], "the folder /nowhere does not exist"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(cli, ev, outputs, more, message):
    code, out, err = cli(*ev, *more)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not outputs.exists()


@pytest.mark.parametrize("place", ["outputs", "outputs/reports", "outputs/reports/isobn_ev"])
def test_a_folder_that_cant_be_written_is_said_before_any_work(cli, ev, outputs, tmp_path, monkeypatch, place):
    from isobench_papers.isobn import ev as isobn_ev

    monkeypatch.setattr(isobn_ev, "analyse", lambda subjects, curve: pytest.fail("worked first"))
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text("in the way")
    code, _, err = cli(*ev)
    assert (code, err.count("\n")) == (2, 1)
    assert ("is a file: name a folder" if place == "outputs" else "can't be written") in err


def save_without_pooler(tiny: str, folder: Path) -> None:
    shutil.copytree(tiny, folder)
    weights = folder / "model.safetensors"
    save_file({k: v for k, v in load_file(weights).items() if not k.startswith("pooler")}, weights, {"format": "pt"})


def test_weights_that_the_checkpoint_lacks_are_said_where_they_were_read(cli, ev, tiny, tmp_path, outputs):
    save_without_pooler(tiny, tmp_path / "poor")
    poor = [x for x in ev if not x.startswith("encoder.p")] + [f"encoder.path={tmp_path}/poor", "calibration=none"]
    message = "local: the checkpoint has no pooler: pooler.dense is randomly initialised"
    _, out, _ = cli(*poor, "encoder.pooling=pooler")
    assert message in " ".join(out.split())
    assert message in json.loads((outputs / "reports" / "isobn_ev" / "about.json").read_text())["scale"]["differs"]
    _, out, _ = cli(*poor, "encoder.pooling=cls")  # reads no pooler
    assert message not in " ".join(out.split())


def test_warnings_do_not_depend_on_the_order_in_which_vectors_are_asked_for(small, tiny, tmp_path):
    save_without_pooler(tiny, tmp_path / "poor")
    poor = [x for x in small if not x.startswith("encoder.p")]
    cfg = make_config(*poor, f"encoder.path={tmp_path}/poor", "encoder.pooling=pooler", "task.train_samples=20")
    row = Row.of(cfg, identify(cfg).key)
    subject, other = Subject(row), Subject(row)
    subject.encoded()
    assert subject.warnings == []
    subject.embeddings()
    other.embeddings()
    other.encoded()
    assert subject.warnings == other.warnings == [NO_POOLER_WARNING]


OWN = """
from isobench.analyses.findings import Findings

def analyse(subjects, k):
    rows = [{"encoder": s.encoder, "k": k, "mean": float(s.embeddings().mean())} for s in subjects]
    return Findings(numbers={"norms": rows})
"""


def test_an_analysis_of_ones_own_needs_a_function_and_a_yaml(cli, small, outputs, tmp_path, monkeypatch):
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "my_own_analysis.py").write_text(OWN)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(
        "# @package _global_\nexperiment: {name: mine}\nanalysis: {_target_: my_own_analysis.analyse, k: 10}\n"
        "hydra: {mode: MULTIRUN}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    code, out, err = cli("--config-dir", f"{tmp_path}/conf", "+experiment=mine", *small)
    assert code == 0, err
    assert (
        "NOT the paper's setting: encoder local is not the paper's" in out
    )  # though the function says nothing of it
    (row,) = csv.DictReader((outputs / "reports" / "mine" / "norms.csv").open())
    assert (row["encoder"], row["k"]) == ("local", "10")


def test_subjects_that_only_a_seed_tells_apart_are_refused(cli, ev, outputs):
    code, _, err = cli(*ev, "seed=1,2", "-m")
    assert (code, err.count("\n")) == (2, 1)
    assert "one seed" in err
    assert not outputs.exists()


def test_what_an_earlier_outcome_left_goes(cli, ev, outputs):
    cli(*ev)
    folder = outputs / "reports" / "isobn_ev"
    about = read_json(folder / "about.json")
    (folder / "figure6.png").write_text("of an earlier version")
    (folder / "notes.txt").write_text("the user's own")
    about["files"].append("figure6.png")
    (folder / "about.json").write_text(json.dumps(add_json_checksum(about)))
    cli(*ev)
    assert not (folder / "figure6.png").exists()
    assert (folder / "notes.txt").exists()


def test_dry_run_and_status_compute_nothing(cli, ev, outputs, capfd, monkeypatch):
    code, out, _ = cli(*ev, "dry_run=true")
    assert code == 0
    assert "isobn_paper" in out
    assert "not done yet" in out
    assert not outputs.exists()
    cli(*ev)
    from isobench.cli.status import print_status

    capfd.readouterr()
    print_status(ev)
    assert f"training; done: {outputs}/reports/isobn_ev/" in capfd.readouterr().out.replace("\n", "")


def test_an_outcome_of_other_settings_is_not_taken_for_this_one(cli, ev):
    cli(*ev)
    for other in (["calibration=none"], ["encoder.layer=1"], ["analysis.curve=9"]):
        _, out, _ = cli(*ev, *other, "dry_run=true")
        message = " ".join(out.split())
        assert "not done yet (" in message, other
        assert "with other settings" in message, other


def test_numbers_may_have_columns_of_their_own_and_nothing_in_them(tmp_path):
    findings = Findings(
        {"a": [{"x": 1, "y": None}, {"x": 2.5, "z": "t"}], "empty": []}, {"f": Figure()}, [Table("t")], ["n"]
    )
    files = findings.write(tmp_path)
    assert {file.name for file in files} == {f"{n}.{k}" for n in ("a", "empty") for k in ("csv", "parquet")} | {
        "f.png", "f.svg", "tables.txt",
    }  # fmt: skip
    assert pyarrow.parquet.read_table(tmp_path / "a.parquet").to_pylist() == [
        {"x": 1.0, "y": None, "z": None},
        {"x": 2.5, "y": None, "z": "t"},
    ]


def read_table(table):
    """Return the headings and lines of a table."""
    return [column.header for column in table.columns], list(
        zip(*(column.cells for column in table.columns), strict=True)
    )


def test_published_rows_stand_below_ours_in_the_columns_that_we_have():
    ours = {("mine", "none"): {"MRPC": "0.10/0.20/0.30", "my_task": "0.5"}}
    (table,) = build_comparison_tables("t", ("encoder", "method"), ours, "isobn", "table2")
    headings, lines = read_table(table)
    assert headings == ["", "encoder", "method", "MRPC", "my_task"]
    assert lines[:2] == [
        ("ours", "mine", "none", "0.10/0.20/0.30", "0.5"),
        ("paper", "bert-base-cased", "plain", "0.76/0.87/0.89", "-"),
    ]
    assert len(lines) == 7


def test_published_rows_without_our_columns_are_a_table_of_their_own():
    ours = {("mine", method): {"rotten_tomatoes": "0.31/0.37/0.40"} for method in ("none", "isobn_paper")}
    own, printed = build_comparison_tables("t", ("encoder", "method"), ours, "isobn", "table2")
    assert (own.title, printed.title) == ("t", "t (the paper's numbers)")
    headings, lines = read_table(own)
    assert headings == ["encoder", "method", "rotten_tomatoes"]
    assert lines == [("mine", method, "0.31/0.37/0.40") for method in ("none", "isobn_paper")]
    headings, lines = read_table(printed)
    assert headings == ["encoder", "method", "MRPC", "RTE", "CoLA", "STS-b"]
    assert lines[0] == (
        "bert-base-cased", "plain", "0.76/0.87/0.89", "0.88/0.93/0.95", "0.49/0.58/0.64", "0.89/0.94/0.96",
    )  # fmt: skip
    assert "-" not in {cell for line in lines for cell in line}


def test_published_rows_without_a_cell_in_our_columns_are_left_out():
    ours = {("mine",): {"avg cos": "0.10"}}
    (table,) = build_comparison_tables("t", ("encoder",), ours, "too_much_in_common", "section5_3")
    assert read_table(table) == (
        ["", "encoder", "avg cos"],
        [("ours", "mine", "0.10"), ("paper", "roberta-large", "0.33")],
    )


def test_a_target_that_is_missing_is_said():
    with pytest.raises(UserError, match="must name a function"):
        load_analysis_function({"curve": 3})
