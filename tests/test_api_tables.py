"""isobench.load_epochs and isobench.report_table, against the files that isobench report writes."""

import random
import statistics

import pandas
import pytest
from helpers import fails
from made_up_folder import make_epoch, write_folder
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


def test_columns_have_types_also_where_nothing_was_measured(tmp_path):
    parts = {("none", seed): {"failure": {"name": "crash", "message": "x"}} for seed in (1, 2)}
    write_folder(tmp_path, ("none",), (1, 2), epochs=0, parts=parts)
    table = isobench.report_table(tmp_path)
    (cell,) = table.to_dict("records")
    assert (cell["n"], cell["troubles"]) == (0, ["crash", "crash"])
    assert table[["mean", "sd", "published"]].isna().all(axis=None)
    assert str(table["published"].dtype) == "string"
    assert isobench.load_epochs(tmp_path).empty
    assert list(isobench.load_epochs(tmp_path))[-3:] == ["epoch", "step", "score"]


def test_the_numbers_of_monitors_are_columns(tmp_path):
    noted = {"drift": {"now": {"l2": 0.5, "top": [1, 2]}, "word": "x"}, "count": 3, "none": None, "seed": {"a": True}}
    history = [make_epoch(["validation"], number, random.Random(number)) | noted for number in (1, 2)]
    history[1]["count"] = 4
    best = max(history, key=lambda epoch: epoch["score"])
    write_folder(tmp_path, ("none",), (7,), parts={("none", 7): {"history": history, "best": best}})
    runs, epochs = isobench.load_runs(tmp_path), isobench.load_epochs(tmp_path)
    assert runs["drift/now/l2"].tolist() == [0.5]
    assert runs["seed"].tolist() == [7]
    assert epochs["count/value"].tolist() == [3, 4]
    assert epochs["embedding/ev1"].tolist() == [epoch["isotropy"]["embedding/ev1"] for epoch in history]
    columns = {name for name in [*runs, *epochs] if name.split("/")[0] in ("drift", "count", "none", "seed")}
    assert columns == {"drift/now/l2", "count/value", "none/value", "seed"}


def test_runs_of_several_experiments_need_a_name(tmp_path):
    write_folder(tmp_path, ("none",), (1,), name="first", paper="isobn", tables=["table1"])
    write_folder(tmp_path, ("isobn_paper",), (2,), first_key=2, name="second")
    with fails():
        isobench.report_table(tmp_path)
    assert isobench.report_table(tmp_path, experiment="second")["method"].tolist() == ["isobn_paper"]
