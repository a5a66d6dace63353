"""Check that for a folder that transformers can't load, an error of one line names the damaged file."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers import make_config

from isobench.common.errors import UserError
from isobench.data.batches.loaders import check_token_ids
from isobench.models.encoders import load_encoder
from isobench.models.tokenization import load_tokenizer


def change_config(folder: Path, **values) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def cut(name: str):
    """Return a function that halves a file of a folder."""

    def halve(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return halve


def put(name: str, content: str):
    return lambda folder: (folder / name).write_text(content)


DAMAGES = {
    "config.json is damaged (it is not JSON): copy it again": cut("config.json"),
    "config.json must hold a JSON object": put("config.json", "[]"),
    "tokenizer.json is damaged (it is not JSON)": cut("tokenizer.json"),
    "'added_tokens' is missing in its JSON files": put("tokenizer.json", "{}"),
    "model.safetensors is damaged (": cut("model.safetensors"),
    "model.safetensors is a pointer of Git LFS": put("model.safetensors", "version https://git-lfs"),
    "word_embeddings.weight has shape [24, 32] in the weights, but [10, 32] by config.json": (
        lambda folder: change_config(folder, vocab_size=10)
    ),
    "'zelu' is missing": lambda folder: change_config(folder, hidden_act="zelu"),
}  # fmt: skip


def load_both(cfg):
    load_tokenizer(cfg, None)
    load_encoder(cfg, None, 1)


@pytest.mark.parametrize("message", DAMAGES)
def test_the_damaged_file_is_named(tiny, tmp_path, message):
    folder = tmp_path / "encoder"
    shutil.copytree(tiny, folder)
    DAMAGES[message](folder)
    cfg = make_config("encoder=local", f"encoder.path={folder}").encoder
    with pytest.raises(UserError) as error:
        load_both(cfg)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_tokenizer_of_another_vocabulary_is_refused():
    check_token_ids("x", np.array([], np.int64), 24)
    with pytest.raises(UserError, match="its tokenizer gives token id 24, but the encoder knows only 24 tokens"):
        check_token_ids("x", np.array([1, 24]), 24)
