"""Select the configuration of each method that a table shows, by the experiment's rule, and describe the rule."""

import statistics
from collections.abc import Iterable
from dataclasses import replace

from isobench.common.errors import UserError
from isobench.common.files import sha256_json
from isobench.config.schema import SELECTION_RULES, Selection
from isobench.report.baseline_comparison import label_method
from isobench.runs.grouping import find_varying_settings, list_setting_values, read_run_names
from isobench.runs.row import Row
from isobench.statistics.seeds import expected_maximum

GroupKey = tuple[str, str, str]  # encoder, method, task
NOTHING_TO_SELECT = "nothing to select: every method has one configuration."
SettingValues = tuple[str, ...]  # values of the settings that vary


def select_runs(rows: list[Row], selection: Selection, varying: list[str] | None = None) -> tuple[list[Row], str]:
    """Select one configuration for each encoder, method and task, by the mean score over seeds.

    Rules: ``none`` takes every run, and is for one configuration. ``dev`` scores by the set that is also reported.
    ``seeds`` scores by the seeds in ``selection.seeds`` and reports the others. ``held_out`` scores by the examples
    that ``task.held_out`` keeps from training; it replaces ``dev`` if any run has such examples.

    Args:
        rows: the runs.
        selection: the rule.
        varying: what ``find_varying_settings`` finds in these runs, if that is known already.

    Returns:
        The runs of the selected configurations that are reported, and the rule in words.

    Raises:
        UserError: the rule is unknown, is ``none`` for several configurations, or leaves nothing to select by or
            to report.
    """
    if selection.rule not in SELECTION_RULES:
        raise UserError(
            f"experiment.selection.rule={selection.rule} is not known: choose one of {', '.join(SELECTION_RULES)}"
        )
    varying = find_varying_settings(rows) if varying is None else varying
    selection = prefer_held_out(selection, rows)
    check_selection(selection, rows)
    if not varying:
        return rows, NOTHING_TO_SELECT
    if selection.rule == "none":
        raise UserError(
            f"there are several configurations ({', '.join(varying)}) and no rule to select one by: set "
            "experiment.selection.rule=dev or seeds"
        )
    groups = group_by_configuration(rows, varying)
    budget = find_budget(groups, selection)
    kept = [row for choices in groups.values() for row in select_best_configuration(choices, selection, budget)]
    return kept, describe_selection(groups, selection, budget)


def prefer_held_out(selection: Selection, rows: list[Row]) -> Selection:
    """Replace the rule ``dev`` by ``held_out`` if any run has held-out examples."""
    has_held_out = any(row.cfg.task.held_out is not None for row in rows)
    return replace(selection, rule="held_out") if selection.rule == "dev" and has_held_out else selection


def find_budget(groups: dict[GroupKey, dict[SettingValues, list[Row]]], selection: Selection) -> int | None:
    """Return among how many configurations each method may select; None for all."""
    return min(map(len, groups.values())) if selection.equal_budget else None


def count_candidates(rows: list[Row], selection: Selection, varying: list[str]) -> list[int]:
    """Count for each run the configurations of its encoder, method and task that the reported one was selected from.

    One if the scores that are reported had no part in the selection: only a selection by these scores favours the
    method with more configurations. ``varying``: what ``find_varying_settings`` finds in these runs.
    """
    if prefer_held_out(selection, rows).rule != "dev":
        return [1] * len(rows)
    groups = group_by_configuration(rows, varying)
    budget = find_budget(groups, selection)
    counts = {key: len(score_candidates(choices, selection, budget)) for key, choices in groups.items()}
    names = (read_run_names(row.cfg) for row in rows)
    return [counts[encoder, method, task] for task, encoder, method in names]


def group_by_configuration(rows: list[Row], varying: list[str]) -> dict[GroupKey, dict[SettingValues, list[Row]]]:
    """Group runs: (encoder, method, task) -> values of the varying settings -> runs."""
    groups: dict[GroupKey, dict[SettingValues, list[Row]]] = {}
    for row in rows:
        task, encoder, method = read_run_names(row.cfg)
        choice = tuple(list_setting_values(row, varying))
        groups.setdefault((encoder, method, task), {}).setdefault(choice, []).append(row)
    return groups


def select_best_configuration(
    choices: dict[SettingValues, list[Row]], selection: Selection, budget: int | None
) -> list[Row]:
    """Return the reported runs of the best configuration; the arguments are those of ``score_candidates``."""
    scores = score_candidates(choices, selection, budget)
    best = max(scores, key=lambda choice: statistics.fmean(scores[choice] or [0.0]))
    return [row for row in choices[best] if selection.rule != "seeds" or row.cfg.seed not in selection.seeds]


def score_candidates(
    choices: dict[SettingValues, list[Row]], selection: Selection, budget: int | None
) -> dict[SettingValues, list[float]]:
    """Collect the scores to select by, of each configuration that can be selected.

    Only configurations with the most scores can, so that none wins because its bad runs are missing.

    Args:
        choices: configuration -> its runs.
        selection: the rule.
        budget: consider so many configurations, the first by a hash of their settings; None for all.
    """
    seeds = set(selection.seeds)
    considered = sorted(choices, key=lambda choice: sha256_json(list(choice)))[:budget]
    all_seeds = selection.rule != "seeds"
    scored_runs = {c: [row for row in choices[c] if all_seeds or row.cfg.seed in seeds] for c in considered}
    scores = {choice: list(read_selection_scores(rows)) for choice, rows in scored_runs.items()}
    most = max(map(len, scores.values()))
    return {choice: scores[choice] for choice in choices if choice in scores and len(scores[choice]) == most}


def read_selection_scores(rows: Iterable[Row]) -> Iterable[float]:
    """Yield the score that each run is selected by: on its held-out examples if it has any, else on the dev set."""
    for row in rows:
        if row.record and not row.record.failure and (best := row.record.best):
            yield best.selection


def describe_selection(
    groups: dict[GroupKey, dict[SettingValues, list[Row]]], selection: Selection, budget: int | None
) -> str:
    """Describe the rule, and how many configurations each method could select among."""
    sizes: dict[str, set[int]] = {}
    for (_, method, _), choices in groups.items():
        sizes.setdefault(method, set()).add(len(choices))
    numbers_by_method = {label_method(method): sorted(numbers) for method, numbers in sizes.items()}
    counts = ", ".join(f"{label} {'/'.join(map(str, numbers))}" for label, numbers in numbers_by_method.items())
    how = "best mean over seeds on the set that is reported, which favours methods with more configurations"
    if selection.rule == "held_out":
        how = "best mean over seeds on the examples held out of the training set"
    elif selection.rule == "seeds":
        how = f"best mean over seeds {', '.join(map(str, selection.seeds))}; the other seeds are reported"
    even = f"; {budget} of them for every method, the first by a hash of their settings" if budget else ""
    return f"{how}. Configurations to choose from: {counts}{even}.{describe_advantage(sizes, selection, budget)}"


def describe_advantage(sizes: dict[str, set[int]], selection: Selection, budget: int | None) -> str:
    """Say what having more configurations gains by chance; empty if nothing, or if another set selects."""
    most, least = max(map(max, sizes.values())), min(map(min, sizes.values()))
    if selection.rule != "dev" or budget or most == least:
        return ""
    gain = expected_maximum(most) - expected_maximum(least)
    return (
        f" The best of {most} instead of {least} is worth about {gain:.2f} standard deviations by chance alone; "
        "p-values and intervals don't account for that."
    )


def check_selection(selection: Selection, rows: list[Row]) -> None:
    """Raise UserError if the rule has nothing to select by or to report."""
    seeds = {row.cfg.seed for row in rows}
    held_out = {row.cfg.task.held_out is not None for row in rows}
    if selection.rule == "held_out" and held_out != {True}:
        raise UserError("experiment.selection.rule=held_out needs runs with task.held_out=0.1, or another share")
    if selection.rule == "seeds" and not (seeds & set(selection.seeds) and seeds - set(selection.seeds)):
        raise UserError(
            f"experiment.selection.seeds={selection.seeds} must be some, not all, of the seeds that were run: "
            f"{', '.join(map(str, sorted(seeds)))}"
        )
