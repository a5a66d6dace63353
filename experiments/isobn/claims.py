"""Define what the IsoBN paper claims, and judge each claim."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, product
from operator import itemgetter
from typing import Any

from isobench.analyses.rows import group_rows
from isobench.papers.published import load_tables
from isobench.report.build import Report
from isobench.report.checks import (
    UNEVEN_BUDGETS,
    Check,
    gains,
    improves,
    is_better_than,
    judge_cases,
    list_collapses,
)
from isobench.report.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED, Claim, Outcome, Rows, later
from isobench.report.methods import list_arms, list_score_cells
from isobench.report.printed import Change, break_print, build_printed_report, collapse, only, scale_effects, set_gain
from isobench.report.wording import format_points
from isobench.statistics.seeds import compare_runs

SEEDS = "-m seed=1,2,3,4,5"  # its grid has one seed
SMALL = ("mrpc", "rte", "cola", "stsb")  # as the text calls them; also those of Table 2 and of Figures 4, 5 and 7
TASKS = ("mnli", "qnli", "sst2", *SMALL)
# The printed momentum makes statistics of nearly the last batch alone, the released code's does not (errata.md, 2 and
# 6). It is not known which of them gave the printed numbers, so both decide.
ISOBN = ("isobn_paper", "isobn_released")
BOTH = "isobn_paper and isobn_released (it is not known which gave the printed numbers)"
VERSIONS = f"{SEEDS} task={','.join(TASKS)} calibration=none,{','.join(ISOBN)}"
TABLE1 = partial(build_printed_report, "isobn", ["table1"], seeds=5)
GAINS_ON_SMALL, GAINS_ON_LARGE = (1.3, 1.6), (0.15, 0.25)  # of RoBERTa and BERT, of BERT and RoBERTa, in the text
PRINTED_FALLS = {"bert-base-cased": 0.123, "roberta-large": 0.425}  # of EV3; other encoders: as BERT's
PRINTED_EV = 0.86  # EV3 of both, before normalisation
PRINTED_TURN = 1 - 0.9997  # one less the cosine
SMALL_MARGIN = 0.25  # of EV_k; our choice (print: up to .208)
LACKING = "a method lacks a task, or its embeddings do not vary"
EXCESS = 0.05  # of the variance; our choice
# Our choice. Table 2's EV after batch normalisation are those of the correlations. They leave room for a mean |rho|
# of .63 (RoBERTa on CoLA) to .75 (BERT on MRPC), and of no more than .45 on the tasks that the text excepts.
HIGHLY = 0.55
FIGURE = "it is shown in a figure, without numbers"
PLAIN, OF_SMALL = "calibration=none", f"task={','.join(SMALL)}"
NOTHING, TURNED = scale_effects(0), scale_effects(-1)


def on_each_encoder(check: Check) -> Check:
    """Make the check that a report meets as a whole, and each of its encoders alone."""

    def check_each(report: Report) -> Outcome:
        parts = {"all": report} if report.runs["encoder"].nunique() != 1 else {}
        for encoder in report.runs["encoder"].unique():
            runs, cells = (table[table["encoder"] == encoder] for table in (report.runs, report.cells))
            parts[encoder] = replace(report, runs=runs, cells=cells)
        outcomes = {name: check(part) for name, part in parts.items()}
        words = {outcome.word for outcome in outcomes.values()}
        numbers = "; ".join(f"{name}: {outcome.numbers}" for name, outcome in outcomes.items())
        return Outcome(words.pop() if len(words) == 1 else UNDECIDED, numbers)

    return check_each


def small_sets_gain_more(report: Report) -> Outcome:
    # Scores on small sets vary more, so a version that was selected from more configurations decides nothing.
    cells, cases, numbers = list_score_cells(report.cells), [], []
    for method in ISOBN:
        arms: list[list[Any]] = [[], []]  # large, small
        for _, group in cells[cells["method"] == method].groupby(["group", "task"], sort=False):
            arms[group["task"].iloc[0] in SMALL] += list_arms(group.itertuples()).values()
        if not all(arms):
            return Outcome(NOT_RUN, f"{method}: no {'large' if arms[1] else 'small'} data set")
        large, small = map(compare_runs, arms)
        if math.isnan(large.p + small.p):
            return Outcome(NOT_RUN, f"{method}: fewer than two seeds, or scores that do not vary")
        gain = small.low <= GAINS_ON_SMALL[1] and small.high >= GAINS_ON_SMALL[0]
        gain &= large.low <= GAINS_ON_LARGE[1] and large.high >= GAINS_ON_LARGE[0]
        gain &= 0.75 * GAINS_ON_SMALL[0] <= small.value <= 1.25 * GAINS_ON_SMALL[1]
        cases.append((gain and small.low > max(0, large.high), small.value > max(0, large.value)))
        named = (("small", small), ("large", large))
        limits = (
            f"{name} {format_points(x.value)} [{format_points(x.low)}, {format_points(x.high)}]" for name, x in named
        )
        numbers.append(f"{method} {', '.join(limits)}")
    tried = report.runs[report.runs["selected"].astype(bool)].groupby("method")["candidates"].max()
    if any(tried[method] > tried.get("none", 1) for method in ISOBN):
        return Outcome(UNDECIDED, f"{'; '.join(numbers)}; {UNEVEN_BUDGETS}")
    if collapses := list_collapses(report, *ISOBN):
        return Outcome(UNDECIDED, "; ".join([*numbers, *collapses]))
    word = HOLDS if all(apart for apart, _ in cases) else UNDECIDED if any(more for _, more in cases) else FAILS
    return Outcome(word, "; ".join(numbers))


def average_ev(rows: Rows) -> dict[tuple[str, int], dict[str, float]]:
    """Average EV1 to EV3 over tasks: encoder, k -> method -> mean, NaN if the method lacks one of the tasks."""
    values = {(r["encoder"], r["task"], r["method"], r["k"]): r["ev"] for r in rows if r["k"] <= 3}
    found = {}
    for encoder, k in sorted({(key[0], key[3]) for key in values}):
        tasks = dict.fromkeys(key[1] for key in values if key[0] == encoder)
        found[encoder, k] = {
            method: statistics.fmean(values.get((encoder, task, method, k), math.nan) for task in tasks)
            for method in ("none", "batch_norm", *ISOBN)
        }
    return found


def isobn_lowers_ev(rows: Rows) -> Outcome:
    cases, numbers = [], []
    for (encoder, k), means in average_ev(rows).items():
        if any(map(math.isnan, means.values())):
            return Outcome(UNDECIDED, f"{encoder}: {LACKING}")
        least = PRINTED_FALLS.get(encoder, PRINTED_FALLS["bert-base-cased"]) / 2 if k == 3 else 0
        cases += [means[m] < means["batch_norm"] and means["none"] - means[m] >= least for m in ISOBN]
        numbers.append(f"EV{k} {encoder} {', '.join(f'{method} {mean:.3f}' for method, mean in means.items())}")
    return judge_cases(cases, f"means over tasks: {'; '.join(numbers)}")


def batch_norm_lowers_ev_little(rows: Rows) -> Outcome:
    cases, numbers = [], []
    for (encoder, k), means in average_ev(rows).items():
        falls = {m: means["none"] - mean for m, mean in means.items() if m != "none"}
        if any(map(math.isnan, falls.values())):
            return Outcome(UNDECIDED, f"{encoder}: {LACKING}")
        cases.append(0 < falls["batch_norm"] <= min(SMALL_MARGIN, *(falls[method] / 2 for method in ISOBN)))
        numbers.append(f"EV{k} {encoder} {', '.join(f'{m} {fall:.3f}' for m, fall in falls.items())}")
    return judge_cases(cases, f"falls: {'; '.join(numbers)}")


def ev_is_as_high(rows: Rows) -> Outcome:
    found = {encoder: means["none"] for (encoder, k), means in average_ev(rows).items() if k == 3}
    if any(map(math.isnan, found.values())):
        return Outcome(UNDECIDED, LACKING)
    numbers = "; ".join(f"{encoder} {mean:.3f}" for encoder, mean in found.items())
    return judge_cases((abs(mean - PRINTED_EV) <= 0.05 for mean in found.values()), f"EV3: {numbers}")


@later
def list_printed_ev(
    change: Callable[[dict[str, Any], dict[str, Any]], float] | None = None, **where: Sequence[Any]
) -> Rows:
    """List Table 2 as the analysis's rows.

    ``change`` takes a row with one of the values ``where``, by default IsoBN's, and method -> EV of its cell, and
    returns the row's EV.
    """
    where = {"method": ISOBN} | where
    table = load_tables("isobn")["table2"]
    rows = []
    for encoder, lines in table.cells.items():
        for (column, form), k in product(table.columns.items(), range(1, 4)):
            values = {method: lines[line][column][k - 1] for method, line in table.methods.items()}
            for method, value in values.items():
                row = {"encoder": encoder, "task": form.task, "method": method, "k": k, "ev": value}
                if change and all(row[name] in meant for name, meant in where.items()):
                    row["ev"] = change(row, values)
                rows.append(row)
    return rows


def take_most(_: dict[str, Any], ev: dict[str, Any]) -> float:
    return 0.75 * ev["isobn_paper"] + 0.25 * ev["none"]


def judge_epochs(rows: Rows, measure: Callable[[Any], float], accept: Callable[[float], bool], what: str) -> Outcome:
    """Judge a measure, mean over an encoder's runs: every epoch of every encoder must be accepted."""
    groups = group_rows(rows, "encoder", "epoch")
    means = {names: statistics.fmean(map(measure, found)) for names, found in groups.items()}
    numbers = ", ".join(f"{encoder} {epoch}: {mean:.3g}" for (encoder, epoch), mean in means.items())
    outcome = judge_cases([all(map(accept, means.values()))] if means else [], f"{what} by epoch: {numbers}")
    return want_training(rows, outcome)


def want_training(rows: Rows, outcome: Outcome) -> Outcome:
    """Leave it undecided that a claim holds throughout the training if an encoder has fewer than two epochs of it."""
    trained = [len({row["epoch"] for row in own} - {0}) for own in group_rows(rows, "encoder").values()]
    if outcome.word == HOLDS and min(trained) < 2:
        return Outcome(UNDECIDED, f"{outcome.numbers}; fewer than two epochs of training")
    return outcome


def turns_little(rows: Rows) -> Outcome:
    return judge_epochs(rows, lambda row: 1 - row["cosine"], lambda x: x <= 3 * PRINTED_TURN, "1 - cosine")


def moves_little(rows: Rows) -> Outcome:
    known = [row for row in rows if row.get("initial_norm") is not None]
    if rows and not known:
        return Outcome(NOT_RUN, "these runs have no initial norm, which is recorded now: run them again elsewhere")
    return judge_epochs(known, lambda row: row["l2"] / row["initial_norm"], lambda x: x < 0.1, "L2 / initial norm")


def top_component_dominates(rows: Rows) -> Outcome:
    return judge_epochs(rows, itemgetter("fine_tuned_top1"), lambda share: share > 0.9, "its share")


def top_components_are_exaggerated(rows: Rows) -> Outcome:
    # A regression has no optimum.
    found = [row for row in rows if row.get("optimal_top1") is not None]
    cases, numbers = [], []

    def average(name: str, own: Rows) -> float:
        return statistics.fmean(row[f"fine_tuned_{name}"] - row[f"optimal_{name}"] for row in own)

    for name in (key.removeprefix("optimal_") for key in (found or [{}])[0] if key.startswith("optimal_")):
        least = 0 if name == "top30" else EXCESS
        excess = [average(name, own) for own in group_rows(found, "encoder", "epoch").values()]
        cases += [difference > 0 and difference >= least for difference in excess]
        for own in group_rows(found, "encoder").values():
            tasks = [average(name, of_task) > 0 for of_task in group_rows(own, "task").values()]
            cases.append(sum(tasks) > len(tasks) / 2)
        numbers.append(f"{name} {min(excess):+.1%}")
    return want_training(found, judge_cases(cases, f"smallest difference of an epoch: {', '.join(numbers)}"))


@later
def list_epochs(**columns: Sequence[float]) -> Rows:
    """List made-up rows of one run of plain fine-tuning, an epoch each; the text names CoLA with RoBERTa alone."""
    epochs = zip(*columns.values(), strict=True)
    return [
        {"encoder": "roberta-large", "task": "cola", "method": "none", "epoch": epoch}
        | dict(zip(columns, values, strict=True))
        for epoch, values in enumerate(epochs)
    ]


@later
def list_shares(*excesses: float, top: Sequence[int] = (1, 5, 30)) -> Rows:
    """List made-up rows of the top components' shares: by how much each epoch's exceed the optimal classifier's.

    So it is for ``top`` numbers of components; for others there is no difference.
    """
    columns: dict[str, Sequence[float]] = {f"optimal_top{k}": [0.5] * len(excesses) for k in (1, 5, 30)}
    shares = {f"fine_tuned_top{k}": [0.5 + (x if k in top else 0) for x in excesses] for k in (1, 5, 30)}
    return list_epochs(**columns, **shares)()


def spreads_are_wide(rows: Rows) -> Outcome:
    def is_wide(own: Rows) -> bool:
        return own[0]["std_max"] >= 100 * own[0]["std_min"] and own[0]["std_q95"] >= 10 * own[0]["std_q05"]

    def describe(own: Rows) -> str:
        return f"{own[0]['std_min']:.1e} to {own[0]['std_max']:.2f}"

    return are_most(rows, is_wide, "standard deviations", describe)


@later
def list_spreads(*ranges: tuple[float, float], inner: float = 0.9, narrow: Sequence[str] = ()) -> Rows:
    """List made-up rows with BERT's and RoBERTa's range, on the tasks ``narrow`` with one from .02 to 1.

    The share ``inner`` of the logarithmic axis, around its middle, has 90% of the dimensions.
    """
    names = ("encoder", "task", "std_min", "std_max", "std_q05", "std_q95")
    rows = []
    for encoder, (least, most) in zip(PRINTED_FALLS, ranges, strict=True):
        for task in SMALL:
            low, high = (0.02, 1) if task in narrow else (least, most)
            quantiles = (low * (high / low) ** ((1 + side * inner) / 2) for side in (-1, 1))
            rows.append(dict(zip(names, (encoder, task, low, high, *quantiles), strict=True)))
    return rows


def are_most(rows: Rows, is_met: Callable[[Rows], bool], what: str, measure: Callable[[Rows], Any]) -> Outcome:
    """Check that more than half of each encoder's tasks meet a criterion, which takes a task's rows."""
    cases, numbers = [], []
    for (encoder,), own in group_rows(rows, "encoder").items():
        tasks = group_rows(own, "task")
        cases.append(sum(map(is_met, tasks.values())) > len(tasks) / 2)
        numbers.append(f"{encoder} {', '.join(f'{task} {measure(found)}' for (task,), found in tasks.items())}")
    return judge_cases(cases, f"{what}: {'; '.join(numbers)}")


def dimensions_correlate(rows: Rows) -> Outcome:
    def is_high(own: Rows) -> bool:
        return own[0]["share_above_0.5"] > 0.5 and own[0]["mean_correlation"] >= HIGHLY

    def describe(own: Rows) -> str:
        return f"{own[0]['share_above_0.5']:.0%}, {own[0]['mean_correlation']:.2f}"

    return are_most(rows, is_high, "pairs above .5, and the mean |rho|", describe)


@later
def list_correlations(*pairs: tuple[float, float]) -> Rows:
    """List made-up rows of the correlations, a task each: the share of pairs above .5, and the mean |rho|."""
    shares = list_by_task("share_above_0.5", *[[share] for share, _ in pairs])()
    return [row | {"mean_correlation": mean} for row, (_, mean) in zip(shares, pairs * 2, strict=True)]


def few_clusters_have_half(rows: Rows) -> Outcome:
    def count_for_half(own: Rows) -> int:
        sizes = sorted((row["size"] for row in own), reverse=True)
        return 1 + sum(total < sum(sizes) / 2 for total in accumulate(sizes))

    return are_most(
        rows, lambda own: count_for_half(own) <= 5, "clusters with half of the dimensions", count_for_half
    )


@later
def list_by_task(column: str, *tasks: Sequence[float]) -> Rows:
    """List made-up rows with a column's values, the same for BERT and RoBERTa, in the order of ``SMALL``."""
    return [
        {"encoder": encoder, "task": task, column: value}
        for encoder in PRINTED_FALLS
        for task, values in zip(SMALL, tasks, strict=True)
        for value in values
    ]


def stand_in(other: str, change: Change | None = None) -> Report:
    """Build Table 1's report in which the released code's rows, which ``change`` breaks, are another method's."""
    report = TABLE1(change=change)
    return replace(report, runs=report.runs.replace({"method": {"isobn_released": other}}))


ONE_VERSION = only(NOTHING, method=["isobn_paper"])

CLAIMS = [
    Claim(
        "Using IsoBN improves the evaluation metrics on all datasets.", "Experimental Results, Table 1",
        f"{BOTH}: mean gain beyond chance, every task's median above plain fine-tuning's; where IsoBN was selected "
        "from more configurations (18 against 6 in the paper, which print does not show), equal budgets decide",
        "glue_isobn", improves(*ISOBN, share=1, statistic=statistics.median), TABLE1,
        break_print(TABLE1, {
            "no gain": NOTHING, "losses": TURNED, "one version gains": ONE_VERSION,
            "no gain with RoBERTa": only(NOTHING, encoder=["roberta-large"]),
            "one class on CoLA with BERT": only(collapse, encoder=["bert-base-cased"], task=["cola"]),
            "a loss in one of 14 cells": only(TURNED, encoder=["roberta-large"], task=["sst2"]),
        }),
        methods=ISOBN, tasks=TASKS, settings=VERSIONS,
    ),
    Claim(
        "about 1.0 absolute increment on the average of seven NLU tasks", "Abstract, Table 1",
        "over all encoders and with each, each version's mean gain is .75 to 1.25 points (print: .8 to 1.0), and its "
        "95% interval is above 0 and at most a point wide (our choices); equal budgets as above",
        "glue_isobn", on_each_encoder(gains(0.75, 1.25, *ISOBN)), TABLE1,
        break_print(TABLE1, {
            "no gain": NOTHING, "losses": TURNED, "one version gains": ONE_VERSION,
            "four fifths of the gain": scale_effects(0.8),
            "a third more": scale_effects(4 / 3),
            "one class on CoLA with BERT": only(collapse, encoder=["bert-base-cased"], task=["cola"]),
            "all of the gain with BERT": lambda cell: scale_effects(2 * (cell.encoder == "bert-base-cased"))(cell),
        }),
        methods=ISOBN, tasks=TASKS, settings=VERSIONS,
    ),
    Claim(
        "IsoBN obtains an average performance improvement of 1.6% on BERT and 1.3% on RoBERTa",
        "Experimental Results, Table 1",
        "over all encoders and with each, each version's mean gain on the small sets (MRPC, RTE, CoLA, STS-B) is "
        "above 0 and above that on the large ones (MNLI, QNLI, SST-2): their 95% intervals are apart, and overlap "
        "the printed 1.3 to 1.6 and .15 to .25 points; the former gain is within a quarter of the printed ones (our "
        "choices); equal budgets as above",
        "glue_isobn", on_each_encoder(small_sets_gain_more), TABLE1,
        break_print(TABLE1, {
            "no gain": NOTHING, "losses": TURNED, "one version gains": ONE_VERSION,
            "the same gain": set_gain(lambda _: 0.9),
            "the same gain with RoBERTa": only(set_gain(lambda _: 0.8), encoder=["roberta-large"]),
            "gains exchanged": set_gain(lambda cell: 0.2 if cell.task in SMALL else 1.4),
            "losses that are smaller on small sets": set_gain(lambda cell: -0.1 if cell.task in SMALL else -1.9),
            "two thirds of the gain": scale_effects(2 / 3), "half as much again": scale_effects(1.5),
            "one class on CoLA with BERT": only(collapse, encoder=["bert-base-cased"], task=["cola"]),
        }),
        methods=ISOBN, tasks=TASKS, settings=VERSIONS,
    ),
    Claim(
        "For small datasets (MRPC, RTE, CoLA, and STS-B ... IsoBN obtains an average performance improvement",
        "Experimental Results, Table 1", f"{BOTH}, with DistilBERT and 1,000 examples: mean gain beyond chance",
        "glue_few_sample", improves(*ISOBN), "it has no runs on 1,000 examples",
        break_print(TABLE1, {
            "no gain": NOTHING, "losses": TURNED, "one version gains": ONE_VERSION,
            "a tenth of the gain": scale_effects(0.1),
            "a loss on one task as large as the others gains": only(TURNED, task=["rte"]),
        }),
        methods=ISOBN, tasks=SMALL,
    ),
    Claim(
        "Our proposed IsoBN greatly reduces the EVk value", "Experiments of EVk Metric, Table 2",
        f"averaged over tasks, EV1 to EV3 of {BOTH} end below batch normalisation's and plain's, and EV3 falls by "
        "half of the printed fall or more (our choice; .425 for RoBERTa-large, .123 for BERT and, here, any other "
        "encoder)",
        "isobn_ev", isobn_lowers_ev, list_printed_ev(),
        {
            "no fall": list_printed_ev(lambda _, ev: ev["none"]),
            "batch normalisation's fall": list_printed_ev(lambda _, ev: ev["batch_norm"]),
            "batch normalisation's fall with RoBERTa": list_printed_ev(
                lambda _, ev: ev["batch_norm"], encoder=["roberta-large"]
            ),
            "a third of the fall": list_printed_ev(lambda row, ev: (2 * ev["none"] + row["ev"]) / 3),
            "EV1 does not fall": list_printed_ev(lambda _, ev: ev["none"], k=[1]),
            "one version's fall": list_printed_ev(lambda _, ev: ev["none"], method=["isobn_paper"]),
        },
        methods=("batch_norm", *ISOBN), tasks=SMALL, rows_file="explained_variance", settings=OF_SMALL,
    ),
    Claim(
        "Batch normalization can only reduce the EVk value by a small margin", "Experiments of EVk Metric, Table 2",
        "averaged over tasks, EV1 to EV3 fall by .25 at most, and by half as much as by each version of IsoBN (our "
        "choices; print of EV3: .025 of .123 with BERT, .148 of .425 with RoBERTa)",
        "isobn_ev", batch_norm_lowers_ev_little, list_printed_ev(),
        {
            "no fall": list_printed_ev(lambda _, ev: ev["none"], method=["batch_norm"]),
            "IsoBN's fall": list_printed_ev(lambda _, ev: ev["isobn_paper"], method=["batch_norm"]),
            "three quarters of IsoBN's fall with BERT": list_printed_ev(
                take_most, method=["batch_norm"], encoder=["bert-base-cased"]
            ),
            "IsoBN's fall is half as large": list_printed_ev(lambda row, ev: (ev["none"] + row["ev"]) / 2),
            "three quarters of IsoBN's fall of EV1": list_printed_ev(take_most, method=["batch_norm"], k=[1]),
            "a fall by a third, and by more with IsoBN": list_printed_ev(
                lambda row, ev: ev["none"] * (0.67 if row["method"] == "batch_norm" else 0.1),
                method=("batch_norm", *ISOBN),
            ),
        },
        methods=("batch_norm", *ISOBN), tasks=SMALL, rows_file="explained_variance", settings=OF_SMALL,
    ),
    Claim(
        "The average EV3 value is around 0.86 for both BERT-base and RoBERTa-large",
        "Experiments of EVk Metric, Table 2",
        "EV3 before normalisation, averaged over tasks, is within .05 of it with both (our choice)",
        "isobn_ev", ev_is_as_high, list_printed_ev(),
        {
            "a tenth less": list_printed_ev(lambda row, _: row["ev"] - 0.1, method=["none"]),
            "a tenth more": list_printed_ev(lambda row, _: row["ev"] + 0.1, method=["none"]),
            "a tenth less with BERT": list_printed_ev(
                lambda row, _: row["ev"] - 0.1, method=["none"], encoder=["bert-base-cased"]
            ),
            "batch normalisation's": list_printed_ev(lambda _, ev: ev["batch_norm"], method=["none"]),
        },
        methods=("none",), tasks=SMALL, encoders=tuple(PRINTED_FALLS), rows_file="explained_variance",
        settings="scale=paper",
    ),
    Claim(
        "the cosine similarity between W_init and W is extremely close to 1", "Why Isotropic, Figure 2",
        "in the mean over an encoder's runs, at every epoch, one less the cosine is at most three times .0003 (our "
        "factor; the text has a cosine of .9997 for CoLA with RoBERTa)",
        "isobn_drift", turns_little, list_epochs(cosine=[1, 1 - PRINTED_TURN, 1 - PRINTED_TURN]),
        {
            "turned by 3 degrees at last": list_epochs(cosine=[1, 0.9997, math.cos(math.radians(3))]),
            "a cosine of .995": list_epochs(cosine=[1, 0.995, 0.995]),
            "turned around": list_epochs(cosine=[1, -1, -1]),
            "a single epoch": list_epochs(cosine=[1, 0.9997]),
        },
        methods=("none",), rows_file="drift", settings=PLAIN,
    ),
    Claim(
        "their L2 distance is close to 0", "Why Isotropic, Figure 2",
        "in the mean over an encoder's runs, at every epoch, the distance is below a tenth of the initial "
        "classifier's norm in the same components (our choice; the printed cosine alone makes it .024)",
        "isobn_drift", moves_little, FIGURE,
        {
            "turned by a right angle": list_epochs(initial_norm=[0.063] * 3, l2=[0, 0.0895, 0.0895]),
            "turned by 10 degrees at last": list_epochs(initial_norm=[0.063] * 3, l2=[0, 0.001, 0.011]),
            "a fifth longer": list_epochs(initial_norm=[0.063] * 3, l2=[0, 0.0126, 0.0126]),
            "a single epoch": list_epochs(initial_norm=[0.063] * 2, l2=[0, 0.001]),
        },
        methods=("none",), rows_file="drift", settings=PLAIN,
    ),
    Claim(
        "The first principal component accounts for over 90% variance of logits throughout the training",
        "Why Isotropic, Figure 3", "over 90% at every epoch, in the mean over an encoder's runs",
        "isobn_drift", top_component_dominates, FIGURE,
        {
            "88% at the last epoch": list_epochs(fine_tuned_top1=[0.97, 0.95, 0.88]),
            "88% before training": list_epochs(fine_tuned_top1=[0.88, 0.95, 0.97]),
            "95% of five components, 60% of one": list_epochs(fine_tuned_top1=[0.6] * 3, fine_tuned_top5=[0.95] * 3),
            "before training alone": list_epochs(fine_tuned_top1=[0.97]),
        },
        methods=("none",), rows_file="drift", settings=PLAIN,
    ),
    Claim(
        "the top principal components are constantly exaggerated by the fine-tuned weights",
        "Why Isotropic, Figure 3",
        "in the mean over an encoder's runs, at every epoch, the top 1 and 5 have .05 of the variance more than in "
        "the optimal classifier (our choice), and the top 30 have more; over the epochs each does on most tasks",
        "isobn_drift", top_components_are_exaggerated, FIGURE,
        {
            "the classifiers exchanged": list_shares(-0.4, -0.3, -0.2),
            "no difference": list_shares(0, 0, 0),
            "a difference of .03": list_shares(0.03, 0.03, 0.03),
            "differences of either sign": list_shares(0.02, -0.02, 0.01),
            "until the last epoch": list_shares(0.4, 0.2, -0.01),
            "the first component alone": list_shares(0.4, 0.3, 0.2, top=[1]),
            "not the top 30": list_shares(0.4, 0.3, 0.2, top=[1, 5]),
            "a single epoch": list_shares(0.4, 0.3),
            "on one of three tasks": lambda: [
                row | {"task": task}
                for task, excess in (("cola", 0.4), ("mrpc", -0.05), ("rte", -0.05))
                for row in list_shares(excess, excess, excess)()
            ],
        },
        methods=("none",), rows_file="drift", settings=PLAIN,
    ),
    Claim(
        "The standard deviations of the embeddings vary in a very wide range of values",
        "Analysis of Standard Deviation, Figure 4",
        "on most of an encoder's four tasks the largest is 100 times the smallest or more, as RoBERTa's printed "
        "[0.01, 1], which is its usual range, and the 95% quantile 10 times the 5% one (our choice)",
        "isobn_embeddings", spreads_are_wide,
        "it has two ranges, [1e-10, 1] of BERT on MRPC and [0.01, 1] as RoBERTa's usual one; quantiles would be ours",
        {
            "from .02 to 1": list_spreads((0.02, 1), (0.02, 1)),
            "from .02 to 1 with RoBERTa": list_spreads((1e-10, 1), (0.02, 1)),
            "from .02 to 1 on two of four tasks": list_spreads((1e-10, 1), (0.01, 1), narrow=SMALL[:2]),
            "alike but for few dimensions": list_spreads((0.01, 1), (0.01, 1), inner=0.3),
        },
        tasks=SMALL, rows_file="summary", settings=OF_SMALL,
    ),
    Claim(
        "usually have very high correlations between different dimensions", "Analysis of Correlation, Figure 5",
        "on most of an encoder's four tasks more than half of the pairs of dimensions have |rho| above .5, and the "
        f"mean is {HIGHLY} or more (our choices of dark); the text excepts BERT on CoLA and RoBERTa on RTE",
        "isobn_embeddings", dimensions_correlate, FIGURE,
        {
            "no correlation": list_correlations(*[(0.01, 0.1)] * 4),
            "40% of the pairs": list_correlations(*[(0.4, 0.56)] * 4),
            "each |rho| is .51": list_correlations(*[(1, 0.51)] * 4),
            "on two of four tasks": list_correlations(*[(0.9, 0.8)] * 2, *[(0.2, 0.3)] * 2),
        },
        tasks=SMALL, rows_file="summary", settings=OF_SMALL,
    ),
    Claim(
        "construct a few large clusters of dimensions that are highly correlated with each other",
        "Introduction, Figure 5",
        "on most of an encoder's four tasks five clusters or fewer, merged while the mean |rho| is .5 or more, have "
        "half of the dimensions (our choice of few, large and highly)",
        "isobn_embeddings", few_clusters_have_half, FIGURE,
        {
            "each dimension alone": list_by_task("size", *[[1] * 768] * 4),
            "12 clusters of 64": list_by_task("size", *[[64] * 12] * 4),
            "a large one of a fifth, others alone": list_by_task("size", *[[154, *[1] * 614]] * 4),
            "on two of four tasks": list_by_task("size", *[[768]] * 2, *[[64] * 12] * 2),
        },
        tasks=SMALL, rows_file="clusters", settings=OF_SMALL,
    ),
    Claim(
        "a modified version of IsoBN achieves better performance", "Isotropic Batch Normalization",
        "isobn_paper (Eqs. 6 to 8, with the root that the text implies) beats isobn_original (Eqs. 3 to 5) by more "
        "than chance",
        "glue_isobn", is_better_than("isobn_paper", "isobn_original"), "the text has no numbers",
        {
            "the same scores": partial(stand_in, "isobn_original"),
            "the original is better": partial(stand_in, "isobn_original", ONE_VERSION),
            "better by a tenth of IsoBN's gain": partial(
                stand_in, "isobn_original", only(scale_effects(0.9), method=["isobn_released"])
            ),
        },
        methods=("isobn_paper", "isobn_original"), settings=f"{SEEDS} calibration=isobn_paper,isobn_original",
    ),
]  # fmt: skip
