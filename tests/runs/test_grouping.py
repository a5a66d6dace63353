"""Whatever is in a run's key separates rows: runs are pooled as seeds only if nothing else differs."""

import shutil
from pathlib import Path

import pytest
from helpers import make_config, make_record, review_columns, save_tiny, write_parquet

from isobench.config.schema import Experiment
from isobench.report.build import build_report
from isobench.report.output.terminal import print_table
from isobench.runs.grouping import find_varying_settings, group_over_seeds, read_settings
from isobench.runs.identity import identify
from isobench.runs.run import Run
from isobench.runs.state import add_states
from isobench.sweep.overview import print_overview


def make_row(*overrides: str, score: float = 0.7) -> Run:
    cfg = make_config("data.root=null", *overrides)
    identity = identify(cfg)
    row = Run.of(cfg, identity.key, identity)
    best = {"epoch": 1, "step": 9, "score": score, "selection": score}
    best["validation"] = {"accuracy": score, "constant_predictor": False}
    row.record = make_record(cfg, key=identity.key, best=best, history=[best])
    return row


@pytest.fixture
def two_sources(tmp_path):
    for name, seed in (("a", 1), ("b", 5)):
        for place, split in enumerate(("train", "validation")):
            write_parquet(tmp_path / name / "glue" / "sst2" / f"{split}.parquet", review_columns(20, seed + place))
    return [["task=sst2", f"data.root={tmp_path / name}"] for name in "ab"]


def test_two_data_sets_are_two_lines_in_every_table(two_sources, tmp_path, capfd):
    rows = [make_row(*source, f"seed={seed}", f"output_dir={tmp_path}") for source in two_sources for seed in (1, 2)]
    varying = find_varying_settings(rows)
    assert varying == ["task.data"]
    assert [len(group) for group in group_over_seeds(rows, varying)] == [2, 2]
    shown = [next(iter(values.values())) for values in read_settings(rows[::2], varying)]
    print_table(build_report(Experiment(), rows), rows)
    print_overview("runs", add_states(rows))
    out = capfd.readouterr().out
    assert [out.count(text[-10:]) for text in shown] == [2, 2]  # the start of the fingerprint, in brackets
    shutil.copytree(tmp_path / "a", tmp_path / "copy")  # the same bytes elsewhere are the same data
    assert find_varying_settings([rows[0], make_row("task=sst2", f"data.root={tmp_path / 'copy'}", "seed=2")]) == []


def test_data_sets_are_neither_compared_nor_selected_among(two_sources):
    methods = [("none", 0.6), ("isobn_paper", 0.9)]
    rows = [
        make_row(*source, f"calibration={method}", f"seed={seed}", score=score + seed / 100)
        for source, (method, score) in zip(two_sources, methods, strict=True)
        for seed in (1, 2)
    ]
    report = build_report(Experiment(), rows)
    assert not report.cells["compared"].any()
    assert len(report.views) == 2
    assert all("data " in view.title for view in report.views)
    assert report.runs["selected"].all()
    assert report.runs["data"].nunique() == 2


def test_two_encoders_of_one_name_are_two_lines(tiny, tmp_path):
    save_tiny(tmp_path, "gpt2")
    own = ("encoder=local", "encoder.pooling=last")
    rows = [make_row(*own, f"encoder.path={folder}") for folder in (tiny, tmp_path)]
    assert find_varying_settings(rows) == ["encoder.weights"]
    shutil.copytree(tiny, tmp_path / "copy")
    rows = [make_row(*own, f"encoder.path={folder}") for folder in (tiny, tmp_path / "copy")]
    assert find_varying_settings(rows) == []


def test_an_encoder_with_other_weights_has_its_own_line_and_no_published_cell(tiny):
    own, other = make_row("encoder=minilm"), make_row("encoder=minilm", f"encoder.path={tiny}")
    assert len(group_over_seeds([own, other], find_varying_settings([own, other]))) == 2
    experiment = Experiment(paper="isobn", tables=["table1"])
    foreign = make_row("task=sst2", "data.root=null", "encoder=bert-base-cased", f"encoder.path={tiny}")
    (cell,) = build_report(experiment, [foreign]).cells.query("column == 'SST-2'").itertuples()
    assert cell.encoder == f"bert-base-cased (weights of {Path(tiny).name})"
    assert cell.verdict == "not comparable"
