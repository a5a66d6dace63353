"""Decoders without a few tokens: the states that are kept, at each layer, against transformers' own."""

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import WORDS, check_done, read_analysis_rows, save_tiny, write_parquet
from transformers import AutoModel, AutoTokenizer

from isobench.analyses.rows import read_stored_rows

PASSAGES, LENGTH = 5, 12


@pytest.fixture
def data(tmp_path):
    words = np.random.default_rng(0).choice(WORDS, PASSAGES * LENGTH).tolist()
    paragraphs = [" ".join(words[:7]), " \n", " ".join(words[7:40]), " ".join(words[40:])]
    write_parquet(tmp_path / "corpus/wikitext-2_validation.parquet", {"text": paragraphs})
    save_tiny(tmp_path / "gpt2", "gpt2")
    texts = [" ".join(words[start : start + LENGTH]) for start in range(0, len(words), LENGTH)]
    overrides = [
        "+experiment=decoder_tokens", "analysis.corpus=wikitext", f"analysis.passages={PASSAGES}", "encoder=local",
        f"encoder.path={tmp_path / 'gpt2'}", "encoder.pooling=last", "encoder.layer=0,1,null",
        f"data.root={tmp_path}", f"data.cache={tmp_path / 'cache'}",
    ]  # fmt: skip
    return overrides, texts, tmp_path / "gpt2"


def measure_in_numpy(x):
    values = np.linalg.eigvalsh(np.cov(x.T))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosines = (unit @ unit.T)[~np.eye(len(x), dtype=bool)]
    d = len(values)
    return {
        "ev1": values.max() / values.sum(),
        "isoscore": (values.sum() ** 2 / (values**2).sum() - 1) / (d - 1),
        "average_cosine": cosines.mean(),
    }


def test_each_layer_is_measured_without_a_few_tokens(cli, outputs, data):
    overrides, texts, folder = data
    check_done(cli(*overrides, f"analysis.words={LENGTH}", "analysis.farthest=[0.05]", f"output_dir={outputs}"))
    rows = read_analysis_rows(outputs, "decoder_tokens")["layers"]
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        found = [model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True) for text in texts]
    for place, layer in enumerate(("0", "1", "last")):
        states = [output.hidden_states[place][0].double().numpy() for output in found]
        whole = np.concatenate(states)
        distances = np.linalg.norm(whole - np.median(whole, 0), axis=1)
        norms = np.linalg.norm(whole, axis=1)
        kept = {
            "nothing": whole,
            "first tokens": np.concatenate([own[1:] for own in states]),
            "outlying norms": whole[norms <= 5 * np.median(norms)],
            "0.05": whole[np.argsort(distances)[: len(whole) - 3]],
        }
        for left_out, x in kept.items():
            (row,) = (row for row in rows if (row["layer"], row["left_out"]) == (layer, left_out))
            assert row["tokens"] == len(x)
            assert {name: row[name] for name in measure_in_numpy(x)} == pytest.approx(measure_in_numpy(x), rel=1e-3)
    assert cli(*overrides, "analysis.words=13", f"output_dir={outputs}")[0] == 2  # the text is too short


def test_the_appendix_has_the_bundles_numbers():
    study = Path(__file__).parents[1]
    text = " ".join((study / "appendix.md").read_text(encoding="utf-8").split())
    rows = read_stored_rows(study / "results/decoder_tokens/analysis", ["layers"])["layers"]
    cells = {(int(row["layer"]), row["left_out"]): row for row in rows}
    assert len(cells) == 31 * 5

    def list_values(layers, left_out, measure):
        return [cells[layer, left_out][measure] for layer in layers]

    late, early = range(12, 29), range(3, 10)
    ev1, without = (list_values(late, left_out, "ev1") for left_out in ("nothing", "first tokens"))
    assert f"EV1 is between {min(ev1):.2f} and {max(ev1):.2f} and IsoScore at most" in text
    assert f"EV1 is between {min(without):.2f} and {max(without):.2f} and IsoScore between" in text
    whole, without = (list_values(late, left_out, "isoscore") for left_out in ("nothing", "first tokens"))
    assert f"at most {max(whole):.4f}. Without the first token" in text
    assert f"IsoScore between {min(without):.3f} and {max(without):.3f}." in text
    first, second, third = (list_values(early, kind, "isoscore") for kind in ("nothing", "first tokens", "0.01"))
    assert f"at most {max(first):.3f}, without the first tokens at most {max(second):.3f}, and" in text
    assert f"tokens between {min(third):.3f} and {max(third):.3f}." in text
