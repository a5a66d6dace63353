"""Word pairs with human scores: where they come from, and which of them count."""

import math
import sys

import numpy as np
import pytest
from helpers import fails, write_parquet, write_sets
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from isobench.config.schema import Data
from isobench.data.scored_pairs import ScoredPairs
from isobench_papers.too_much_in_common import word_pairs


def test_the_embedded_sets_are_gensims_and_gensim_stays_unimported():
    before = "gensim" in sys.modules
    sets = word_pairs.load_word_pairs(Data())
    assert ("gensim" in sys.modules) == before
    assert {name: len(pairs) for name, pairs in sets.items()} == {"simlex999": 999, "ws353": 353}
    simlex, both = sets["simlex999"], sets["ws353"]
    assert (simlex.first[0], simlex.second[0], simlex.scores[0]) == ("old", "new", 1.58)
    assert (both.first[0], both.second[0], both.scores[0]) == ("love", "sex", 6.77)


def test_the_five_sets_come_from_a_folder_and_men_loses_its_parts_of_speech(tmp_path):
    tagged = {"word1": ["sun-n", "run-v"], "word2": ["warm-j", "old-fashioned-j"], "score": [50.0, 3.0]}
    plain = {"word1": ["re-n", "go-v"], "word2": ["color-blind", "b"], "score": [1, 2]}
    sets = word_pairs.load_word_pairs(Data(root=str(write_sets(tmp_path, men=tagged, rw=plain))))
    assert tuple(sets) == word_pairs.PAPER_SETS
    assert (sets["men"].first, sets["men"].second) == (["sun", "run"], ["warm", "old-fashioned"])
    assert (sets["rw"].first, sets["rw"].second) == (["re-n", "go-v"], ["color-blind", "b"])
    assert sets["rw"].scores.tolist() == [1.0, 2.0]
    assert len(sets["ws353_rel"]) == 12


def test_sets_can_be_named_or_all_be_taken(tmp_path):
    pairs = {"word1": ["good", "bad"], "word2": ["bad", "film"], "score": [1.0, 2.0]}
    root = str(write_sets(tmp_path))
    write_parquet(tmp_path / "wordsim" / "mine.parquet", pairs)
    assert list(word_pairs.load_word_pairs(Data(root=root), ["mine", "rw"])) == ["mine", "rw"]
    everything = word_pairs.load_word_pairs(Data(root=root), ["all"])
    assert list(everything) == ["men", "mine", "rw", "simlex999", "ws353_rel", "ws353_sim"]
    assert everything["mine"].scores.tolist() == [1.0, 2.0]
    assert list(word_pairs.load_word_pairs(Data(root=root))) == [*word_pairs.PAPER_SETS]
    assert list(word_pairs.load_word_pairs(Data(), ["all"])) == ["simlex999", "ws353"]
    assert list(word_pairs.load_word_pairs(Data(), ["ws353"])) == ["ws353"]
    with fails():
        word_pairs.load_word_pairs(Data(root=root), ["mien"])
    with fails():
        word_pairs.load_word_pairs(Data(), ["ws353", "men"])


@pytest.mark.parametrize("score", [None, ["much"], [math.nan], []])
def test_a_file_that_is_not_a_set_is_an_error(tmp_path, score):
    count = 1 if score is None else len(score)
    columns = {"word1": ["a"] * count, "word2": ["b"] * count} | ({} if score is None else {"score": score})
    write_sets(tmp_path, rw=columns)
    with fails():
        word_pairs.load_word_pairs(Data(root=str(tmp_path)))


def test_byte_level_words_get_their_space():
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    learned.train_from_iterator(["a good film is a good film"] * 5, trainer)
    tokenizer, names = PreTrainedTokenizerFast(tokenizer_object=learned), ["Ġgood", "Ġfilm"]
    assert set(names) < set(tokenizer.get_vocab())
    assert len(tokenizer("good")["input_ids"]) > 1
    pairs = ScoredPairs(["good", "good", "film"], ["film", "xylophone", "good"], np.array([1.0, 2.0, 3.0]))
    ids, scores = word_pairs.select_single_token_pairs(pairs, tokenizer)
    expected = tokenizer.convert_tokens_to_ids(names)
    assert ids.tolist() == [expected, expected[::-1]]
    assert scores.tolist() == [1.0, 3.0]


def test_a_pair_counts_if_both_words_are_one_known_token(tiny):
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    first = ["good", "good", "good film", "Good", "great", "bad"]
    second = ["bad", "unheard", "bad", "bad", "great", "awful"]
    ids, scores = word_pairs.select_single_token_pairs(ScoredPairs(first, second, np.arange(6.0)), tokenizer)
    number = tokenizer.get_vocab()
    pairs = (("good", "bad"), ("great", "great"), ("bad", "awful"))
    assert ids.tolist() == [[number[a], number[b]] for a, b in pairs]
    assert scores.tolist() == [0.0, 4.0, 5.0]
