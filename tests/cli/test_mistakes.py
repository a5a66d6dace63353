"""A mistake ends with exit code 2 and one line that names the setting or the file, and leaves nothing behind."""

import os
import subprocess
import sys

import pytest
from helpers import ROOT, check_refused, make_config, write_parquet

from isobench.common.errors import UserError
from isobench.runs.identity import identify
from isobench.runs.validate import validate_config

TYPED = [
    [], ["taks"], ["--mulitrun", "seed=1,2"], ["seed=1", "--config-dir"], ["--config-dir", "/nowhere"],
    ["++=3", "-m"], ["data.files={train:", "a.csv,", "validation:", "0.2}"], ["experiment=glue_isobn", "-m"],
    ["~task=rte", "-m"], ["data.root=${paper:isobm}"], ["hydra.run.dir=x"], ["output_dir=o_${seed}"],
    ["status", "--watch", "0"], ["status", "output_dir="], ["report", "output_dir=s3://bucket/x"],
    ["prune", "+experiment=glue_isobn"], ["task=rtee"], ["optimisation.lr=1"], ["+seed=1"],
    ["calibration=isobn_paper", "calibration.betta=1"], ["optimization.lr=fast"], ["optimization.lr=-1"],
    ["encoder.scratch.d_model=64"], ["experiment.name=../up"],
    ["optimizer=sgd", "optimization.optimizer.betas=[0.9,0.9]"], ["calibration=[none,[cosine,flow]]"],
    ["task.metrics=[accuracy,accuracy]"], ["encoder=local"], ["seed=interval(0,1)", "-m"], ["output_dir='\udcff'"],
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


@pytest.mark.parametrize("arguments", TYPED, ids=lambda case: " ".join(case).encode("ascii", "ignore").decode())
def test_a_mistake_is_one_line_and_leaves_nothing(cli, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    check_refused(cli(*arguments))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("settings", INVALID, ids=lambda case: str(case)[:60])
def test_an_invalid_config_is_refused(tmp_path, settings):
    cfg = make_config("tracking=none", f"data.cache={tmp_path}", *settings)
    with pytest.raises(UserError):
        identify(validate_config(cfg) or cfg)


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
