"""Exported models give the run's own predictions when transformers loads them; what it can't express lies beside."""

import json

import pandas
import pyarrow.parquet
import pytest
import torch
from helpers import check_done, drop_replaced, review_columns, tiny_overrides, write_parquet
from killed_runs import start
from safetensors.torch import load_file

import isobench
from isobench.training.export_model import load_calibration

pytestmark = pytest.mark.slow


def train_and_export(small, tmp_path, *overrides):
    export = tmp_path / "export"
    record = isobench.run(drop_replaced([*small, f"checkpoint.export={export}", *overrides]))
    assert record.status == "finished", record.failure
    (folder,) = export.iterdir()
    about = json.loads((folder / "isobench.json").read_text())
    assert (about["run"], about["epoch"]) == (record.key, record.best.epoch)
    table = pyarrow.parquet.read_table(tmp_path / "outputs" / "runs" / folder.name / "predictions.parquet")
    return record, folder, about, torch.tensor(table["logits"].to_pylist())


def encode(folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)(review_columns(60, 1)["sentence"], padding=True, return_tensors="pt")


@pytest.mark.parametrize(
    "chosen",
    [
        ["head=isobn", "calibration=cosine"],
        ["head=huggingface", "calibration=cosine", "encoder.token_type_ids=false"],
        ["calibration=spectrum_polynomial", "+calibration.reparametrize=1.0"],  # its classifier's weight is a product
    ],
)
def test_transformers_computes_the_runs_own_logits(small, tmp_path, chosen):
    from transformers import AutoModelForSequenceClassification

    settings = [*chosen, "optimization.epochs=3", "optimization.patience=1"]
    _, folder, about, logits = train_and_export(small, tmp_path, *settings)
    assert (about["load_with"], about["lacks"]) == ("AutoModelForSequenceClassification", [])
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    assert model.config.id2label == {0: "negative", 1: "positive"}
    with torch.no_grad():
        torch.testing.assert_close(model(**encode(folder)).logits, logits, rtol=1e-4, atol=1e-5)
    assert ("token_type_ids" in encode(folder)) == ("encoder.token_type_ids=false" not in chosen)


def test_a_calibration_lies_beside_and_can_be_loaded(small, tmp_path):
    from transformers import AutoModelForSequenceClassification

    _, folder, about, logits = train_and_export(small, tmp_path, "calibration=isobn_paper", "optimization.epochs=1")
    assert about["lacks"] == ["the calibration isobn_paper (calibration.safetensors)"]
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    chain = load_calibration(folder)
    for name in ("calibration.safetensors", "isobench.json"):
        intact = (folder / name).read_bytes()
        (folder / name).write_bytes(intact[:-9] + bytes([intact[-9] ^ 1]) + intact[-8:])
        with pytest.raises(ValueError, match=name):
            load_calibration(folder)
        (folder / name).write_bytes(intact)
    with torch.no_grad():
        hidden = model.bert(**encode(folder)).last_hidden_state[:, 0]
        embeddings, _ = chain(hidden, lambda h: torch.tanh(model.bert.pooler.dense(h)))
        torch.testing.assert_close(model.classifier(embeddings), logits, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(model(**encode(folder)).logits, logits, rtol=1e-2)  # without it they are others


def test_a_head_that_transformers_does_not_have_lies_beside(small, tmp_path):
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


def test_an_encoder_decoder_is_exported_whole(tiny_translation, tmp_path):
    """Started from its weights, an untrained run has the dev loss that the run reported."""
    overrides = [text for text in tiny_translation if not text.startswith("output_dir")]
    export = tmp_path / "export"
    record = isobench.run([*overrides, f"output_dir={tmp_path / 'first'}", f"checkpoint.export={export}"])
    (folder,) = export.iterdir()
    assert json.loads((folder / "isobench.json").read_text())["load_with"] == "AutoModelForSeq2SeqLM"
    kept = [text for text in overrides if not text.startswith("encoder")]
    again = ["encoder=local", f"encoder.path={export}", "optimization.lr=1e-12", f"output_dir={tmp_path / 'again'}"]
    loaded = isobench.run([*kept, *again])
    losses = [run.best.metrics("validation")["loss"] for run in (record, loaded)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def read_exports(folder):
    return {file.relative_to(folder): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


KILLED = ["optimization.epochs=3", "calibration=isobn_paper", "checkpoint.steps=3", "trainer.threads=1"]


@pytest.fixture(scope="module")
def undisturbed(processes, tiny, reviews, cache, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    run = [*tiny_overrides(tiny, reviews, cache, folder / "outputs"), *KILLED, f"checkpoint.export={folder}/export"]
    assert start(processes, run) == 0
    expected = read_exports(folder / "export")
    assert {file.name for file in expected} >= {"model.safetensors", "calibration.safetensors", "isobench.json"}
    return expected


@pytest.mark.parametrize(
    ("moments", "exports_at_first"),
    [
        ([("isobench.training.export_model.write_export", 1, "after")], True),  # the folder is half-written
        ([("pathlib.Path.rename", 2, "before")], True),  # the first epoch's folder is gone, the second's not in place
        ([("torch.optim.AdamW.step", 7, "after")], False),  # in the first epoch, by a command without an export
        ([("torch.optim.AdamW.step", 7, "after"), ("torch.optim.AdamW.step", 10, "after")], True),
    ],
    ids=["half-written", "between two folders", "asked for on resuming", "twice"],
)
def test_an_interrupted_run_exports_what_an_undisturbed_one_does(
    processes, small, tmp_path, undisturbed, moments, exports_at_first
):
    run = [*small, *KILLED]
    export = f"checkpoint.export={tmp_path}/resumed"
    for moment in moments:
        assert start(processes, [*run, *([export] if exports_at_first else [])], *moment) == -9
    assert start(processes, [*run, export]) == 0
    assert read_exports(tmp_path / "resumed") == undisturbed


@pytest.mark.parametrize(
    ("form", "labels"), [("root", "hidden"), ("csv", "hidden"), ("parquet", "known"), ("parquet", "none")]
)
def test_predictions_of_a_test_split_whose_labels_are_known_hidden_or_none(cli, small, tmp_path, form, labels):
    """Hidden labels are -1 in every row, as GLUE's; a test split is predicted, not scored."""
    columns = {split: review_columns(n, n) for split, n in {"train": 48, "validation": 16, "test": 12}.items()}
    known = columns["test"].pop("label")
    if labels != "none":
        columns["test"]["label"] = known if labels == "known" else [-1] * 12
    files = {split: tmp_path / "glue" / "sst2" / f"{split}.{form.replace('root', 'parquet')}" for split in columns}
    for split, file in files.items():
        if form != "root":
            del columns[split]["idx"]
        write_parquet(file, columns[split])
        if form == "csv":
            pandas.DataFrame(columns[split]).to_csv(file, index=False)
    named = ", ".join(f"{split}: {file}" for split, file in files.items())
    data = [f"data.root={tmp_path}"] if form == "root" else ["task=mine", f"data.files={{{named}}}"]
    check_done(cli(*small, *data, "task.test_split=test", "optimization.epochs=1"))
    (file,) = tmp_path.glob("outputs/runs/*/predictions.parquet")
    rows = [row for row in pyarrow.parquet.read_table(file).to_pylist() if row["split"] == "test"]
    assert [row["index"] for row in rows] == list(range(12))
    assert [row["label"] for row in rows] == (known if labels == "known" else [None] * 12)
    assert all(row["prediction"] == max((0, 1), key=row["logits"].__getitem__) for row in rows)
    record = json.loads((file.parent / "result.json").read_text())
    assert record["data"]["examples"] == {"train": 48, "validation": 16, "test": 12}
    assert "validation" in record["best"].keys() - {"test"}
