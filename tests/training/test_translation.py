"""Translation and summarisation from the command line: the record, resuming, users' mistakes, models of all kinds."""

import math
import signal
from pathlib import Path

import pyarrow.parquet
import pytest
import torch
from helpers import check_done, fails, make_config, read_records, save_tiny, translation_overrides, write_parquet
from killed_runs import outcome, start
from tampering import list_failures
from test_seq2seq import small_model

from isobench.data.weights import fingerprint_encoder
from isobench.kinds.generation.batches import tokenise_texts
from isobench.kinds.generation.build import _find_language_code
from isobench.kinds.generation.scores import evaluate_texts

GENERATION = "isobench.kinds.generation.module"


@pytest.mark.slow
def test_a_run_records_scores_search_isotropy_and_hypotheses(cli, tiny_translation, outputs):
    out, _ = check_done(cli(*tiny_translation, "calibration=cosine"))
    (record,) = read_records(outputs).values()
    best = record["best"]
    assert [epoch["epoch"] for epoch in record["history"]] == [1, 2]
    assert set(best["validation"]) == {"bleu", "chrf", "loss", "constant_predictor"}
    assert 0 < best["validation"]["loss"] < 2 * math.log(300)
    names = {f"head/{measure}{end}" for measure in ("i1", "i2") for end in ("", "_symmetric", "_printed")}
    assert names <= set(best["isotropy"])
    assert "embedding/i1" in best["isotropy"]
    assert not [name for name in best["isotropy"] if name.startswith("vocabulary")]  # tied: measured once
    assert record["generation"]["search"]["num_beams"] == 2
    assert "version:2" in record["generation"]["signatures"]["bleu"]
    assert record["data"]["examples"] == {"train": 96, "validation": 20}
    table = pyarrow.parquet.read_table(next(outputs.glob("runs/*/predictions.parquet"))).to_pydict()
    again = evaluate_texts(["bleu", "chrf"], table["reference"], table["hypothesis"])
    assert again == {name: pytest.approx(best["validation"][name]) for name in ("bleu", "chrf")}
    assert table["index"] == list(range(20))
    source = pyarrow.parquet.read_table(Path(record["config"]["data"]["root"]) / "multi30k/validation.parquet")
    assert table["reference"] == [row["de"] for row in source["translation"].to_pylist()]
    assert "randomly initialised" in " ".join(out.split()), out


MOMENTS = [
    (f"{GENERATION}.Seq2Seq.training_step", 8, "before"),
    (f"{GENERATION}.Seq2Seq.generate", 1, "after"),
    (f"{GENERATION}.Seq2Seq.on_validation_epoch_end", 2, "before"),
    ("isobench.data.cache.save_cached_arrays", 2, "before"),
    ("isobench.kinds.words.vocabulary.train_tokenizer", 1, "after"),
    ("isobench.training.train.write_predictions", 1, "after"),
]


def long_run(translations: str, cache: str, outputs: Path) -> list[str]:
    return [
        *translation_overrides(translations, cache, outputs), "calibration=[flow,isobn_paper]",
        "calibration.levels=2", "optimization.batch_tokens=300", "optimization.accumulate=2",
        "trainer.threads=1", "checkpoint.steps=2", "optimization.epochs=3",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(processes, translations, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    assert start(processes, long_run(translations, str(folder / "cache"), folder / "outputs")) == 0
    return outcome(folder / "outputs")


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda m: f"{m[0].rpartition('.')[2]}-{m[1]}-{m[2]}")
def test_killed_anywhere_it_ends_with_the_same_bits(processes, translations, tmp_path, undisturbed, moment):
    """Batches by tokens, accumulation, a flow with an optimiser of its own, and moving statistics."""
    arguments = long_run(translations, str(tmp_path / "cache"), tmp_path / "outputs")
    assert start(processes, arguments, *moment) == -signal.SIGKILL
    assert not list(tmp_path.glob("outputs/runs/*/result.json"))
    assert start(processes, arguments) == 0
    assert outcome(tmp_path / "outputs") == undisturbed
    assert list_failures(tmp_path / "outputs") == []


@pytest.mark.slow
def test_empty_and_overlong_texts_are_evaluated_counted_and_said(cli, tiny_translation, tmp_path, outputs):
    rows = {
        "train": [{"en": "a film", "de": "ein"}, {"en": "", "de": "x"}, {"en": "b " * 300, "de": "y " * 300}] * 4,
        "validation": [{"en": "", "de": "z"}, {"en": "the " * 400, "de": "w"}, {"en": "plot", "de": ""}],
    }
    for split, translation in rows.items():
        write_parquet(tmp_path / f"data/multi30k/{split}.parquet", {"translation": translation})
    wide = [f"data.root={tmp_path / 'data'}", "encoder.scratch.max_position_embeddings=40"]
    out, _ = check_done(cli(*tiny_translation, *wide))
    (record,) = read_records(outputs).values()
    assert record["data"]["truncated"] == {
        "train": {"sources": 4, "targets": 4},
        "validation": {"sources": 1, "targets": 0},
    }
    assert " ".join(out.split()).count("are longer than") == 3
    assert math.isfinite(record["best"]["validation"]["loss"])
    assert len(pyarrow.parquet.read_table(next(outputs.glob("runs/*/predictions.parquet")))) == 3


def test_mbart_marks_its_languages():
    """Sources and targets end with their language, and the search starts with the target's (Liu et al. 2020)."""
    from transformers import MBartTokenizer

    tokenizer = MBartTokenizer(vocab=[("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581a", -1.0)])
    assert [_find_language_code(tokenizer, language) for language in ("en", "ro", "de", "ro_RO")] == [
        "en_XX", "ro_RO", "de_DE", "ro_RO",
    ]  # fmt: skip
    tokenizer.src_lang, tokenizer.tgt_lang = "en_XX", "ro_RO"
    read, write = tokenizer("a")["input_ids"], tokenizer(text_target="a")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(read)[-2:] == ["</s>", "en_XX"]
    assert tokenizer.convert_ids_to_tokens(write)[-2:] == ["</s>", "ro_RO"]
    model = small_model("mbart")
    shifted = model.prepare_decoder_input_ids_from_labels(labels=torch.tensor([[4, 2, 7], [4, 7, 0]]))
    assert shifted[:, 0].tolist() == [7, 7]
    with fails():
        _find_language_code(tokenizer, "xx")


def test_a_marian_tokenizers_own_files_are_part_of_a_runs_key(tmp_path):
    save_tiny(tmp_path)
    cfg = make_config("task=captions", "encoder=local", f"encoder.path={tmp_path}")
    before = fingerprint_encoder(cfg.encoder)
    (tmp_path / "source.spm").write_bytes(b"pieces")
    assert fingerprint_encoder(cfg.encoder).keys() - before.keys() == {"source.spm"}


def test_a_tokenizer_without_closing_tokens_is_given_them(tmp_path):
    """Else no hypothesis would ever end."""
    from transformers import AutoTokenizer

    save_tiny(tmp_path, "gpt2")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer("film")["input_ids"] == [tokenizer.get_vocab()["film"]]
    found = tokenise_texts(["film plot", "", "a b c d e f"], tokenizer, "text_target", 4)
    assert [found.ids[end - 1] for end in found.offsets[1:]] == [tokenizer.eos_token_id] * 3
    assert found.lengths.tolist() == [3, 1, 4]
    assert found.truncated.tolist() == [False, False, True]
