"""A mistake ends with exit code 2 and one line that names the setting or the file, and leaves nothing behind."""

import os
import subprocess
import sys

import pytest
from helpers import ROOT, check_refused, make_config, write_parquet

from isobench.common.errors import UserError
from isobench.runs.identity import identify
from isobench.runs.validate import validate_config

# What is typed, and the name that the line must have.
TYPED = [
    ([], "isobench"), (["taks"], "tasks"), (["--mulitrun", "seed=1,2"], "--mulitrun"), (["--cfg", "jbo"], "jbo"),
    (["seed=1", "--config-dir"], "--config-dir"), (["--paper=", "tasks"], "paper.yaml"),
    (["--config-dir", "/nowhere"], "/nowhere"), (["task=rte", "seed"], "seed"), (["++=3", "-m"], "++=3"),
    (["seed=1)"], "seed=1)"), (["data.files={train:", "a.csv,", "validation:", "0.2}"], "data.files"),
    (["experiment=glue_isobn", "-m"], "+experiment"), (["+task=rte"], "task"), (["~task=rte", "-m"], "~task"),
    (["seed=range(3,1)", "-m"], "seed"), (["hydra/launcher=slurm,auto", "-m"], "hydra/launcher"),
    (["seed=null", "-m"], "seed"), (["data.root=${paper:isobm}"], "isobm"), (["hydra.run.dir=x"], "hydra.run.dir"),
    (["methods", "--al"], "--al"), (["output_dir=o_${seed}"], "output_dir"), (["encoder.packing=false"], "packing"),
    (["status", "--watch", "0"], "--watch"), (["status", "experiment=glue_isobn"], "+experiment"),
    (["status", "output_dir="], "output_dir"), (["report", "output_dir=s3://bucket/x"], "output_dir"),
    (["report", "output_dir=.", "experiment.selection.rule=bogus"], "rule=bogus"),
    (["prune", "+experiment=glue_isobn"], "experiment"), (["dashboard", "--reprot"], "--reprot"),
    (["task=rtee"], "did you mean rte"), (["+experiment=glue_isobnn"], "did you mean glue_isobn"),
    (["optimisation.lr=1"], "did you mean optimization"), (["+sed=1"], "did you mean seed"), (["+seed=1"], "seed"),
    (["calibration=isobn_paper", "calibration.betta=1"], "did you mean beta"),
    (["+experiment=isobn_ev", "analysis.curv=3"], "analysis.curv"), (["optimization.lr=fast"], "optimization.lr"),
    (["optimization.lr=-1"], "optimization.lr=-1"), (["encoder.scratch.d_model=64"], "encoder.scratch.d_model"),
    (["optimizer=sgd", "optimization.optimizer.betas=[0.9,0.9]"], "optimization.optimizer.betas"),
    (["calibration=[none,[cosine,flow]]"], "calibration"), (["experiment.name=../up"], "experiment.name"),
    (["task.metrics=[accuracy,accuracy]"], "task.metrics"), (["encoder=local"], "encoder.path"),
    (["output_dir=~nobody-there/x"], "~nobody-there"), (["seed=interval(0,1)", "-m"], "seed=interval(0,1)"),
    (["report", "output_dir=/nowhere/at/all"], "/nowhere/at/all"),
]  # fmt: skip
SLOW = [
    (["task=rte", "data.root=null"], "hub"), (["+experiment=glue_adaptation_large"], "scale=embedded"),
    (["calibration=isobn_paper", "calibration.beta=abc"], "calibration.beta=abc"),
    (["calibration._target_=mine.Foo"], "mine"), (["task.labels=[a,b,c]", "task.metrics=[accuracy]"], "c"),
    (["trainer.accelerator=gpu"], "trainer.accelerator"), (["output_dir=/dev/null/x"], "/dev/null"),
    (["+experiment=isobn_drift", "monitors.drift.tops=[1]"], "monitors.drift.tops"),
    (["+experiment=isobn_drift", "+analysis.foo=3", "dry_run=true", "hydra.mode=MULTIRUN"], "foo"),
]  # fmt: skip
# Values that are valid alone and would give a wrong number together, or cost a training; tests/config has the bounds.
INVALID = [
    ["task=rte", "data.root=/tmp", "task.folder=../x"], ["encoder=gpt2", "encoder.revision=null"],
    ["data.root=/nowhere", "task=rte"], ["task=rte", "task.as_classes=6"], ["task=rte", "task.label_range=[0,1]"],
    ["task=stsb", "task.label_range=[5]"], ["task=stsb", "task.metrics=[accuracy]", "task.primary=accuracy"],
    ["task.metrics=[]"], ["task.labels=[a,a]"], ["task.dev_splits=[held_out]"],
    ["task.dev_splits=[validation,validation]"], ["task.train_split=foo"], ["task.text=[a,b]"],
    ["task.sample_seed=3"], ["encoder.vocabulary_size=500"], ["experiment.selection.seeds=[1]"],
    ["task=captions", "encoder=bart-scratch", "encoder.pooling=mean"], ["experiment.selection.rule=held_out"],
    ["+experiment=glue_calibration", "experiment.tables=[table9]"], ["+calibration.then=foo"], ["+calibration.dim=5"],
    ["calibration._target_=3"],
    ["evaluation.every=last", "optimization.report=best"], ["evaluation.every=last", "optimization.patience=1"],
    ["evaluation.every=99"], ["head=huggingface", "head.dropout=0.5"], ["head=huggingface", "encoder.pooling=mean"],
    ["encoder.layer=3"], ["encoder.missing_from=x"], ["encoder.attention=sigmoid", "checkpoint.export=/tmp/x"],
]  # fmt: skip


def list_cases():
    for case in TYPED + SLOW:
        slow = [pytest.mark.slow] if case in SLOW else []
        yield pytest.param(*case, id=" ".join(case[0]), marks=slow)


@pytest.mark.parametrize(("arguments", "name"), list_cases())
def test_a_mistake_is_one_line(cli, tmp_path, monkeypatch, arguments, name):
    monkeypatch.chdir(tmp_path)
    if "trainer.accelerator=gpu" in arguments and pytest.importorskip("torch").cuda.is_available():
        pytest.skip("there is a GPU")
    code, out, err = cli(*arguments, *(["tracking=none"] * (arguments in [case for case, _ in SLOW])))
    assert (code, out) == (2, "")
    (line,) = [line for line in err.splitlines() if not line.startswith("1 run:")]
    assert line.startswith("isobench: ")
    assert name in line
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_and_bytes_that_are_no_text_are_one_line(cli, tmp_path, monkeypatch):
    check_refused(cli("output_dir='\udcff'"), "command line")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    check_refused(cli("output_dir=x"), "current folder")


def check_config(cfg):
    validate_config(cfg)
    identify(cfg)


@pytest.mark.parametrize("settings", INVALID, ids=lambda case: str(case)[:60])
def test_an_invalid_config_is_refused(tmp_path, settings):
    cfg = make_config("tracking=none", f"data.cache={tmp_path}", *settings)
    with pytest.raises(UserError) as error:
        check_config(cfg)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "content",
    [
        b"name: [a\n", b"name: own\ntext: [a]\nname: other\n", b"name: own\n\ttext: [a]\n", b"name: a\x01b\n",
        "name: caf\N{LATIN SMALL LETTER E WITH ACUTE}\n".encode("latin-1"),
    ],
)  # fmt: skip
def test_a_broken_yaml_file_is_named(cli, tmp_path, content):
    file = tmp_path / "task" / "own.yaml"
    file.parent.mkdir()
    file.write_bytes(content)
    check_refused(cli("-cd", str(tmp_path), "task=own"), str(file))
    check_refused(cli("status", f"--config-dir={tmp_path}", "task=own"), str(file))


EXPERIMENT = """# @package _global_
experiment: {name: own, grid: {embedded: [{calibration: [none]}]}}
hydra: {mode: MULTIRUN}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# @package _global_", ""), ("[none]", "[]"), ("calibration: [none]", "++hydra.launcher.n_jobs: [2]"),
        ("calibration: [none]", "experiment.paper: [isobn]"), ("[{calibration: [none]}]", "[]"),
        ("{embedded: [{calibration: [none]}]}", "[a]"), ("name: own", "paper: isobnn"),
        ("name: own", "tables: [table1]"),
    ],
)  # fmt: skip
def test_a_mistake_in_an_experiments_yaml_is_one_line(cli, tmp_path, old, new):
    file = tmp_path / "experiment" / "own.yaml"
    file.parent.mkdir()
    file.write_text(EXPERIMENT.replace(old, new))
    check_refused(cli("--config-dir", str(tmp_path), "+experiment=own", "tracking=none", "dry_run=true"))


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["output_dir", "data.root", "encoder.path", "data.cache"])
def test_a_file_in_place_of_a_folder_is_named(cli, small, tmp_path, setting):
    file = tmp_path / "file"
    file.write_text("")
    check_refused(cli(*small, f"{setting}={file}"), str(file))


@pytest.mark.slow
def test_labels_outside_the_classes_are_refused(cli, small, outputs, tmp_path):
    for split in ("train", "validation"):
        file = tmp_path / "data" / "glue" / "sst2" / f"{split}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_parquet(file, {"sentence": ["good", "bad"], "label": [0, 7]})
    code, _, err = cli(*small, f"data.root={tmp_path}/data")
    assert (code, "Traceback" in err) == (2, False)
    assert not outputs.exists()


@pytest.mark.parametrize(("word", "code"), [("papers", 0), ("status", 2)])
def test_a_command_works_with_all_streams_closed(tmp_path, word, code):
    line = '"$0" -m isobench "$1" <&- >&- 2>&-'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", line, sys.executable, word], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == code


def test_a_folder_that_is_gone_is_one_line(cli, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    code, _, err = cli("task=rte")
    assert (code, "Traceback" in err) == (2, False)
