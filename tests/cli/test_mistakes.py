"""A mistake ends with exit code 2 and one line that names the setting or the file, and leaves nothing behind."""

from pathlib import Path

import pytest
from helpers import ROOT, check_refused, make_config

from isobench.cli.command import split_folders
from isobench.common.errors import UserError
from isobench.runs.identity import identify
from isobench.runs.validate import validate_config

TYPED = [
    [], ["hydra.run.dir=x"], ["output_dir=o_${seed}"], ["report", "output_dir=s3://bucket/x"],
    ["prune", "+experiment=glue_isobn"], ["+seed=1"], ["calibration=isobn_paper", "calibration.betta=1"],
    ["experiment.name=../up"], ["optimizer=sgd", "optimization.optimizer.betas=[0.9,0.9]"],
    ["papers", "--new", "isobn"], ["papers", "--new", "my-paper"], ["papers", "isob"],
    ["report", "--claims", "isob"], ["encoder=local", "encoder.path=nowhere", "task=rotten_tomatoes"],
    ["--config-dir", str(ROOT / "examples" / "paper"), "+experiment=greetings"],
]  # fmt: skip
# Values that are valid alone and would give a wrong number together, or cost a training; tests/config has the bounds.
INVALID = [
    ["task=rte", "data.root=/tmp", "task.folder=../x"], ["encoder=gpt2", "encoder.revision=null"],
    ["data.root=/nowhere", "task=rte"], ["task=rte", "task.as_classes=6"], ["task=rte", "task.label_range=[0,1]"],
    ["task=stsb", "task.metrics=[accuracy]", "task.primary=accuracy"], ["task.dev_splits=[held_out]"],
    ["task.dev_splits=[validation,validation]"],
    ["task.sample_seed=3"], ["encoder.vocabulary_size=500"], ["experiment.selection.seeds=[1]"],
    ["task=captions", "encoder=bart-scratch", "encoder.pooling=mean"], ["experiment.selection.rule=held_out"],
    ["+experiment=glue_calibration", "experiment.tables=[table9]"], ["+calibration.then=foo"], ["+calibration.dim=5"],
    ["calibration._target_=3"],
    ["evaluation.every=last", "optimization.report=best"], ["evaluation.every=last", "optimization.patience=1"],
    ["evaluation.every=99"], ["head=huggingface", "head.dropout=0.5"], ["head=huggingface", "encoder.pooling=mean"],
    ["head=huggingface", "encoder.layer=0"], ["head=huggingface", "scale=paper", "encoder=gpt2"],
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


def test_a_folder_is_told_from_a_setting():
    for text in ("bundle", "a/b", "./a=b", "../a=b", "/x/a=b", "~/a=b"):
        folders, settings = split_folders([text])
        assert ([folder.name for folder in folders], settings) == ([Path(text).name], [])
    others = ["hydra/launcher=slurm", "+experiment=x", "output_dir=a/b", "~task", "+x", "data.files={train: a=b.csv}"]
    assert split_folders(others) == ([], others)
