"""What the I-STAR paper claims in its abstract, and how it is judged."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from isobench.report.build import Report
from isobench.report.checks import improves
from isobench.report.claims import Claim
from isobench.report.printed import PrintedCell, build_printed_report

TASKS = ("sst2", "qnli", "rte", "mrpc", "qqp", "cola", "stsb")
ENCODERS = ("bert-base-cased", "distilbert-base-cased")


def make_scores(points: Mapping[str, float], others: float) -> Report:
    """Make scores of ``istar_less`` that are plain fine-tuning's and so many points more.

    I-STAR's tables are not at hand, so plain fine-tuning's are those of IsoBN's Table 1, on the tasks of both.

    Args:
        points: task or encoder -> points.
        others: points of the other cells.
    """

    def change(cell: PrintedCell) -> dict[str, Any]:
        gain = points.get(cell.task, points.get(cell.encoder, others))
        return cell.plain | {"median": cell.plain["median"] + gain}

    report = build_printed_report("isobn", ["table1"], seeds=5, change=change)
    names = {
        "method": {"isobn_paper": "istar_less"},
        "encoder": dict(zip(("bert-base-cased", "roberta-large"), ENCODERS, strict=True)),
    }
    runs, cells = (table.replace(names) for table in (report.runs, report.cells))
    return replace(report, runs=runs, cells=cells)


BROKEN: dict[str, Callable[[], Report]] = {
    "plain fine-tuning's scores again": partial(make_scores, {}, 0),
    "it lowers every score": partial(make_scores, {}, -1),
    "a small gain on every task": partial(make_scores, {}, 0.2),
    "one task has all of the gain": partial(make_scores, {"qnli": 9}, -0.1),
    "one model has all of the gain": partial(make_scores, {"roberta-large": 2}, -0.1),
}
CLAIMS = [
    Claim(
        "decreasing isotropy in contextualized embeddings improves performance on most tasks and models",
        "Abstract",
        "istar_less is above plain fine-tuning in most tasks and encoders, and by more than chance in the mean",
        "glue_istar",
        improves("istar_less", share=0.51),
        "only the abstract is at hand",
        BROKEN,
        methods=["istar_less"],
        tasks=TASKS,
        encoders=ENCODERS,
        settings="scale=paper",
        unstated="we have not read the paper's strengths; the learning rate is its code's default",
    ),
]
