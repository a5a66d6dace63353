"""Write, in sentences, what the runs support and what they can't. Published numbers have no part in it.

A ``row`` is a method's row of ``methods`` (`isobench.report.methods.METHODS`), a ``cell`` one of ``cells``.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import pandas as pd

from isobench.common.terminal import format_count, name_some
from isobench.report.methods import find_detectable_differences, group_tested_arms, list_score_cells
from isobench.report.tables import BASE_LABEL, BASE_METHOD, BASELINE, CONSTANT_PREDICTOR, label_method
from isobench.report.wording import (
    describe_p,
    format_columns,
    format_interval,
    format_points,
    format_seeds_per_method,
)
from isobench.statistics.resampling import bootstrap_coverage, smallest_p
from isobench.statistics.seeds import ALPHA, POWER, holm

MIN_COVERAGE = 0.94  # 95% bootstrap intervals that contain the true value less often are said to be too narrow
MAX_NAMED = 3  # how many methods or tasks a sentence names; the tables have all of them
UNDEFINED_SCORE = "undefined score (NaN)"
UNFINISHED_STATES = ("running", "queued", "interrupted", "missing", "damaged")  # of runs that have no result yet


def describe_evidence(cells: pd.DataFrame, methods: pd.DataFrame) -> list[str]:
    """Write sentences with the numbers of all comparisons with plain fine-tuning."""
    return [
        *_describe_uncompared(methods),
        *_describe_comparisons(cells, methods),
        *_describe_methods(methods),
        *_describe_power(cells),
        *_describe_repeated_columns(cells),
        *_describe_troubles(cells, methods),
        *_describe_pairs(cells, methods),
    ]


def write_verdict(cells: pd.DataFrame, methods: pd.DataFrame, ended: int, total: int) -> str:
    """Write one sentence on how the methods compare with plain fine-tuning, from ``ended`` of ``total`` runs."""
    if not ended:
        return "No run has ended yet."
    sentence = (
        _name_shown_effects(cells, methods)
        or _name_single_tasks(cells, methods)
        or _deny_effects(cells, methods)
        or _name_single_seeds(methods)
        or next(_describe_uncompared(methods), "The runs have nothing that can be compared.")
    )
    return sentence if ended == total else f"So far, with {ended:,} of {total:,} runs: {sentence}"


def name_method(methods: pd.DataFrame, row: Any) -> str:
    """Return the method's label, with its encoder and the part of the runs if there are several."""
    label = label_method(row.method)
    return f"{label} ({row.group})" if methods["group"].nunique() > 1 else label


def _list_others(methods: pd.DataFrame) -> list[Any]:
    return [row for row in methods.itertuples() if row.method != BASE_METHOD]


def _list_tested(methods: pd.DataFrame) -> list[Any]:
    return [row for row in _list_others(methods) if not math.isnan(row.p)]


def _describe_uncompared(methods: pd.DataFrame) -> Iterator[str]:
    others = _list_others(methods)
    if not others:
        yield "There are no runs." if methods.empty else f"Only {BASELINE} was run: there is nothing to compare."
    bases = methods[methods["method"] == BASE_METHOD]
    scored_groups = {row.group for row in bases.itertuples() if max(row.seeds, default=0)}
    if alone := [row for row in others if row.group not in scored_groups]:
        names = " or ".join(name_method(methods, row) for row in alone)
        yield f"No run of {BASELINE} has a score to compare with, so whether {names} helps can't be said."
    for row in others:
        if row.group in scored_groups and not row.compared:
            yield f"{name_method(methods, row)}: its runs can't be compared with those of {BASELINE} on any task."


def _describe_comparisons(cells: pd.DataFrame, methods: pd.DataFrame) -> Iterator[str]:
    tested = list_comparisons(cells)
    if tested.empty:
        return
    significant = tested[tested["p"] < ALPHA]
    better = int((significant["difference"] > 0).sum())
    yield (
        f"{format_count(len(tested), 'comparison')} with {BASELINE}: {len(significant)} with p < {ALPHA} (Welch's "
        f"t-test, not corrected; {better} better, {len(significant) - better} worse); "
        f"chance alone gives about {ALPHA * len(tested):.2g}."
    )
    if len(tested) > 1:
        survivors = [
            f"{name_method(methods, cell)} on {cell.column} ({format_points(cell.difference)} points)"
            for cell in tested[tested["p_holm"] < ALPHA].itertuples()
        ]
        remaining = "no difference is left"
        if survivors:
            remaining = f"{len(survivors)} remain{'s' * (len(survivors) == 1)}: {', '.join(survivors)}"
        yield f"After Holm's correction over these {len(tested)}, {remaining}."


def list_comparisons(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells that have a p, each comparison once: Holm's family."""
    tested = cells[cells["p"].notna()]
    tested = tested.assign(key=tested["values"].map(tuple))
    return tested.drop_duplicates(["group", "method", "column", "key"]).drop(columns="key")


def _describe_methods(methods: pd.DataFrame) -> Iterator[str]:
    """Compare every method with plain fine-tuning over all its tasks; p is corrected for the number of methods."""
    tested = _list_tested(methods)
    for row in tested:
        drawn = "exact" if math.isnan(row.relabellings) else f"{row.relabellings:,.0f} random relabellings"
        corrected = f"; {describe_p(row.p_holm)} after Holm over {len(tested)} methods" if len(tested) > 1 else ""
        several = len(row.compared) > 1
        improvement = format_interval(row.improvement, row.improvement_low, row.improvement_high, ".2f")
        yield (
            f"{name_method(methods, row)} on {format_columns(row.compared)}: {_judge_difference(row)}. "
            f"{'Mean difference' if several else 'Difference'} "
            f"{format_interval(row.difference, row.low, row.high)} points, probability of improvement {improvement}, "
            f"permutation test{' within tasks' * several} {describe_p(row.p)} ({drawn}{corrected})."
        )
    fewest = min((row.fewest_seeds for row in tested), default=0)
    if fewest and bootstrap_coverage(fewest) < MIN_COVERAGE:
        yield (
            f"Brackets are 95% bootstrap intervals, which resample the runs of each task. With {fewest} seeds they "
            f"are too narrow: they contain the true value in {bootstrap_coverage(fewest):.0%} of cases at best."
        )
    for row in _list_others(methods):
        if not row.single_seeds:
            continue
        mean = "mean " * (len(row.single_seeds) > 1)
        difference = format_points(statistics.fmean(row.single_seeds.values()))
        yield (
            f"{name_method(methods, row)} on {format_columns(list(row.single_seeds))}: it or {BASELINE} has a "
            f"single seed, so no test is possible; its {mean}difference of {difference} points may be chance."
        )


def _judge_difference(row: Any) -> str:
    if row.is_shown:
        return "higher than chance explains" if row.difference > 0 else "lower than chance explains"
    if not row.single_tasks:
        return "no difference shown"
    better = [column for column, difference in row.single_tasks.items() if difference > 0]
    worse = [column for column, difference in row.single_tasks.items() if not difference > 0]
    effects = []
    if better:
        effects.append(f"helps on {', '.join(better)} (after Holm)")
    if worse:
        effects.append(f"harms on {', '.join(worse)} (after Holm)")
    where = "over all tasks" if len(row.compared) > 1 else "by the permutation test"
    return f"{', '.join(effects)}, no difference shown {where}"


def _describe_power(cells: pd.DataFrame) -> Iterator[str]:
    """Say what so few seeds can't show: the smallest possible p, and the least difference that is usually found."""
    sizes = _list_seed_counts(cells)
    if hopeless := [size for size in sizes if smallest_p(*size) >= ALPHA]:
        some = f" ({len(hopeless)} of {len(sizes)} comparisons)" if len(hopeless) < len(sizes) else ""
        least_p = min(smallest_p(*size) for size in hopeless)
        yield (
            f"With {format_seeds_per_method(hopeless)}{some} no permutation test on one task can reach p < {ALPHA}, "
            f"however large the difference: its smallest possible p is {least_p:.2f}."
        )
    if detectable := _describe_detectable(find_detectable_differences(cells)):
        yield (
            f"With {format_seeds_per_method(sizes)} a difference under {detectable} would usually go unnoticed: at "
            f"the spread of these runs, a single t-test at {ALPHA}, not corrected, finds one as large in {POWER:.0%} "
            "of cases."
        )


def _list_seed_counts(cells: pd.DataFrame) -> list[tuple[int, int]]:
    """List the two methods' numbers of seeds in each comparison."""
    counts = []
    for arms in group_tested_arms(cells).values():
        counts += [(len(ours), len(theirs)) for ours, theirs in arms]
    return counts


def _describe_detectable(detectable: Mapping[str, float]) -> str:
    """Write the range of the detectable differences: ``1.2 points (RTE) to 3.4 (CoLA)``; empty if there is none."""
    if not detectable:
        return ""
    low, high = min(detectable, key=detectable.__getitem__), max(detectable, key=detectable.__getitem__)
    least, most = f"{detectable[low]:.2g}", f"{detectable[high]:.2g}"
    return f"{least} points" if least == most else f"{least} points ({low}) to {most} ({high})"


def _describe_repeated_columns(cells: pd.DataFrame) -> Iterator[str]:
    compared = cells[cells["compared"]]
    first_columns: dict[str, str] = {}  # by task
    for column, task in compared[["column", "task"]].drop_duplicates().to_numpy():
        earlier = first_columns.setdefault(task, column)
        if earlier != column:
            yield f"{column} shows the runs of {earlier} again: across tasks only {earlier} counts."


def _describe_troubles(cells: pd.DataFrame, methods: pd.DataFrame) -> Iterator[str]:
    """Say what went wrong in runs, plain fine-tuning's too, and that no mean includes them."""
    found: dict[tuple[str, str], list[str]] = {}  # method, sentence -> the runs that it is about, by column
    for cell in list_score_cells(cells).itertuples():
        counts = Counter(cell.troubles)
        counts[UNDEFINED_SCORE] = sum(map(math.isnan, cell.values)) - counts[CONSTANT_PREDICTOR]
        for trouble, count in counts.items():
            if count > 0:
                is_said = trouble in (CONSTANT_PREDICTOR, UNDEFINED_SCORE)  # by the sentence itself
                runs = f"{count} on {cell.column}" if is_said else f"{count} {trouble} on {cell.column}"
                found.setdefault((name_method(methods, cell), _describe_consequence(trouble)), []).append(runs)
    for (method, sentence), runs_by_column in found.items():
        yield f"{method}: {sentence.format(', '.join(runs_by_column))}."


def _describe_consequence(trouble: str) -> str:
    """Say what follows from a trouble; ``{}`` in the sentence stands for the runs that had it."""
    if trouble == CONSTANT_PREDICTOR:
        return "constant predictors ({}): no mean includes these tasks, though the collapse is a result"
    if trouble == UNDEFINED_SCORE:
        return "undefined scores, NaN ({}): no mean includes these tasks"
    if trouble in UNFINISHED_STATES:
        return "runs without a result ({}): no mean includes them, and means may change when they end"
    return "failed runs ({}): they have no score, and means are of the other runs only"


def _describe_pairs(cells: pd.DataFrame, methods: pd.DataFrame) -> Iterator[str]:
    """Count the differences that are significant for new seeds and new examples, and say why others have no test."""
    asked = list_pairs(cells)
    tested = [cell for cell in asked if not cell.paired_reason]
    if tested:
        p_values = [cell.paired_p for cell in tested]
        survivors = sum(p < ALPHA for p in holm(p_values))
        corrected = f", {survivors} after Holm's correction" if len(tested) > 1 else ""
        named = [
            f"{name_method(methods, cell)} on {cell.column} "
            f"{format_interval(cell.paired_difference, cell.paired_low, cell.paired_high)} points, "
            f"{describe_p(cell.paired_p)} ({cell.paired_seeds:.0f} seeds, {cell.paired_examples:,.0f} examples)"
            for cell in tested[:MAX_NAMED]
        ]
        more = f"; and {len(tested) - MAX_NAMED} more" if len(tested) > MAX_NAMED else ""
        yield (
            f"Paired with {BASELINE} by seed and dev example, for new seeds and new examples: "
            f"{format_count(len(tested), 'difference')}, {sum(p < ALPHA for p in p_values)} with p < {ALPHA}"
            f"{corrected}: {'; '.join(named)}{more}."
        )
    if reasons := Counter(cell.paired_reason for cell in asked if cell.paired_reason):
        causes = "; ".join(f"{format_count(count, 'difference')} ({reason})" for reason, count in reasons.items())
        yield f"Not tested for new seeds and new examples: {causes}."


def list_pairs(cells: pd.DataFrame) -> list[Any]:
    """List the cells for which a comparison over shared seeds and dev examples was asked, each once."""
    asked = cells[cells["paired_reason"].notna()]
    return list(asked.drop_duplicates(["group", "method", "column"]).itertuples())


def _name_shown_effects(cells: pd.DataFrame, methods: pd.DataFrame) -> str:
    """Name the methods whose difference is larger than chance explains; empty if there is none."""
    tested = _list_tested(methods)
    shown = sorted((row for row in tested if row.is_shown), key=lambda row: -row.difference)
    if not shown:
        return ""
    clauses = [_describe_effect(cells, methods, row) for row in shown[:MAX_NAMED]]
    if len(shown) > MAX_NAMED:
        clauses.append(f"{len(shown) - MAX_NAMED} more differ too")
    others = len(tested) - len(shown)
    if others == 1:
        clauses.append("the other method shows no difference")
    elif others:
        clauses.append(f"the other {others} methods show none")
    return f"{'; '.join(clauses)}."


def _describe_effect(cells: pd.DataFrame, methods: pd.DataFrame, row: Any) -> str:
    verb, side = ("gains", "over") if row.difference > 0 else ("loses", "against")
    mean = f", mean of {len(row.compared)} tasks" if len(row.compared) > 1 else ""
    numbers = ", ".join(filter(None, (_format_confidence(row), _describe_adjusted_p(methods, row))))
    return (
        f"{name_method(methods, row)} {verb} {abs(row.difference):.2f} points {side} {BASE_LABEL}{mean} ({numbers})"
        f"{_warn_of_failures(cells, row)}{_warn_of_selection(methods, row)}"
    )


def _warn_of_failures(cells: pd.DataFrame, row: Any) -> str:
    """Say what a comparison lacks: failed runs of both methods, and tasks with constant predictors."""
    scores = list_score_cells(cells)
    both = scores[(scores["group"] == row.group) & scores["method"].isin([row.method, BASE_METHOD])]
    both = both[both["values"].map(bool) | both["troubles"].map(bool)]
    tasks = set(both[both["method"] == row.method]["task"])  # on which the method was run
    troubles = chain.from_iterable(both[both["task"].isin(tasks)]["troubles"])
    failed = sum(trouble not in (*UNFINISHED_STATES, CONSTANT_PREDICTOR) for trouble in troubles)
    text = f", without {format_count(failed, 'run')} that failed" if failed else ""
    constant = ", ".join(row.constant_tasks)
    return text + (f", without {constant}, where a run predicts one class" if constant else "")


def _warn_of_selection(methods: pd.DataFrame, row: Any) -> str:
    """Warn if more configurations were tried of a method than of plain fine-tuning, by the scores that are shown."""
    bases = methods[(methods["group"] == row.group) & (methods["method"] == BASE_METHOD)]["candidates"]
    base = bases.iloc[0] if len(bases) else 1
    if row.candidates <= base:
        return ""
    return (
        f", as the best of {row.candidates} configurations against {base} by these same scores, which p does not "
        "account for"
    )


def _name_single_tasks(cells: pd.DataFrame, methods: pd.DataFrame) -> str:
    """Name the differences that only Welch's test on single tasks finds, after Holm's correction; empty if none."""
    tested = _list_tested(methods)
    several = any(len(row.compared) > 1 for row in tested)
    found = []
    for row in tested:
        warning = _warn_of_selection(methods, row)
        for column, difference in row.single_tasks.items():
            name = name_method(methods, row) + (f" on {column}" if several else "")
            found.append(f"{name} ({format_points(difference)} points{warning})")
    if not found:
        return ""
    named = name_some(found, limit=MAX_NAMED)
    if several:
        survive = "survives" if len(found) == 1 else "survive"
        return (
            f"Over all tasks no method differs from {BASE_LABEL} by more than chance; on single tasks "
            f"{format_count(len(found), 'difference')} {survive} Holm's correction: {named}."
        )
    rest = "it is not confirmed by"
    if _find_least_p(methods) >= ALPHA:
        rest = f"{format_seeds_per_method(_list_seed_counts(cells))} are too few for"
    return (
        f"{named} {'differs' if len(found) == 1 else 'differ'} from {BASE_LABEL} by Welch's t-test after Holm's "
        f"correction; {rest} the permutation test."
    )


def _find_least_p(methods: pd.DataFrame) -> float:
    """Find the smallest p after Holm's correction over methods that these numbers of seeds and methods allow."""
    tested = _list_tested(methods)
    return min(1.0, len(tested) * min((row.least_p for row in tested), default=1.0))


def _deny_effects(cells: pd.DataFrame, methods: pd.DataFrame) -> str:
    """Say that no method differs by more than chance, and which difference would be found; empty without tests."""
    tested = _list_tested(methods)
    if not tested:
        return ""
    seeds, count = format_seeds_per_method(_list_seed_counts(cells)), len(tested)
    least = _find_least_p(methods)
    if least >= ALPHA:
        compared, corrected = (f" of {count} methods", f" after Holm over {count} methods") if count > 1 else ("", "")
        return (
            f"{seeds[:1].upper()}{seeds[1:]} are too few for the permutation test to tell a difference{compared} "
            f"from chance: the smallest possible p is {least:.2f}{corrected}; seen here: "
            f"{_format_ends([row.difference for row in tested])} points."
        )
    detectable = _describe_detectable(find_detectable_differences(cells))
    power = f"one t-test would find differences of {detectable} in {POWER:.0%} of repetitions" if detectable else ""
    closest = min(tested, key=lambda row: row.p_holm)
    if count == 1:
        details = [_format_confidence(closest), _describe_adjusted_p(methods, closest), seeds, power]
        points = format_points(closest.difference)
        subject = (
            f"{name_method(methods, closest)} does not differ from {BASE_LABEL} by more than chance: {points} points"
        )
    else:
        details = [f"smallest adjusted {describe_p(closest.p_holm)}", seeds, power]
        subject = f"No method differs from {BASE_LABEL} by more than chance"
    return f"{subject} ({'; '.join(filter(None, details))})."


def _name_single_seeds(methods: pd.DataFrame) -> str:
    found = [row for row in _list_others(methods) if math.isnan(row.p) and row.compared]
    if not found:
        return ""
    why = "a single seed allows no test"
    if len(found) == 1:
        (row,) = found
        side = "below" if row.difference < 0 else "above"
        points = f"{abs(row.difference):.2f} points {side} {BASE_LABEL}"
        return f"{name_method(methods, row)} is {points}, which may be chance: {why}."
    seen = _format_ends([row.difference for row in found])
    return f"The {len(found)} methods' differences from {BASE_LABEL} ({seen} points) may be chance: {why}."


def _format_ends(differences: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(format_points(value) for value in (min(differences), max(differences))))


def _format_confidence(row: Any) -> str:
    return "" if math.isnan(row.low) else f"95% bootstrap interval {row.low:.2f} to {row.high:.2f}"


def _describe_adjusted_p(methods: pd.DataFrame, row: Any) -> str:
    count = len(_list_tested(methods))
    return describe_p(row.p_holm) + (f" after Holm over {count} methods" if count > 1 else "")
