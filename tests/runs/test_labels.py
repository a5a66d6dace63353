"""Labels: what tells the runs of a sweep apart, in few characters."""

from helpers import make_config

from isobench.report.tables import describe_choice
from isobench.runs.grouping import label_runs
from isobench.runs.run import Run, format_run_name
from isobench.training.tracking import format_wandb_name


def make_rows(*runs):
    return [Run(make_config(*overrides), None, None) for overrides in runs]


def make_labels(runs):
    label_runs(runs)
    return [run.cfg.tracking.label for run in runs]


def test_a_null_is_left_out_beside_other_settings():
    layers = (("null", "cls"), ("1", "cls"), ("1", "mean"))
    rows = make_rows(*([f"encoder.layer={layer}", f"encoder.pooling={pooling}"] for layer, pooling in layers))
    assert make_labels(rows) == ["pooling=cls", "pooling=cls layer=1", "pooling=mean layer=1"]
    assert make_labels(rows[:2]) == ["layer=null", "layer=1"]
    assert describe_choice(["encoder.layer", "encoder.pooling"], [None, "cls"]) == "pooling=cls"
    assert describe_choice(["encoder.layer"], [None]) == "layer=null"


def test_a_label_has_the_settings_that_vary_and_the_method_has():
    isobn = ["calibration=isobn_paper", "optimization.lr=1e-5"]
    betas = [[*isobn, f"calibration.beta={beta}"] for beta in (0.25, 1)]
    rows = make_rows(["calibration=none", "optimization.lr=1e-5"], *betas)
    assert make_labels(rows) == [None, "beta=0.25", "beta=1"]
    rows = make_rows(*(["optimization.lr=1e-5", f"optimization.batch_size={size}", "seed=3"] for size in (8, 16)))
    label_runs(rows)
    names = [format_run_name(row.cfg) for row in rows]
    assert names[0] == "rotten_tomatoes minilm none seed 3 batch_size=8"
    assert len(set(names)) == 2
    assert format_wandb_name(rows[1].cfg) == "rotten_tomatoes-minilm-none-3-batch_size=16"
    label_runs(rows[:1])  # among other runs, a run has another label
    assert format_run_name(rows[0].cfg) == "rotten_tomatoes minilm none seed 3"
