"""Define what the IsoBN paper claims, and judge each claim."""

import math
import statistics
from functools import partial

from isobench.analyses.rows import group_rows
from isobench.common.terminal import format_count
from isobench.papers.published import load_tables
from isobench.report.checks import gains, improves, is_better_than, judge_cases
from isobench.report.claims import NOT_RUN, Claim, Outcome, Rows
from isobench.report.printed import build_printed_report

SEEDS = "-m seed=1,2,3,4,5"  # its grid has one seed
# The printed momentum makes statistics of nearly the last batch alone (errata.md, 2); the released code's does not.
# It is not known which of them gave the printed numbers, so both decide.
ISOBN = ("isobn_paper", "isobn_released")
BOTH = "isobn_paper and isobn_released (it is not known which gave the printed numbers)"
VERSIONS = f"{SEEDS} calibration=none,{','.join(ISOBN)}"
TABLE1 = partial(build_printed_report, "isobn", ["table1"], seeds=5)
PRINTED_FALLS = {"bert-base-cased": 0.123, "roberta-large": 0.425}  # of EV_3; other encoders: as BERT's
FIGURE = "it is shown in a figure, without numbers"


def isobn_lowers_ev(rows: Rows) -> Outcome:
    """Check that IsoBN lowers the mean of EV_3 over tasks by half of the printed fall or more, and below BN's."""
    third = {(r["encoder"], r["task"], r["method"]): r["ev"] for r in rows if r["k"] == 3}
    cases, numbers = [], []
    for encoder in dict.fromkeys(key[0] for key in third):
        tasks = dict.fromkeys(key[1] for key in third if key[0] == encoder)
        plain, bn, isobn = (
            statistics.fmean(third.get((encoder, task, name), math.nan) for task in tasks)
            for name in ("none", "batch_norm", "isobn_paper")
        )
        cases.append(isobn < bn and plain - isobn >= PRINTED_FALLS.get(encoder, PRINTED_FALLS["bert-base-cased"]) / 2)
        numbers.append(f"{encoder} {plain:.3f}, {bn:.3f}, {isobn:.3f}")
    return judge_cases(cases, f"mean EV_3 plain, by batch normalisation, by IsoBN: {'; '.join(numbers)}")


def list_printed_ev() -> Rows:
    """List Table 2 as the analysis's rows."""
    table = load_tables("isobn")["table2"]
    return [
        {"encoder": encoder, "task": column, "method": method, "k": k, "ev": value}
        for encoder, lines in table.cells.items()
        for method, line in table.methods.items()
        for column, values in lines[line].items()
        for k, value in enumerate(values, 1)
    ]


def stays_within(rows: Rows, column: str, low: float, high: float) -> Outcome:
    """Check that a measure of how far the classifier is from its initialisation stays in a range in every run."""
    values = [row[column] for row in rows]
    numbers = f"{column} from {min(values):.6f} to {max(values):.6f} in {format_count(len(rows), 'epoch')}"
    return judge_cases([low < min(values) and max(values) < high], numbers)


def top_component_dominates(rows: Rows) -> Outcome:
    """Check that the first component has over 90% of the logits' variance at each epoch, in the mean over runs."""
    shares = average_by_epoch(rows, "fine_tuned_top1")
    numbers = ", ".join(f"{epoch}: {share:.0%}" for epoch, share in shares.items())
    return judge_cases([min(shares.values()) > 0.9], f"its mean share by epoch: {numbers}")


def top_components_are_exaggerated(rows: Rows) -> Outcome:
    """Check that at each epoch the top components have more of the variance than in the optimal classifier.

    In the mean over runs of tasks with classes, for each number of top components; a regression has no optimum.
    """
    found = [row for row in rows if row.get("optimal_top1") is not None]
    if not found:
        return Outcome(NOT_RUN, "no task with classes")
    cases, numbers = [], []
    for name in (key.removeprefix("optimal_") for key in found[0] if key.startswith("optimal_")):
        ours, best = (average_by_epoch(found, f"{kind}_{name}") for kind in ("fine_tuned", "optimal"))
        cases += [ours[epoch] > best[epoch] for epoch in ours]
        numbers.append(f"{name} {min(ours[e] - best[e] for e in ours):+.0%}")
    return judge_cases(cases, f"smallest difference of an epoch: {', '.join(numbers)}")


def average_by_epoch(rows: Rows, column: str) -> dict[int, float]:
    groups = group_rows(rows, "epoch")
    return {epoch: statistics.fmean(row[column] for row in found) for (epoch,), found in groups.items()}


def spreads_are_wide(rows: Rows) -> Outcome:
    """Check that the largest standard deviation of a dimension is at least 100 times the smallest."""
    numbers = "; ".join(f"{r['encoder']}, {r['task']} {r['std_min']:.1e} to {r['std_max']:.2f}" for r in rows)
    return judge_cases((r["std_max"] >= 100 * r["std_min"] for r in rows), f"standard deviations: {numbers}")


CLAIMS = [
    Claim(
        "Using IsoBN improves the evaluation metrics on all datasets.", "Experimental Results, Table 1",
        f"{BOTH}: mean gain beyond chance, every task's median above plain fine-tuning's; where IsoBN was selected "
        "from more configurations (18 against 6 in the paper, which print does not show), equal budgets decide",
        "glue_isobn", improves(*ISOBN, share=1, statistic=statistics.median), TABLE1, settings=VERSIONS,
    ),
    Claim(
        "about 1.0 absolute increment on the average of seven NLU tasks", "Abstract, Table 1",
        "the interval of each version's mean gain overlaps the printed .8 to 1.0 points, is above 0, and at most "
        "a point wide (our choice); equal budgets as above",
        "glue_isobn", gains(0.8, 1.0, *ISOBN), TABLE1, settings=VERSIONS,
    ),
    Claim(
        "Using IsoBN improves the evaluation metrics on all datasets.", "Experimental Results, Table 1",
        "isobn_paper, with DistilBERT and 1,000 examples: mean gain beyond chance, every task's median above plain's",
        "glue_few_sample", improves("isobn_paper", share=1, statistic=statistics.median), TABLE1,
    ),
    Claim(
        "Our proposed IsoBN greatly reduces the EVk value", "Experiments of EVk Metric, Table 2",
        "averaged over tasks, EV_3 ends below batch normalisation's and falls by half of the printed fall or more "
        "(our choice; .425 for RoBERTa-large, .123 for BERT and, here, any other encoder)",
        "isobn_ev", isobn_lowers_ev, list_printed_ev, rows_file="explained_variance",
    ),
    Claim(
        "the cosine similarity between W_init and W is extremely close to 1", "Why Isotropic, Figure 2",
        "cosine above .99 at every epoch (our choice; the text has .9997 for CoLA with RoBERTa)",
        "isobn_drift", partial(stays_within, column="cosine", low=0.99, high=1.1), lambda: [{"cosine": 0.9997}],
        rows_file="drift",
    ),
    Claim(
        "their L2 distance is close to 0", "Why Isotropic, Figure 2", "distance below .1 at every epoch (our choice)",
        "isobn_drift", partial(stays_within, column="l2", low=-1, high=0.1), FIGURE, rows_file="drift",
    ),
    Claim(
        "The first principal component accounts for over 90% variance of logits throughout the training",
        "Why Isotropic, Figure 3", "over 90% at every epoch, in the mean over runs",
        "isobn_drift", top_component_dominates, FIGURE, rows_file="drift",
    ),
    Claim(
        "the top principal components are constantly exaggerated by the fine-tuned weights",
        "Why Isotropic, Figure 3",
        "in the mean over runs, at every epoch, the top 1, 5 and 30 have more of the variance than in the optimal "
        "classifier",
        "isobn_drift", top_components_are_exaggerated, FIGURE, rows_file="drift",
    ),
    Claim(
        "The standard deviations of the embeddings vary in a very wide range of values",
        "Analysis of Standard Deviation, Figure 4",
        "the largest is 100 times the smallest or more, as RoBERTa's printed [0.01, 1]",
        "isobn_embeddings", spreads_are_wide,
        lambda: [
            {"encoder": "bert-base-cased", "task": "mrpc", "std_min": 1e-10, "std_max": 1.0},
            {"encoder": "roberta-large", "task": "usually", "std_min": 0.01, "std_max": 1.0},
        ],
        rows_file="summary",
    ),
    Claim(
        "a modified version of IsoBN achieves better performance", "Isotropic Batch Normalization",
        "isobn_paper (Eqs. 6 to 8, with the root that the text implies) beats isobn_original (Eqs. 3 to 5) by more "
        "than chance",
        "glue_isobn", is_better_than("isobn_paper", "isobn_original"), "the text has no numbers",
        settings=f"{SEEDS} calibration=isobn_paper,isobn_original",
    ),
]  # fmt: skip
