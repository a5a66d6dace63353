"""Say in words what applies to a set of runs: scale, reported epoch, warnings."""

from isobench.runs.grouping import read_scale_differences
from isobench.runs.row import Row


def list_scale_differences(rows: list[Row]) -> list[str]:
    """List how the runs' data and encoders differ from the paper's, each difference once; empty if they don't.

    Without a paper the list has what is true without one, such as a reduced training set.
    """
    return list(dict.fromkeys(difference for row in rows for difference in read_scale_differences(row)))


def describe_epoch_rule(rows: list[Row]) -> str:
    """Say which epoch of a run is reported, and on which examples."""
    best = "best epoch"
    compared = [row.cfg.evaluation.every for row in rows if row.cfg.optimization.report == "best"]
    if any(every != 1 for every in compared):
        best = f"best of the evaluated epochs (evaluation.every={' or '.join(map(str, dict.fromkeys(compared)))})"
    words = {"best": f"{best} on the dev set, the set it is reported on", "last": "last epoch, on the dev set"}
    if any(row.cfg.task.held_out is not None for row in rows):
        words["best"] = f"{best} on examples held out of the training set, reported on the dev set"
    return " or ".join(words[rule] for rule in dict.fromkeys(row.cfg.optimization.report for row in rows))


def list_warnings(rows: list[Row]) -> list[str]:
    """List the warnings that the runs recorded, each once."""
    return list(dict.fromkeys(warning for row in rows if row.record for warning in row.record.warnings))
