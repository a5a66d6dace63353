"""Causes in fine-tuning: do models whose vocabulary was born more isotropic learn two small tasks better?

registration_finetuned.md fixed the models, the tasks and the tests before the first run.
"""

import math
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from isobench.analyses.rows import TidyRow, group_rows
from isobench.analyses.shown import Rows, Shown, describe_registration, format_estimate, format_number, make_table
from isobench_papers.causes import causes

if TYPE_CHECKING:  # importing it takes seconds
    from isobench.analyses.subject import Subject

REGISTRATION = Path(__file__).parent / "registration_finetuned.md"
UNTRAINED = "untrained"  # the base as it was initialised: a reference, without a verdict
TESTS = 6  # three causes, two tasks: Holm's correction is over all of them, also those without a result


def compute(subjects: list["Subject"]) -> Rows:
    """List every run, choose each model's learning rate by task, and compare each model with the base by seed."""
    runs = [read_run(subject) for subject in subjects]
    levels = choose_levels(runs)
    return {"scores": runs, "levels": levels, "changes": compare(runs, levels)}


def choose_levels(runs: list[TidyRow]) -> list[TidyRow]:
    """Choose each model's learning rate on each task: that with the fewest errors."""
    return [
        {"task": task} | level
        for (task,), own in group_rows(runs, "task").items()
        for level in causes.choose_rates(own)
    ]


def read_run(subject: "Subject") -> TidyRow:
    """Read a run's model, task, learning rate and state, its errors in percent and its vocabulary's average cosine.

    Errors and cosine are NaN for a run that has none. ``choose_rates`` takes the errors as the loss.
    """
    cfg, (state, best) = subject.cfg, causes.read_best(subject)
    cosine = best.isotropy.get("vocabulary/average_cosine") if best is not None else None
    names = {"task": cfg.task.name, "cause": cfg.encoder.name, "lr": cfg.optimization.lr, "seed": cfg.seed}
    loss = math.nan if best is None else 100 * (1 - best.score)
    return names | {"state": state, "loss": loss, "cosine": math.nan if cosine is None else cosine}


def compare(runs: list[TidyRow], levels: list[TidyRow]) -> list[TidyRow]:
    """Compare each model's accuracy, in points, with the base's by seed: t-test, Holm over causes and tasks.

    A test without a result, or without a p, counts in Holm's correction with p = 1.
    """
    chosen = {(level["task"], level["cause"]): causes.index_by_seed(runs, level) for level in levels}
    changes = [
        {"task": task, "cause": cause}
        | causes.compare_by_seed(chosen.get((task, causes.BASE), {}), own, "loss")  # of errors
        for (task, cause), own in chosen.items()
        if cause != causes.BASE
    ]
    causes.add_holm([row for row in changes if row["cause"] != UNTRAINED], TESTS)
    for row in changes:
        row.setdefault("p_holm", math.nan)
        row["verdict"] = causes.judge(row, None if row["cause"] == UNTRAINED else 1)
    return changes


def show(rows: Rows) -> Shown:
    """Show each model's accuracy and change by task, and the verdicts."""
    headings = ("learning rate", "accuracy", "change [95%]", "cosine", "seeds")
    table = make_table("Accuracy after fine-tuning", ("task", "model"), headings)
    changes = {(row["task"], row["cause"]): row for row in rows["changes"]}
    for level in rows["levels"]:
        names = level["task"], level["cause"]
        cosine = float(np.mean([row["cosine"] for row in causes.index_by_seed(rows["scores"], level).values()]))
        change = format_estimate(changes[names]) if names in changes else ""
        cells = (f"{level['lr']:g}", f"{100 - level['loss']:.1f}", change, f"{cosine:.3f}", str(len(level["seeds"])))
        table.add_row(*names, *cells)
    judged = make_table("Registered", ("statement", "task", "verdict"), ("points [95%]", "p, Holm's"))
    for row in filter(itemgetter("verdict"), rows["changes"]):
        statement = f"the model of {row['cause']}, whose vocabulary is more isotropic, is more accurate"
        numbers = format_estimate(row), format_number(row["p_holm"], ".2g")
        judged.add_row(statement, row["task"], row["verdict"], *numbers)
    notes = [
        "Changes are in points of accuracy, paired by seed; intervals and tests are Student's t over seeds. cosine: "
        "the vocabulary's average cosine after fine-tuning.",
        "Each model has, on each task, the learning rate with the highest mean accuracy.",
        *causes.describe_lacking(rows["scores"]),
        describe_registration(REGISTRATION),
    ]
    return Shown([table, judged], {}, notes)
