"""Decoders without a few tokens: the states that are kept, at each layer, against transformers' own."""

import numpy as np
import pytest
from helpers import WORDS, check_done, read_analysis_rows, read_states, save_tiny, write_parquet

from isobench.metrics import average_cosine, explained_variance, isoscore

PASSAGES, LENGTH = 5, 12


@pytest.mark.slow
def test_each_layer_is_measured_without_a_few_tokens(cli, outputs, tmp_path):
    words = np.random.default_rng(0).choice(WORDS, PASSAGES * LENGTH).tolist()
    paragraphs = [" ".join(words[:7]), " \n", " ".join(words[7:40]), " ".join(words[40:])]
    write_parquet(tmp_path / "corpus/wikitext-2_validation.parquet", {"text": paragraphs})
    save_tiny(tmp_path / "gpt2", "gpt2")
    texts = [" ".join(words[start : start + LENGTH]) for start in range(0, len(words), LENGTH)]
    overrides = [
        "+experiment=decoder_tokens", "analysis.corpus=wikitext", f"analysis.passages={PASSAGES}", "encoder=local",
        f"encoder.path={tmp_path / 'gpt2'}", "encoder.pooling=last", "encoder.layer=0,1,null",
        f"data.root={tmp_path}", f"data.cache={tmp_path / 'cache'}", f"output_dir={outputs}",
    ]  # fmt: skip
    check_done(cli(*overrides, f"analysis.words={LENGTH}", "analysis.farthest=[0.05]"))
    rows = read_analysis_rows(outputs, "decoder_tokens")["layers"]
    for layer, states in zip(("0", "1", "last"), read_states(tmp_path / "gpt2", texts), strict=True):
        whole = np.concatenate(states)
        distances = np.linalg.norm(whole - np.median(whole, 0), axis=1)
        norms = np.linalg.norm(whole, axis=1)
        kept = {
            "nothing": whole, "first tokens": np.concatenate([own[1:] for own in states]),
            "outlying norms": whole[norms <= 5 * np.median(norms)],
            "0.05": whole[np.argsort(distances)[: len(whole) - 3]],
        }  # fmt: skip
        for left_out, x in kept.items():
            (row,) = (row for row in rows if (row["layer"], row["left_out"]) == (layer, left_out))
            assert row["tokens"] == len(x)
            expected = {"ev1": explained_variance(x, 1), "isoscore": isoscore(x), "average_cosine": average_cosine(x)}
            assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-3)
    assert cli(*overrides, "analysis.words=13")[0] == 2  # the text is too short
