"""The whitening map: how much whitening changes the accuracy of a frozen probe, by its number of labels.

The hypotheses and the tests were written down before the first run: experiments/whitening_map/registration.md.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import numpy as np

from isobench.analyses.rows import TidyRow, list_distinct
from isobench.analyses.shown import Rows
from isobench.common.errors import UserError
from isobench.config.bounds import NOT_EMPTY, PositiveInt
from isobench_papers.probe import probe
from isobench_papers.whitening_map.show import show
from isobench_papers.whitening_map.verdicts import judge

if TYPE_CHECKING:  # importing it takes seconds
    from isobench.analyses.subject import Subject

__all__ = ["compute", "describe_differences", "show"]
LENGTHS = {"logistic": ("none", "after"), "neighbours": ("none",)}  # the cosine ignores lengths


def compute(
    subjects: list["Subject"],
    fitted: Annotated[list[str], NOT_EMPTY],
    held_out: Annotated[list[str], NOT_EMPTY],
    budgets: Annotated[list[PositiveInt | None], NOT_EMPTY],
    draws: PositiveInt,
    limit: PositiveInt,
) -> Rows:
    """Probe every encoder under every method, and judge the registered statements.

    Args:
        subjects: encoders x layers x methods; their tasks are not read.
        fitted: sets that a prediction is made from, by their folders below ``<data.root>/probe``.
        held_out: sets that the statements are judged on.
        budgets: labels a class; None for all. A set whose rarest class has fewer goes without that budget.
        draws: of the training examples of a budget.
        limit: examples of a set's split that are used at most, chosen at random.
    """
    from isobench.metrics.isotropy import isoscore

    probe.check_subjects(subjects)
    sets = [*fitted, *held_out]
    if len(set(sets)) < len(sets):
        raise UserError("analysis.fitted and analysis.held_out share a set: name each once")
    read = {name: keep_distinct(probe.read_set(subjects[0].cfg, name, limit)) for name in sets}
    shrinkage = {
        subject.method: subject.cfg.calibration.get("shrinkage")
        for subject in subjects
        if subject.cfg.calibration["name"].startswith("whitening")
    }
    scores: list[TidyRow] = []
    changes: list[TidyRow] = []
    isotropy: list[TidyRow] = []
    for classifier, lengths in LENGTHS.items():
        plans = {name: plan_budgets(own, budgets, draws, classifier, name) for name, own in read.items()}
        for probed in probe.probe_sets(subjects, read, plans, lengths, "train"):
            scores += [row for row, _, _ in probe.list_outcomes(probed)]
            for plan, length, method, change in probe.compare_methods(probed, of_length=True):
                labels_a_class = float(plan.budget or len(plan.draws[0].train) / len(probed.own.classes))
                changes.append(
                    probed.names
                    | {"classifier": classifier, "unit_length": length, "method": method}
                    | {"budget": plan.budget, "labels_a_class": labels_a_class}
                    | change
                    | {"held_out": probed.names["task"] in held_out, "shrinkage": shrinkage.get(method)}
                )
            if classifier == "logistic":
                pool = probed.plans[0].draws[0].pool
                isotropy.append(probed.names | {"isoscore": float(isoscore(probed.vectors[0, pool].double()))})
    return {"scores": scores, "changes": changes, "isotropy": isotropy, "verdicts": judge(changes, isotropy)}


def keep_distinct(own: probe.LabelledSet) -> probe.LabelledSet:
    """Keep each text once, the last time that it occurs: no tested text is trained on, and none is tested twice."""
    (texts,) = own.columns
    kept = sorted({text: i for i, text in enumerate(texts)}.values())
    trained = sum(i < own.trained for i in kept)
    return probe.LabelledSet([[texts[i] for i in kept]], own.labels[kept], own.classes, trained)


def plan_budgets(
    own: probe.LabelledSet, budgets: Sequence[int | None], draws: int, classifier: str, name: str
) -> list[probe.Plan]:
    """Plan the budgets that a set has the labels for; all of them are tested on the same examples."""
    (first, *_) = probe.plan_draws(own, 1, 1, classifier, name)
    most = np.bincount(own.labels[first.pool], minlength=len(own.classes)).min()
    plans = []
    for budget in budgets:
        if budget is None:
            plans.append(probe.Plan(classifier, None, [replace(first, train=first.pool)]))
        elif budget <= most:
            plans.append(probe.Plan(classifier, budget, probe.plan_draws(own, budget, draws, classifier, name)))
    return plans


def describe_differences(subjects: list["Subject"], rows: Rows, fitted: list[str], held_out: list[str]) -> list[str]:
    """Describe data and encoders: there is no paper whose numbers these are."""
    encoders = ", ".join(list_distinct(rows["isotropy"], "encoder"))
    return [f"{len(fitted) + len(held_out)} sets of data.root; frozen packaged encoders {encoders}"]
