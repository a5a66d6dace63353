"""Any layer's vectors, any architecture's, computed once for whoever asks."""

import numpy as np
import pytest
import torch
from helpers import make_config, read_states

from isobench.analyses.subject import Subject
from isobench.config.schema import Encoder
from isobench.models.encoders import load_encoder
from isobench.models.tokenization import load_tokenizer
from isobench.runs.run import Run


def test_an_encoder_decoder_gives_its_encoders_vectors(tiny, tmp_path):
    from transformers import AutoModel, AutoTokenizer, BartConfig, BartModel

    torch.manual_seed(0)
    sizes = {"layers": 2, "ffn_dim": 32, "attention_heads": 2}
    both = {f"{part}_{name}": value for part in ("encoder", "decoder") for name, value in sizes.items()}
    BartModel(BartConfig(vocab_size=40, d_model=16, max_position_embeddings=40, **both)).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny).save_pretrained(tmp_path)
    cfg = Encoder(name="bart", path=str(tmp_path), pooling="mean")
    tokens = load_tokenizer(cfg, None)(["the film was good"], return_tensors="pt", return_token_type_ids=False)
    loaded = load_encoder(cfg, None, seed=1)
    with torch.no_grad():
        mine = loaded.encoder.eval()(**tokens)
        theirs = AutoModel.from_pretrained(tmp_path).eval().get_encoder()(**tokens).last_hidden_state.mean(1)
    torch.testing.assert_close(mine, theirs)
    assert loaded.encoder.vocabulary().shape == (40, 16)


def subject_of(*overrides: str) -> Subject:
    return Subject(Run.of(make_config(*overrides), "0" * 64))


@pytest.mark.slow
def test_vectors_are_computed_once_for_a_layer_a_pooling_and_a_choice_of_data(small, tmp_path, monkeypatch):
    """For all methods and seeds; a damaged file is made again."""
    overrides = [*small, f"data.cache={tmp_path}"]
    choices = [
        ["encoder.pooling=cls"], ["encoder.pooling=mean"], ["encoder.pooling=cls", "encoder.layer=1"],
        ["encoder.pooling=cls", "task.train_samples=50"],
    ]  # fmt: skip
    vectors = [subject_of(*overrides, *choice).encoded().clone() for choice in choices]
    files = list((tmp_path / "embeddings").glob("*.npy"))
    assert len(files) == len(choices)
    assert [len(each) for each in vectors] == [160, 160, 160, 50]
    assert not torch.equal(vectors[0], vectors[1])
    assert not torch.equal(vectors[0], vectors[2])
    for file in files:
        whole = file.read_bytes()
        file.write_bytes(whole[:-200] + bytes([whole[-200] ^ 1]) + whole[-199:])
    for choice, expected in zip(choices, vectors, strict=True):
        assert torch.equal(subject_of(*overrides, *choice).encoded(), expected)
    monkeypatch.setattr("isobench.training.preparation._write_embeddings", lambda *_: pytest.fail("computed again"))
    again = subject_of(*overrides, *choices[0], "calibration=isobn_paper", "seed=7").encoded()
    assert torch.equal(vectors[0], again)


def test_vectors_are_in_the_datas_order_and_labels_beside_them(small, reviews):
    from pyarrow.parquet import read_table

    subject = subject_of(*small, "encoder.pooling=cls")
    table = read_table(f"{reviews}/glue/sst2/train.parquet").to_pydict()
    assert subject.labels().tolist() == table["label"]
    expected = [states[0] for states in read_states(subject.cfg.encoder.path, table["sentence"])[-1]]
    np.testing.assert_allclose(subject.encoded(), expected, rtol=1e-4, atol=1e-5)


def test_embeddings_go_through_the_pooler_and_calibrated_ones_through_the_method(small):
    plain = subject_of(*small)
    pooled = torch.tanh(plain.loaded.pooler.dense(plain.encoded())).detach()
    torch.testing.assert_close(plain.embeddings(), pooled)
    torch.testing.assert_close(plain.calibrated(), pooled.double(), rtol=1e-5, atol=1e-6)
    scaled = subject_of(*small, "calibration=batch_norm").calibrated()
    assert scaled.mean(0).abs().max() < 1e-6
    h = pooled.double()
    expected = (h - h.mean(0)) / (h.var(0, correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(scaled, expected, rtol=1e-4, atol=1e-5)
