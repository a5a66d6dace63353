"""Define what the papers claim, and check each claim on our own runs or analyses."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from isobench.report.analysis_claims import (
    centring_restores_isotropy,
    classifier_stays_at_init,
    isobn_lowers_ev,
    rare_tokens_are_nearer,
    scores_are_repeated,
    there_are_two_clusters,
    top_component_is_exaggerated,
    variance_is_not_importance,
    variance_rises_with_importance,
    word_similarity_improves,
)
from isobench.report.baseline_comparison import BASE_METHOD, BaselineComparison, collect_test_family
from isobench.report.claim_outcome import FAILS, HOLDS, NOT_RUN, UNDECIDED, UNKNOWN, Outcome
from isobench.report.cost_claims import costs_between, costs_times
from isobench.report.document import Report
from isobench.report.method_effects import column_detectable_difference, find_holm_survivors, group_arms_by_column
from isobench.report.run_claims import collapses, isotropy_is_unrelated
from isobench.report.score_claims import (
    UNBALANCED_TASKS,
    Budgets,
    decide_difference,
    describe_budgets,
    find_budgets,
    is_better_than,
)

OUTCOME_SYMBOLS = {HOLDS: "✓", FAILS: "✗", UNDECIDED: "~", NOT_RUN: "\N{EN DASH}", UNKNOWN: "?"}
RELEVANT_GAIN = 1.0  # points; runs that could not have shown a gain of this size don't support "no gain"


@dataclass(frozen=True)
class Claim:
    """A paper's claim, and how it is checked.

    Attributes:
        paper: the paper's name.
        text: the claim in one sentence.
        experiment: the experiment whose runs or analysis are checked.
        check: takes the experiment's ``Report``, or the rows of ``rows_file`` if there is one.
        rows_file: which file of the analysis's numbers is checked, without its suffix; empty for runs.
        settings: what the experiment's command needs besides, so that its runs can decide the claim.
    """

    paper: str
    text: str
    experiment: str
    check: Callable[[Any], Outcome]
    rows_file: str = ""
    settings: str = ""

    @property
    def command(self) -> str:
        """The command that carries out what the claim is about, at the embedded scale."""
        return f"python -m isobench +experiment={self.experiment} {self.settings}".strip()


def improves(*methods: str) -> Callable[[Report], Outcome]:
    """Make the check that each of the methods is better than plain fine-tuning, averaged over encoders and tasks."""

    def check(report: Report) -> Outcome:
        runs = BaselineComparison(report.tables)
        budgets = {method: find_budgets(report.runs, method, BASE_METHOD) for method in methods}
        outcomes = [judge_improvement(runs, method, budgets[method]) for method in methods]
        missing = [outcome.numbers for outcome in outcomes if outcome.word == NOT_RUN]
        if missing:
            return Outcome(NOT_RUN, "; ".join(missing))
        word = outcomes[0].word if len({outcome.word for outcome in outcomes}) == 1 else UNDECIDED
        return Outcome(word, "; ".join(outcome.numbers for outcome in outcomes))

    return check


def judge_among(check: Callable[[Report], Outcome], *methods: str) -> Callable[[Report], Outcome]:
    """Make a check that knows only these methods and plain fine-tuning, because the paper has no others."""

    def check_among(report: Report) -> Outcome:
        known = (BASE_METHOD, *methods)
        tables = [
            replace(table, lines=[line for line in table.lines if line.method in known]) for table in report.tables
        ]
        return check(replace(report, tables=tables, runs=[run for run in report.runs if run["method"] in known]))

    return check_among


def judge_improvement(runs: BaselineComparison, method: str, budgets: Budgets) -> Outcome:
    """Compare one method with plain fine-tuning; `decide_difference` decides."""
    names = [name for name in runs.methods if name[1] == method]
    compared = {
        (name, c): cell.comparison for name in names for c, cell in runs.cells[name].items() if cell.comparison
    }
    if undefined := [column for (_, column), comparison in compared.items() if math.isnan(comparison.difference)]:
        return Outcome(UNDECIDED, f"{method}: undefined score (NaN) on {', '.join(dict.fromkeys(undefined))}")
    constant = runs.list_constant_tasks(names)
    left_out = f" (left out, constant predictors: {', '.join(constant)})" if constant else ""
    arms = [runs.collect_arms(name) for name in names]
    tasks = [pair for own in arms for pair in own.tested.values()]
    if constant and not any(own.tested or own.single_seed for own in arms):
        return Outcome(UNDECIDED, f"{method}: no task can be compared{left_out}")
    if not tasks or any(own.single_seed for own in arms):
        return Outcome(NOT_RUN, f"{method}: fewer than two seeds of it or of plain fine-tuning{left_out}")
    columns = ", ".join(dict.fromkeys(column for own in arms for column in own.tested))
    return decide_difference(f"{method} on {columns}", tasks, left_out + describe_budgets(budgets), budgets)


def nothing_improves(report: Report) -> Outcome:
    """Check that no method's gain on a task survives Holm's correction.

    It is undecided if constant predictors or undefined scores leave nothing to test.
    If no gain survives, the claim holds only if the runs would have shown a gain of ``RELEVANT_GAIN`` points on every
    task; else it is undecided.
    """
    family = collect_test_family(report.tables)
    number = len(family)
    runs = BaselineComparison(report.tables)
    constant = runs.list_constant_predictors()
    left_out = f"; left out, constant predictors: {', '.join(constant)}" if constant else ""
    comparisons = [cell.comparison for cells in runs.cells.values() for cell in cells.values() if cell.comparison]
    if not number and (constant or any(math.isnan(comparison.difference) for comparison in comparisons)):
        return Outcome(UNDECIDED, f"every score is undefined or of a constant predictor{left_out}")
    if not number:
        return Outcome(NOT_RUN, "no comparison of two or more seeds")
    gains = [
        f"{method} on {column}"
        for (_, method), survivors in find_holm_survivors(family).items()
        for column, difference in survivors.items()
        if difference > 0
    ]
    columns = ", ".join(dict.fromkeys(column for _, _, column, _ in family))
    numbers = f"{len(gains)} of {number} comparisons on {columns} are gains that survive Holm"
    if gains:
        return Outcome(FAILS, f"{numbers}: {', '.join(gains)}{left_out}")
    arms = {name: runs.collect_arms(name) for name in runs.methods}
    least = max(map(column_detectable_difference, group_arms_by_column(arms).values()), default=math.inf)
    numbers += f"; differences under {least:.2g} points would usually go unnoticed{left_out}"
    if untested := sum(comparison.welch is None for comparison in comparisons):
        return Outcome(UNDECIDED, f"{numbers}; {untested} more can't be tested")
    return Outcome(HOLDS if least <= RELEVANT_GAIN else UNDECIDED, numbers)


ISOBN, ISOBN_V1, CALIBRATION = "isobn", "isobn_arxiv_v1", "isotropy_calibration"
ADAPTATION, COMMON = "task_adaptation", "too_much_in_common"
SPECTRUM = ("spectrum_polynomial", "spectrum_exponential")
SEEDS = "-m seed=1,2,3,4,5"  # for experiments whose grid has one seed
FEW_SAMPLE = "judged with DistilBERT and 1,000 examples of each task"
CLAIMS = [
    Claim(ISOBN, "IsoBN improves fine-tuning (Table 1)", "glue_isobn", improves("isobn_paper"), settings=SEEDS),
    Claim(ISOBN, f"IsoBN improves fine-tuning (Table 1), {FEW_SAMPLE}", "glue_few_sample", improves("isobn_paper")),
    Claim(
        ISOBN, "IsoBN lowers EV_1 of pretrained [CLS] much, batch normalisation little (Table 2)", "isobn_ev",
        isobn_lowers_ev, "explained_variance",
    ),
    Claim(ISOBN, "Fine-tuning leaves the classifier near its initialisation (Figure 2)", "isobn_drift",
          classifier_stays_at_init, "drift"),
    Claim(ISOBN, "Fine-tuned classifiers exaggerate the first component (Figure 3)", "isobn_drift",
          top_component_is_exaggerated, "drift"),
    Claim(ISOBN, "Modified IsoBN (Eqs. 6 to 8) trains better than the original one (Eqs. 3 to 5)", "glue_isobn",
          is_better_than("isobn_paper", "isobn_original"),
          settings=f"{SEEDS} calibration=isobn_paper,isobn_original"),
    Claim(ISOBN_V1, "Subtracting the mean hurts on unbalanced classes (Section 3.3; CoLA, MRPC)", "glue_isobn",
          is_better_than("isobn_paper", "center+isobn_paper", UNBALANCED_TASKS),
          settings=f"{SEEDS} task={','.join(UNBALANCED_TASKS)} 'calibration=isobn_paper,[center,isobn_paper]'"),
    Claim(CALIBRATION, "No calibration improves fine-tuning (Table 1)", "glue_calibration", nothing_improves),
    Claim(CALIBRATION, "Isotropy does not correlate with the task's score (Section 4)", "glue_calibration",
          isotropy_is_unrelated),
    Claim(CALIBRATION, f"Cosine regularisation does not improve fine-tuning (Table 1), {FEW_SAMPLE}",
          "glue_few_sample", judge_among(nothing_improves, "cosine")),
    Claim(CALIBRATION, f"Isotropy does not correlate with the task's score (Section 4), {FEW_SAMPLE}",
          "glue_few_sample", isotropy_is_unrelated),
    Claim(CALIBRATION, "Spectrum control that makes the head as isotropic as printed collapses to one class on some "
          "tasks (Tables 1 and 4)", "glue_calibration",
          collapses("spectrum_polynomial", "spectrum_exponential", "spectrum_polynomial_collapsed",
                    "spectrum_exponential_collapsed")),
    Claim(CALIBRATION, "No calibration improves translation (Table 2)", "mt_calibration", nothing_improves),
    Claim(CALIBRATION, "No calibration improves summarisation (Tables 3 and 5)", "summarization_calibration",
          nothing_improves),
    Claim(CALIBRATION, "On GLUE, the flow takes 4.2 times the training time (Section 4.1)", "glue_calibration",
          costs_times("table1", 4.2, "flow")),
    Claim(CALIBRATION, "In translation, the flow takes 10.5 times the training time (Section 4.2)",
          "mt_calibration", costs_times("table2", 10.5, "flow")),
    Claim(CALIBRATION, "In translation, spectrum control takes 1.25 (Section 4.2) to 1.63 (Table 2) times the "
          "training time", "mt_calibration", costs_between("table2", 1.25, 1.63, *SPECTRUM)),
    Claim(CALIBRATION, "In summarisation, the flow takes 5.5 times the training time (Section 4.3)",
          "summarization_calibration", costs_times("table3", 5.5, "flow")),
    Claim(ADAPTATION, "L2 and gradient normalisation improve fine-tuning (Section 5.2)", "glue_adaptation",
          improves("fixed_norm_l2", "gradient_norm_half", "gradient_norm")),
    Claim(ADAPTATION, "Pretrained [CLS] embeddings fall into two clusters by t-SNE (Section 3.2, Figure 1)",
          "adaptation_embeddings", there_are_two_clusters, "summary"),
    Claim(ADAPTATION, "Dimensions that vary much are not the important ones, in general (Figure 3)",
          "adaptation_embeddings", variance_is_not_importance, "summary"),
    Claim(ADAPTATION, "On RTE, MNLI, QNLI and WNLI, dimensions that vary more are more important (Section 3.3)",
          "adaptation_embeddings", variance_rises_with_importance, "summary"),
    Claim(COMMON, "Centring alone makes word embeddings nearly isotropic (Table 1)", "common_isotropy",
          centring_restores_isotropy, "isotropy"),
    Claim(COMMON, "Scaled centring and post-processing improve word similarity (Table 2)", "common_wordsim",
          word_similarity_improves("centered_scaled", "post_process"), "averages"),
    Claim(COMMON, "Unused tokens are nearer to rare tokens than to frequent ones (Figure 3)", "common_frequency",
          rare_tokens_are_nearer, "cosine_ranges"),
    Claim("mteb", "Two encoders' published scores by cosine can be repeated (result files)", "sts_similarity",
          scores_are_repeated, "published"),
]  # fmt: skip
