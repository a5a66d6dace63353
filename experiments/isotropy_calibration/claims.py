"""Define what "On Isotropy Calibration of Transformers" claims, and judge each claim."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

from isobench.report.build import Report
from isobench.report.checks import Check, judge_cases, nothing_improves
from isobench.report.claims import UNDECIDED, Claim, Outcome, later
from isobench.report.printed import Change, break_print, build_printed_report, only, scale_effects, set_gain
from isobench.report.wording import format_points
from isobench_papers.isotropy_calibration.checks import (
    changes_little,
    costs,
    gains_are_few,
    isotropy_lowers_scores,
    loses_more,
    most_degrade,
    nothing_improves_consistently,
    prevents_learning,
    raises_isotropy,
)

GPU = "Titan RTX"  # the paper's times were measured on it
TOLERANCE = 1.25  # our choice: our factor of time agrees with a printed one if it is at most a quarter off
# On GLUE, spectrum control's other constants can't give Table 4's isotropies (README.md).
FOUND = ("spectrum_polynomial_found", "spectrum_exponential_found")
SPECTRUM = ("spectrum_polynomial", "spectrum_exponential")
SMALL = ("cosine", "flow")  # the methods with small effects, as the paper has it
GLUE_TASKS = ("sst2", "mrpc", "cola", "rte", "wnli", "stsb", "qnli", "mnli", "qqp")
MT_TASKS = ("wmt16_en_ro", "wmt16_de_en_1m", "wmt16_en_ro_50k", "wmt16_de_en_50k")
WITH_FLOW_IN_BERT = (("cosine", [], 4), ("flow", ["bert-base-cased"], 2))  # times the effect is no small one
SUMMARY_TASKS = ("cnn_dailymail", "cnn_dailymail_20k")

PRINT = partial(build_printed_report, "isotropy_calibration", seeds=3, machine=GPU)
GLUE_SCORES = partial(PRINT, ["table1"], methods=[*FOUND, *SMALL])
GLUE = partial(PRINT, ["table1", "table4"], methods=[*FOUND, *SMALL])
MT = partial(PRINT, ["table2"], methods=[*SPECTRUM, *SMALL])
SUMMARY = partial(PRINT, ["table5"], methods=[*SPECTRUM, *SMALL])
GLUE_SCORES_PRINTED, GLUE_PRINTED, MT_PRINTED, SUMMARY_PRINTED = map(cache, (GLUE_SCORES, GLUE, MT, SUMMARY))


def let_win(method: str, encoder: str, tasks: Sequence[str], deviations: float = 3) -> Change:
    """Make the change that lets a method win on tasks of an encoder, by so many times both deviations."""
    gain = set_gain(lambda cell: deviations * (cell.numbers["sd"] + cell.plain["sd"]))
    return only(gain, kind=["score"], method=[method], encoder=[encoder], task=tasks)


def set_score(points: float) -> Change:
    """Make the change of so many points of score."""
    return only(set_gain(lambda _: points), kind=["score"])


def approach_isotropy(share: float, tasks: Sequence[str] = GLUE_TASKS + MT_TASKS + SUMMARY_TASKS) -> Change:
    """Make the change to heads a share of the way from plain fine-tuning's to an I1 of 1 and an I2 of 0, on tasks."""
    # Every printed I1 of plain fine-tuning is above .8, every I2 below.
    gain = set_gain(lambda cell: share * (cell.task in tasks) * ((cell.plain["mean"] > 0.8) - cell.plain["mean"]))
    return only(gain, kind=["isotropy"])


def columns_change(low: float, high: float) -> Check:
    """Make the check that in every column of scores, such as R-2, methods are so many points above plain's."""

    def check(report: Report) -> Outcome:
        cells = list(report.cells.query("compared and kind == 'score'").itertuples())
        numbers = "; ".join(f"{cell.method} on {cell.column} {format_points(cell.difference)}" for cell in cells)
        return judge_cases((low <= cell.difference <= high for cell in cells), numbers)

    return check


@later
def change_rouge(points: float, *methods: str) -> Report:
    """Build Tables 3 and 5 with R-2 and R-L of methods so many points above print's, and R-1 as it is."""
    report = SUMMARY()
    is_meant = report.cells["method"].isin(methods) & ~report.cells["column"].str.endswith("R-1")
    differences = report.cells["difference"].where(~is_meant, report.cells["difference"] + points)
    return replace(report, cells=report.cells.assign(difference=differences))


@later
def time_flow(factor: float) -> Report:
    """Make the runs of Table 1 with times: the flow takes ``factor`` times plain fine-tuning's."""
    report = GLUE_SCORES_PRINTED()
    seconds = report.runs["method"].map(lambda method: factor if method == "flow" else 1.0)
    return replace(report, runs=report.runs.assign(training_seconds=seconds))


def flow_costs(table: str, factor: float) -> Check:
    """Make the check that the flow takes so many times the training time, in the tasks of a table."""
    return costs(f"isotropy_calibration/{table}", GPU, factor / TOLERANCE, factor * TOLERANCE, "flow")


def all_hold(*checks: Check) -> Check:
    """Make the check that holds, or does not hold, if each of these does."""

    def check(report: Report) -> Outcome:
        outcomes = [own(report) for own in checks]
        words = {outcome.word for outcome in outcomes}
        return Outcome(words.pop() if len(words) == 1 else UNDECIDED, "; ".join(x.numbers for x in outcomes))

    return check


def list_times(low: float, high: float) -> dict[str, Change]:
    """List changes of the additional time."""
    factors = {"no additional time": 0, f"{low:g} of the additional time": low, f"{high:g} of it": high}
    return {name: scale_effects(factor, "time") for name, factor in factors.items()}


RELATION = {
    "losses are gains": scale_effects(-1, "score"),
    "scores are plain fine-tuning's": scale_effects(0, "score"),
}
ISOTROPY = {
    "a third of the change": scale_effects(1 / 3, "isotropy"),
    "I1 rises by .001": only(set_gain(lambda cell: 0.001 * (cell.plain["mean"] > 0.8)), kind=["isotropy"]),
    "isotropy falls": scale_effects(-1, "isotropy"),
}
NO_GAIN = "no isotropy calibration method yields consistently better performance than the uncalibrated models"
NO_GAIN_CRITERION = (
    "no method is above plain fine-tuning on three quarters of an encoder's tasks (our choice) or more; it fails if "
    "one is by more than chance over these tasks together"
)
RELATION_CRITERION = (
    "over runs of a task and encoder, the score falls with the head's I1 and rises with its I2, both as printed, and "
    "with each encoder "
    "(their form is inferred: errata.md, 19)"
)
SMALL_EFFECT = "the effect of cosine regularization and flow calibration is small in both, isotropy and performance"
SMALL_CRITERION = (
    "the change is at most a point of score, and .02 of the head's I1 and I2, on three quarters of the tasks (our "
    "choices)"
)
HALF_OF_THE_WAY = (
    "the head's I1 goes half of the way to 1, and its I2 falls by half, on three quarters of the tasks (our choices)"
)
COST_CRITERION = "our factor of the flow is at most a quarter off (our choice)"
UNSTATED = "the paper does not state the methods' constants (errata.md, 12 and 21)"
FITTED = f"{UNSTATED}; spectrum control's were computed from Table 4, so its isotropy says nothing (laptop.md)"
AT_PAPER_SCALE = {"settings": "scale=paper", "unstated": UNSTATED}
OF_GLUE = {"methods": [*FOUND, *SMALL], "tasks": GLUE_TASKS, **AT_PAPER_SCALE}
OF_MT = {"methods": [*SPECTRUM, *SMALL], "tasks": MT_TASKS, **AT_PAPER_SCALE}
OF_SUMMARY = {"methods": [*SPECTRUM, *SMALL], "tasks": SUMMARY_TASKS, **AT_PAPER_SCALE}

CLAIMS = [
    Claim(
        NO_GAIN, "Section 4.1, Table 1", NO_GAIN_CRITERION,
        "glue_calibration", nothing_improves_consistently, GLUE_SCORES_PRINTED,
        broken=break_print(GLUE_SCORES, {
            "cosine wins on eight of RoBERTa's nine tasks": let_win(
                "cosine", "roberta-base", set(GLUE_TASKS) - {"stsb"}
            ),
            "the flow wins on eight of BERT's nine tasks": let_win(
                "flow", "bert-base-cased", set(GLUE_TASKS) - {"cola"}
            ),
            "cosine is above on eight of RoBERTa's nine tasks, by chance": let_win(
                "cosine", "roberta-base", set(GLUE_TASKS) - {"stsb"}, deviations=0.3
            ),
            "cosine gains a little on each task of DistilBERT": let_win(
                "cosine", "distilbert-base-cased", GLUE_TASKS, deviations=1
            ),
        }),
        **OF_GLUE,
    ),
    Claim(
        NO_GAIN, "Section 4.1, Table 1", f"{NO_GAIN_CRITERION}; cosine, with DistilBERT and 1,000 examples",
        "glue_few_sample", nothing_improves_consistently, "print has no models of 1,000 examples",
        broken=break_print(partial(GLUE_SCORES, encoders=["distilbert-base-cased"]), {
            f"cosine gains on each task, by {deviations:g} deviations":
                let_win("cosine", "distilbert-base-cased", GLUE_TASKS, deviations)
            for deviations in (1, 3)
        }),
        methods=["cosine"], tasks=["cola", "mrpc", "rte"], unstated=UNSTATED,
    ),
    Claim(
        "In the overwhelming majority of cases, the calibrated models perform comparably to or worse",
        "Section 4.1, Table 1",
        "by the paper's test (Student's, p < .05, no correction) no more scores are gains than chance gives in 95% "
        "of tables, and half of the means or fewer are above plain fine-tuning's (our choice); print has two gains "
        "(errata.md, 4) of 88, and 22 means above. The text names the two; where ours are is not judged",
        "glue_calibration", gains_are_few, GLUE_SCORES_PRINTED,
        broken=break_print(GLUE_SCORES, {
            "four more gains": let_win("cosine", "roberta-base", ["sst2", "cola", "wnli", "qnli"]),
            "losses are gains": scale_effects(-1),
            "every mean is above by chance": set_gain(lambda cell: (cell.plain["sd"] or 0) / 2),
        }),
        **OF_GLUE,
    ),
    *(
        Claim(
            "cosine regularization and flow calibration (in BERT) do not affect performance much",
            "Section 4.1, Table 1",
            f"in each encoder the change by {method} is at most five points on three quarters of the tasks (our "
            "choices; in print on eight of nine), and its median 2.5 (print: 1.97 or less). This tolerates the seeds "
            "of STS-B that fail with cosine in print",
            "glue_calibration", changes_little(points=5, median_points=2.5), GLUE_SCORES_PRINTED,
            broken=break_print(GLUE_SCORES, {
                "4.9 points more on each task": set_score(4.9),
                "4.9 points less on each task": set_score(-4.9),
                "spectrum control's scores": dict.fromkeys(SMALL, FOUND[0]),
                "40 points on each of three tasks": only(set_score(-40), task=["sst2", "cola", "mrpc"]),
                f"{factor} times the effect": scale_effects(factor),
                f"{factor} times the effect, turned": scale_effects(-factor),
            }),
            **OF_GLUE | {"methods": [method]}, encoders=encoders,
        )
        for method, encoders, factor in WITH_FLOW_IN_BERT
    ),
    *(
        Claim(
            "cosine regularization and flow calibration (for BERT) have a small impact on isotropy",
            "Appendix C, Table 4",
            f"in each encoder the change by {method} is at most .02 of the head's I1 and I2 on three quarters of the "
            "tasks (our choices; in print on eight of nine or more). This tolerates the misprints (errata.md, 20)",
            "glue_calibration", changes_little(isotropy=0.02), GLUE_PRINTED,
            broken=break_print(GLUE, {
                "spectrum control's heads": dict.fromkeys(SMALL, FOUND[0]),
                "a fifth of the way to isotropy": approach_isotropy(0.2),
                "spectrum control's heads on three tasks": approach_isotropy(1, ["sst2", "cola", "mrpc"]),
            }),
            **OF_GLUE | {"methods": [method]}, encoders=encoders,
        )
        for method, encoders, _ in WITH_FLOW_IN_BERT
    ),
    Claim(
        "spectrum control in some cases ... even prevents learning, e.g., CoLA and STS-B",
        "Section 4.1, Table 1",
        "in each encoder and with both variants, every run on CoLA and at least one on STS-B (print's NaN shows no "
        "more; at first every run was asked, see laptop.md) predicts one class, and not every plain one. Of our runs "
        "only STS-B's tell, because our strength was chosen by a run that predicts one class on CoLA",
        "glue_calibration", prevents_learning, GLUE_SCORES_PRINTED,
        broken=break_print(GLUE_SCORES, {
            "half of the loss": scale_effects(0.5),
            "STS-B is learnt": only(scale_effects(0), task=["stsb"]),
            "one variant alone": {FOUND[1]: "none"},
            "plain fine-tuning does not learn either": {"none": FOUND[0]},
        }),
        methods=FOUND, tasks=["cola", "stsb"], settings="scale=paper",
        unstated=f"{UNSTATED}; that CoLA is not learnt is how ours were chosen (laptop.md)",
    ),
    Claim(
        "The isotropy metrics I1 and I2 show the opposite trend to the performance metrics.",
        "Appendix C, Tables 1 and 4", RELATION_CRITERION,
        "glue_calibration", isotropy_lowers_scores, GLUE_PRINTED,
        broken=break_print(GLUE, RELATION | {
            "isotropy is plain fine-tuning's": scale_effects(0, "isotropy"),
            "losses are gains with RoBERTa": only(scale_effects(-1, "score"), encoder=["roberta-base"]),
        }),
        **OF_GLUE | {"unstated": FITTED},
    ),
    Claim(
        "spectrum control produces a very significant increase in isotropy", "Appendix C, Table 4",
        f"in each encoder, {HALF_OF_THE_WAY}; in print on seven of nine tasks or more",
        "glue_calibration", raises_isotropy, GLUE_PRINTED,
        broken=break_print(GLUE, ISOTROPY | {"one variant alone": {FOUND[1]: "none"}}),
        **OF_GLUE | {"methods": FOUND, "unstated": FITTED},
    ),
    Claim(
        "requiring on average 4.2 times more time per training epoch", "Section 4.1", COST_CRITERION,
        "glue_calibration", flow_costs("table1", 4.2), "no table has the minutes of GLUE",
        broken={f"{factor:g} times the time": time_flow(factor) for factor in (1, 3, 5.5)},
        **OF_GLUE | {"methods": ["flow"]},
    ),
    Claim(
        "when isotropy increases, performance decreases", "Section 4.2, Table 2", RELATION_CRITERION,
        "mt_calibration", isotropy_lowers_scores, MT_PRINTED, broken=break_print(MT, RELATION), **OF_MT,
    ),
    Claim(
        "both variants of spectrum control improve isotropy", "Section 4.2, Table 2",
        HALF_OF_THE_WAY,
        "mt_calibration", raises_isotropy, MT_PRINTED,
        broken=break_print(MT, ISOTROPY | {"one variant alone": {SPECTRUM[1]: "none"}}),
        **OF_MT | {"methods": SPECTRUM, "tasks": MT_TASKS[:2]},
    ),
    Claim(
        "isotropy calibration in machine translation tends to degrade performance", "Section 4.2, Table 2",
        "most methods are below plain fine-tuning in the mean over tasks, one of them by more than chance, and none "
        "is above by more than chance",
        "mt_calibration", most_degrade, MT_PRINTED,
        broken=break_print(MT, {
            "losses are gains": scale_effects(-1, "score"),
            "losses within chance": scale_effects(0.02, "score"),
            "half of the methods": {SPECTRUM[1]: "cosine"},
            "one method gains much": let_win("cosine", "mbart-large-cc25", MT_TASKS, 10),
        }),
        **OF_MT,
    ),
    Claim(
        "a performance degradation of over 3 and 5 BLEU points", "Section 4.2, Table 2",
        "spectrum control loses more than 3 points on EN-RO and more than 5 on DE-EN",
        "mt_calibration", loses_more({"wmt16_en_ro": 3, "wmt16_de_en_1m": 5}), MT_PRINTED,
        broken=break_print(MT, {
            "nine tenths of the loss": scale_effects(0.9, "score"),
            "losses are gains": scale_effects(-1, "score"),
            "one variant alone": {SPECTRUM[1]: "cosine"},
        }),
        **OF_MT | {"methods": SPECTRUM, "tasks": MT_TASKS[:2]},
    ),
    Claim(
        SMALL_EFFECT, "Sections 4.2 and 5, Table 2", SMALL_CRITERION,
        "mt_calibration", changes_little(points=1, isotropy=0.02), MT_PRINTED,
        broken=break_print(MT, {
            "cosine is spectrum control": {"cosine": SPECTRUM[0]},
            "twice the flow's effect": only(scale_effects(2, "score"), method=["flow"]),
            "a fifth of the way to isotropy": approach_isotropy(0.2),
        }),
        **OF_MT | {"methods": SMALL},
    ),
    Claim(
        "requires on average 10.5 times more computation per epoch", "Section 4.2, Table 2", COST_CRITERION,
        "mt_calibration", flow_costs("table2", 10.5), MT_PRINTED, broken=break_print(MT, list_times(0.7, 1.4)),
        **OF_MT | {"methods": ["flow"], "tasks": MT_TASKS[2:]},
    ),
    Claim(
        "requiring 25% to 50% more computation", "Section 4.2, Table 2",
        "spectrum control's mean factor is 1.525 at most, as 50% is if rounded to fives (Table 2's is 1.50: "
        "errata.md, 9), and its 95% interval lies between 1.25 and 1.6 (our choice; Table 2's ends at 1.57)",
        "mt_calibration", costs("isotropy_calibration/table2", GPU, 1.25, 1.6, *SPECTRUM, most=1.525), MT_PRINTED,
        broken=break_print(MT, list_times(0.5, 1.1)), methods=SPECTRUM, tasks=MT_TASKS[:2], settings="scale=paper",
    ),
    Claim(
        "none of the calibrated models performs significantly better than their uncalibrated counterparts",
        "Section 4.3, Tables 3 and 5",
        "no score is a gain with p < .05, and the 95% interval of each difference ends below a gain of one point "
        "(our choice); it fails if a gain survives Holm's correction (ours; the paper has none)",
        "summarization_calibration", nothing_improves, SUMMARY_PRINTED,
        broken=break_print(SUMMARY, {
            "losses are gains": scale_effects(-1, "score"),
            "cosine gains a quarter of a point": let_win("cosine", "bart-base", ["cnn_dailymail"], deviations=2.5),
            "the flow may gain a point": let_win("flow", "bart-base", ["cnn_dailymail_20k"], deviations=1),
        }),
        **OF_SUMMARY,
    ),
    Claim(
        SMALL_EFFECT, "Sections 4.3 and 5, Table 3",
        f"{SMALL_CRITERION}; of the scores in each column, R-1, R-2 and R-L",
        "summarization_calibration", all_hold(columns_change(-1, 1), changes_little(isotropy=0.02)),
        SUMMARY_PRINTED,
        broken=break_print(SUMMARY, {
            "cosine is spectrum control": {"cosine": SPECTRUM[0]},
            "three times the flow's effect": only(scale_effects(3, "score"), method=["flow"]),
            "a fifth of the way to isotropy": approach_isotropy(0.2),
        }) | {f"R-2 and R-L change by {points} points": change_rouge(points, *SMALL) for points in (-2, 2)},
        **OF_SUMMARY | {"methods": SMALL},
    ),
    Claim(
        "spectrum control improves isotropy (I1 and I2) at the cost of a small performance drop",
        "Section 4.3, Tables 3 and 5",
        f"{HALF_OF_THE_WAY}; R-1, R-2 and R-L each fall by a quarter of a point or more, and by two at most (our "
        "choices; print: .76 to 1.80)",
        "summarization_calibration",
        all_hold(raises_isotropy, columns_change(-2, -0.25)), SUMMARY_PRINTED,
        broken=break_print(SUMMARY, ISOTROPY | {
            "one variant alone": {SPECTRUM[1]: "none"},
            "a quarter of the drop": scale_effects(0.25, "score"),
            "drops are gains": scale_effects(-1, "score"),
            "twice the drop": scale_effects(2, "score"),
        }) | {f"R-2 and R-L change by {points} points more": change_rouge(points, *SPECTRUM) for points in (-2, 3)},
        **OF_SUMMARY | {"methods": SPECTRUM, "tasks": SUMMARY_TASKS[:1]},
    ),
    Claim(
        "requires 5.5 times more computation", "Section 4.3, Table 3", COST_CRITERION,
        "summarization_calibration", flow_costs("table3", 5.5), SUMMARY_PRINTED,
        broken=break_print(SUMMARY, list_times(0.7, 1.4)),
        **OF_SUMMARY | {"methods": ["flow"], "tasks": SUMMARY_TASKS[1:]},
    ),
]  # fmt: skip
