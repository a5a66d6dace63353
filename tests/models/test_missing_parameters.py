"""encoder.missing_from: a pooler that the safetensors file lacks comes from pytorch_model.bin, and nothing else."""

import pickle
import shutil
from pathlib import Path

import pytest
import torch
from helpers import RunsCode, fails, make_config

from isobench.common.errors import UserError
from isobench.config.schema import Encoder
from isobench.data import weights
from isobench.models.encoders import load_encoder
from isobench.runs.identity import identify

BIN = "pytorch_model.bin"
BIAS = "roberta.pooler.dense.bias"
BATCH = {"input_ids": torch.tensor([[0, 5, 6, 2]]), "attention_mask": torch.ones(1, 4, dtype=torch.long)}


@pytest.fixture(scope="module")
def roberta(tmp_path_factory) -> tuple[Path, dict]:
    from transformers import RobertaConfig, RobertaForMaskedLM

    folder = tmp_path_factory.mktemp("roberta")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    torch.manual_seed(0)
    config = RobertaConfig(vocab_size=30, max_position_embeddings=40, initializer_range=0.3, **sizes)
    model = RobertaForMaskedLM(config)
    model.save_pretrained(folder)
    pooler = {"roberta.pooler.dense.weight": torch.randn(16, 16), "roberta.pooler.dense.bias": torch.randn(16)}
    stored = {name: value.clone() for name, value in model.state_dict().items()} | pooler
    torch.save(stored, folder / BIN)
    return folder, stored


def load(folder: Path, **settings):
    return load_encoder(Encoder(name="tiny", path=str(folder), **{"missing_from": BIN} | settings), None, seed=1)


def test_the_pooler_is_the_files_and_the_rest_the_safetensors(roberta, tmp_path):
    from transformers import RobertaModel

    folder, stored = roberta
    shutil.copytree(folder, tmp_path / "copy")
    spoiled = {name: value if "pooler" in name else value + 1 for name, value in stored.items()}
    torch.save(spoiled, tmp_path / "copy" / BIN)
    loaded = load(tmp_path / "copy")
    whole = RobertaModel.from_pretrained(folder).eval()
    whole.load_state_dict({name.removeprefix("roberta."): value for name, value in stored.items()}, strict=False)
    with torch.no_grad():
        mine = loaded.pooler(loaded.encoder.eval()(**BATCH))
        torch.testing.assert_close(mine, whole(**BATCH).pooler_output)
    assert loaded.init_seed is None


@pytest.mark.parametrize(
    "write",
    [
        lambda file, _: file.write_bytes(file.read_bytes()[:-5000]),
        lambda file, _: file.write_bytes(pickle.dumps(RunsCode("ran"), 2)),
        lambda file, stored: torch.save(stored | {"x": RunsCode("ran")}, file), lambda file, _: torch.save({}, file),
        lambda file, stored: torch.save(stored | {BIAS: torch.zeros(3)}, file),
        lambda file, stored: torch.save(stored | {BIAS: torch.full((16,), float("nan"))}, file),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_one_line_and_runs_no_code(roberta, tmp_path, monkeypatch, write):
    folder, stored = roberta
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "copy" / BIN, stored)
    with pytest.raises(UserError):
        load(tmp_path / "copy")
    assert not (tmp_path / "ran").exists()


def test_a_file_of_the_hub_is_that_of_the_pinned_commit(roberta, tmp_path, monkeypatch):
    import huggingface_hub

    commit = "a" * 40
    folder, stored = roberta
    shutil.copytree(folder, tmp_path / "models--org--tiny" / "snapshots" / commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    cfg = Encoder(name="tiny", hub="org/tiny", revision=commit, missing_from=BIN)
    loaded = load_encoder(cfg, None, seed=1)
    assert torch.equal(loaded.pooler.dense.weight, stored["roberta.pooler.dense.weight"])
    assert weights.fingerprint_encoder(cfg) == {"hub": f"org/tiny@{commit}", "missing_from": BIN}
    cfg.missing_from = "other.bin"
    with fails():
        load_encoder(cfg, None, seed=1)


def test_the_files_bytes_are_in_the_key(small, tiny, tmp_path):
    shutil.copytree(tiny, tmp_path / "copy")
    overrides = [*small, f"encoder.path={tmp_path / 'copy'}"]
    keys = {identify(make_config(*overrides)).key}
    for content in (b"one", b"two"):
        (tmp_path / "copy" / BIN).write_bytes(content)
        for more in ([], [f"encoder.missing_from={BIN}"]):
            keys.add(identify(make_config(*overrides, *more)).key)
    assert len(keys) == 3
