"""IsoBN, Figures 2 and 3: how little a classifier moves in fine-tuning, and which components its logits come from."""

import itertools
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.figure import Figure
from rich.table import Table

from isobench.analyses.rows import TidyRow, group_rows, list_distinct
from isobench.analyses.shown import Rows, Shown, make_table
from isobench.common.plots import PALETTE, make_panels

if TYPE_CHECKING:  # importing it takes seconds
    from isobench.analyses.subject import Subject

CLASSIFIER_LABELS = {"fine_tuned": "fine-tuned", "optimal": "logistic regression"}


def compute(subjects: list["Subject"]) -> Rows:
    """Read drift and logit variance by epoch from records of runs with ``monitors.drift`` (``ClassifierDrift``)."""
    return {"drift": [row for subject in subjects for row in build_drift_rows(subject)]}


def show(rows: Rows) -> Shown:
    """Show Figures 2 and 3, and a table of the values before and after fine-tuning."""
    own = rows["drift"]
    # Figure 3 compares with a logistic regression, which needs classes.
    class_rows = [row for row in own if any(row[key] is not None for key in row if key.startswith("optimal_top"))]
    left_out = [task for task in list_distinct(own, "task") if task not in list_distinct(class_rows, "task")]
    top = [column.removeprefix("fine_tuned_top") for column in own[0] if column.startswith("fine_tuned_top")]
    notes = [
        "Within the top principal components of the training embeddings of the moment; mean over classes.",
        "The paper: cosine 0.9997 on CoLA with RoBERTa, L2 near 0; the first "
        "component has over 90% of the logits' variance throughout, in the optimal classifier less.",
    ]
    if left_out:
        notes.append(f"Figure 3 leaves out {', '.join(left_out)}: no classes, so no logistic regression.")
    figures = {"figure2": draw_figure2(own), **({"figure3": draw_figure3(class_rows, top)} if class_rows else {})}
    return Shown([build_drift_table(own, top)], figures, notes)


def build_drift_rows(subject: "Subject") -> list[TidyRow]:
    """Build a tidy row for each epoch of a run; epoch 0 is before training. Older records have no initial norm."""
    assert subject.record is not None
    history = [(epoch.epoch, epoch.noted("drift")) for epoch in subject.record.history]
    moments = [(0, history[0][1]["start"]), *((epoch, drift["now"]) for epoch, drift in history)]
    name = {"encoder": subject.encoder, "task": subject.task, "method": subject.method, "seed": subject.cfg.seed}
    return [
        {**name, "epoch": epoch}
        | {measure: drift[measure] for measure in ("cosine", "l2", "initial_norm") if measure in drift}
        | {f"{kind}_top{k}": share for kind in CLASSIFIER_LABELS for k, share in drift[kind].items()}
        for epoch, drift in moments
    ]


def average_curves(rows: list[TidyRow], columns: list[str]) -> dict[str, pd.DataFrame]:
    """Average columns over tasks and seeds, for each encoder and method.

    Returns:
        "encoder, method" -> means by epoch, for every epoch that all of its runs reached.
    """
    curves = {}
    for (encoder, method), own in pd.DataFrame(rows).groupby(["encoder", "method"], sort=False):
        epochs = own.groupby("epoch")
        reached = epochs.size() == len(own[["task", "seed"]].drop_duplicates())
        curves[f"{encoder}, {method}"] = epochs[columns].mean()[reached]
    return curves


def draw_figure2(rows: list[TidyRow]) -> Figure:
    """Draw the classifier's cosine and L2 distance to its initialisation against the epoch."""
    figure, axes = make_panels(1, 2, 2.2)
    labels = {"cosine": "cosine to the initialisation", "l2": "L2 distance to it"}
    curves = average_curves(rows, [*labels])
    for axis, (column, label) in zip(axes[0], labels.items(), strict=True):
        for name, means in curves.items():
            axis.plot(means.index, means[column], marker="o", markersize=3, label=name)
        axis.set_ylabel(label)
        axis.ticklabel_format(useOffset=False)
        _label_epochs(axis)
    low = min(row["cosine"] for row in rows)
    axes[0][0].set_ylim(min(low - 0.1 * (1 - low), 0.999), 1 + 0.1 * max(1 - low, 0.001))
    axes[0][1].set_ylim(bottom=0)
    axes[0][0].legend(loc="lower left")
    return figure


def draw_figure3(rows: list[TidyRow], top: list[str]) -> Figure:
    """Draw the top components' share of the logits' variance against the epoch, fine-tuned and optimal classifier."""
    figure, axes = make_panels(1, len(top), 2.2, sharey=True)
    curves = average_curves(rows, [f"{kind}_top{k}" for kind in CLASSIFIER_LABELS for k in top])
    for axis, k in zip(axes[0], top, strict=True):
        for kind, line, label in (("fine_tuned", "-", "fine-tuned"), ("optimal", "--", "optimal")):
            for (name, means), colour in zip(curves.items(), itertools.cycle(PALETTE), strict=False):
                look = {"color": colour, "marker": "o", "markersize": 3, "label": f"{name}: {label}"}
                axis.plot(means.index, 100 * means[f"{kind}_top{k}"], line, **look)
        axis.set(title=f"top {k} component{'s' if k != '1' else ''}", ylim=(0, 102))
        _label_epochs(axis)
    axes[0][0].set_ylabel("share of logit variance (%)")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def _label_epochs(axis: Any) -> None:
    axis.set_xlabel("epoch of fine-tuning")
    axis.xaxis.get_major_locator().set_params(integer=True)


def build_drift_table(rows: list[TidyRow], top: list[str]) -> Table:
    """Build the table of values before and after fine-tuning, two rows a run: its classifier and the optimal one."""
    keys = ("encoder", "task", "method", "seed")
    headings = ("cosine", "L2", *(f"top {k} (%)" for k in top))
    table = make_table("IsoBN, Figures 2 and 3: before -> after fine-tuning", (*keys, "classifier"), headings)
    for name, (first, *_, last) in group_rows(rows, *keys).items():
        for kind, label in CLASSIFIER_LABELS.items():
            if first.get(f"{kind}_top{top[0]}") is None:
                continue
            moved = [f"{last['cosine']:.4f}", f"{last['l2']:.4f}"] if kind == "fine_tuned" else ["", ""]
            ends = ((100 * first[f"{kind}_top{k}"], 100 * last[f"{kind}_top{k}"]) for k in top)
            table.add_row(*map(str, name), label, *moved, *(f"{before:.1f} -> {after:.1f}" for before, after in ends))
    return table
