"""Reports as they may come, made up: cells from known scores, and a whole report of random numbers."""

import random
from dataclasses import replace

import numpy as np
import pandas as pd
from helpers import make_config

from isobench.config.schema import Experiment
from isobench.report.build import Report
from isobench.report.cells import build_cells, compare, finish_cells
from isobench.report.methods import compare_methods, write_verdict
from isobench.report.tables import BASE_METHOD, CONSTANT_PREDICTOR
from isobench.statistics.seeds import Arm

ENCODERS = ["bert-base-cased", "roberta-base"]
METHODS = ["none", "cosine", "spectrum_polynomial", "spectrum_exponential", "flow"]
TASKS = ["sst2", "mrpc", "cola", "rte"]
PROTOCOL = {"head.name": "isobn", "evaluation.every": 1, "optimization.report": "best", "task.held_out": None}
LOW, HIGH = [80.0, 80.5, 81.0, 80.2, 80.8], [85.5, 85.0, 86.0, 85.8, 85.2]  # paired, +5.5 to +4.4 points


def noisy(mean, n, seed):
    return (mean + np.random.default_rng(seed).standard_normal(n)).tolist()


def list_cells(arms, tasks=None, troubles=None, encoder="bert", name="table1", part="") -> list[dict]:
    """Cells with these scores, compared with plain fine-tuning as a report compares them.

    ``arms``: method -> column -> scores; ``troubles``: (method, column) -> what went wrong -> number of runs.
    """
    cells = []
    for method, columns in arms.items():
        for column, values in columns.items():
            base = arms.get(BASE_METHOD, {}).get(column, []) if method != BASE_METHOD else []
            own, of_base = (
                [what for what, n in (troubles or {}).get((m, column), {}).items() for _ in range(n)]
                for m in (method, BASE_METHOD)
            )
            cell = {
                "table": name, "part": part, "encoder": encoder, "method": method, "column": column, "kind": "score",
                "task": (tasks or {}).get(column, column), "values": values, "seeds": list(range(len(values))),
                "n": len(values), "troubles": own, "published": "99.99 (0.01)", "published_of": encoder,
            }  # fmt: skip
            if values and base and CONSTANT_PREDICTOR not in (*own, *of_base):
                cell |= compare(*(Arm(scores, list(range(len(scores)))) for scores in (values, base)))
            cells.append(cell)
    return cells


def make_methods(cells, candidates=None) -> pd.DataFrame:
    """``report.methods`` of cells; ``candidates``: method -> configurations that it was selected from."""
    runs = cells[["encoder", "part", "method", "task"]].copy()
    runs = runs.assign(
        selected=True, failure=None, candidates=runs["method"].map(candidates or {}).fillna(1).astype(int)
    )
    return compare_methods(cells, runs)


def compare_all(*tables) -> pd.DataFrame:
    """``report.methods`` of tables from ``list_cells``, by method."""
    methods = make_methods(finish_cells([cell for table in tables for cell in table]))
    return methods.set_index(["group", "method"] if methods["group"].nunique() > 1 else "method")


def verdict(arms, candidates=None, **kinds) -> str:
    cells = finish_cells(list_cells(arms, **kinds))
    return write_verdict(cells, make_methods(cells, candidates), ended=9, total=9)


def sample(encoders=ENCODERS, methods=METHODS, tasks=TASKS, seeds=3, epochs=4, **columns) -> Report:
    """A complete report of numbers that follow a seeded generator; ``columns`` replace those of ``runs``."""
    rng = random.Random(0)
    runs, curves = [], []
    for encoder in encoders:
        for strength, method in enumerate(methods):
            for task in tasks:
                for seed in range(1, seeds + 1):
                    run, of_epochs = _make_up(rng, encoder, method, task, seed, epochs, strength)
                    runs.append(run)
                    curves += of_epochs
    table = pd.DataFrame(runs, dtype=object).assign(**columns)
    experiment = Experiment("glue_calibration")
    cells = build_cells_of(table)
    names = ["group", "task", "method", "settings", "values", "seeds", "troubles", "selected_by", "is_chosen"]
    return Report(
        experiment=experiment, runs=table, epochs=pd.DataFrame(curves), cells=cells,
        configurations=pd.DataFrame(columns=names),
        rule="nothing to select.", epoch_rule="best epoch on the dev set, the set it is reported on",
        notes=["Times were measured on a shared machine."],
    )  # fmt: skip


def build_cells_of(runs: pd.DataFrame) -> pd.DataFrame:
    base = make_config("task=sst2").task
    return build_cells(runs, Experiment(), {task: replace(base, name=task) for task in runs["task"].unique()}, [])


def _make_up(rng, encoder, method, task, seed, epochs, strength):
    names = {
        "key": f"{encoder}-{method}-{task}-{seed}",
        "encoder": encoder,
        "method": method,
        "task": task,
        "seed": seed,
    }
    rows = []
    for epoch in range(1, epochs + 1):
        isotropy = 0.2 + 0.1 * strength + 0.02 * epoch + rng.gauss(0, 0.02)
        ev = max(0.02, 0.8 - isotropy + rng.gauss(0, 0.02))
        rows.append({
            "epoch": epoch, **names, "score": 80 + 3 * (1 - 0.5**epoch) + rng.gauss(0, 0.8),
            "embedding/ev1": ev, "embedding/i1": isotropy, "embedding/isoscore": isotropy / 3,
            "head/i1": 10 ** -(5 - strength + rng.random()),
        })  # fmt: skip
    best = max(rows, key=lambda row: row["score"])
    run = {
        **best, **PROTOCOL, "validation/accuracy": best["score"], "metric": "accuracy", "split": "validation",
        "status": "finished", "failure": None, "message": None, "epochs": epochs,
        "training_seconds": epochs * (10 + 3 * strength + rng.random()), "peak_memory_mib": 1500.0 + 120 * strength,
        "scale": "", "commit": "abc", "code_changed": False, "python": "3.11", "torch": "2.13", "machine": "X",
        "data": "d", "weights": "w", "part": "", "selected": True, "candidates": 1,
    }  # fmt: skip
    return run, rows
