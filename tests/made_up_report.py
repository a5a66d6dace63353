"""Reports of made-up runs: the tables of runs and cells that a claim is judged by, without a run on the disk."""

from dataclasses import replace

import pandas as pd
from helpers import make_config

from isobench.config.schema import Experiment
from isobench.report.build import Report
from isobench.report.cells import build_cells
from isobench.report.tables import SPEED_SETTINGS
from isobench.runs.grouping import PROTOCOL_SETTINGS, SOURCE_SETTINGS

PLAIN = [69.0, 70.0, 70.5, 71.0, 69.5]
RUN = {
    "encoder": "bert", "task": "rte", "method": "none", "status": "finished", "failure": None, "message": None,
    "score": 70.0, "scale": "", "part": "", "selected": True, "candidates": 1, "machine": "NVIDIA TITAN RTX",
    "share": 1, "threads": 8, "torch": "2.9.1", "examples": 50, "training_seconds": 50.0,
    **dict.fromkeys((*PROTOCOL_SETTINGS, *SOURCE_SETTINGS, *SPEED_SETTINGS), "1"),
}  # fmt: skip


def make_runs(method, scores, **columns):
    """Runs of one method, a seed each, with these scores in percent; ``columns`` replace those of ``RUN``."""
    return [
        {**RUN, "method": method, "seed": seed, "score": score, **columns} for seed, score in enumerate(scores, 1)
    ]


def make_report(*runs):
    """The report of some runs, as `build_report` makes it of runs on the disk."""
    table = pd.DataFrame([{"key": f"{number:016}", **run} for number, run in enumerate(runs)], dtype=object)
    table = table if runs else pd.DataFrame(columns=["key", "seed", *RUN])
    task = make_config("task=rte").task
    table[f"{task.dev_splits[0]}/{task.primary}"] = table["score"]  # NaN if it is undefined, which counts as 0
    table["score"] = [0.0 if score != score else score for score in table["score"]]
    tasks = {name: replace(task, name=name) for name in table["task"].unique()}
    experiment = Experiment("made_up")
    return Report(experiment, table, pd.DataFrame(), build_cells(table, experiment, tasks, []), pd.DataFrame())
