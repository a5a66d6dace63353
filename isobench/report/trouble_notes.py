"""Write, in sentences, which runs failed or gave no usable score, and what that means for the comparisons."""

import math
from collections.abc import Iterator

from isobench.report.baseline_comparison import CONSTANT_PREDICTOR, BaselineComparison

UNDEFINED_SCORE = "undefined score (NaN)"
UNFINISHED_STATES = ("running", "queued", "interrupted", "missing", "damaged")  # of runs that have no result yet


def describe_troubles(runs: BaselineComparison) -> Iterator[str]:
    """Say what went wrong in runs, plain fine-tuning's too, and that no mean includes them."""
    for name, cells in runs.cells.items():
        counts: dict[tuple[str, str], tuple[str, int]] = {}  # task, trouble -> the task's first column, runs
        for column, cell in cells.items():
            undefined = sum(map(math.isnan, cell.values)) - cell.troubles.get(CONSTANT_PREDICTOR, 0)
            troubles = cell.troubles | ({UNDEFINED_SCORE: undefined} if undefined > 0 else {})
            for trouble, number in troubles.items():
                counts.setdefault((runs.find_task(column), trouble), (column, number))
        places: dict[str, list[str]] = {}  # sentence -> how many runs of which columns it is about
        for (_, trouble), (column, number) in counts.items():
            named_by_sentence = trouble in (CONSTANT_PREDICTOR, UNDEFINED_SCORE)
            place = f"{number} on {column}" if named_by_sentence else f"{number} {trouble} on {column}"
            places.setdefault(describe_consequence(trouble), []).append(place)
        for sentence, where in places.items():
            yield f"{runs.format_method(name)}: {sentence.format(', '.join(where))}."


def describe_consequence(trouble: str) -> str:
    """Say what follows from a trouble; ``{}`` in the sentence stands for the runs that had it."""
    if trouble == CONSTANT_PREDICTOR:
        return "constant predictors ({}): no mean includes these tasks, though the collapse is a result"
    if trouble == UNDEFINED_SCORE:
        return "undefined scores, NaN ({}): no mean includes these tasks"
    if trouble in UNFINISHED_STATES:
        return "runs without a result ({}): no mean includes them, and means may change when they end"
    return "failed runs ({}): they have no score, and means are of the other runs only"
