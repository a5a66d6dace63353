"""Select which runs the tables show: split runs into parts, and choose one configuration of each method in each part.

Only runs of one part may be compared, tested against each other or selected among. A part holds one protocol
(``PROTOCOL_SETTINGS``). For each encoder and task it holds one scale, one data set and one set of weights.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from isobench.common.errors import refuse
from isobench.config.schema import Selection
from isobench.data.labels import parse_number
from isobench.data.scale import OF_GRID
from isobench.papers.folders import find_config, read_config_file
from isobench.report.tables import (
    BASE_METHOD,
    CONSTANT_PREDICTOR,
    NO_SETTING,
    compute_epoch_seconds,
    describe_choice,
    find_fastest,
    is_scored,
    label_method,
    list_outcomes,
    list_scale_differences,
    name_group,
    read_numbers,
)
from isobench.runs.grouping import PROTOCOL_SETTINGS, SOURCE_SETTINGS, list_never_mixed
from isobench.statistics.seeds import expected_maximum
from isobench.tasks.kind import list_scored

NOTHING_TO_SELECT = "nothing to select: every method has one configuration."
DIGESTS = dict(zip(SOURCE_SETTINGS, ("data", "weights"), strict=True))  # copies in two places have one digest
# Columns of ``configurations``: a row for each configuration of each group, task and method.
CONFIGURATIONS = (
    "group", "task", "metric", "method", "settings", "runs",  # the settings that vary, in words; the number of runs
    "values", "seeds",  # lists of the reported scores x 100, NaN where undefined, and of their seeds
    "troubles", "trouble_seeds",  # lists of what went wrong, an entry for each run in which something did
    "base",  # list of the scores of plain fine-tuning with the same settings; empty if it or the method is constant
    "ev1", "isoscore",  # of the calibrated embeddings, mean over seeds
    "seconds", "base_seconds",  # of training an epoch, of the fastest seed; of plain fine-tuning's
    "selected_by",  # mean of the scores x 100 that decided; missing if it could not be chosen
    "is_chosen",  # whether the tables show it
)  # fmt: skip
NUMBERS = ("ev1", "isoscore", "seconds", "base_seconds", "selected_by")
Choice = tuple[str, ...]  # a configuration: the values of the settings that vary
# encoder, method, task -> choice -> its runs' positions
Groups = dict[tuple[str, str, str], dict[Choice, np.ndarray]]


def select_runs(
    runs: pd.DataFrame, selection: Selection, varying: Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """Select one configuration for each part, encoder, method and task, by the mean score over seeds.

    Rules: ``none`` takes every run, and is for one configuration. ``dev`` scores by the set that is also reported.
    ``seeds`` scores by the seeds in ``selection.seeds`` and reports the others. ``held_out`` scores by the examples
    that ``task.held_out`` keeps from training; it replaces ``dev`` if any run has such examples.

    Returns the runs with ``part``, ``selected`` and ``candidates``, the table of ``CONFIGURATIONS``, and the rule.
    """
    part_of_run = _number_parts(runs)
    parts = _name_parts(runs, part_of_run, varying)
    runs = runs.assign(part=[parts[index] for index in part_of_run])
    selected, candidates = np.zeros(len(runs), bool), np.ones(len(runs), int)
    rules, configurations = list[str](), list[dict[str, Any]]()
    for index in range(len(parts)):
        is_of_part = part_of_run == index
        chosen, counts, rule, rows = _select_in_part(runs[is_of_part], selection, varying)
        selected[is_of_part], candidates[is_of_part] = chosen, counts
        rules.append(rule)
        configurations += rows
    if len(set(rules)) > 1:
        rules = [f"{part}: {rule}" for part, rule in zip(parts, rules, strict=True)]
    table = pd.DataFrame(configurations, columns=CONFIGURATIONS).astype(dict.fromkeys(NUMBERS, float))
    return runs.assign(selected=selected, candidates=candidates), table, " ".join(dict.fromkeys(rules))


def _select_in_part(
    runs: pd.DataFrame, selection: Selection, varying: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, str, Iterator[dict[str, Any]]]:
    """Select among the runs of one part: return ``selected`` and ``candidates`` [runs], the rule, and the rows."""
    varying = find_varying(runs, varying)
    if selection.rule == "dev" and runs["task.held_out"].notna().any():
        selection = replace(selection, rule="held_out")
    _check_rule(selection, runs, varying)
    groups = _group_by_configuration(runs, varying)
    if selection.equal_budget:
        groups = _even_budgets(groups, varying)
    selected, candidates = np.zeros(len(runs), bool), np.ones(len(runs), int)
    only_selects = runs["seed"].isin(selection.seeds if selection.rule == "seeds" and varying else []).to_numpy()
    decides = only_selects if selection.rule == "seeds" else ~only_selects
    scores = {}
    for key, choices in groups.items():
        scores[key] = _score_candidates(runs, choices, decides)
        best = max(scores[key], key=lambda choice: statistics.fmean(scores[key][choice] or [0.0]))
        for choice, positions in choices.items():
            selected[positions] = not varying or (choice == best) & ~only_selects[positions]
            candidates[positions] = len(scores[key]) if selection.rule == "dev" else 1
    rule = _describe_rule(groups, selection) if varying else NOTHING_TO_SELECT
    reported = runs.assign(selected=selected)[~only_selects]
    return selected, candidates, rule, _summarize_configurations(reported, varying, scores)


def _number_parts(runs: pd.DataFrame) -> np.ndarray:
    """Return the index of each run's part, in order of appearance. [runs]

    Where a task has several scales, each makes a part; tasks with one scale join its part, or the first. Of other
    sources the first of each task and encoder makes a part, the second another, ...
    """
    # Methods have grids of different sizes, and are compared nonetheless.
    scale = runs["scale"].map(lambda text: "; ".join(part for part in text.split("; ") if OF_GRID not in part))
    # A run whose data and weights are not known, because it has not ended, belongs to the first that are.
    first = runs.groupby(["task", "encoder"])[list(DIGESTS.values())].transform("first")
    scored = [runs[name].map(str) for name in list_scored() if name in runs]
    known = (runs[name].where(runs[name].notna(), first[name]) for name in first)
    sources = zip(scale, *scored, *known, strict=True)
    protocols = zip(*(runs[name].map(str) for name in PROTOCOL_SETTINGS), strict=True)
    keys = runs[["task", "encoder"]].assign(protocol=list(map(str, protocols)), source=list(map(str, sources)))
    task = ["protocol", "task", "encoder"]
    scales = scale[scale.groupby([keys[name] for name in task]).transform("nunique") > 1]
    keys["scale"] = scale.where(scale.isin(scales), scales.iloc[0] if len(scales) else "")
    own = keys.groupby([*task, "scale"], sort=False)["source"]
    place = own.transform(lambda sources: pd.factorize(sources)[0])  # which source of its own a run has: 0, 1, ...
    return keys.assign(place=place).groupby(["protocol", "scale", "place"], sort=False).ngroup().to_numpy()


def _name_parts(runs: pd.DataFrame, part_of_run: np.ndarray, varying: Sequence[str]) -> list[str]:
    """Name each part by what tells it from the others, such as ``head.name=isobn``; empty if it is the only one."""
    parts = [runs.iloc[part_of_run == index] for index in range(part_of_run.max(initial=-1) + 1)]
    scales = [list_scale_differences(part) or ["as in the paper"] for part in parts]
    differing = [name for name in PROTOCOL_SETTINGS if runs[name].map(str).nunique() > 1]
    names = []
    for part, scale in zip(parts, scales, strict=True):
        differences = [f"{name}={part[name].iloc[0]}" for name in differing]
        for name in SOURCE_SETTINGS:
            if name in varying:
                differences.append(f"{name.partition('.')[2]} {' and '.join(part[name].unique())}")
        scored = [name for name in list_scored() if name in varying]
        differences += [f"{name}={' and '.join(part[name].map(str).unique())}" for name in scored]
        if any(other != scale for other in scales):
            differences += scale
        names.append("; ".join(differences))
    return names


def find_varying(runs: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Return those of the named settings in which runs of one task, encoder and method differ.

    One of `list_never_mixed` varies also if it differs between the methods of a task and encoder.
    """
    varying, never_mixed = [], list_never_mixed()
    for name in names:
        keys = [runs["task"], runs["encoder"], *([] if name in never_mixed else [runs["method"]])]
        if (runs[DIGESTS.get(name, name)].map(str).groupby(keys).nunique() > 1).any():
            varying.append(name)
    return varying


def _check_rule(selection: Selection, runs: pd.DataFrame, varying: Sequence[str]) -> None:
    """Raise UserError if the rule has nothing to select by or to report."""
    seeds, chosen = set(runs["seed"]), set(selection.seeds)
    rule = f"experiment.selection.rule={selection.rule}"
    lacks_held_out = selection.rule == "held_out" and runs["task.held_out"].isna().any()
    lacks_seeds = selection.rule == "seeds" and not (seeds & chosen and seeds - chosen)
    has_choice = selection.rule == "none" and varying
    refuse(
        (lacks_held_out, f"{rule} needs runs with task.held_out=0.1, or another share"),
        (lacks_seeds, f"experiment.selection.seeds={selection.seeds} must be some, not all, of {sorted(seeds)}"),
        (has_choice, f"{rule}, but there are several configurations ({', '.join(varying)}): take dev or seeds"),
    )


def _group_by_configuration(runs: pd.DataFrame, varying: Sequence[str]) -> Groups:
    """Group the runs: (encoder, method, task) -> values of the varying settings -> the runs' positions."""
    choices = list(zip(*(runs[name].map(str) for name in varying), strict=True)) or [()] * len(runs)
    groups: dict[tuple[str, str, str], dict[Choice, list[int]]] = {}
    names = zip(runs["encoder"], runs["method"], runs["task"], strict=True)
    for position, (key, choice) in enumerate(zip(names, choices, strict=True)):
        groups.setdefault(key, {}).setdefault(choice, []).append(position)
    return {key: {choice: np.array(found) for choice, found in group.items()} for key, group in groups.items()}


def _even_budgets(groups: Groups, varying: Sequence[str]) -> Groups:
    """Keep the configurations by which all methods of an encoder and task can be compared.

    A method's own settings are fixed at their defaults, or the first values that were run. Of all other settings,
    the values that every method was run with stay; if there are none, all do.
    """
    fixed = {key: _fix_method_settings(key[1], choices, varying) for key, choices in groups.items()}

    def read_others(choice: Choice) -> Choice:
        pairs = zip(varying, choice, strict=True)
        return tuple(value for name, value in pairs if not name.startswith("calibration."))

    shared: dict[tuple[str, str], set[Choice]] = {}
    for (encoder, _, task), choices in fixed.items():
        found = set(map(read_others, choices))
        shared[encoder, task] = shared.get((encoder, task), found) & found
    even: Groups = {}
    for (encoder, method, task), choices in fixed.items():
        both = {choice: own for choice, own in choices.items() if read_others(choice) in shared[encoder, task]}
        even[encoder, method, task] = both if shared[encoder, task] else choices
    return even


def _fix_method_settings(
    method: str, choices: dict[Choice, np.ndarray], varying: Sequence[str]
) -> dict[Choice, np.ndarray]:
    """Keep the choices with the method's own settings at their defaults, so that all methods have equal budgets."""
    file = find_config("calibration", method)
    defaults = read_config_file(file) if file else {}
    for index, name in enumerate(varying):
        section, _, key = name.partition(".")
        if section == "calibration":
            values = [choice[index] for choice in choices]
            default = defaults.get(key)
            are_default = [value == str(default) or parse_number(value) == default for value in values]
            kept = values[are_default.index(True)] if any(are_default) else values[0]
            choices = {choice: positions for choice, positions in choices.items() if choice[index] == kept}
    return choices


def _score_candidates(
    runs: pd.DataFrame, choices: dict[Choice, np.ndarray], decides: np.ndarray
) -> dict[Choice, list[float]]:
    """Collect the scores to select by, of each configuration that can be selected.

    Only configurations with the most scores can, so that none wins because its bad runs are missing. ``decides`` is
    True for each run by which configurations are selected. [runs]
    """
    scores = read_numbers(runs, "selection_score")
    values = {}
    for choice, positions in choices.items():
        deciding_scores = scores[positions[decides[positions]]]
        values[choice] = deciding_scores[~np.isnan(deciding_scores)].tolist()
    most = max(map(len, values.values()))
    return {choice: found for choice, found in values.items() if len(found) == most}


def _describe_rule(groups: Groups, selection: Selection) -> str:
    """Describe the rule, and how many configurations each method could select among."""
    sizes: dict[str, set[int]] = {}
    for (_, method, _), choices in groups.items():
        sizes.setdefault(label_method(method), set()).add(len(choices))
    counts = ", ".join(f"{name} {'/'.join(map(str, sorted(found)))}" for name, found in sizes.items())
    basis = {
        "held_out": "on the examples held out of the training set",
        "seeds": f"{', '.join(map(str, selection.seeds))}; the other seeds are reported",
    }.get(selection.rule, "on the set that is reported, which favours methods with more configurations")
    even = "; for equal budgets each method's own settings are fixed" if selection.equal_budget else ""
    text = f"best mean over seeds {basis}. Configurations to choose from: {counts}{even}."
    most, least = max(map(max, sizes.values())), min(map(min, sizes.values()))
    if selection.rule != "dev" or most == least:
        return text
    gain = expected_maximum(most) - expected_maximum(least)
    return (
        f"{text} The best of {most} instead of {least} is worth about {gain:.2f} standard deviations by chance "
        "alone; p-values are multiplied for it, intervals do not account for it."
    )


def _summarize_configurations(
    runs: pd.DataFrame, varying: Sequence[str], scores: dict[tuple[str, str, str], dict[Choice, list[float]]]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of ``CONFIGURATIONS`` for a part's reported runs; ``scores``: those that decided the choice."""
    groups = _group_by_configuration(runs, varying)
    values, seconds = _read_primary_metrics(runs), compute_epoch_seconds(runs)
    ev1, isoscore = read_numbers(runs, "embedding/ev1"), read_numbers(runs, "embedding/isoscore")
    seeds, scored = runs["seed"].to_numpy(), is_scored(runs).to_numpy(bool)
    metrics = runs["metric"].to_numpy()
    outcomes = np.array([outcome or "" for outcome in list_outcomes(runs)], object)
    is_selected, part = runs["selected"].to_numpy(bool), runs["part"].iloc[0]
    for (encoder, method, task), choices in groups.items():
        plain = groups.get((encoder, BASE_METHOD, task), {}) if method != BASE_METHOD else {}
        for choice, own in choices.items():
            base = _find_baseline(choice, plain)
            usable, troubled = own[scored[own]], own[outcomes[own] != ""]
            sound = own[outcomes[own] == ""]
            is_constant = bool((outcomes[np.concatenate([own, base])] == CONSTANT_PREDICTOR).any())
            decided = scores[encoder, method, task].get(choice, [])
            yield {
                "group": name_group(encoder, part), "task": task, "metric": metrics[own[0]],
                "method": method, "settings": describe_choice(varying, choice), "runs": len(own),
                "values": values[usable].tolist(), "seeds": seeds[usable].tolist(),
                "troubles": outcomes[troubled].tolist(), "trouble_seeds": seeds[troubled].tolist(),
                "base": [] if is_constant else values[base[scored[base]]].tolist(),
                "ev1": pd.Series(ev1[sound]).mean(), "isoscore": pd.Series(isoscore[sound]).mean(),
                "seconds": find_fastest(seconds[own]), "base_seconds": find_fastest(seconds[base]),
                "selected_by": 100 * statistics.fmean(decided) if decided else None,
                "is_chosen": bool(is_selected[own].any()),
            }  # fmt: skip


def _find_baseline(choice: Choice, plain: dict[Choice, np.ndarray]) -> np.ndarray:
    """Find plain fine-tuning's runs with the same values of the settings that both have, if just one choice fits."""
    fitting = []
    for other, positions in plain.items():
        pairs = zip(choice, other, strict=True)
        if all(ours == theirs or NO_SETTING in (ours, theirs) for ours, theirs in pairs):
            fitting.append(positions)
    return fitting[0] if len(fitting) == 1 else np.array([], int)


def _read_primary_metrics(runs: pd.DataFrame) -> np.ndarray:
    """Return the primary metric of each run's task, x 100; NaN where it is undefined, and ``score`` is 0. [runs]"""
    columns = (runs["split"] + "/" + runs["metric"]).to_numpy()
    values = np.full(len(runs), math.nan)
    for name in set(columns):
        values[columns == name] = read_numbers(runs, name)[columns == name]
    return values
