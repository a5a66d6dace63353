"""What the five papers claim, and whether this installation's own runs and analyses say so too."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from isobench.report.analysis_claims import (
    centring_restores_isotropy,
    classifier_stays_at_init,
    isobn_lowers_ev,
    rare_tokens_are_nearer,
    top_component_is_exaggerated,
    variance_is_not_importance,
    word_similarity_improves,
)
from isobench.report.baseline_comparison import BASE_METHOD, CONSTANT_PREDICTOR, BaselineComparison
from isobench.report.claim_outcome import FAILS, HOLDS, NOT_RUN, UNDECIDED, UNKNOWN, Outcome
from isobench.report.document import Report
from isobench.report.effects import ALPHA
from isobench.report.evidence import (
    column_detectable_difference,
    describe_p,
    find_holm_survivors,
    format_points,
    group_arms_by_column,
)
from isobench.report.resampling import mean_difference_interval, stratified_permutation_test
from isobench.report.seed_statistics import collect_test_family, holm

OUTCOME_SYMBOLS = {HOLDS: "✓", FAILS: "✗", UNDECIDED: "~", NOT_RUN: "\N{EN DASH}", UNKNOWN: "?"}
RELEVANT_GAIN = 1.0  # points: runs that can't show this much say nothing by showing none
MIN_RUNS = 30  # runs: that fewer show no relation says nothing


@dataclass(frozen=True)
class Claim:
    """A paper's claim, the experiment that shows it, and the check: of its ``Report``, or of an analysis's rows.

    ``rows``: which file of an analysis's numbers is checked; empty for runs.
    """

    paper: str
    text: str
    experiment: str
    check: Callable[[Any], Outcome]
    rows: str = ""


def improves(*methods: str) -> Callable[[Report], Outcome]:
    """Whether each of the methods is better than plain fine-tuning, on average over encoders and tasks."""

    def check(report: Report) -> Outcome:
        runs = BaselineComparison(report.tables, BASE_METHOD)
        found = [judge_improvement(runs, method) for method in methods]
        missing = [outcome.numbers for outcome in found if outcome.word == NOT_RUN]
        if missing:
            return Outcome(NOT_RUN, "; ".join(missing))
        word = found[0].word if len({outcome.word for outcome in found}) == 1 else UNDECIDED
        return Outcome(word, "; ".join(outcome.numbers for outcome in found))

    return check


def judge_improvement(runs: BaselineComparison, method: str) -> Outcome:
    """One method against plain fine-tuning: decided where the bootstrap interval and the permutation test agree."""
    names = [name for name in runs.methods if name[1] == method]
    compared = {
        (name, c): cell.comparison for name in names for c, cell in runs.cells[name].items() if cell.comparison
    }
    if undefined := [column for (_, column), made in compared.items() if math.isnan(made.difference)]:
        return Outcome(NOT_RUN, f"{method}: undefined score (NaN) on {', '.join(dict.fromkeys(undefined))}")
    constant = {
        runs.task(column): None
        for name in names
        for column, cell in runs.cells[name].items()
        if CONSTANT_PREDICTOR in cell.troubles
        or CONSTANT_PREDICTOR in runs.find_base_cells(name).get(column, cell).troubles
    }
    left_out = f" (in no mean, constant predictors: {', '.join(constant)})" if constant else ""
    found = [runs.collect_arms(name) for name in names]
    tasks = [arms for against in found for arms in against.tested.values()]
    if not tasks or any(against.single for against in found):
        return Outcome(NOT_RUN, f"{method}: fewer than two seeds of it or of plain fine-tuning{left_out}")
    mean, p = mean_difference_interval(tasks), stratified_permutation_test(tasks).p
    if math.isnan(mean.low):
        return Outcome(
            NOT_RUN, f"{method} {format_points(mean.value)} points: no spread over seeds, no interval (NaN)"
        )
    limits = f"[{format_points(mean.low)}, {format_points(mean.high)}]"
    numbers = f"{method} {format_points(mean.value)} points {limits}, {describe_p(p)}{left_out}"
    if mean.low <= 0 <= mean.high or p >= ALPHA:
        return Outcome(UNDECIDED, numbers)
    return Outcome(HOLDS if mean.value > 0 else FAILS, numbers)


def nothing_improves(report: Report) -> Outcome:
    """Whether no method's gain on a task survives Holm's correction; "not run" if no test was possible.

    That none does says something only if the runs would have shown a gain of ``SMALL`` points on every task.
    """
    number = len(collect_test_family(report.tables))
    if not number:
        return Outcome(NOT_RUN, "no comparison of two or more seeds")
    left = find_holm_survivors(report.tables)
    better = [f"{name[1]} on {column}" for name, columns in left.items() for column, by in columns.items() if by > 0]
    said = f"{len(better)} of {number} comparisons are gains that survive Holm"
    if better:
        return Outcome(FAILS, f"{said}: {', '.join(better)}")
    runs = BaselineComparison(report.tables, BASE_METHOD)
    found = {name: runs.collect_arms(name) for name in runs.methods}
    least = max(map(column_detectable_difference, group_arms_by_column(found).values()), default=math.inf)
    said += f"; differences under {least:.2g} points would usually go unnoticed"
    made = [cell.comparison for cells in runs.cells.values() for cell in cells.values() if cell.comparison]
    if untested := sum(comparison.welch is None for comparison in made):
        return Outcome(UNDECIDED, f"{said}; {untested} more can't be tested")
    return Outcome(HOLDS if least <= RELEVANT_GAIN else UNDECIDED, said)


def isotropy_is_unrelated(report: Report) -> Outcome:
    """Whether I1 of the embeddings is unrelated to the score over all runs of a task and encoder, after Holm."""
    from scipy import stats

    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for run in report.runs:
        i1, score = (math.nan if run.get(name) is None else run[name] for name in ("embedding/i1", "score"))
        if not run["failure"] and not math.isnan(i1 + score):
            groups.setdefault((run["task"], run["encoder"]), []).append((i1, score))
    large = {key: pairs for key, pairs in groups.items() if len(pairs) >= 6}
    varied = {key: pairs for key, pairs in large.items() if all(len(set(v)) > 1 for v in zip(*pairs, strict=True))}
    constant = [f"{task}, {encoder}" for task, encoder in large if (task, encoder) not in varied]
    left_out = f"; left out, I1 or score is constant: {'; '.join(constant)}" if constant else ""
    if not varied:
        return Outcome(NOT_RUN, f"no task and encoder with six runs that differ{left_out}")
    found = [stats.spearmanr(*zip(*pairs, strict=True)) for pairs in varied.values()]
    related = sum(p < ALPHA for p in holm([float(result.pvalue) for result in found]))
    number = sum(map(len, varied.values()))
    rho = ", ".join(f"{result.statistic:+.2f}" for result in found)
    said = f"Spearman {rho} ({number} runs); {related} of {len(found)} with p < {ALPHA} after Holm{left_out}"
    return Outcome(FAILS if related else HOLDS if number >= MIN_RUNS else UNDECIDED, said)


def collapses(*methods: str) -> Callable[[Report], Outcome]:
    """Whether some runs of the methods predict one class for everything."""

    def check(report: Report) -> Outcome:
        runs = [run for run in report.runs if run["method"] in methods and run["status"] == "finished"]
        constant = sum(run["failure"] == CONSTANT_PREDICTOR for run in runs)
        if not runs:
            return Outcome(NOT_RUN, "no such run")
        return Outcome(HOLDS if constant else FAILS, f"{constant} of {len(runs)} runs predict one class")

    return check


ISOBN, CALIBRATION, ADAPTATION, COMMON = "isobn", "isotropy_calibration", "task_adaptation", "too_much_in_common"
CLAIMS = [
    Claim(ISOBN, "IsoBN improves fine-tuning (Table 1)", "glue_isobn", improves("isobn_paper")),
    Claim(
        ISOBN, "IsoBN lowers EV_1 of pretrained [CLS] much, batch normalisation little (Table 2)", "isobn_ev",
        isobn_lowers_ev, "explained_variance",
    ),
    Claim(ISOBN, "Fine-tuning leaves the classifier at its initialisation (Figure 2)", "isobn_drift",
          classifier_stays_at_init, "drift"),
    Claim(ISOBN, "Fine-tuned classifiers exaggerate the first component (Figure 3)", "isobn_drift",
          top_component_is_exaggerated, "drift"),
    Claim(CALIBRATION, "No calibration improves fine-tuning (Table 1)", "glue_calibration", nothing_improves),
    Claim(CALIBRATION, "Isotropy does not go with the task's score (Section 4)", "glue_calibration",
          isotropy_is_unrelated),
    Claim(CALIBRATION, "Spectrum control collapses to one class on some tasks (Table 1)", "glue_calibration",
          collapses("spectrum_polynomial", "spectrum_exponential")),
    Claim(CALIBRATION, "No calibration improves translation (Table 2)", "mt_calibration", nothing_improves),
    Claim(CALIBRATION, "No calibration improves summarisation (Tables 3 and 5)", "summarization_calibration",
          nothing_improves),
    Claim(ADAPTATION, "L2 and gradient normalisation improve fine-tuning (Section 5.2)", "glue_adaptation",
          improves("fixed_norm_l2", "gradient_norm_half", "gradient_norm")),
    Claim(ADAPTATION, "Dimensions that vary much are not the important ones, in general (Figure 3)",
          "adaptation_embeddings", variance_is_not_importance, "summary"),
    Claim(COMMON, "Centring alone makes word embeddings nearly isotropic (Table 1)", "common_isotropy",
          centring_restores_isotropy, "isotropy"),
    Claim(COMMON, "Scaled centring and post-processing improve word similarity (Table 2)", "common_wordsim",
          word_similarity_improves("centered_scaled", "post_process"), "averages"),
    Claim(COMMON, "Unused tokens are nearer to rare tokens than to frequent ones (Figure 3)", "common_frequency",
          rare_tokens_are_nearer, "cosine_ranges"),
]  # fmt: skip
