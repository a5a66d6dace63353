"""Which configuration of a method a table shows: the experiment's selection rule, applied and named."""

import statistics
from collections.abc import Iterable
from dataclasses import replace

from isobench.common.errors import UserError
from isobench.common.files import sha256_json
from isobench.config.schema import SELECTION_RULES, Selection, format_method_name
from isobench.report.effects import expected_maximum
from isobench.runs.grouping import find_varying_settings, list_setting_values
from isobench.runs.row import Row

GroupKey = tuple[str, str, str]  # encoder, method, task
SettingValues = tuple[str, ...]  # values of the settings that vary


def select_runs(rows: list[Row], selection: Selection) -> tuple[list[Row], str]:
    """The runs of each encoder's, method's and task's chosen configuration, and the rule in words.

    ``none``: every run; ``dev``: the configuration with the best mean score over seeds, on the set that is reported;
    ``seeds``: the same by ``selection.seeds`` only, and the other seeds are reported; ``held_out``: by the examples
    that ``task.held_out`` keeps from training, which runs that have some are selected by instead of ``dev``.

    Raises:
        UserError: an unknown rule; several configurations and no rule; seeds that leave nothing to select or report.
    """
    if selection.rule not in SELECTION_RULES:
        raise UserError(
            f"experiment.selection.rule={selection.rule} is not known: choose one of {', '.join(SELECTION_RULES)}"
        )
    varying = find_varying_settings(rows)
    if selection.rule == "dev" and any(row.cfg.task.held_out is not None for row in rows):
        selection = replace(selection, rule="held_out")
    check_selection(selection, rows)
    if not varying:
        return rows, "nothing to select: every method has one configuration."
    if selection.rule == "none":
        raise UserError(
            f"several configurations ({', '.join(varying)}) and no rule to choose by: set "
            "experiment.selection.rule=dev or seeds"
        )
    groups = group_by_configuration(rows, varying)
    budget = min(map(len, groups.values())) if selection.equal_budget else None
    kept = [row for choices in groups.values() for row in select_best_configuration(choices, selection, budget)]
    return kept, describe_selection(groups, selection, budget)


def group_by_configuration(rows: list[Row], varying: list[str]) -> dict[GroupKey, dict[SettingValues, list[Row]]]:
    """Encoder, method, task -> configuration -> its runs."""
    groups: dict[GroupKey, dict[SettingValues, list[Row]]] = {}
    for row in rows:
        name = (row.cfg.encoder.name, format_method_name(row.cfg.calibration), row.cfg.task.name)
        choice = tuple(list_setting_values(row.cfg, varying))
        groups.setdefault(name, {}).setdefault(choice, []).append(row)
    return groups


def select_best_configuration(
    choices: dict[SettingValues, list[Row]], selection: Selection, budget: int | None
) -> list[Row]:
    """The runs that are reported of the best configuration; of those with most scores, so that none wins by gaps."""
    seeds = set(selection.seeds)
    considered = sorted(choices, key=lambda choice: sha256_json(list(choice)))[:budget]
    all_seeds = selection.rule != "seeds"
    by = {c: [row for row in choices[c] if all_seeds or row.cfg.seed in seeds] for c in considered}
    scores = {choice: list(read_selection_scores(rows)) for choice, rows in by.items()}
    most = max(map(len, scores.values()))
    ordered = [choice for choice in choices if len(scores.get(choice, [])) == most and choice in scores]
    best = max(ordered, key=lambda choice: statistics.fmean(scores[choice])) if most else ordered[0]
    return [row for row in choices[best] if all_seeds or row.cfg.seed not in seeds]


def read_selection_scores(rows: Iterable[Row]) -> Iterable[float]:
    """What runs that have a score are selected by: the held-out examples if there are any, else the dev set."""
    for row in rows:
        if row.record and not row.record["failure"] and (best := row.record["best"]):
            yield best.get("selection", best["score"])


def describe_selection(
    groups: dict[GroupKey, dict[SettingValues, list[Row]]], selection: Selection, budget: int | None
) -> str:
    """The rule, with what it cost each method."""
    sizes: dict[str, set[int]] = {}
    for (_, method, _), choices in groups.items():
        sizes.setdefault(method, set()).add(len(choices))
    counts = ", ".join(f"{method} {'/'.join(map(str, sorted(found)))}" for method, found in sizes.items())
    how = "best mean over seeds on the set that is reported, which flatters whoever has more to choose from"
    if selection.rule == "held_out":
        how = "best mean over seeds on the examples held out of the training set"
    elif selection.rule == "seeds":
        how = f"best mean over seeds {', '.join(map(str, selection.seeds))}; the other seeds are reported"
    even = f"; {budget} of them for every method, the same by a hash of their settings" if budget else ""
    return f"{how}. Configurations to choose from: {counts}{even}.{describe_advantage(sizes, selection, budget)}"


def describe_advantage(sizes: dict[str, set[int]], selection: Selection, budget: int | None) -> str:
    """What having more to choose from is worth by chance, where the reported set chooses; empty where nothing."""
    most, least = max(max(found) for found in sizes.values()), min(min(found) for found in sizes.values())
    if selection.rule != "dev" or budget or most == least:
        return ""
    gain = expected_maximum(most) - expected_maximum(least)
    return (
        f" The best of {most} instead of {least} is worth about {gain:.2f} standard deviations by chance alone; "
        "p-values and intervals don't account for it."
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
