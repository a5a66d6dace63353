"""Define what the IsoBN paper claims, and judge each claim."""

import math
import statistics

from isobench.common.terminal import format_count
from isobench.report.checks import improves, is_better_than, judge_cases
from isobench.report.claims import NOT_RUN, Claim, Outcome, Rows

SEEDS = "-m seed=1,2,3,4,5"  # its grid has one seed


def isobn_lowers_ev(rows: Rows) -> Outcome:
    """Check that EV_1 falls from none to BN to IsoBN, and by IsoBN more than twice as much as by BN."""
    first = {(r["encoder"], r["task"], r["method"]): r["ev"] for r in rows if r["k"] == 1}
    cases, numbers = [], []
    for encoder, task in dict.fromkeys(key[:2] for key in first):
        plain, bn, isobn = (first.get((encoder, task, m), math.nan) for m in ("none", "batch_norm", "isobn_paper"))
        cases.append(plain > bn > isobn and plain - isobn > 2 * (plain - bn))
        numbers.append(f"{encoder}, {task}: {plain:.2f}, {bn:.2f}, {isobn:.2f}")
    return judge_cases(cases, f"EV_1 plain, by batch normalisation, by IsoBN: {'; '.join(numbers)}")


def select_last_epochs(rows: Rows) -> Rows:
    """Return the row of each run's last epoch."""
    return list({(r["encoder"], r["task"], r["method"], r["seed"]): r for r in rows}.values())


def classifier_stays_at_init(rows: Rows) -> Outcome:
    """Check that the classifier's cosine to its initialisation is above .99 at the end of every run."""
    ends = [row["cosine"] for row in select_last_epochs(rows)]
    numbers = f"smallest cosine {min(ends):.6f} of {format_count(len(ends), 'run')}"
    return judge_cases((value > 0.99 for value in ends), numbers)


def top_component_is_exaggerated(rows: Rows) -> Outcome:
    """Check that the first component's share of the logits' variance exceeds the optimal classifier's in each run."""
    last = [row for row in select_last_epochs(rows) if row.get("optimal_top1") is not None]  # a regression has none
    if not last:
        return Outcome(NOT_RUN, "no task with classes")
    ends = [(row["fine_tuned_top1"], row["optimal_top1"]) for row in last]
    ours, best = (100 * statistics.fmean(values) for values in zip(*ends, strict=True))
    numbers = f"its share of the logits' variance is {ours:.0f}%, and {best:.0f}% with the optimal classifier"
    return judge_cases((a > b for a, b in ends), f"{numbers} ({format_count(len(ends), 'run')})")


CLAIMS = [
    Claim("IsoBN improves fine-tuning (Table 1)", "glue_isobn", improves("isobn_paper"), settings=SEEDS),
    Claim(
        "IsoBN improves fine-tuning (Table 1), judged with DistilBERT and 1,000 examples of each task",
        "glue_few_sample",
        improves("isobn_paper"),
    ),
    Claim(
        "IsoBN lowers EV_1 of pretrained [CLS] much, batch normalisation little (Table 2)",
        "isobn_ev",
        isobn_lowers_ev,
        rows_file="explained_variance",
    ),
    Claim(
        "Fine-tuning leaves the classifier near its initialisation (Figure 2)",
        "isobn_drift",
        classifier_stays_at_init,
        rows_file="drift",
    ),
    Claim(
        "Fine-tuned classifiers exaggerate the first component (Figure 3)",
        "isobn_drift",
        top_component_is_exaggerated,
        rows_file="drift",
    ),
    Claim(
        "Modified IsoBN (Eqs. 6 to 8) trains better than the original one (Eqs. 3 to 5)",
        "glue_isobn",
        is_better_than("isobn_paper", "isobn_original"),
        settings=f"{SEEDS} calibration=isobn_paper,isobn_original",
    ),
]
