"""Word pairs with human scores: where they come from, and which of them count."""

import sys

import numpy as np
import pytest
from helpers import fails, write_parquet, write_sets
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from isobench.config.schema import Data
from isobench.data.scored_pairs import ScoredPairs
from isobench_papers.too_much_in_common import word_pairs
from isobench_papers.too_much_in_common.convert_wordsim import PUBLIC_FILES, convert_word_pairs, main
from isobench_papers.too_much_in_common.corpus import TEXTS_PER_BATCH, find_corpus_differences, open_corpus
from isobench_papers.too_much_in_common.frequency import zipf_exponents


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


LINES = {  # of the public files; the others have three columns
    "men": "{}-n {}-j {:.6f}", "rw": "{}\t{}\t{:g}" + 10 * "\t5",
    "simlex999": "{}\t{}\tA\t{:g}\t2.72\t2.81\t2\t7.25\t1\t0.41",
}  # fmt: skip
SIMLEX_HEADER = "word1\tword2\tPOS\tSimLex999\tconc(w1)\tconc(w2)\tconcQ\tAssoc(USF)\tSimAssoc333\tSD(SimLex)"


def test_the_analysis_reads_what_the_command_writes_and_nothing_is_replaced(command, tmp_path):
    rng, written = np.random.default_rng(0), {}
    for name, public in PUBLIC_FILES.items():
        scores = [0, public.highest, *rng.uniform(0, public.highest, public.pairs - 2).round(2).tolist()]
        written[name] = [(f"t-shirt{i}", f"re-n{i}", score) for i, score in enumerate(scores)]
        file = tmp_path / "downloads" / f"archive of {name}" / public.name
        file.parent.mkdir(parents=True)
        lines = [LINES.get(name, "{}\t{}\t{:g}").format(*row) for row in written[name]]
        file.write_text("\n".join([SIMLEX_HEADER] * (name == "simlex999") + lines) + "\n", encoding="utf-8")
    assert [len(rows) for rows in written.values()] == [3000, 2034, 999, 203, 252]
    root = tmp_path / "new" / "data"
    assert command(main, str(tmp_path / "downloads"), str(root))[0] == 0
    for name, pairs in word_pairs.load_word_pairs(Data(root=str(root))).items():
        assert list(zip(pairs.first, pairs.second, pairs.scores, strict=True)) == written.pop(name)
    assert not written
    with fails():
        convert_word_pairs(tmp_path / "downloads", root)


@pytest.mark.parametrize("s", [0.7, 1.0, 1.6])
def test_zipfs_exponent_is_found_again(s):
    ranks = np.arange(1, 3001)
    counts = 1e9 * ranks**-s
    assert zipf_exponents(counts, 1, 3000) == pytest.approx((s, s), abs=1e-6)
    assert zipf_exponents(counts, 10, 1000) == pytest.approx((s, s), abs=1e-6)
    sampled = np.sort(np.random.default_rng(0).multinomial(10**6, counts / counts.sum()))[::-1]
    likeliest = zipf_exponents(sampled[:1000], 10, 1000)[1]
    assert likeliest == pytest.approx(s, abs=0.05)
    taken, places = sampled[9:1000], np.log(np.arange(10, 1001))
    tried = np.arange(s - 0.2, s + 0.2, 0.001)  # the likelihood itself, at every exponent
    likelihood = [-t * (taken @ places) - taken.sum() * np.log(np.exp(-t * places).sum()) for t in tried]
    assert likeliest == pytest.approx(tried[np.argmax(likelihood)], abs=0.002)


def test_a_corpus_from_files(tmp_path):
    texts = [f"text {i}" for i in range(TEXTS_PER_BATCH + 50)]
    write_parquet(tmp_path / "corpus" / "b.parquet", {"text": texts[100:]})
    write_parquet(tmp_path / "corpus" / "a.parquet", {"text": texts[:100]})
    data = Data(root=str(tmp_path))
    whole = open_corpus("wikitext", data)
    assert [text for batch in whole.iter_batches() for text in batch] == texts
    assert [text for batch in whole.iter_batches() for text in batch] == texts  # and again
    assert max(map(len, whole.iter_batches())) <= TEXTS_PER_BATCH
    part = open_corpus("wikitext", data, 120)
    assert [text for batch in part.iter_batches() for text in batch] == texts[:120]
    assert part.text_count == 120
    assert find_corpus_differences("wikitext", part.text_count) == ["corpus wikitext is not the paper's"]
    write_parquet(tmp_path / "cnn_dailymail" / "x.parquet", {"article": ["one", None]})
    broken = open_corpus("cnn_dailymail", data)
    assert find_corpus_differences("cnn_dailymail", broken.text_count) == ["2 of the 311,971 texts of cnn_dailymail"]
    with fails():
        list(broken.iter_batches())
    write_parquet(tmp_path / "cnn_dailymail" / "y.parquet", {"text": ["one"]})
    with fails():
        open_corpus("cnn_dailymail", data)
