"""Say in one sentence what a report's comparisons with plain fine-tuning show, from the numbers of its evidence."""

import math
from collections.abc import Sequence

from isobench.common.terminal import format_count
from isobench.report.baseline_comparison import (
    BASE_LABEL,
    BASE_METHOD,
    CONSTANT_PREDICTOR,
    BaselineComparison,
    MethodKey,
    was_run,
)
from isobench.report.document import Cell, OverviewLine
from isobench.report.evidence import (
    describe_p,
    describe_uncompared,
    format_points,
    format_seeds_per_method,
)
from isobench.report.method_effects import Effects, MethodEffect, find_detectable_differences
from isobench.report.trouble_notes import UNFINISHED_STATES
from isobench.statistics.seeds import ALPHA, POWER, Estimate

NOT_FAILED = (*UNFINISHED_STATES, CONSTANT_PREDICTOR)
MAX_NAMED = 3  # how many methods or tasks the sentence names; the table has all of them


def write_verdict(effects: Effects, overview: Sequence[OverviewLine], ended: int, total: int) -> str:
    """Write the verdict: one sentence on how the methods compare with plain fine-tuning.

    Args:
        effects: the comparisons of all methods.
        overview: the lines of these methods; each says from how many configurations it was selected.
        ended: the number of runs that have ended.
        total: the number of runs.
    """
    if not ended:
        return "No run has ended yet."
    sentence = (
        describe_shown_effects(effects, overview)
        or describe_single_tasks(effects, overview)
        or describe_no_effect(effects)
        or describe_single_seeds(effects)
        or next(describe_uncompared(effects.runs, effects.arms), "")
        or "The runs have nothing that can be compared."
    )
    return sentence if ended == total else f"So far, with {ended:,} of {total:,} runs: {sentence}"


def describe_shown_effects(effects: Effects, overview: Sequence[OverviewLine]) -> str:
    """Name the methods whose difference is larger than chance explains; empty if there is none."""
    shown = {name: effect for name, effect in effects.by_method.items() if effect.is_shown}
    if not shown:
        return ""
    ordered = sorted(shown.items(), key=lambda pair: -pair[1].difference.value)
    parts = [describe_effect(effects, name, effect, overview) for name, effect in ordered[:MAX_NAMED]]
    if len(ordered) > MAX_NAMED:
        parts.append(f"{len(ordered) - MAX_NAMED} more differ too")
    others = len(effects.by_method) - len(shown)
    if others:
        rest = "the other method shows" if others == 1 else f"the other {others} methods show"
        parts.append(f"{rest} no difference")
    return f"{'; '.join(parts)}."


def describe_effect(effects: Effects, name: MethodKey, effect: MethodEffect, overview: Sequence[OverviewLine]) -> str:
    """Say how much a method gains or loses, with its interval and corrected p."""
    value = effect.difference.value
    verb, side = ("gains", "over") if value > 0 else ("loses", "against")
    mean = f", mean of {len(effect.columns)} tasks" if len(effect.columns) > 1 else ""
    numbers = ", ".join(filter(None, (format_range(effect.difference), describe_adjusted_p(effects, effect))))
    method, warnings = effects.runs.format_method(name), warn_of_failures(effects.runs, name)
    warnings += warn_of_selection(name, overview)
    return f"{method} {verb} {abs(value):.2f} points {side} {BASE_LABEL}{mean} ({numbers}){warnings}"


def warn_of_failures(runs: BaselineComparison, name: MethodKey) -> str:
    """Say what a comparison with plain fine-tuning lacks: failed runs of both, and tasks with constant predictors.

    Counts runs on the tasks on which the method was run; of several columns of one task the first.
    """
    baseline, tasks, failed = runs.find_baseline_cells(name), set[str](), 0
    for column, cell in runs.cells[name].items():
        if was_run(cell) and runs.find_task(column) not in tasks:
            tasks.add(runs.find_task(column))
            both = cell, baseline.get(column, Cell())
            failed += sum(count for own in both for what, count in own.troubles.items() if what not in NOT_FAILED)
    lacking = [f", without {format_count(failed, 'run')} that failed"] if failed else []
    if constant := runs.list_constant_tasks([name]):
        lacking.append(f", without {', '.join(constant)}, where a run predicts one class")
    return "".join(lacking)


def warn_of_selection(name: MethodKey, overview: Sequence[OverviewLine]) -> str:
    """Write a warning if more configurations were tried of a method than of plain fine-tuning; empty otherwise.

    Only configurations count that were selected by the same scores that are shown.
    """
    candidates = {(line.group, line.method): line.candidates for line in overview}
    own, base = candidates.get(name, 1), candidates.get((name[0], BASE_METHOD), 1)
    if own <= base:
        return ""
    return f", as the best of {own} configurations against {base} by these same scores, which p does not account for"


def describe_single_tasks(effects: Effects, overview: Sequence[OverviewLine]) -> str:
    """Name the differences that only Welch's test on single tasks finds, after Holm's correction; empty if none."""
    several = any(len(effect.columns) > 1 for effect in effects.by_method.values())
    found = []
    for name, effect in effects.by_method.items():
        for column, difference in effect.single_tasks.items():
            where = f"{effects.runs.format_method(name)} on {column}" if several else effects.runs.format_method(name)
            found.append(f"{where} ({format_points(difference)} points{warn_of_selection(name, overview)})")
    if not found:
        return ""
    named = ", ".join(found[:MAX_NAMED]) + f" and {len(found) - MAX_NAMED} more" * (len(found) > MAX_NAMED)
    if several:
        number = format_count(len(found), "difference")
        return (
            f"Over all tasks no method differs from {BASE_LABEL} by more than chance; on single tasks {number} "
            f"{'survives' if len(found) == 1 else 'survive'} Holm's correction: {named}."
        )
    are_too_few = effects.least_adjusted >= ALPHA
    rest = f"{describe_seeds(effects)} are too few for" if are_too_few else "it is not confirmed by"
    return (
        f"{named} {'differs' if len(found) == 1 else 'differ'} from {BASE_LABEL} by Welch's t-test after Holm's "
        f"correction; {rest} the permutation test."
    )


def describe_seeds(effects: Effects) -> str:
    """Say how many seeds the compared methods have: ``5 seeds per method``."""
    pairs = [pair for own in effects.arms.values() for pair in own.tested.values()]
    return format_seeds_per_method([(len(ours), len(theirs)) for ours, theirs in pairs])


def describe_no_effect(effects: Effects) -> str:
    """Say that no method differs by more than chance, and which difference would be found; empty without tests."""
    if not effects.by_method:
        return ""
    seeds = describe_seeds(effects)
    name, closest = min(effects.by_method.items(), key=lambda pair: pair[1].adjusted)
    alone = len(effects.by_method) == 1
    if effects.least_adjusted >= ALPHA:
        seen = describe_differences([effect.difference.value for effect in effects.by_method.values()])
        count = len(effects.by_method)
        compared, corrected = ("", "") if alone else (f" of {count} methods", f" after Holm over {count} methods")
        return (
            f"{seeds[:1].upper()}{seeds[1:]} are too few for the permutation test to tell a difference{compared} "
            f"from chance: the smallest possible p is {effects.least_adjusted:.2f}{corrected}; seen here: {seen} "
            "points."
        )
    power = describe_power(effects)
    if alone:
        method, points = effects.runs.format_method(name), format_points(closest.difference.value)
        details = [format_range(closest.difference), describe_adjusted_p(effects, closest), seeds, power]
        subject = f"{method} does not differ from {BASE_LABEL} by more than chance: {points} points"
    else:
        details = [f"smallest adjusted {describe_p(closest.adjusted)}", seeds, power]
        subject = f"No method differs from {BASE_LABEL} by more than chance"
    return f"{subject} ({'; '.join(filter(None, details))})."


def describe_power(effects: Effects) -> str:
    """Say which difference one t-test would find in most repetitions; empty if scores don't vary."""
    detectable = find_detectable_differences(effects.arms)
    if not detectable:
        return ""
    low, high = min(detectable, key=detectable.__getitem__), max(detectable, key=detectable.__getitem__)
    span = f"{detectable[low]:.2g} points"
    if len(detectable) > 1 and f"{detectable[low]:.2g}" != f"{detectable[high]:.2g}":
        span = f"{detectable[low]:.2g} ({low}) to {detectable[high]:.2g} points ({high})"
    return f"one t-test would find differences of {span} in {POWER:.0%} of repetitions"


def describe_single_seeds(effects: Effects) -> str:
    """Say that differences between single seeds may be chance; empty if there are none."""
    found = {effects.runs.format_method(name): value for name, value in effects.single_seeds.items()}
    if not found:
        return ""
    why = "a single seed allows no test"
    if len(found) == 1:
        ((name, difference),) = found.items()
        side = "below" if difference < 0 else "above"
        return f"{name} is {abs(difference):.2f} points {side} {BASE_LABEL}, which may be chance: {why}."
    seen = describe_differences(list(found.values()))
    return f"The {len(found)} methods' differences from {BASE_LABEL} ({seen} points) may be chance: {why}."


def describe_differences(differences: Sequence[float]) -> str:
    """Write the smallest and the largest of some differences, or the only one."""
    ends = dict.fromkeys(format_points(value) for value in (min(differences), max(differences)))
    return " to ".join(ends)


def format_range(estimate: Estimate) -> str:
    """Write a 95% interval; empty if there is none."""
    return "" if math.isnan(estimate.low) else f"95% bootstrap interval {estimate.low:.2f} to {estimate.high:.2f}"


def describe_adjusted_p(effects: Effects, effect: MethodEffect) -> str:
    """Write a method's p, corrected for the number of methods if there are several."""
    methods = len(effects.by_method)
    return describe_p(effect.adjusted) + (f" after Holm over {methods} methods" if methods > 1 else "")
