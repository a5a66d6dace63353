"""What the five papers claim, and whether this installation's own runs and analyses say so too."""

import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from isobench.report.against import CONSTANT, Runs
from isobench.report.evidence import by_column, least_difference, p_text, points, survivors
from isobench.report.model import Report
from isobench.report.paper_table import ALPHA, BASE
from isobench.report.resampling import mean_difference_interval, stratified_permutation
from isobench.report.statistics import family, holm

Rows = list[dict[str, Any]]
HOLDS, FAILS, OPEN, MISSING, UNKNOWN = "holds", "does not hold", "undecided", "not run", "unknown"
SYMBOLS = {HOLDS: "✓", FAILS: "✗", OPEN: "~", MISSING: "\N{EN DASH}", UNKNOWN: "?"}
SMALL = 1.0  # points: runs that can't show this much say nothing by showing none
ENOUGH = 30  # runs: that fewer show no relation says nothing


class Outcome(NamedTuple):
    """One of the five words above, and the numbers that say so, or what went wrong."""

    word: str
    numbers: str


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
        runs = Runs(report.tables, BASE)
        found = [improvement(runs, method) for method in methods]
        missing = [outcome.numbers for outcome in found if outcome.word == MISSING]
        if missing:
            return Outcome(MISSING, "; ".join(missing))
        word = found[0].word if len({outcome.word for outcome in found}) == 1 else OPEN
        return Outcome(word, "; ".join(outcome.numbers for outcome in found))

    return check


def improvement(runs: Runs, method: str) -> Outcome:
    """One method against plain fine-tuning: decided where the bootstrap interval and the permutation test agree."""
    names = [name for name in runs.methods if name[1] == method]
    compared = {
        (name, c): cell.comparison for name in names for c, cell in runs.cells[name].items() if cell.comparison
    }
    if undefined := [column for (_, column), made in compared.items() if math.isnan(made.difference)]:
        return Outcome(MISSING, f"{method}: undefined score (NaN) on {', '.join(dict.fromkeys(undefined))}")
    constant = {
        runs.task(column): None
        for name in names
        for column, cell in runs.cells[name].items()
        if CONSTANT in cell.troubles or CONSTANT in runs.base_cells(name).get(column, cell).troubles
    }
    left_out = f" (in no mean, constant predictors: {', '.join(constant)})" if constant else ""
    found = [runs.against(name) for name in names]
    tasks = [arms for against in found for arms in against.tested.values()]
    if not tasks or any(against.single for against in found):
        return Outcome(MISSING, f"{method}: fewer than two seeds of it or of plain fine-tuning{left_out}")
    mean, p = mean_difference_interval(tasks), stratified_permutation(tasks).p
    if math.isnan(mean.low):
        return Outcome(MISSING, f"{method} {points(mean.value)} points: no spread over seeds, no interval (NaN)")
    limits = f"[{points(mean.low)}, {points(mean.high)}]"
    numbers = f"{method} {points(mean.value)} points {limits}, {p_text(p)}{left_out}"
    if mean.low <= 0 <= mean.high or p >= ALPHA:
        return Outcome(OPEN, numbers)
    return Outcome(HOLDS if mean.value > 0 else FAILS, numbers)


def nothing_improves(report: Report) -> Outcome:
    """Whether no method's gain on a task survives Holm's correction; "not run" if no test was possible.

    That none does says something only if the runs would have shown a gain of ``SMALL`` points on every task.
    """
    number = len(family(report.tables))
    if not number:
        return Outcome(MISSING, "no comparison of two or more seeds")
    left = survivors(report.tables)
    better = [f"{name[1]} on {column}" for name, columns in left.items() for column, by in columns.items() if by > 0]
    said = f"{len(better)} of {number} comparisons are gains that survive Holm"
    if better:
        return Outcome(FAILS, f"{said}: {', '.join(better)}")
    runs = Runs(report.tables, BASE)
    found = {name: runs.against(name) for name in runs.methods}
    least = max(map(least_difference, by_column(found).values()), default=math.inf)
    said += f"; differences under {least:.2g} points would usually go unnoticed"
    made = [cell.comparison for cells in runs.cells.values() for cell in cells.values() if cell.comparison]
    if untested := sum(comparison.welch is None for comparison in made):
        return Outcome(OPEN, f"{said}; {untested} more can't be tested")
    return Outcome(HOLDS if least <= SMALL else OPEN, said)


def isotropy_does_not_tell(report: Report) -> Outcome:
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
        return Outcome(MISSING, f"no task and encoder with six runs that differ{left_out}")
    found = [stats.spearmanr(*zip(*pairs, strict=True)) for pairs in varied.values()]
    related = sum(p < ALPHA for p in holm([float(result.pvalue) for result in found]))
    number = sum(map(len, varied.values()))
    rho = ", ".join(f"{result.statistic:+.2f}" for result in found)
    said = f"Spearman {rho} ({number} runs); {related} of {len(found)} with p < {ALPHA} after Holm{left_out}"
    return Outcome(FAILS if related else HOLDS if number >= ENOUGH else OPEN, said)


def collapses(*methods: str) -> Callable[[Report], Outcome]:
    """Whether some runs of the methods predict one class for everything."""

    def check(report: Report) -> Outcome:
        runs = [run for run in report.runs if run["method"] in methods and run["status"] == "finished"]
        constant = sum(run["failure"] == "constant_predictor" for run in runs)
        if not runs:
            return Outcome(MISSING, "no such run")
        return Outcome(HOLDS if constant else FAILS, f"{constant} of {len(runs)} runs predict one class")

    return check


def everywhere(holds: Iterable[bool], numbers: str) -> Outcome:
    """Holds where it holds of every case, does not where of none."""
    cases = list(holds)
    if not cases:
        return Outcome(MISSING, "nothing to compare")
    return Outcome(HOLDS if all(cases) else OPEN if any(cases) else FAILS, numbers)


def isobn_lowers_ev(rows: Rows) -> Outcome:
    """EV_1 under nothing > BN > IsoBN, and IsoBN's drop more than twice BN's."""
    first = {(r["encoder"], r["task"], r["method"]): r["ev"] for r in rows if r["k"] == 1}
    cases, numbers = [], []
    for encoder, task in dict.fromkeys(key[:2] for key in first):
        plain, bn, isobn = (first.get((encoder, task, m), math.nan) for m in ("none", "batch_norm", "isobn_paper"))
        cases.append(plain > bn > isobn and plain - isobn > 2 * (plain - bn))
        numbers.append(f"{encoder}, {task}: {plain:.2f}, {bn:.2f}, {isobn:.2f}")
    return everywhere(cases, "; ".join(numbers))


def last_epochs(rows: Rows) -> Rows:
    """Of every run its last epoch."""
    return list({(r["encoder"], r["task"], r["method"], r["seed"]): r for r in rows}.values())


def classifier_stays(rows: Rows) -> Outcome:
    """The cosine to the initialisation is above .99 at the end of every run."""
    ends = [row["cosine"] for row in last_epochs(rows)]
    return everywhere((value > 0.99 for value in ends), f"smallest cosine {min(ends):.4f} of {len(ends)} runs")


def top_is_exaggerated(rows: Rows) -> Outcome:
    """The first component has more of the logits' variance than in the optimal classifier, at every run's end."""
    ends = [(row["fine_tuned_top1"], row["optimal_top1"]) for row in last_epochs(rows)]
    ours, best = (100 * statistics.fmean(values) for values in zip(*ends, strict=True))
    return everywhere((a > b for a, b in ends), f"{ours:.0f}% against {best:.0f}%")


def centring_restores(rows: Rows) -> Outcome:
    """I(W) rises to above .85 by centring alone, and further without the top components."""
    numbers = [f"{r['encoder']}: {r['i1_raw']:.2f}, {r['i1_centred']:.2f}, {r['i1_removed']:.3f}" for r in rows]
    cases = (r["i1_raw"] < r["i1_centred"] < r["i1_removed"] and r["i1_centred"] > 0.85 for r in rows)
    return everywhere(cases, "; ".join(numbers))


def words_gain(*methods: str) -> Callable[[Rows], Outcome]:
    """Average word similarity is higher than raw, by inner product and by cosine, under each of ``methods``."""

    def check(rows: Rows) -> Outcome:
        found = {(r["encoder"], r["similarity"], r["method"]): r["pearson"] for r in rows}
        cases, numbers = [], []
        for (encoder, similarity, method), value in found.items():
            if method in methods and (encoder, similarity, "raw") in found:
                gain = value - found[encoder, similarity, "raw"]
                cases.append(gain > 0)
                numbers.append(f"{encoder}, {method}, {similarity} {gain:+.2f}")
        return everywhere(cases, "; ".join(numbers))

    return check


def rare_words_are_near(rows: Rows) -> Outcome:
    """Unused or rare tokens are nearer to rare tokens than to frequent ones."""
    pairs: dict[str, list[float]] = {}
    for row in rows:
        if row["vectors"] == "raw":
            pairs.setdefault(row["encoder"], []).append(row["cosine"])
    numbers = (f"{encoder}: {values[0]:.2f} to {values[-1]:.2f}" for encoder, values in pairs.items())
    return everywhere((values[0] < values[-1] for values in pairs.values()), "; ".join(numbers))


def variance_is_not_importance(rows: Rows) -> Outcome:
    """|Spearman| of standard deviation and Fisher score is below .3."""
    numbers = "; ".join(f"{row['encoder']}, {row['task']}: {row['spearman']:+.2f}" for row in rows)
    return everywhere((abs(row["spearman"]) < 0.3 for row in rows), numbers)


ISOBN, CALIBRATION, ADAPTATION, COMMON = "isobn", "isotropy_calibration", "task_adaptation", "too_much_in_common"
CLAIMS = [
    Claim(ISOBN, "IsoBN improves fine-tuning (Table 1)", "glue_isobn", improves("isobn_paper")),
    Claim(
        ISOBN, "IsoBN lowers EV_1 of pretrained [CLS] much, batch normalisation little (Table 2)", "isobn_ev",
        isobn_lowers_ev, "explained_variance",
    ),
    Claim(ISOBN, "Fine-tuning leaves the classifier at its initialisation (Figure 2)", "isobn_drift",
          classifier_stays, "drift"),
    Claim(ISOBN, "Fine-tuned classifiers exaggerate the first component (Figure 3)", "isobn_drift",
          top_is_exaggerated, "drift"),
    Claim(CALIBRATION, "No calibration improves fine-tuning (Table 1)", "glue_calibration", nothing_improves),
    Claim(CALIBRATION, "Isotropy does not go with the task's score (Section 4)", "glue_calibration",
          isotropy_does_not_tell),
    Claim(CALIBRATION, "Spectrum control collapses to one class on some tasks (Table 1)", "glue_calibration",
          collapses("spectrum_polynomial", "spectrum_exponential")),
    Claim(ADAPTATION, "L2 and gradient normalisation improve fine-tuning (Section 5.2)", "glue_adaptation",
          improves("fixed_norm_l2", "gradient_norm_half", "gradient_norm")),
    Claim(ADAPTATION, "Dimensions that vary much are not the important ones, in general (Figure 3)",
          "adaptation_embeddings", variance_is_not_importance, "summary"),
    Claim(COMMON, "Centring alone makes word embeddings nearly isotropic (Table 1)", "common_isotropy",
          centring_restores, "isotropy"),
    Claim(COMMON, "Scaled centring and post-processing improve word similarity (Table 2)", "common_wordsim",
          words_gain("centered_scaled", "post_process"), "averages"),
    Claim(COMMON, "Unused tokens are nearer to rare tokens than to frequent ones (Figure 3)", "common_frequency",
          rare_words_are_near, "cosine_ranges"),
]  # fmt: skip
