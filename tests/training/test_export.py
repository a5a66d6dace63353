"""Exported models give the run's own predictions when transformers loads them; what it can't express lies beside."""

import json

import pyarrow.parquet
import pytest
import torch
from helpers import review_columns, write_parquet
from safetensors.torch import load_file

import isobench
from isobench.training.export import load_calibration


def train_and_export(small, tmp_path, *overrides):
    """Train one run; returns its record, the exported folder, what it says of itself, and the run's dev logits."""
    export = tmp_path / "export"
    record = isobench.run([*small, f"checkpoint.export={export}", *overrides])
    assert record.status == "finished", record.failure
    (folder,) = export.iterdir()
    about = json.loads((folder / "isobench.json").read_text())
    assert (about["run"], about["epoch"]) == (record.key, record.best.epoch)
    table = pyarrow.parquet.read_table(tmp_path / "outputs" / "runs" / folder.name / "predictions.parquet")
    return record, folder, about, torch.tensor(table["logits"].to_pylist())


def encode(folder):
    """The dev sentences of the fixture ``reviews``, by the exported tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)(review_columns(60, 1)["sentence"], padding=True, return_tensors="pt")


@pytest.mark.slow
@pytest.mark.parametrize("head", ["isobn", "huggingface"])
def test_transformers_computes_the_runs_own_logits(small, tmp_path, head):
    from transformers import AutoModelForSequenceClassification

    settings = [f"head={head}", "calibration=cosine", "optimization.epochs=3", "optimization.patience=1"]
    _, folder, about, logits = train_and_export(small, tmp_path, *settings)
    assert (about["load_with"], about["lacks"]) == ("AutoModelForSequenceClassification", [])
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    assert model.config.id2label == {0: "negative", 1: "positive"}
    with torch.no_grad():
        torch.testing.assert_close(model(**encode(folder)).logits, logits, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_calibration_lies_beside_and_can_be_loaded(small, tmp_path, capsys):
    from transformers import AutoModelForSequenceClassification

    _, folder, about, logits = train_and_export(small, tmp_path, "calibration=isobn_paper", "optimization.epochs=1")
    assert about["lacks"] == ["the calibration isobn_paper (calibration.safetensors)"]
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    chain = load_calibration(folder)
    for name in ("calibration.safetensors", "isobench.json"):
        intact = (folder / name).read_bytes()
        for place in (len(intact) // 2, len(intact) - 9):
            (folder / name).write_bytes(intact[:place] + bytes([intact[place] ^ 1]) + intact[place + 1 :])
            with pytest.raises(ValueError, match=rf"{name} .*was changed.*: export the run again"):
                load_calibration(folder)
        (folder / name).write_bytes(intact)
    with torch.no_grad():
        hidden = model.bert(**encode(folder)).last_hidden_state[:, 0]
        embeddings, _ = chain(hidden, lambda h: torch.tanh(model.bert.pooler.dense(h)))
        torch.testing.assert_close(model.classifier(embeddings), logits, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(model(**encode(folder)).logits, logits, rtol=1e-2)  # without it they are others


@pytest.mark.slow
def test_a_head_that_transformers_does_not_have_lies_beside(cli, small, tmp_path):
    from transformers import AutoModel

    settings = ["encoder.pooling=mean", "optimization.epochs=1"]
    _, folder, about, logits = train_and_export(small, tmp_path, *settings)
    assert (about["load_with"], about["pooling"]) == ("AutoModel", "mean")
    assert about["lacks"] == ["the head (head.safetensors)"]
    tokens, head = encode(folder), load_file(folder / "head.safetensors")
    mask = tokens["attention_mask"][:, :, None]
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(folder).eval()(**tokens).last_hidden_state
        mean = (hidden * mask).sum(1) / mask.sum(1)
        found = mean @ head["classifier.weight"].T + head["classifier.bias"]
    torch.testing.assert_close(found, logits, rtol=1e-4, atol=1e-5)
    code, _, err = cli(*small, *settings, f"checkpoint.export={tmp_path}/elsewhere")
    assert code == 0, err
    assert "not exported, because the run had ended before" in err
    code, _, err = cli(*small, *settings, f"checkpoint.export={tmp_path}/export")
    assert f"exported to {folder}, for transformers' AutoModel; beside it" in err


@pytest.mark.slow
@pytest.mark.parametrize("labels", [None, "label"])
def test_predictions_of_a_test_split_with_and_without_labels(small, tiny, cache, tmp_path, labels):
    files = {}
    for split, count in (("train", 48), ("validation", 16), ("test", 12)):
        columns = review_columns(count, count)
        del columns["idx"]
        if split == "test" and labels is None:
            del columns["label"]
        files[split] = tmp_path / f"{split}.parquet"
        write_parquet(files[split], columns)
    named = ", ".join(f"{split}: {file}" for split, file in files.items())
    own = ["task=mine", f"data.files={{{named}}}", "task.test_split=test", "optimization.epochs=2"]
    record = isobench.run([*small, *own])
    assert record.status == "finished", record.failure
    assert record.data.examples == {"train": 48, "validation": 16, "test": 12}
    assert record.best.metrics("test") == {}  # not scored
    (file,) = tmp_path.glob("outputs/runs/*/predictions.parquet")
    rows = [row for row in pyarrow.parquet.read_table(file).to_pylist() if row["split"] == "test"]
    assert [row["index"] for row in rows] == list(range(12))
    assert [row["label"] for row in rows] == ([None] * 12 if labels is None else review_columns(12, 12)["label"])
    assert all(row["prediction"] == max((0, 1), key=row["logits"].__getitem__) for row in rows)
