"""The choice of a head: which settings and architectures it refuses, and a run from its start to its record."""

import pytest
import torch
from helpers import make_config, save_tiny

from isobench.common.errors import UserError
from isobench.config.schema import Encoder
from isobench.models.encoders import load_encoder
from isobench.runs.folder import RunFolder
from isobench.runs.identity import identify
from isobench.runs.validate import validate_config
from isobench.training.build import build_run_parts
from isobench.training.train import train


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["head.dropout=0"], "head.dropout=0.0 is a setting of head=isobn"),
        (
            ["encoder.pooling=mean"],
            "encoder.pooling=mean, set by the command line, doesn't go with head=huggingface, which has its own "
            "pooling: choose head=isobn, or set encoder.pooling=pooler$",
        ),
        (["encoder.layer=0"], "encoder.layer=0, set by the command line,.* or set encoder.layer=null$"),
        (
            ["scale=paper", "encoder=gpt2"],
            "encoder.pooling=last, set by encoder=gpt2, doesn't go .* choose head=isobn, or choose another encoder$",
        ),
        (
            ["+experiment=isobn_drift", "encoder.pooling=cls"],
            r"encoder.pooling=cls, set by the command line or \+experiment=isobn_drift,",
        ),
        (["+experiment=isobn_ev"], "this analysis trains no head: choose head=isobn"),
    ],
)
def test_settings_that_the_head_does_not_have_are_refused(wrong, message):
    with pytest.raises(UserError, match=message):
        validate_config(make_config("head=huggingface", *wrong))


def test_the_architecture_is_checked_when_a_run_is_planned_and_before_weights_are_read(small, tmp_path):
    save_tiny(tmp_path / "gpt2", "gpt2")
    folder = [*small, "head=huggingface", f"encoder.path={tmp_path / 'gpt2'}"]
    with pytest.raises(UserError, match=r"^head=huggingface has no head for gpt2, only for bert,.*choose head=isobn"):
        validate_config(make_config(*folder))
    (tmp_path / "gpt2" / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"^head=huggingface has no head for gpt2, only for bert,.*choose head=isobn"):
        load_encoder(Encoder(name="gpt2", path=str(tmp_path / "gpt2")), None, seed=1, head="huggingface")
    for content in ("[]", "{}", '{"model_type": 3}', "damaged"):
        (tmp_path / "gpt2" / "config.json").write_text(content)
        validate_config(make_config(*folder))  # not known before loading


def test_an_unknown_architecture_and_another_width_are_refused(small, tmp_path):
    save_tiny(tmp_path / "gpt2", "gpt2")
    with pytest.raises(UserError, match="head=huggingface has no head for gpt2, only for bert,.*choose head=isobn"):
        load_encoder(Encoder(name="gpt2", path=str(tmp_path / "gpt2")), None, seed=1, head="huggingface")
    cfg = make_config(*small, "head=huggingface", "calibration=whitening_pca", "calibration.k=4")
    with pytest.raises(UserError, match="its classifier reads 32 columns, and the methods give it 4"):
        build_run_parts(cfg, identify(cfg))


@pytest.mark.slow
def test_the_head_is_chosen_on_the_command_line(cli, small):
    code, out, _ = cli(*small, "head=isobn,huggingface", "-m", "dry_run=true")
    assert code == 0
    assert "┃ head " in out
    assert "│ huggingface │" in out
    code, _, err = cli(*small, "head=bert")
    assert (code, err.strip()) == (2, "isobench: head=bert is not known: choose one of: huggingface, isobn")


@pytest.mark.slow
@pytest.mark.parametrize("calibration", ["fixed_norm_z", "flow"])
def test_a_run_is_repeated_to_the_bit(small, tmp_path, calibration):
    """With a method before the pooler that reads the training set, and one after it that is trained itself."""
    results = []
    for number in range(2):
        torch.manual_seed(number)  # whatever went on before
        overrides = [*small, "head=huggingface", f"calibration={calibration}", "optimization.epochs=1"]
        cfg = make_config(*overrides, f"output_dir={tmp_path}/{number}")
        identity = identify(cfg)
        results.append(train(cfg, identity, RunFolder(cfg.output_dir, identity.key)))
    first, second = results
    assert first.status == "finished"
    assert first.history == second.history
    assert first.warnings == []
