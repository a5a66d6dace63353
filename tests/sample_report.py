"""Cells of reports from known scores, and the methods and the verdict that follow from them."""

import numpy as np
import pandas as pd

from isobench.report.cells import compare, finish_cells
from isobench.report.methods import compare_methods, write_verdict
from isobench.report.tables import BASE_METHOD, CONSTANT_PREDICTOR
from isobench.statistics.seeds import Arm

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
    counts = runs["method"].map(candidates or {}).fillna(1).astype(int)
    runs = runs.assign(selected=True, failure=None, candidates=counts)
    return compare_methods(cells, runs)


def compare_all(*tables) -> pd.DataFrame:
    """``report.methods`` of tables from ``list_cells``, by method."""
    methods = make_methods(finish_cells([cell for table in tables for cell in table]))
    return methods.set_index(["group", "method"] if methods["group"].nunique() > 1 else "method")


def verdict(arms, candidates=None, unlearned=(), **kinds) -> str:
    cells = finish_cells(list_cells(arms, **kinds))
    return write_verdict(cells, make_methods(cells, candidates), ended=9, total=9, unlearned=unlearned)
