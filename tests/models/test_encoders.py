"""Encoders: pooling, poolers, the packaged weights, and what can't be loaded."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
import transformers
from helpers import fails, make_config, save_tiny

from isobench.common.errors import UserError
from isobench.config.schema import Encoder
from isobench.data import weights
from isobench.data.packaged import encoders as packaged_encoders
from isobench.data.sentence_settings import DECLARED_TOKENS, read_sentence_settings
from isobench.frozen.encode import FrozenEncoder
from isobench.models.encoders import ENCODER_DECODER, load_encoder, load_generator
from isobench.models.loading import read_max_positions
from isobench.models.tokenization import load_tokenizer


def batch(tokenizer, *texts):
    return tokenizer(list(texts), return_tensors="pt", padding=True)


@pytest.mark.parametrize(("family", "longest"), [("Bert", 20), ("Roberta", 18), ("MPNet", 18), ("Camembert", 18)])
def test_the_longest_input_is_what_the_position_embeddings_allow(family, longest):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = getattr(transformers, f"{family}Config")(
        vocab_size=9, max_position_embeddings=20, pad_token_id=1, **sizes
    )
    model = getattr(transformers, f"{family}Model")(config).eval()
    assert read_max_positions(config) == longest
    model(input_ids=torch.full((1, longest), 5))
    with pytest.raises((IndexError, RuntimeError)):
        model(input_ids=torch.full((1, longest + 1), 5))


@pytest.mark.parametrize(
    ("pooling", "layer"),
    [("pooler", None), ("cls", None), ("mean", None), ("last", None), ("mean", 0), ("mean", 1), ("mean", 2)],
)
def test_pooling_of_a_layer_is_transformers_own(tiny, pooling, layer):
    from transformers import AutoModel

    cfg = Encoder(name="tiny", path=tiny, pooling=pooling, layer=layer)
    loaded = load_encoder(cfg, None, seed=1)
    model = AutoModel.from_pretrained(tiny).eval()
    tokens = batch(load_tokenizer(cfg, None), "the film was good", "bad")
    with torch.no_grad():
        mine = loaded.pooler.eval()(loaded.encoder.eval()(**tokens))
        theirs = model(**tokens, output_hidden_states=True)
    hidden, lengths = theirs.hidden_states[-1 if layer is None else layer], tokens["attention_mask"].sum(1)
    expected = {
        "pooler": theirs.pooler_output,
        "cls": hidden[:, 0],
        "mean": torch.stack([hidden[i, :n].mean(0) for i, n in enumerate(lengths)]),
        "last": torch.stack([hidden[i, n - 1] for i, n in enumerate(lengths)]),
    }[pooling]
    torch.testing.assert_close(mine, expected)
    assert loaded.warnings == []


def test_a_decoder_without_pooler_or_padding_token(tmp_path):
    save_tiny(tmp_path, "gpt2")
    cfg = Encoder(name="gpt2", path=str(tmp_path), pooling="last")
    tokenizer, loaded = load_tokenizer(cfg, None), load_encoder(cfg, None, seed=1)
    together = loaded.encoder.eval()(**batch(tokenizer, "the film was good", "bad plot"))
    alone = loaded.encoder(**batch(tokenizer, "bad plot"))
    torch.testing.assert_close(together[1], alone[0])  # padding is never seen


@pytest.mark.slow
def test_a_missing_pooler_is_initialised_from_the_seed_and_said(cache):
    cfg = Encoder(name="distilbert-quire", embedded="distilbert")
    first, same, other = (load_encoder(cfg, cache, seed=seed) for seed in (1, 1, 2))
    assert "pooler.dense is randomly initialised" in first.warnings[0]
    assert torch.equal(first.pooler.dense.weight, same.pooler.dense.weight)
    assert not torch.equal(first.pooler.dense.weight, other.pooler.dense.weight)
    assert first.pooler.dense.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert first.pooler.dense.bias.count_nonzero() == 0


@pytest.mark.slow
def test_the_packaged_distilbert_is_dequantised_exactly(cache):
    import onnx
    from onnx import numpy_helper

    cfg = Encoder(name="distilbert-quire", embedded="distilbert")
    file = packaged_encoders.find_packaged_weights(cfg)
    converted = packaged_encoders.read_onnx_weights(file)
    stored = {t.name: numpy_helper.to_array(t) for t in onnx.load(str(file)).graph.initializer}
    word = "distilbert.embeddings.word_embeddings.weight"
    steps = stored[f"{word}_quantized"].astype(np.float64) - stored[f"{word}_zero_point"]
    expected = steps * stored[f"{word}_scale"]
    np.testing.assert_allclose(converted["embeddings.word_embeddings.weight"], expected, rtol=1e-6)
    loaded = load_encoder(cfg, cache, seed=1)
    names = {name for name, _ in loaded.encoder.model.named_parameters()}
    assert names == set(converted)
    assert not any("not in the checkpoint:" in note for note in loaded.warnings)


def test_what_would_be_read_wrongly_is_refused(tiny, tmp_path, monkeypatch):
    save_tiny(tmp_path / "gpt2", "gpt2")
    with fails():  # a decoder's first token
        load_encoder(Encoder(name="gpt2", path=str(tmp_path / "gpt2")), None, seed=1)
    with fails():
        load_encoder(Encoder(name="local", path=str(tiny), pooling="cls", layer=99), None, seed=1)
    intact = packaged_encoders.ENCODER_PACKAGES["minilm"]
    for name in intact.others:  # a changed tokenizer or config of a package
        package = dataclasses.replace(intact, others={**intact.others, name: "0" * 64})
        monkeypatch.setitem(packaged_encoders.ENCODER_PACKAGES, "minilm", package)
        with fails():
            weights.resolve_name_or_path(Encoder(name="minilm", embedded="minilm"), None)


def test_remote_code_is_not_run_unless_asked(tiny, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "theirs", "auto_map": {"AutoConfig": "theirs.C", "AutoModel": "theirs.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with fails():
        load_encoder(Encoder(name="local", path=str(folder)), None, seed=1)
    assert not (tmp_path / "ran").exists()


MEAN = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}


def copy_with_pooling(tiny, tmp_path, own):
    folder = tmp_path / "encoder"
    shutil.copytree(tiny, folder)
    parts = {"Transformer": "", "Pooling": "1_Pooling"}
    modules = [{"type": f"sentence_transformers.models.{name}", "path": path} for name, path in parts.items()]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps(own))
    return folder


@pytest.mark.parametrize("below", [False, True])  # the transformer may lie in a folder of its own
def test_vectors_of_a_frozen_encoder_are_those_that_its_folder_declares(tiny, tmp_path, below):
    from transformers import AutoModel, AutoTokenizer

    folder = copy_with_pooling(tiny, tmp_path, MEAN)
    texts = {"prompts": {"query": "good film ", "other": "bad "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(texts))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 6, "do_lower_case": True}))
    if below:
        modules = json.loads((folder / "modules.json").read_text())
        (folder / "modules.json").write_text(json.dumps([modules[0] | {"path": "0_Transformer"}, *modules[1:]]))
        shutil.copytree(tiny, folder / "0_Transformer")
        (folder / "sentence_bert_config.json").rename(folder / "0_Transformer/sentence_bert_config.json")
        folder = folder / "0_Transformer"
    texts = ["THE plot was dull and quite awful", "a cast"]
    settings = ["encoder=local", f"encoder.path={folder}", f"data.cache={tmp_path}/cache", "encoder.pooling=mean"]
    found = FrozenEncoder(make_config(*settings), [None]).encode("texts", texts)[None]
    model, tokenizer = AutoModel.from_pretrained(tiny).eval(), AutoTokenizer.from_pretrained(tiny)
    for text, vector in zip(texts, found.vectors, strict=True):
        inputs = tokenizer(f"good film {text.lower()}", return_tensors="pt", truncation=True, max_length=6)
        with torch.no_grad():
            torch.testing.assert_close(vector, model(**inputs).last_hidden_state[0].mean(0), atol=1e-5, rtol=1e-4)
    assert found.cut == 2


def test_an_adapter_that_would_be_left_out_is_refused(tiny, tmp_path):
    folder = copy_with_pooling(tiny, tmp_path, MEAN)
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(UserError):
        read_sentence_settings(Encoder(name="local", path=str(folder)))


@pytest.mark.slow
def test_a_packaged_encoder_reads_as_many_tokens_as_its_authors_declare(cache):
    folder = packaged_encoders.find_packaged_weights(Encoder(name="minilm", embedded="minilm")).parent
    declared = json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]
    assert DECLARED_TOKENS["minilm"] == declared == 256
    encoder = FrozenEncoder(make_config("encoder=minilm", "encoder.pooling=mean", f"data.cache={cache}"), [None])
    found = encoder.encode("long", ["film " * 254, "film " * 400, "film " * 253])[None]
    assert found.cut == 2
    assert torch.equal(found.vectors[0], found.vectors[1])
    assert not torch.equal(found.vectors[0], found.vectors[2])


def save_without(tiny, folder, part):
    from safetensors.torch import load_file, save_file

    shutil.copytree(tiny, folder)
    kept = {name: value for name, value in load_file(folder / "model.safetensors").items() if part not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return Encoder(name="local", path=str(folder), pooling="mean")


@pytest.mark.parametrize(
    ("part", "refused"),
    [
        ("encoder.layer.1.", True), ("query", True), ("LayerNorm", True), ("pooler", False),
        ("layer.0.attention.self.query.bias", False),
    ],
)  # fmt: skip
def test_an_encoder_that_lacks_more_than_a_little_is_refused(tiny, tmp_path, part, refused):
    encoder = save_without(tiny, tmp_path / "model", part)
    if refused:
        with fails():
            load_encoder(encoder, None, seed=1)
    else:
        loaded = load_encoder(encoder, None, seed=1)
        assert (loaded.init_seed == 1) == bool(loaded.warnings) == ("bias" in part)


@pytest.mark.parametrize(("load", "part"), [("encoder", "encoder.layers.1."), ("generator", "decoder.")])
def test_an_encoder_decoder_that_lacks_a_part_is_refused(tmp_path, load, part):
    from transformers import BartConfig, BartForConditionalGeneration

    sizes = {"d_model": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "vocab_size": 30}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_layers": 2, "decoder_layers": 2}
    BartForConditionalGeneration(BartConfig(**sizes, **heads)).save_pretrained(tmp_path / "whole")
    encoder = save_without(tmp_path / "whole", tmp_path / "part", part)
    with fails():
        if load == "generator":
            load_generator(encoder, None, 1, None, ENCODER_DECODER)
        else:
            load_encoder(encoder, None, seed=1)
