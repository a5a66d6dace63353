"""Tokens, their cache, batches in chunks; tokenizers that don't know the texts, or have no words at all."""

import numpy as np
import pytest
import torch

from isobench.config.schema import Encoder
from isobench.data.batches.tokens import Collator, EpochSampler, tokenise_examples
from isobench.data.cache import load_cached_arrays, save_cached_arrays
from isobench.models.tokenization import load_tokenizer
from isobench.tasks.kind import Examples


@pytest.fixture(scope="module")
def tokenizer(tiny):
    return load_tokenizer(Encoder(name="tiny", path=tiny), None)


def examples(pairs=False):
    first = ["the film was good", "bad", "a very dull plot and cast " * 3, "it is fine so fine", "the cast"]
    texts = [first, first[::-1]] if pairs else [first]
    return Examples(texts, np.array([1, 0, 0, 1, 1]))


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("overhead", [0, 7, 10**6])
def test_chunks_hold_the_batch_and_nothing_else_and_a_packed_batch_is_one_row(tokenizer, pairs, overhead):
    tokens = tokenise_examples(examples(pairs), tokenizer, 30)
    cut = tokenise_examples(examples(pairs), tokenizer, 10).lengths
    assert (cut == np.minimum(tokens.lengths, 10)).all()
    order = [3, 0, 4, 2, 1]
    batch = Collator(tokens, 0, overhead, token_type_ids=True)(order)
    for chunk in batch["chunks"]:
        assert chunk.pop("token_places").tolist() == chunk["attention_mask"].flatten().nonzero()[:, 0].tolist()
    rows = [row for chunk in batch["chunks"] for row in zip(*chunk.values(), strict=True)]
    for position, example in enumerate(order):
        ids, mask, types = rows[batch["restore"][position]]
        span = slice(tokens.offsets[example], tokens.offsets[example + 1])
        assert ids[mask.bool()].tolist() == tokens.ids[span].tolist()
        assert types[mask.bool()].tolist() == tokens.types[span].tolist()
        assert not ids[~mask.bool()].any()
    assert batch["labels"].tolist() == [1, 1, 1, 0, 0]
    assert batch["index"].tolist() == order
    assert len(batch["chunks"]) == 1 if overhead == 10**6 else len(batch["chunks"]) > 1

    batch = Collator(tokens, 0, overhead, token_type_ids=True, packed=True)(order)
    (row,) = batch["chunks"]
    packing = row["packing"]
    for position, example in enumerate(order):
        place = batch["restore"][position]
        span = slice(tokens.offsets[example], tokens.offsets[example + 1])
        own = slice(packing.first[place], packing.last[place] + 1)
        assert row["input_ids"][0, own].tolist() == tokens.ids[span].tolist()
        assert row["token_type_ids"][0, own].tolist() == tokens.types[span].tolist()
        assert row["positions"][0, own].tolist() == list(range(tokens.lengths[example]))
    assert row["input_ids"].shape == (1, len(tokens.ids))
    assert sum(group.sentences for group in packing.groups) == len(order)
    assert len(packing.groups) == 1 if overhead == 10**6 else len(packing.groups) > 1


def test_cached_tokens_come_back_and_damage_is_noticed_and_said(tokenizer, tmp_path, capsys):
    tokens, file = tokenise_examples(examples(), tokenizer, 30), tmp_path / "t.safetensors"
    save_cached_arrays(vars(tokens), file)
    intact = file.read_bytes()
    file.write_bytes(intact[:50] + bytes([intact[50] ^ 1]) + intact[51:])  # test_files.py changes every byte
    assert load_cached_arrays(file) is None
    assert "is damaged" in capsys.readouterr().err
    file.write_bytes(intact)
    for name, array in load_cached_arrays(file).items():
        np.testing.assert_array_equal(array, getattr(tokens, name))
    assert [f.name for f in file.parent.iterdir()] == [file.name]  # no temporary file stays


def test_sampler_depends_on_seed_and_epoch_only():
    def order(seed, epoch):
        sampler = EpochSampler(20, seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    torch.manual_seed(1)
    first = order(5, 2)
    torch.manual_seed(2)
    assert order(5, 2) == first
    assert sorted(first) == list(range(20))
    assert order(5, 3) != first
    assert order(6, 2) != first
