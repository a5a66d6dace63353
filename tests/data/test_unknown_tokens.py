"""Tokenizers that don't know the training texts, or have no words at all."""

import json
import shutil

import numpy as np
import pytest
from helpers import WORDS, make_config, save_tiny

from isobench.common.errors import UserError
from isobench.config.schema import Encoder
from isobench.data.batches.loaders import describe_unknown_tokens
from isobench.models.tokenization import load_tokenizer
from isobench.runs.validate import validate_config


@pytest.fixture
def tokenizer(tiny):
    return load_tokenizer(Encoder(name="tiny", path=tiny), None)


def ids_of(tokenizer, *texts):
    return [np.asarray(tokenizer(text)["input_ids"], np.int32) for text in texts]


@pytest.mark.parametrize(
    ("unknown", "known", "warned"), [(0, 400, None), (4, 396, None), (5, 395, "1.2%"), (100, 100, "50.0%")]
)
def test_a_share_above_one_percent_is_a_warning(tokenizer, unknown, known, warned):
    """The two tokens that the tokenizer adds to each text are not counted."""
    texts = ["zzz " * unknown, f"{WORDS[0]} " * known]
    notes = describe_unknown_tokens("tiny", tokenizer, ids_of(tokenizer, *texts))
    assert notes == ([f"{warned} of the training tokens are unknown to the tokenizer ([UNK])"] if warned else [])


def test_nothing_known_is_an_error(tokenizer):
    with pytest.raises(UserError, match="encoder=tiny: its tokenizer knows no word of the training set"):
        describe_unknown_tokens("tiny", tokenizer, ids_of(tokenizer, "zzz yyy", "xxx"))


def test_a_tokenizer_whose_unknown_token_has_another_use_is_passed_over(tmp_path):
    save_tiny(tmp_path, "gpt2")
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"unk_token": "[SEP]"}))
    tokenizer = load_tokenizer(Encoder(name="gpt2", path=str(tmp_path)), None)
    assert tokenizer.unk_token_id == tokenizer.eos_token_id
    assert describe_unknown_tokens("gpt2", tokenizer, [np.array([tokenizer.eos_token_id])]) == []


@pytest.fixture
def bare(tiny, tmp_path):
    """The tiny encoder's folder without its tokenizer."""
    folder = tmp_path / "bare"
    shutil.copytree(tiny, folder)
    for file in [*folder.glob("tokenizer*"), *folder.glob("special_tokens*"), *folder.glob("vocab*")]:
        file.unlink()
    return folder


def test_a_folder_without_a_tokenizer_is_refused_before_anything_starts(bare):
    cfg = make_config("encoder=local", f"encoder.path={bare}")
    with pytest.raises(UserError, match=r"encoder\.path: .*bare has no tokenizer: put its tokenizer's files there"):
        validate_config(cfg)


def test_a_tokenizer_without_words_is_refused_where_it_is_loaded(bare):
    """transformers makes one of its special tokens for a folder with nothing but settings, or with nothing."""
    for text in (None, '{"tokenizer_class": "BertTokenizer"}'):
        if text:
            (bare / "tokenizer_config.json").write_text(text)
        with pytest.raises(UserError, match="encoder=local: its tokenizer knows no word"):
            load_tokenizer(Encoder(name="local", path=str(bare)), None)
