"""isobench.load_epochs and isobench.report_table, against the files that isobench report writes."""

import statistics

import pandas
import pytest
from helpers import fails
from made_up_folder import write_folder
from scipy import stats

import isobench
from isobench.report.build import build_report
from isobench.report.output.page import write_report
from isobench.runs.plan import read_runs


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
    types = {name: str(kind) for name, kind in epochs.dtypes.items()}
    expected = {"key": "string", "seed": "Int64", "epoch": "Int64", "step": "Int64", "score": "Float64",
                "embedding/ev1": "Float64", "evaluation.every": "Int64", "encoder.weights": "string"}  # fmt: skip
    assert {name: types[name] for name in expected} == expected
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
    write_folder(tmp_path, ("isobn_paper",), (2,), first_key=2, name="second")
    with fails():
        isobench.report_table(tmp_path)
    assert isobench.report_table(tmp_path, experiment="second")["method"].tolist() == ["isobn_paper"]
