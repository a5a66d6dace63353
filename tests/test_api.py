"""The Python interface: isobench.run, isobench.load_runs, and what importing isobench imports."""

import numpy as np
import pytest
import torch
from helpers import check_done, drop_replaced

import isobench
from isobench.sweep.planning import compose_methods


@pytest.mark.slow
def test_a_run_gives_its_record_and_is_not_carried_out_twice(small, outputs):
    threads = torch.get_num_threads()
    own = drop_replaced(
        [*small, "calibration=isobn_paper", "optimization.epochs=1", f"trainer.threads={threads + 1}"]
    )
    record = isobench.run(own)
    assert (record.provenance.threads, torch.get_num_threads()) == (threads + 1, threads)
    assert (record.status, record.config["calibration"]["name"]) == ("finished", "isobn_paper")
    assert isobench.run(own) == record
    assert len(list(outputs.glob("runs/*"))) == 1
    assert isobench.load_runs(outputs)["score"].tolist() == [100 * record.best.score]


def test_settings_that_can_be_read_once_alone_are_not_lost():
    cfg, methods = compose_methods(text for text in ["calibration=cosine", "encoder.pooling=cls"])
    assert (cfg.encoder.pooling, list(methods)) == ("cls", ["cosine"])


@pytest.mark.slow
def test_a_table_of_runs_has_typed_columns(cli, small, outputs):
    short = [*small, "optimization.epochs=1", "task.train_samples=32", "task.dev_samples=8"]
    assert cli(*short, "-m", "calibration=none,isobn_paper", "seed=1,2")[0] == 0
    assert cli(*short, "-m", "calibration=isobn_paper", "calibration.beta=0.25", "seed=1")[0] == 0
    check_done(cli(*short, "-m", "+experiment=glue_isobn", "calibration=none", "seed=1"))
    table = isobench.load_runs(outputs)
    assert len(table) == 5
    assert table[["method", "seed"]].values.tolist()[-2:] == [["none", 1], ["none", 2]]
    assert sorted(table["calibration.beta"].dropna()) == [0.25, 0.5, 0.5]
    assert np.isfinite(table["score"].astype(float)).all()
    assert table["encoder.weights"].nunique() == table["task.data"].nunique() == 1
    for name, digest in (("task.data", "data"), ("encoder.weights", "weights")):
        assert f"({table[digest][0][:8]})" in table[name][0]
    of_experiment = isobench.load_runs(str(outputs), experiment="glue_isobn")
    assert of_experiment[["method", "seed"]].values.tolist() == [["none", 1]]  # that an earlier command carried out
