"""Whole runs: bit-identical, recorded in full, tracked; on a tiny model, the embedded ones and real GLUE."""

import numpy as np
import pyarrow.parquet
import pytest
import torch
from helpers import build_parts, train_run, write_parquet

from isobench.kinds.classification.module import Classifier
from isobench.metrics.task import evaluate_predictions
from isobench.training.fine_tuned import FineTuningModule


def run(*overrides):
    return train_run(*overrides)[:2]


def predictions(folder):
    return pyarrow.parquet.read_table(folder.path / "predictions.parquet")


def test_steps_have_their_mode_and_repeatable_algorithms(small, monkeypatch):
    """Dropout is on in every training step, the encoder's too (from_pretrained switches it off)."""
    modes = {"training_step": set(), "validation_step": set()}
    for name in modes:

        def spy(self, *arguments, name=name, original=Classifier.__dict__[name]):
            assert torch.are_deterministic_algorithms_enabled()
            modes[name].update(part.training for part in self.modules())
            return original(self, *arguments)

        monkeypatch.setattr(Classifier, name, spy)
    run(*small, "optimization.epochs=2", "task.train_samples=32")
    assert modes == {"training_step": {True}, "validation_step": {False}}


@pytest.mark.parametrize(("drops", "rows", "warns"), [("false", 2.2, True), ("true", 17.7, False)])
def test_a_small_last_batch_is_recorded_and_warned_of(small, drops, rows, warns):
    """34 examples in batches of 16: two rows in the last one have 95% of the weight."""
    sizes = ("task.train_samples=34", "optimization.batch_size=16", f"optimization.drop_last={drops}")
    record, _ = run(*small, "calibration=isobn_paper", *sizes)
    assert record["effective_rows"] == {"isobn_paper": rows}
    assert any("2.2" in warning for warning in record["warnings"]) == warns


@pytest.mark.parametrize(
    ("method", "examples", "size", "warns"),
    [
        ("isobn_paper", 32, 1, True), ("whitening_zca", 32, 16, True), ("uniformity", 33, 16, True),
        ("center", 32, 1, False), ("uniformity", 36, 16, False), ("all_but_the_top", 32, 16, False),
        ("all_but_the_top calibration.D=31", 32, 16, True),
    ],
)  # fmt: skip
def test_a_statistic_of_too_few_rows_is_warned_of(small, method, examples, size, warns):
    sizes = (f"task.train_samples={examples}", f"optimization.batch_size={size}", "optimization.drop_last=false")
    warnings = build_parts(*small, *f"calibration={method}".split(), *sizes).warnings
    assert any(warning.startswith(f"{method.split()[0]} estimates") for warning in warnings) == warns


@pytest.mark.slow
def test_each_seed_stream_does_its_own_part(small, tmp_path):
    def logits(name, *overrides):
        _, folder = run(*small, f"output_dir={tmp_path}/{name}", "optimization.epochs=1", *overrides)
        return np.array(predictions(folder)["logits"].to_pylist())

    base = logits("base")
    for stream in ("init", "order", "dropout"):
        assert not np.array_equal(logits(stream, f"seeds.{stream}=99"), base)


def test_the_record_is_whole_and_true(small):
    result, folder = run(*small, "optimization.epochs=8", "optimization.patience=null")
    assert result["status"] == "finished"
    table = predictions(folder)
    labels, predicted = (np.array(table[name]) for name in ("label", "prediction"))
    best = result["best"]
    assert best["validation"]["accuracy"] == evaluate_predictions(["accuracy"], labels, predicted)["accuracy"]
    assert best["score"] == max(epoch["score"] for epoch in result["history"])
    assert best["score"] > 0.8  # the tiny task is learnt
    assert [epoch["epoch"] for epoch in result["history"]] == list(range(1, 9))
    logits = np.array(table["logits"].to_pylist())
    np.testing.assert_array_equal(logits.argmax(1), predicted)
    assert table["index"].to_pylist() == list(range(60))
    for epoch in result["history"]:
        assert epoch["explained_variance"].keys() == {"embedding", "head", "vocabulary"}
        assert {"embedding/silhouette", "embedding/threshold_accuracy"} < epoch["isotropy"].keys()
        assert epoch["isotropy"]["embedding/ev1"] == epoch["explained_variance"]["embedding"][0] > 0
        assert len(epoch["explained_variance"]["embedding"]) == 32  # the width: less than the 50 asked for
    cost, origin = result["cost"], result["provenance"]
    assert cost["seconds"] > cost["training_seconds"] > 0
    assert cost["tokens_per_second"] > 0
    assert cost["peak_memory_mib"]["resident"] > 50
    # Without the build, such as +cpu, which the package's name may lack.
    assert origin["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert origin["threads"] == torch.get_num_threads()
    assert origin["instruction_set"] == torch.backends.cpu.get_cpu_capability()
    assert result["data"]["examples"] == {"train": 160, "validation": 60}
    assert set(result["data"]["fingerprint"]) == {"train", "validation"}
    assert "model.safetensors" in result["encoder"]["fingerprint"]
    assert sorted(file.name for file in folder.path.iterdir()) == ["lock", "predictions.parquet", "result.json"]


@pytest.mark.slow
def test_the_embedded_encoder_on_the_embedded_task(cache, tmp_path):
    sizes = ["task.train_samples=320", "task.dev_samples=200", "optimization.epochs=2", "optimization.batch_size=8"]
    where = [f"data.cache={cache}", f"output_dir={tmp_path}"]
    result, _ = run("calibration=isobn_paper", *sizes, "optimization.lr=1e-4", *where)
    assert result["best"]["score"] > 0.6
    assert result["scale"]["differs"]


def test_the_token_cache_knows_what_its_labels_came_from(small, tmp_path):
    """The same files read with another label range are other labels, not the cache's."""
    n = 32
    columns = {"sentence1": ["the film"] * n, "sentence2": ["was good"] * n, "label": [5.0 * i / n for i in range(n)]}
    for split in ("train", "validation"):
        write_parquet(tmp_path / "data" / "glue" / "stsb" / f"{split}.parquet", columns)
    base = [*small[2:], "task=stsb", "task.as_classes=6", f"data.root={tmp_path}/data", "optimization.epochs=1"]
    _, five = run(*base)
    _, ten = run(*base, "task.label_range=[0,10]")
    assert max(predictions(five)["label"].to_pylist()) == 5
    assert max(predictions(ten)["label"].to_pylist()) == 2


def record_outputs(monkeypatch, scores):
    record_epoch, seen = FineTuningModule.record_epoch, []

    def record_given(module, found, outputs):
        for split, accuracy in next(scores).items():
            found[split]["accuracy"] = accuracy
        seen.append(outputs["validation"]["prediction"].tolist())
        record_epoch(module, found, outputs)

    monkeypatch.setattr(FineTuningModule, "record_epoch", record_given)
    return seen


@pytest.mark.slow
def test_the_last_epoch_is_reported_where_that_is_asked_for(small, monkeypatch):
    """Scores that fall: the best epoch is the first, the last is the last; its predictions go with it."""
    for report in ("best", "last"):
        with monkeypatch.context() as patch:
            predicted = record_outputs(patch, ({"validation": score} for score in (0.9, 0.5, 0.4)))
            result, folder = run(*small, "optimization.epochs=3", f"optimization.report={report}")
        chosen = 0 if report == "best" else 2
        assert result["best"] == result["history"][chosen]
        assert predictions(folder)["prediction"].to_pylist() == predicted[chosen]


@pytest.mark.slow
def test_held_out_examples_choose_the_epoch_and_are_not_trained_on(small, monkeypatch):
    scores = [(0.1, 0.9), (0.8, 0.3), (0.7, 0.2)]
    record_outputs(monkeypatch, ({"validation": dev, "held_out": held_out} for dev, held_out in scores))
    result, _ = run(*small, "optimization.epochs=3", "task.held_out=0.25", "optimization.lr=1e-3")
    assert [(epoch["score"], epoch["selection"]) for epoch in result["history"]] == scores
    assert result["best"]["epoch"] == 1
    assert result["cost"]["examples"] == 3 * 120
    assert result["data"]["examples"] == {"train": 120, "validation": 60, "held_out": 40}
    assert "25% of the training examples held out to select on" in result["scale"]["differs"]


def test_the_held_out_examples_are_the_same_for_every_seed_and_none_is_trained_on(small):
    def examples(*overrides):
        loaders = build_parts(*small, *overrides).loaders
        return [
            [tuple(tokens.ids[a:b]) for a, b in zip(tokens.offsets, tokens.offsets[1:], strict=False)]
            for tokens in (loaders.train.dataset, loaders.dev[-1].dataset)
        ]

    everything, _ = examples()
    kept, held_out = examples("task.held_out=0.25")
    assert sorted(kept + held_out) == sorted(everything)
    assert examples("task.held_out=0.25", "seed=5") == [kept, held_out]
