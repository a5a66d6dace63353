"""An analysis of one's own: planned like a sweep, carried out once, its rows whole or not there at all."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from helpers import fails, make_config, read_analysis_rows
from safetensors.torch import load_file, save_file

from isobench.analyses.rows import read_stored_rows
from isobench.analyses.runner import check_settings, show_rows
from isobench.analyses.subject import Subject
from isobench.models.encoders import NO_POOLER_WARNING
from isobench.runs.identity import identify
from isobench.runs.run import Run

pytestmark = pytest.mark.slow

MODULE = '''
"""The mean length of embeddings."""

from typing import Annotated

from matplotlib.figure import Figure

from isobench.analyses.shown import Shown, make_table
from isobench.config.bounds import at_least


def compute(subjects, k: Annotated[int, at_least(1)]):
    rows = []
    for subject in subjects:
        norm = subject.embeddings().norm(dim=1).mean().item()
        rows.append({"encoder": subject.encoder, "method": subject.method, "norm": k * norm})
    return {"norms": rows}


def show(rows, k):
    table = make_table(f"Norms x {k}", ("encoder",), ("norm",))
    figure = Figure()
    axis = figure.subplots()
    for row in rows["norms"]:
        table.add_row(row["encoder"], f"{row['norm']:.3f}")
        axis.bar(row["method"], row["norm"])
    return Shown([table], {"lengths": figure}, ["A note."])
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The file of an analysis, and an experiment that names it in conf/."""
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    file = tmp_path / "my_own_analysis.py"
    file.write_text(MODULE)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(
        "# @package _global_\nexperiment: {name: mine, grid: {embedded: [{calibration: [none, batch_norm]}]}}\n"
        "analysis: {_target_: my_own_analysis, k: 10}\nhydra: {mode: MULTIRUN}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a test changes the file
    yield file
    sys.modules.pop("my_own_analysis", None)


@pytest.fixture
def mine(module, small):
    own = ["encoder.pooling=cls", "task.train_samples=60"]
    return [f"--config-dir={module.parent}/conf", "+experiment=mine", *small, *own]


def test_rows_are_computed_written_and_shown(cli, mine, outputs):
    code, out, err = cli(*mine)
    assert code == 0, err
    folder = outputs / "reports" / "mine"
    rows = read_analysis_rows(outputs, "mine")["norms"]
    assert [row["method"] for row in rows] == ["none", "batch_norm"]
    assert f"{rows[0]['norm']:.3f}" in out
    assert "Norms x 10" in out
    assert "the paper's" not in out  # the experiment has no paper
    about = json.loads((folder / "about.json").read_text())
    assert {run["calibration"]["name"] for run in about["runs"]} == {"none", "batch_norm"}
    assert about["analysis"] == {"_target_": "my_own_analysis", "k": 10}
    assert about["provenance"]["versions"]["torch"]
    assert "Data: at most 60 training examples" in (folder / "lengths.svg").read_text()
    assert {file.name for file in folder.iterdir()} == {"about.json", *about["files"]}
    text = show_rows(about, read_stored_rows(folder)).text
    assert all(line.rstrip() in out for line in text.splitlines())
    (folder / "lengths.svg").unlink()
    code, out, err = cli("report", f"output_dir={outputs}", *mine[:2])  # by the rows alone
    assert (code, "Norms x 10" in out) == (0, True), err
    assert (folder / "lengths.svg").is_file()
    written = {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "about.json"}
    assert cli(*mine)[0] == 0
    assert {name: (folder / name).read_bytes() for name in written} == written


def test_a_module_without_show_has_its_rows_as_tables(cli, mine, module, outputs):
    module.write_text(MODULE[: MODULE.index("def show")])
    code, out, err = cli(*mine)
    assert code == 0, err
    norm = read_analysis_rows(outputs, "mine")["norms"][0]["norm"]
    assert f"{norm:.4g}" in out


@pytest.mark.parametrize(
    "returned",
    [
        "None", "{'../a': []}", "{'runs': []}", "{'a': 5}", "{'a': [1]}", "{'a': [{'x': 1}, {'x': 'b'}]}",
    ],
)  # fmt: skip
def test_what_compute_returns_is_checked_before_anything_is_written(cli, mine, module, outputs, returned):
    module.write_text(f"def compute(subjects, k):\n    return {returned}\n")
    code, out, err = cli(*mine)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert not (outputs / "reports" / "mine" / "about.json").exists()


def test_a_figure_overwrites_no_file_of_another_folder(cli, mine, module, outputs):
    module.write_text(MODULE.replace('"lengths"', '"../lengths"'))
    code, _, err = cli(*mine)
    assert (code, err.count("\n"), list(outputs.rglob("*.svg"))) == (2, 1, [])


@pytest.mark.parametrize(
    "more",
    [
        ["+analysis.kk=3"], ["analysis.k=0"], ["analysis.k=1.5"], ["analysis._target_=nowhere.at.all"],
        ["analysis._target_=json"], ["analysis._target_=null"], ["analysis.k=3,4"], ["hydra/launcher=slurm"],
        ["hydra.mode=RUN"], ["encoder.path=/nowhere"], ["seed=1,2"],
    ],
)  # fmt: skip
def test_mistakes_are_one_line_and_leave_nothing(cli, mine, outputs, more):
    code, out, err = cli(*mine, *more)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert not outputs.exists()


def test_a_setting_that_is_missing_is_named():
    def compute(subjects, k, own=3):
        return {}

    check_settings(compute, {"k": 1})
    with fails():
        check_settings(compute, {"own": 1})


@pytest.mark.parametrize("place", ["outputs", "outputs/reports", "outputs/reports/mine"])
def test_a_folder_that_cant_be_written_is_said_before_any_work(cli, mine, module, tmp_path, place):
    module.write_text("def compute(subjects, k):\n    raise AssertionError('worked first')\n")
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text("in the way")
    code, _, err = cli(*mine)
    assert (code, err.count("\n")) == (2, 1)
    assert ("is a file: name a folder" if place == "outputs" else "written") in err


def test_dry_run_computes_nothing_and_knows_whether_these_settings_were_analysed(cli, mine, outputs):
    code, out, _ = cli(*mine, "dry_run=true")
    assert code == 0
    assert "batch_norm" in out
    assert "not done yet" in out
    assert not outputs.exists()
    cli(*mine)
    assert f"training; done: {outputs}/reports/mine/" in cli(*mine, "dry_run=true")[1].replace("\n", "")
    for other in (["calibration=none"], ["encoder.layer=1"], ["analysis.k=9"]):
        message = " ".join(cli(*mine, *other, "dry_run=true")[1].split())
        assert "with other settings" in message, other


def save_without_pooler(tiny: str, folder: Path) -> None:
    shutil.copytree(tiny, folder)
    weights = folder / "model.safetensors"
    save_file({k: v for k, v in load_file(weights).items() if not k.startswith("pooler")}, weights, {"format": "pt"})


def test_warnings_do_not_depend_on_the_order_in_which_vectors_are_asked_for(small, tiny, tmp_path):
    save_without_pooler(tiny, tmp_path / "poor")
    poor = [x for x in small if not x.startswith("encoder.p")]
    cfg = make_config(*poor, f"encoder.path={tmp_path}/poor", "encoder.pooling=pooler", "task.train_samples=20")
    row = Run.of(cfg, identify(cfg).key)
    subject, other = Subject(row), Subject(row)
    subject.encoded()
    assert subject.warnings == []
    subject.embeddings()
    other.embeddings()
    other.encoded()
    assert subject.warnings == other.warnings == [NO_POOLER_WARNING]
