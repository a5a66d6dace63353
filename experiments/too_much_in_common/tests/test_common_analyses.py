"""Too Much in Common's training-free tables and figures: by NumPy, by brute force, by properties."""

import types
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import check_done, fails, read_analysis_rows, write_parquet
from safetensors.numpy import load_file
from transformers import AutoTokenizer

from isobench.metrics import weighted_isotropy
from isobench_papers.too_much_in_common import frequency, isotropy


def shifted(rows=300, dim=12):  # of unequal variances, far from the origin
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, dim)) * np.linspace(0.1, 0.6, dim) + rng.normal(size=dim) / 2


def isotropy_by_definition(w, sign):
    columns = np.linalg.eigh(w.T @ w)[1].T
    z = [np.exp(w @ (sign(v) * v)).sum() for v in columns]
    return min(z) / max(z)


def largest_positive(v):
    return np.sign(v[np.abs(v).argmax()])


def vocabulary_of(folder):
    return load_file(Path(folder) / "model.safetensors")["embeddings.word_embeddings.weight"].astype(np.float64)


@pytest.mark.parametrize(("removed", "count"), [("ceil", 1), ("floor", 0)])
def test_table_1_is_what_its_definitions_give(removed, count):
    w = shifted()
    found = isotropy.measure_vocabulary(torch.from_numpy(w), removed)
    (measures,) = found["isotropy"]
    lengths = np.linalg.norm(w, axis=1)
    mean, centred = np.linalg.norm(w.mean(0)), w - w.mean(0)
    top = np.linalg.svd(centred, full_matrices=False)[2][:count]
    expected = {
        "i1_raw": isotropy_by_definition(w, lambda v: np.sign(v @ w.sum(0))),
        "i1_centred": isotropy_by_definition(centred, largest_positive),
        "i1_removed": isotropy_by_definition(centred - centred @ top.T @ top, largest_positive), "removed": count,
        "average_norm": lengths.mean(), "mean_norm": mean, "mean_ratio": mean / lengths.mean(),
        "cosine_of_mean_and_top": abs(np.linalg.svd(w)[2][0] @ w.mean(0)) / mean,
    }  # fmt: skip
    for name, value in expected.items():
        assert measures[name] == pytest.approx(value, abs=1e-9), name
    assert measures["i1_raw"] < 0.5 < measures["i1_centred"]
    for vectors, matrix in {"raw": w, "centred": centred}.items():
        values = [row["singular_value"] for row in found["singular_values"] if row["vectors"] == vectors]
        np.testing.assert_allclose(values, np.linalg.svd(matrix)[1], rtol=1e-9)
    u, s, _ = np.linalg.svd(w, full_matrices=False)
    places = np.array([(row["first"], row["second"]) for row in found["points"] if row["vectors"] == "raw"])
    np.testing.assert_allclose(np.abs(places), np.abs(u[:, :2] * s[:2]), atol=1e-5)
    assert places[:, 0].sum() > 0


@pytest.mark.slow
def test_common_isotropy_from_the_command_line(cli, tiny, cache, tmp_path):
    arguments = ["+experiment=common_isotropy", "encoder=local", f"encoder.path={tiny}", f"data.cache={cache}"]
    write_parquet(tmp_path / "corpus" / "some.parquet", {"text": ["the film was good , the plot dull", "never read"]})
    arguments += [f"data.root={tmp_path}", "analysis.corpus=wikitext", "analysis.texts=1"]
    check_done(cli(*arguments, f"output_dir={tmp_path}", "analysis.removed=floor"))
    rows = read_analysis_rows(tmp_path, "common_isotropy")
    (row,) = rows["isotropy"]
    w = vocabulary_of(tiny)
    assert row["i1_raw"] == pytest.approx(isotropy_by_definition(w, lambda v: np.sign(v @ w.sum(0))), abs=1e-9)
    number = AutoTokenizer.from_pretrained(tiny).get_vocab()
    counts = np.zeros(len(w))
    for word in "the film was good [UNK] the plot dull".split():
        counts[number[word]] += 1
    weighted = {(one["vectors"], one["weighting"]): one for one in rows["weighted_isotropy"]}
    assert len(weighted) == 5 * 2
    assert weighted["raw", "uniform"]["isoscore"] == pytest.approx(row["isoscore"])
    names = {"encoder": "local", "vectors": "raw", "weighting": "zipf"}
    assert weighted["raw", "zipf"] == pytest.approx(weighted_isotropy(w, counts) | names)
    for place in (("zipf_centred", "zipf"), ("centred", "uniform")):
        assert weighted[place]["mean_ratio"] == pytest.approx(0, abs=1e-9)
    spread = weighted["zipf_whitened", "zipf"]["isoscore"]
    assert spread == pytest.approx((6 - 1) / (32 - 1))  # 7 tokens vary in 6 directions, in each alike
    assert row["removed"] == 0  # floor(32 / 100)
    assert row["i1_removed"] == pytest.approx(row["i1_centred"])


def test_unused_tokens_are_the_vocabularys_own_or_its_last():
    vocabulary = {"[PAD]": 0, "[unused1]": 2, "the": 1, "[unused0]": 3, "unused1": 4, "[unused]": 5}
    bert = types.SimpleNamespace(get_vocab=lambda: vocabulary)
    assert frequency.select_reference_tokens(bert, 6, 2) == ([2, 3], True)
    other = types.SimpleNamespace(get_vocab=lambda: {"a": 0, "b": 1, "c": 2})
    assert frequency.select_reference_tokens(other, 3, 2) == ([1, 2], False)
    assert frequency.select_reference_tokens(other, 3, 10)[0] == [0, 1, 2]


def test_a_corpus_in_numbers():
    counts = np.array([50, 30, 10, 10])
    heads = [{"types": 2, "published": "?"}, {"types": 13, "published": "?"}]
    found = frequency.summarise_counts(counts, heads, {"share": 0.8, "published": "?"}, [1, 4])
    assert (found["types"], found["occurrences"], found["types_covering"]) == (4, 100, 2)
    assert (found["share_of_2"], found["share_of_13"]) == (0.8, 1.0)
    assert frequency.summarise_counts(counts, heads, {"share": 0.81}, [1, 4])["types_covering"] == 3
    with fails():
        frequency.summarise_counts(np.array([], int), heads, {"share": 0.8}, [1, 4])


@pytest.mark.slow
def test_common_frequency_from_the_command_line(cli, tiny, cache, tmp_path):
    texts = ["the film was good , the plot dull", "a great , great film", "", "never read"]
    write_parquet(tmp_path / "corpus" / "some.parquet", {"text": texts})
    check_done(cli(
        "+experiment=common_frequency", "encoder=local", f"encoder.path={tiny}", f"data.cache={cache}",
        f"data.root={tmp_path}", f"output_dir={tmp_path}", "analysis.corpus=wikitext", "analysis.texts=3",
        "analysis.width=10", "analysis.rare=4", "analysis.ranks=[1,4]",
        "analysis.ranges=[{first:0,end:5,published:0.5},{first:20,end:60,published:0.6},{first:90,end:95,published:0.7}]",
    ))  # fmt: skip
    rows = read_analysis_rows(tmp_path, "common_frequency")
    words = Counter(word for text in texts[:3] for word in text.split())
    counted = {row["unit"]: row["occurrences"] for row in rows["frequency"]}
    assert counted == {"words": words.total(), "tokens, local": words.total()}
    curve = [row["count"] for row in rows["rank_frequency"] if row["unit"] == "words"]
    assert curve == sorted(words.values(), reverse=True)
    w = vocabulary_of(tiny)
    unit = w[1:] / np.linalg.norm(w[1:], axis=1, keepdims=True)  # the padding's row is zero
    raw = [row for row in rows["cosine_bins"] if row["vectors"] == "raw"]
    expected = [(unit[-4:] @ unit[max(0, i - 1) : i + 9].T).mean() for i in range(0, len(w), 10)]
    assert [row["cosine"] for row in raw] == pytest.approx(expected)
    known = AutoTokenizer.from_pretrained(tiny).get_vocab()
    counts = np.zeros(len(w))
    for word, count in words.items():
        counts[known.get(word, known["[UNK]"])] += count
    shifted_w = w - np.average(w, axis=0, weights=counts)
    units = shifted_w / np.linalg.norm(shifted_w, axis=1, keepdims=True)
    zipf = [row["cosine"] for row in rows["cosine_bins"] if row["vectors"] == "zipf_centred"]
    assert zipf == pytest.approx([(units[-4:] @ units[i : i + 10].T).mean() for i in range(0, len(w), 10)])
    ranged = [row for row in rows["cosine_ranges"] if row["vectors"] == "raw"]
    assert [(row["first"], row["end"]) for row in ranged] == [(0, 5), (20, len(w))]
