"""The isotropy monitor: the one-shot measures, in the record and in the log, for any module, over processes too."""

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader

import isobench
from isobench import metrics
from isobench.metrics import partition_isotropy
from isobench.training.monitor import IsotropyMonitor

MEASURES = ("isoscore", "average_cosine", "effective_rank", "mean_ratio", "coordinate_share")


def make_trainer(logger=False, **settings):
    quiet = {"enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    return pl.Trainer(accelerator="cpu", logger=logger, **quiet, **settings)


class Theirs(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.words = nn.Linear(4, 5), nn.Embedding(30, 5)
        self.isotropy_before = {}

    def matrices(self):
        return {"head": lambda: self.layer.weight, "words": lambda: self.words.weight}

    def training_step(self, batch, index):
        return self.layer(batch).square().mean()

    def embed(self, batch):
        return self.layer(batch)

    def validation_step(self, batch, index, dataloader_idx=0):
        return {"embedding": self.layer(batch)}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.mark.parametrize("others", [0, 1])  # dev splits that are not monitored
def test_any_module_can_be_monitored(tmp_path, others):
    torch.manual_seed(0)
    rows = torch.randn(12, 4)
    module, logger = Theirs(), CSVLogger(tmp_path, name="", version="")
    trainer = make_trainer(max_epochs=2, callbacks=[IsotropyMonitor(curve=3)], logger=logger)
    loaders = [DataLoader(rows, 5), DataLoader(rows**2, 5)] if others else DataLoader(rows, 5)
    trainer.fit(module, DataLoader(rows, 4), loaders)
    assert module.isotropy_before["embedding/isoscore"] > 0
    logged = trainer.logged_metrics
    with torch.no_grad():
        expected = {"embedding": module.layer(rows), "head": module.layer.weight, "words": module.words.weight}
    for matrix, w in expected.items():
        measured = {name: getattr(metrics, name)(w) for name in MEASURES}
        measured |= {f"ev{k}": metrics.explained_variance(w, k) for k in (1, 2, 3)}
        measured["i1"], measured["i2"] = partition_isotropy(w)
        for name, value in measured.items():
            assert float(logged[f"isotropy/{matrix}/{name}"]) == pytest.approx(value, rel=1e-4, abs=1e-6), name
    assert "isotropy/head/i1_printed" in logged
    assert "isotropy/words/i1" in (tmp_path / "metrics.csv").read_text()


class Classes(Theirs):
    def training_step(self, batch, index):
        return super().training_step(batch["rows"], index)

    def validation_step(self, batch, index):
        return super().validation_step(batch["rows"], index)


def test_embeddings_with_classes_have_the_measures_by_class():
    torch.manual_seed(0)
    rows, labels = torch.randn(12, 4), torch.arange(12) % 3
    module, trainer = Classes(), make_trainer(callbacks=[IsotropyMonitor(curve=3)])
    examples = [{"rows": row, "labels": label} for row, label in zip(rows, labels, strict=True)]
    (logged,) = trainer.validate(module, DataLoader(examples, 5), verbose=False)
    h = module.layer(rows).detach()
    assert logged["isotropy/embedding/silhouette"] == pytest.approx(metrics.silhouette(h, labels), rel=1e-5)
    best = metrics.best_threshold_accuracy(h, labels)
    assert logged["isotropy/embedding/threshold_accuracy"] == pytest.approx(best)
    assert not [name for name in logged if "silhouette" in name and "embedding" not in name]


LATE = """
import numpy as np
import torch
from pytorch_lightning import Callback

class Late(Callback):
    def on_validation_end(self, trainer, module):
        epoch = trainer.current_epoch + 1
        module.observed["late"] = {"epoch": torch.tensor(float(epoch)), "half": np.float32(epoch / 2)}

    def on_train_epoch_end(self, trainer, module):
        module.observed["later"] = {"epoch": float(trainer.current_epoch + 1)}

    def on_train_end(self, trainer, module):
        module.observed["last"] = {"steps": float(trainer.global_step)}

class Taker(Callback):
    def on_validation_epoch_end(self, trainer, module):
        module.observed["validation"] = {"accuracy": 0.99}
"""


@pytest.mark.slow
def test_a_monitor_may_measure_late_and_replaces_no_score(cli, small, outputs, tmp_path, monkeypatch):
    (tmp_path / "late_monitor.py").write_text(LATE)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = [*small, "optimization.epochs=2", "optimization.report=last", "tracking=none"]
    assert cli(*own, "monitors.late={_target_: late_monitor.Late}")[0] == 0
    epochs = isobench.load_epochs(outputs).query("epoch > 0")
    assert epochs["late/epoch"].tolist() == epochs["later/epoch"].tolist() == epochs["epoch"].tolist() == [1, 2]
    assert epochs["late/half"].tolist() == [0.5, 1]
    runs = isobench.load_runs(outputs)
    assert (runs["late/epoch"].tolist(), runs["later/epoch"].tolist()) == ([2], [2])
    assert runs["last/steps"].tolist() == epochs["step"].tolist()[1:]
    assert cli(*own, "monitors.taker={_target_: late_monitor.Taker}", "seed=5")[0] != 0
    assert len(list(outputs.glob("runs/*/result.json"))) == 1
