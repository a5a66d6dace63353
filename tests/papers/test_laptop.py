"""scale=laptop: the papers' own protocol; what its grids leave out is said in every record and table."""

import pytest
from hydra.core.global_hydra import GlobalHydra

from isobench.data.scale import find_scale_differences
from isobench.papers.published import find_cell_in_column, load_tables
from isobench.sweep.planning import compose_sweep, plan_runs

RUNS = {"glue_calibration": 75, "glue_isobn": 60, "isobn_drift": 12, "glue_adaptation": 60}


def plan(*arguments):
    try:
        with compose_sweep(
            ["scale=laptop"] * ("scale=paper" not in arguments) + ["tracking=none", *arguments]
        ) as parts:
            return [run.cfg for run in plan_runs(*parts)]
    finally:
        GlobalHydra.instance().clear()


@pytest.mark.parametrize("name", RUNS)
def test_the_protocol_is_the_papers(name, monkeypatch):
    monkeypatch.delenv("ISOBENCH_DATA", raising=False)
    configs = plan(f"+experiment={name}")
    assert len(configs) == RUNS[name]
    for cfg in configs:
        assert (cfg.task.train_samples, cfg.task.dev_samples) == (None, None)
        assert cfg.optimization.lr in (2e-5, 5e-5)
        assert cfg.optimization.batch_size == 32
    epochs = {(cfg.task.name, cfg.optimization.epochs) for cfg in configs}
    if name == "glue_calibration":  # App. B
        assert epochs == {("rte", 3), ("cola", 3), ("stsb", 3), ("mrpc", 5), ("wnli", 5)}
    else:
        assert {count for _, count in epochs} == {10}


def test_what_is_left_out_is_said(monkeypatch):
    monkeypatch.delenv("ISOBENCH_DATA", raising=False)
    configs = {cfg.calibration["name"]: cfg for cfg in plan("+experiment=glue_isobn", "task=rte", "seed=1")}
    said = ["encoder minilm in the place of bert-base-cased, roberta-large", "tasks left out: mnli, qnli, sst2"]
    assert find_scale_differences(configs["none"]) == [*said, "1 of the grid's 6 configurations"]
    assert find_scale_differences(configs["isobn_paper"]) == [*said, "1 of the grid's 18 configurations"]


@pytest.mark.parametrize(
    ("name", "encoder"), [("glue_calibration", "distilbert-base-cased"), ("glue_adaptation", "bert-base-uncased")]
)
def test_one_override_gives_the_papers_own_rows(name, encoder, monkeypatch):
    monkeypatch.delenv("ISOBENCH_DATA", raising=False)
    own = [f"+experiment={name}", f"encoder={encoder}", "task=rte", "calibration=none", "seed=1"]
    configs = plan(*own)
    assert [cfg.encoder.name for cfg in configs] == [encoder]
    assert not any("encoder" in phrase for phrase in find_scale_differences(configs[0]))
    at_paper = plan(*own, "scale=paper")
    decisive = ("task", "encoder", "calibration", "head", "optimization", "evaluation")
    assert any(all(getattr(cfg, part) == getattr(configs[0], part) for part in decisive) for cfg in at_paper)


def test_the_printed_cell_beside_ours_is_of_the_same_family():
    table = load_tables("isotropy_calibration")["table1"]
    assert find_cell_in_column(table, "distilbert-quire", "none", "RTE") == ("56.68 ± 0.62", "distilbert-base-cased")
    assert find_cell_in_column(table, "distilbert-quire", "flow", "RTE")[1] == "bert-base-cased"  # print has no other
    assert find_cell_in_column(table, "minilm", "none", "RTE")[1] == "bert-base-cased"
