"""`isobench diagnose` as it is typed: matrices, texts, tokens, vocabularies, own methods, mistakes in one line."""

import json
import sys

import numpy as np
import pytest
from helpers import WORDS, check_done, check_refused, read_states
from transformers import AutoModel, AutoTokenizer

import isobench
from isobench.models.tokenization import count_tokens

RNG = np.random.default_rng(0)
TEXTS = [" ".join(RNG.choice(WORDS, 3 + number % 5)) for number in range(40)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a matrix, labels, texts, and a method of the user's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])  # a command with --config-dir appends the working folder
    x, y = RNG.normal(size=(60, 5)).astype(np.float32), np.arange(60) % 2
    x[:, 0] += 3 * y
    np.save("x.npy", x)
    (tmp_path / "y.txt").write_text("".join(f"class {label}\n" for label in y))
    (tmp_path / "t.txt").write_text("\n".join(TEXTS) + "\n")
    (tmp_path / "halved_here.py").write_text(
        "from isobench.calibration import Calibration\n\n\nclass Halved(Calibration):\n"
        "    def forward(self, h):\n        return h / 2\n"
    )
    (tmp_path / "calibration").mkdir()
    (tmp_path / "calibration" / "halved.yaml").write_text(
        "name: halved\n_target_: halved_here.Halved\nversion: 1\nplacement: after_pooler\ntarget: head\n"
    )
    return tmp_path


@pytest.mark.slow
def test_a_matrix_with_labels_and_an_own_method(cli, folder):
    settings = ["x.npy", "--labels", "y.txt", "calibration=halved", "--config-dir", "."]
    check_done(cli("diagnose", *settings[:3]))
    assert str(folder) not in sys.path
    check_done(cli("diagnose", *settings))
    assert "halved" in (folder / "outputs" / "diagnose" / "x.html").read_text()
    found = json.loads(cli("diagnose", *settings, "--json")[1])
    rows = {effect["method"]: effect for effect in found["effects"]}
    assert rows["halved"]["isoscore"] == pytest.approx(rows["none"]["isoscore"])
    assert rows["none"]["score"] > 0.8
    assert isobench.diagnose("x.npy", "y.txt", methods=settings[3:]).to_json() == found


@pytest.fixture
def encoded(tiny, cache):
    """Overrides of the tiny encoder."""
    return ["encoder=local", f"encoder.path={tiny}", f"data.cache={cache}", "--json"]


def value(out, measure):
    return next(finding["value"] for finding in json.loads(out)["findings"] if finding["measure"] == measure)


def ev1(x):
    squares = np.linalg.svd(x - x.mean(0), compute_uv=False) ** 2
    return pytest.approx(squares[0] / squares.sum(), rel=1e-4)


@pytest.mark.slow
def test_texts_tokens_and_the_vocabulary(cli, folder, encoded, tiny):
    tokenizer, per_text = AutoTokenizer.from_pretrained(tiny), read_states(tiny, TEXTS)[-1]
    matrix = AutoModel.from_pretrained(tiny).get_input_embeddings().weight.detach().double().numpy()
    for arguments, expected in (
        (["t.txt"], np.stack([rows.mean(0) for rows in per_text])),
        (["t.txt", "encoder.pooling=cls"], np.stack([rows[0] for rows in per_text])),
        (["t.txt", "--tokens"], np.concatenate(per_text)),
        (["t.txt", "--tokens", "--without=first,special"], np.concatenate([rows[1:-1] for rows in per_text])),
        (["--vocabulary"], matrix),
    ):
        assert value(check_done(cli("diagnose", *arguments, *encoded))[0], "EV1") == ev1(expected), arguments
    counted = json.loads(cli("diagnose", "t.txt", "--vocabulary", *encoded)[1])
    assert "Zipfian whitening" in [effect["method"] for effect in counted["effects"]]
    counts = count_tokens(tokenizer, TEXTS, len(matrix))
    assert not counts[tokenizer.all_special_ids].any()
    assert counts.sum() == sum(len(tokenizer.tokenize(text)) for text in TEXTS)


@pytest.mark.slow
def test_a_search_of_vectors_and_of_texts(cli, folder, encoded):
    x = np.load("x.npy")
    np.save("q.npy", x[:12] + 0.1)
    (folder / "r.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(f"{i}\t{i}\t1\n" for i in range(12)))
    command = ("diagnose", "x.npy", "--queries", "q.npy", "--relevant")
    found = json.loads(cli(*command, "r.tsv", "--json")[1])
    assert found["retrieval"][0]["mrr_10"] > 0.8
    out, _ = check_done(cli(*command, "r.tsv"))
    assert "nDCG" in out
    assert "Cosines" in (folder / "outputs" / "diagnose" / "x.html").read_text()
    rows = [[f"q{i}", "0", f"d{i}", "1"] for i in range(12)]
    (folder / "r.txt").write_text("\n".join(" ".join(row) for row in rows))
    for name, letter, texts in (("c.jsonl", "d", TEXTS), ("q.jsonl", "q", TEXTS[:12])):
        lines = [json.dumps({"_id": f"{letter}{i}", "text": text}) for i, text in enumerate(texts)]
        (folder / name).write_text("\n".join(lines))
    asked = ("--queries", "q.jsonl", "--relevant", "r.txt", "--text", "text")
    found = json.loads(cli("diagnose", "c.jsonl", *asked, *encoded)[1])
    assert found["retrieval"][0]["mrr_10"] == 1
    assert found["levels"][0]["pairs"] == "not relevant"


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (1, 4)])
def test_an_empty_file_and_a_single_row(cli, folder, shape):
    np.save("e.npy", np.ones(shape, np.float32))
    check_refused(cli("diagnose", "e.npy"))
