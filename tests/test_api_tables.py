"""isobench.load_epochs and isobench.report_table, against the files that isobench report writes."""

import itertools
import random
import statistics
from dataclasses import replace

import pandas
import pytest
from helpers import fails, make_config, make_record
from scipy import stats

import isobench
from isobench.report.build import build_report
from isobench.report.output.page import write_report
from isobench.runs.folder import RunFolder
from isobench.runs.plan import read_runs


def write_folder(folder, methods=("none", "isobn_paper"), seeds=(1, 2, 3), **changed):
    """Write a made-up run for each method and seed; ``changed``: settings of the experiment."""
    rng = random.Random(0)
    for method, seed in itertools.product(methods, seeds):
        cfg = make_config("task=sst2", "tracking=none", f"calibration={method}", f"seed={seed}")
        cfg = replace(cfg, output_dir=str(folder), experiment=replace(cfg.experiment, **changed))
        scores = [rng.uniform(0.6, 0.9) for _ in range(2)]
        history = [
            {
                "epoch": epoch, "step": 10 * epoch, "score": score, "selection": score,
                "isotropy": {"embedding/ev1": rng.random(), "embedding/isoscore": rng.random()},
                "validation": {"accuracy": score, "constant_predictor": False},
            }
            for epoch, score in enumerate(scores, 1)
        ]  # fmt: skip
        key = f"{1 + len(list(folder.glob('runs/*'))):02x}" * 32
        best = history[scores.index(max(scores))]
        RunFolder(str(folder), key).write_record(make_record(cfg, key=key, history=history, best=best))


@pytest.fixture
def folder(tmp_path):
    write_folder(tmp_path / "out", name="glue_isobn", paper="isobn", tables=["table1"])
    return tmp_path / "out"


def write_report_of(folder):
    rows = read_runs(str(folder))
    page = write_report(build_report(rows[0].cfg.experiment, rows), rows)
    return (pandas.read_parquet(page.parent / f"{name}.parquet") for name in ("runs", "epochs", "cells"))


@pytest.mark.slow
def test_epochs_are_those_that_the_report_writes(folder):
    epochs = isobench.load_epochs(folder)
    _, written, _ = write_report_of(folder)
    assert len(epochs) == len(written) == 2 * 3 * 2
    own = "key task encoder method seed epoch step score embedding/ev1 embedding/isoscore".split()
    both = [table[own].sort_values(["key", "epoch"], ignore_index=True).astype(object) for table in (epochs, written)]
    assert both[0].equals(both[1])
    assert epochs[["method", "seed", "epoch"]].values.tolist()[:3] == [["isobn_paper", 1, 1], ["isobn_paper", 1, 2],
                                                                       ["isobn_paper", 2, 1]]  # fmt: skip
    assert list(isobench.load_runs(folder))[:10] == list(epochs)[:10]  # names, seed and settings come first in both


@pytest.mark.slow
def test_a_table_has_the_statistics_of_the_runs_that_the_report_writes(folder):
    table = isobench.report_table(folder).set_index(["method", "column"])
    runs, _, cells = write_report_of(folder)
    assert sorted(cells["ours"]) == sorted(isobench.report_table(folder)["ours"])
    scores = {method: own["score"].tolist() for method, own in runs.groupby("method")}
    for method, values in scores.items():
        cell = table.loc[(method, "SST-2")]
        assert cell["mean"] == pytest.approx(statistics.fmean(values))
        assert cell["sd"] == pytest.approx(statistics.stdev(values))
        assert (cell["n"], cell["seeds"], cell["task"]) == (3, [1, 2, 3], "sst2")
    ours, plain = table.loc[("isobn_paper", "SST-2")], table.loc[("none", "SST-2")]
    assert ours["difference"] == pytest.approx(statistics.fmean(scores["isobn_paper"]) - plain["mean"])
    expected = stats.ttest_rel(scores["isobn_paper"], scores["none"]).pvalue
    assert ours["p"] == pytest.approx(expected)
    assert ours["p_holm"] == pytest.approx(expected)  # of a single comparison
    assert plain[["difference", "p", "p_holm", "effect"]].isna().all()
    assert table["published"].notna().any()
    assert plain["verdict"] == "not comparable"


def test_runs_of_several_experiments_need_a_name(tmp_path):
    write_folder(tmp_path, ("none",), (1,), name="first", paper="isobn", tables=["table1"])
    write_folder(tmp_path, ("isobn_paper",), (2,), name="second")
    with fails():
        isobench.report_table(tmp_path)
    assert isobench.report_table(tmp_path, experiment="second")["method"].tolist() == ["isobn_paper"]
