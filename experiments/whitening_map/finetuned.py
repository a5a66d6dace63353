"""Whitening in fine-tuning by the number of training examples: does what frozen vectors show carry over?

registration.md fixed the design and the test before the first run.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from isobench.analyses.rows import TidyRow, group_rows, list_distinct, select_rows
from isobench.analyses.shown import Rows, Shown, describe_registration, format_estimate, format_number, make_table
from isobench.statistics.dose_response import average_over_seeds, fit_slopes
from isobench_papers.whitening_map.show import REGISTRATION
from isobench_papers.whitening_map.verdicts import decide

if TYPE_CHECKING:  # importing it takes seconds
    from isobench.analyses.subject import Subject

PLAIN = "none"


def compute(subjects: list["Subject"]) -> Rows:
    """List the score of each planned run, in points, and judge whether whitening's change grows with the examples.

    A seed with a run that failed is left out of its task, and named.
    """
    scores = [read_run(subject) for subject in subjects]
    changes = list_changes(scores)
    return {"scores": scores, "changes": changes, "verdicts": judge(changes)}


def read_run(subject: "Subject") -> TidyRow:
    """Read a run's score x 100, NaN if it has none, and whether it gives one answer for all examples."""
    cfg, record = subject.cfg, subject.record
    best = record.best if record is not None and record.status == "finished" else None
    return {
        "encoder": cfg.encoder.name,
        "task": cfg.task.name,
        "method": cfg.calibration["name"],
        "examples": cfg.task.train_samples,
        "seed": cfg.seed,
        "score": math.nan if best is None else 100 * best.score,
        "constant": best is not None and bool(best.metrics(cfg.task.dev_splits[0]).get("constant_predictor")),
    }


def list_changes(scores: list[TidyRow]) -> list[TidyRow]:
    """List each seed's change from plain fine-tuning; NaN where a run of the two has no score."""
    changes = []
    for own in group_rows(scores, "encoder", "task", "examples", "seed").values():
        plain = next((row["score"] for row in own if row["method"] == PLAIN), math.nan)
        changes += [row | {"change": row["score"] - plain} for row in own if row["method"] != PLAIN]
    return changes


def judge(changes: list[TidyRow]) -> list[TidyRow]:
    """Judge the slope of the change on the binary logarithm of the examples, over the seeds without a failed run."""
    cases = {}
    for (task,), own in group_rows(changes, "task").items():
        sizes = sorted(list_distinct(own, "examples"))
        table = [
            [row["change"] for row in sorted(of_seed, key=lambda row: row["examples"])]
            for of_seed in group_rows(own, "seed").values()
        ]
        if len(sizes) > 1:
            cases[task] = average_over_seeds(fit_slopes(np.log2(sizes), np.array(table)))
    return decide("the change grows with the examples", cases, sign=1)


def show(rows: Rows) -> Shown:
    """Show scores and changes by task and number of examples, with intervals over seeds, and the verdicts."""
    table = make_table("Change by whitening in fine-tuning", ("task", "examples"), ("plain", "change [95%]", "seeds"))
    for (task, examples), own in group_rows(rows["changes"], "task", "examples").items():
        plain = select_rows(rows["scores"], {"task": task, "examples": examples, "method": PLAIN})
        mean = average_over_seeds(np.array([row["change"] for row in own]))
        level = float(np.nanmean([row["score"] for row in plain]))
        table.add_row(task, str(examples), f"{level:.2f}", format_estimate(mean._asdict()), str(mean.seeds))
    judged = make_table("Registered", ("statement", "task", "verdict"), ("points a doubling [95%]", "p, Holm's"))
    for row in rows["verdicts"]:
        cells = (row["statement"], row["case"], row["verdict"], format_estimate(row))
        judged.add_row(*cells, format_number(row["p_holm"], ".4f"))
    notes = ["Changes are in points, paired by seed; intervals and tests are Student's t over seeds."]
    for row in rows["scores"]:
        name = f"{row['task']}, {row['examples']} examples, {row['method']}, seed {row['seed']}"
        if math.isnan(row["score"]):
            notes.append(f"{name}: no score; the seed is left out of the slopes.")
        elif row["constant"]:
            notes.append(f"{name}: one answer for all examples.")
    notes.append(describe_registration(REGISTRATION))
    return Shown([table, judged], {}, notes)
