"""Reading, choosing, tokenising and batching sources and targets."""

import hashlib
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import WORDS, make_config, write_parquet
from hypothesis import given, settings
from hypothesis import strategies as st

from isobench.kinds.generation import grammars as generated_pairs
from isobench.kinds.generation.batches import PairCollator, batch_by_tokens, tokenise_pairs
from isobench.kinds.generation.pairs import normalise_diacritics, read_pairs
from isobench.tasks.kind import Examples


def folder_of(tmp_path: Path, rows: list[dict], name="multi30k/train.parquet") -> str:
    write_parquet(tmp_path / name, {"translation": rows})
    return str(tmp_path)


def read(root: str, *overrides: str, split="train", limit=None) -> Examples:
    cfg = make_config("task=multi30k", f"data.root={root}", *overrides)
    return read_pairs(cfg.task, cfg.data, split, limit)


def test_a_dotted_name_reaches_into_a_struct_in_either_direction(tmp_path):
    root = folder_of(tmp_path, [{"en": "a", "de": "b"}, {"en": "c", "de": "d"}])
    assert read(root) == Examples([["a", "c"]], ["b", "d"])
    back = read(root, "task.text=[translation.de]", "task.generation.target=translation.en")
    assert back == Examples([["b", "d"]], ["a", "c"])


def test_a_choice_is_by_hash_the_same_for_every_run_and_another_for_another_sample_seed(tmp_path):
    root = folder_of(tmp_path, [{"en": str(i), "de": str(-i)} for i in range(50)])
    few, more = read(root, limit=7), read(root, limit=20)
    assert few.labels == [str(-int(number)) for number in few.texts[0]]
    by_hash = sorted(range(50), key=lambda i: hashlib.sha256(str(i).encode()).hexdigest())[:7]
    assert few.texts[0] == [str(i) for i in sorted(by_hash)]
    assert set(few.texts[0]) < set(more.texts[0])
    other = read(root, "task.sample_seed=3", limit=7)
    salted = sorted(range(50), key=lambda i: hashlib.sha256(f"3:{i}".encode()).hexdigest())[:7]
    assert other.texts[0] == [str(i) for i in sorted(salted)] != few.texts[0]
    assert read(root, limit=500).texts[0] == [str(i) for i in range(50)]


def test_romanian_is_normalised_on_its_side_only(tmp_path):
    row = {"en": "\u015fi", "ro": "\u015fi \u0163ara"}
    write_parquet(tmp_path / "wmt16/ro-en/train.parquet", {"translation": [row]})

    def targets(*overrides):
        cfg = make_config("task=wmt16_en_ro", f"data.root={tmp_path}", *overrides)
        return read_pairs(cfg.task, cfg.data, "train")

    assert targets() == Examples([["\u015fi"]], ["\u0219i \u021bara"])
    assert targets("task.generation.diacritics=keep").labels == ["\u015fi \u0163ara"]
    assert targets("task.generation.diacritics=removed").labels == ["si tara"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    from transformers import PreTrainedTokenizerFast

    from isobench.kinds.words.vocabulary import SPECIAL_TOKENS, read_learned_tokenizer, train_tokenizer

    file = tmp_path_factory.mktemp("tokenizer") / "t.json"
    train_tokenizer(iter([" ".join(WORDS), "Straße über"]), 290, file)
    return PreTrainedTokenizerFast(tokenizer_object=read_learned_tokenizer(file), **SPECIAL_TOKENS)


def test_what_is_too_long_is_cut_counted_and_keeps_its_closing_token(tokenizer):
    texts = Examples([["", "a b c d e f g h i j k l", "a"]], ["x", "", "y" * 40])
    tokens = tokenise_pairs(texts, tokenizer, 10, 12, "")
    assert (tokens.sources.truncated.sum(), tokens.targets.truncated.sum()) == (1, 1)
    assert tokens.sources.lengths.tolist() == [2, 10, 3]  # <s> </s> of an empty source
    assert tokens.targets.lengths.tolist() == [3, 2, 12]
    assert [tokens.sources.ids[end - 1] for end in tokens.sources.offsets[1:]] == [tokenizer.eos_token_id] * 3
    assert (tokens.lengths == tokens.sources.lengths + tokens.targets.lengths).all()


def test_an_instruction_stands_before_every_source(tokenizer):
    with_it = tokenise_pairs(Examples([["film"]], ["film"]), tokenizer, 40, 40, "the ")
    assert tokenizer.decode(with_it.sources.ids, skip_special_tokens=True) == "the film"
    assert tokenizer.decode(with_it.targets.ids, skip_special_tokens=True) == "film"


def test_a_batch_is_chunks_of_padded_rows(tokenizer):
    def find_targets(chunk):  # [b, T]
        real = torch.zeros_like(chunk["labels"], dtype=torch.bool)
        real.view(-1)[chunk["positions"]] = True
        return real

    texts = Examples([[w * (i + 1) for i, w in enumerate(WORDS)]], WORDS)
    tokens = tokenise_pairs(texts, tokenizer, 60, 60, "")
    batch = PairCollator(tokens, tokenizer.pad_token_id, 2)([3, 0, 7, 5])
    assert sorted(batch["index"].tolist()) == [0, 3, 5, 7]
    assert len(batch["chunks"]) > 1
    rows = [
        (ids[mask.bool()].tolist(), labels[real].tolist())
        for chunk in batch["chunks"]
        for ids, mask, labels, real in zip(
            chunk["input_ids"], chunk["attention_mask"], chunk["labels"], find_targets(chunk), strict=True
        )
    ]
    for i, (source, target) in zip(batch["index"].tolist(), rows, strict=True):
        assert source == tokens.sources.ids[tokens.sources.offsets[i] : tokens.sources.offsets[i + 1]].tolist()
        assert target == tokens.targets.ids[tokens.targets.offsets[i] : tokens.targets.offsets[i + 1]].tolist()
    for chunk in batch["chunks"]:
        assert (chunk["labels"][~find_targets(chunk)] == tokenizer.pad_token_id).all()
        assert chunk["attention_mask"].sum(1).max() == chunk["input_ids"].shape[1]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=60), st.integers(1, 200))
def test_batches_by_tokens_hold_what_fits_and_nothing_is_lost(lengths, limit):
    first, second = (np.array(column) for column in zip(*lengths, strict=True))
    order = list(reversed(range(len(lengths))))
    batches = batch_by_tokens(order, first, second, limit)
    assert [i for batch in batches for i in batch] == order

    def padded(batch):
        return len(batch) * (first[batch].max() + second[batch].max())

    assert all(len(batch) == 1 or padded(batch) <= limit for batch in batches)
    for batch, following in itertools.pairwise(batches):
        assert padded([*batch, following[0]]) > limit  # no batch could have held one more


CEDILLAS = "\u015e\u015f\u0162\u0163"
COMMAS = "\u0218\u0219\u021a\u021b"
DECOMPOSED = "S\u0327s\u0327T\u0327t\u0327"  # combining cedilla
WITH_COMMA = "S\u0326s\u0326T\u0326t\u0326"
FOREIGN = "\u00e9 \u00fc \u00df \u00e7 \u0159"  # e acute, u umlaut, sharp s, c cedilla, r caron
OTHERS = "\u0102\u0103\u00c2\u00e2\u00ce\u00ee"  # a with breve, a and i with circumflex


@pytest.mark.parametrize(
    ("how", "text", "expected"),
    [
        *(("comma_below", text, COMMAS) for text in (CEDILLAS, COMMAS, DECOMPOSED, WITH_COMMA)),
        *(("removed", text, "SsTt") for text in (CEDILLAS, COMMAS, DECOMPOSED, WITH_COMMA)),
        ("comma_below", f"x{CEDILLAS}x", f"x{COMMAS}x"), ("removed", OTHERS, "AaAaIi"),
        ("removed", "a\u0306 a\u0302 i\u0302", "a a i"), ("removed", FOREIGN, FOREIGN),
        ("comma_below", OTHERS, OTHERS), ("keep", CEDILLAS + DECOMPOSED, CEDILLAS + DECOMPOSED),
    ],
)  # fmt: skip
def test_diacritics_are_normalised_and_twice_is_once(how, text, expected):
    assert normalise_diacritics(text, how) == expected
    assert normalise_diacritics(expected, how) == expected


SHA256 = {  # of the lines of all splits; if they change, so must generated_pairs.VERSION
    "captions": "4059ff13f9ab0a2450baa59a4f677e516def80e6e0aeb5bc8c90d75db246384d",
    "bulletins": "6e74cf95bcbe54229900376c7499e117ef818d605befe034cf020628ed451853",
}


@pytest.mark.parametrize("grammar", generated_pairs.EXAMPLE_GENERATORS)
def test_the_examples_are_these_and_no_source_is_there_twice(grammar):
    rows = [
        (split, source, target)
        for split in generated_pairs.SPLIT_SIZES
        for source, target in zip(*generated_pairs.generate_pairs(grammar, split), strict=True)
    ]
    assert len({source for _, source, _ in rows}) == len(rows) == 4600
    assert hashlib.sha256(repr(rows).encode()).hexdigest() == SHA256[grammar]
