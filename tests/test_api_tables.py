"""isobench.load_epochs and isobench.report_table, against the files that isobench report writes."""

import itertools
import random
import statistics

import pandas
import pytest
from helpers import fails, make_ended_run

import isobench
from isobench.report.build import build_report
from isobench.report.output.page import write_report
from isobench.runs.plan import read_runs


def write_folder(folder, methods=("none", "isobn_paper"), seeds=(1, 2, 3), **experiment):
    """Write a made-up run for each method and seed; ``experiment``: its settings."""
    rng = random.Random(0)
    settings = ["task=sst2", "tracking=none", *(f"experiment.{name}={value}" for name, value in experiment.items())]
    for method, seed in itertools.product(methods, seeds):
        own = (f"calibration={method}", f"seed={seed}")
        isotropy = {name: rng.random() for name in ("embedding/ev1", "embedding/isoscore")}
        run = make_ended_run(rng.uniform(0.6, 0.9), *settings, *own, output_dir=folder, isotropy=isotropy)
        run.folder.write_record(run.record)


@pytest.fixture
def folder(tmp_path):
    write_folder(tmp_path / "out", name="glue_isobn", paper="isobn", tables="[table1]")
    return tmp_path / "out"


def write_report_of(folder):
    rows = sorted(read_runs(str(folder)), key=lambda run: (run.cfg.calibration["name"], run.cfg.seed))
    page = write_report(build_report(rows[0].cfg.experiment, rows), rows)
    files = (page.parent / f"{name}.parquet" for name in ("epochs", "cells"))
    return [pandas.read_parquet(file, dtype_backend="numpy_nullable") for file in files]


@pytest.mark.slow
def test_epochs_are_those_that_the_report_writes(folder):
    epochs = isobench.load_epochs(folder)
    written, _ = write_report_of(folder)
    assert len(epochs) == len(written) == 2 * 3 * 2
    own = "key task encoder method seed epoch step score embedding/ev1 embedding/isoscore".split()
    both = [table[own].sort_values(["key", "epoch"], ignore_index=True).astype(object) for table in (epochs, written)]
    assert both[0].equals(both[1])
    first = [["isobn_paper", 1, 1], ["isobn_paper", 1, 2], ["isobn_paper", 2, 1]]
    assert epochs[["method", "seed", "epoch"]].values.tolist()[:3] == first
    assert list(isobench.load_runs(folder))[:10] == list(epochs)[:10]  # names, seed and settings come first in both


@pytest.mark.slow
def test_a_table_is_that_of_the_cells_that_the_report_writes(folder):
    """Compare with the written cells, whose statistics test_build.py holds against scipy."""
    table, (_, written) = isobench.report_table(folder), write_report_of(folder)
    pandas.testing.assert_frame_equal(table, written, check_dtype=False)
    for cell in table[table["column"] == "SST-2"].itertuples():
        assert (cell.mean, cell.sd) == pytest.approx((statistics.fmean(cell.values), statistics.stdev(cell.values)))


def test_runs_of_several_experiments_need_a_name(tmp_path):
    write_folder(tmp_path, ("none",), (1,), name="first", paper="isobn", tables="[table1]")
    write_folder(tmp_path, ("isobn_paper",), (2,), name="second")
    with fails():
        isobench.report_table(tmp_path)
    assert isobench.report_table(tmp_path, experiment="second")["method"].tolist() == ["isobn_paper"]
