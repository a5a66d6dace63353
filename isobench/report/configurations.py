"""List every configuration that was tried, with its scores, and describe a configuration in words."""

import statistics
from collections.abc import Iterator

from isobench.config.schema import Selection
from isobench.report.document import Cell, ConfigurationLine
from isobench.report.old_selection import find_budget, group_by_configuration, prefer_held_out, score_candidates
from isobench.report.parts import name_group
from isobench.runs.grouping import list_setting_values
from isobench.runs.row import Row, count_troubles


def list_configurations(
    rows: list[Row], selection: Selection, varying: list[str], part: str, chosen: set[str]
) -> Iterator[ConfigurationLine]:
    """List the configurations of each encoder, method and task, in the order of their runs.

    Args:
        rows: the runs of one part.
        selection: the rule that chose one configuration of each method.
        varying: the settings in which configurations differ.
        part: the name of the part, empty if it is the only one.
        chosen: the keys of the runs that the tables show.
    """
    selection = prefer_held_out(selection, rows)
    groups = group_by_configuration(rows, varying)
    budget = find_budget(groups, selection)
    for (encoder, method, task), choices in groups.items():
        candidates = score_candidates(choices, selection, budget)
        for choice, runs in choices.items():
            basis = [100 * score for score in candidates.get(choice, [])]
            yield ConfigurationLine(
                group=name_group(encoder, part),
                task=task,
                method=method,
                settings=describe_settings(runs, varying),
                cell=read_reported_scores(runs, selection),
                selected_by=statistics.fmean(basis) if basis else None,
                is_chosen=any(row.folder.key in chosen for row in runs),
            )


def read_reported_scores(runs: list[Row], selection: Selection) -> Cell:
    """Read the scores of a configuration's runs, in percent, without the seeds that only select."""
    reported = [row for row in runs if selection.rule != "seeds" or row.cfg.seed not in selection.seeds]
    scored = [(row.cfg.seed, 100 * epoch.score) for row in reported if (epoch := row.scored_epoch)]
    return Cell(
        values=[score for _, score in scored],
        seeds=[seed for seed, _ in scored],
        troubles=dict(count_troubles(reported)),
    )


def describe_settings(rows: list[Row], varying: list[str]) -> str:
    """Write the configuration of a line's runs, for each task if tasks differ; empty if no setting varies."""
    if not varying:
        return ""
    tasks: dict[str, str] = {}
    for row in rows:
        pairs = zip(varying, list_setting_values(row, varying), strict=True)
        tasks[row.cfg.task.name] = ", ".join(
            f"{name.partition('.')[2]}={value}" for name, value in pairs if value != "-"
        )
    if len(set(tasks.values())) == 1:
        return next(iter(tasks.values()))
    return "; ".join(f"{task}: {words}" for task, words in tasks.items())
