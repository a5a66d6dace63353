"""What the five papers claim, and whether this installation's own runs and analyses say so too."""

import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from isobench.report.model import Cell, Report
from isobench.report.paper_table import ALPHA
from isobench.report.resampling import mean_difference_interval

Rows = list[dict[str, Any]]
HOLDS, FAILS, OPEN, MISSING = "holds", "does not hold", "undecided", "not run"
SYMBOLS = {HOLDS: "✓", FAILS: "✗", OPEN: "~", MISSING: "\N{EN DASH}"}


class Outcome(NamedTuple):
    """One of the four words above, and the numbers that say so."""

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


def arms(report: Report, method: str) -> list[tuple[list[float], list[float]]]:
    """Seeds of a method and of plain fine-tuning, one pair for each encoder and score column that has both."""
    plain = {line.encoder: line.cells for line in report.tables[0].lines if line.method == "none"}
    found = []
    for line in report.tables[0].lines:
        for column, cell in line.cells.items():
            base = plain.get(line.encoder, {}).get(column, Cell())
            if line.method == method and cell.values and base.values:
                found.append((cell.values, base.values))
    return found


def improves(*methods: str) -> Callable[[Report], Outcome]:
    """Whether each of the methods is better than plain fine-tuning, on average over encoders and tasks."""

    def check(report: Report) -> Outcome:
        words, numbers = [], []
        for method in methods:
            pairs = arms(report, method)
            if not pairs or any(min(map(len, pair)) < 2 for pair in pairs):
                return Outcome(MISSING, f"{method}: fewer than two seeds of it or of plain fine-tuning")
            found = mean_difference_interval(pairs)
            words.append(HOLDS if found.low > 0 else FAILS if found.high < 0 else OPEN)
            numbers.append(f"{method} {found.value:+.2f} points [{found.low:+.2f}, {found.high:+.2f}]")
        return Outcome(words[0] if len(set(words)) == 1 else OPEN, "; ".join(numbers))

    return check


def nothing_improves(report: Report) -> Outcome:
    """Whether no method's gain on any task survives Holm's correction; undecided if no test was possible."""
    tests = [
        (f"{line.method} on {column}", cell.comparison.holm, cell.comparison.difference)
        for line in report.tables[0].lines
        for column, cell in line.cells.items()
        if cell.comparison and cell.comparison.holm is not None
    ]
    if not tests:
        return Outcome(MISSING, "no comparison of two or more seeds")
    better = [name for name, p, difference in tests if p < ALPHA and difference > 0]
    said = f"{len(better)} of {len(tests)} gains survive Holm"
    return Outcome(FAILS, f"{said}: {', '.join(better)}") if better else Outcome(HOLDS, said)


def isotropy_does_not_tell(report: Report) -> Outcome:
    """Whether I1 of the embeddings is unrelated to the score over all runs of a task and encoder."""
    from scipy import stats

    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for run in report.runs:
        if run.get("score") is not None and run.get("embedding/i1") is not None and not run["failure"]:
            groups.setdefault((run["task"], run["encoder"]), []).append((run["embedding/i1"], run["score"]))
    found = [stats.spearmanr(*zip(*pairs, strict=True)) for pairs in groups.values() if len(pairs) >= 6]
    if not found:
        return Outcome(MISSING, "fewer than six runs of a task and encoder")
    related = sum(result.pvalue < 0.05 for result in found)
    rho = ", ".join(f"{result.statistic:+.2f}" for result in found)
    return Outcome(FAILS if related else HOLDS, f"Spearman {rho}; {related} of {len(found)} with p < .05")


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
