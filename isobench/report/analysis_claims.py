"""The papers' claims on embeddings, each checked on the rows of an analysis."""

import math
import statistics
from collections.abc import Callable, Iterable

from isobench.report.claim_outcome import FAILS, HOLDS, NOT_RUN, UNDECIDED, Outcome
from isobench.report.document import TidyRows


def judge_cases(holds: Iterable[bool], numbers: str) -> Outcome:
    """Holds where it holds of every case, does not where of none."""
    cases = list(holds)
    if not cases:
        return Outcome(NOT_RUN, "nothing to compare")
    return Outcome(HOLDS if all(cases) else UNDECIDED if any(cases) else FAILS, numbers)


def isobn_lowers_ev(rows: TidyRows) -> Outcome:
    """EV_1 under nothing > BN > IsoBN, and IsoBN's drop more than twice BN's."""
    first = {(r["encoder"], r["task"], r["method"]): r["ev"] for r in rows if r["k"] == 1}
    cases, numbers = [], []
    for encoder, task in dict.fromkeys(key[:2] for key in first):
        plain, bn, isobn = (first.get((encoder, task, m), math.nan) for m in ("none", "batch_norm", "isobn_paper"))
        cases.append(plain > bn > isobn and plain - isobn > 2 * (plain - bn))
        numbers.append(f"{encoder}, {task}: {plain:.2f}, {bn:.2f}, {isobn:.2f}")
    return judge_cases(cases, "; ".join(numbers))


def select_last_epochs(rows: TidyRows) -> TidyRows:
    """Of every run its last epoch."""
    return list({(r["encoder"], r["task"], r["method"], r["seed"]): r for r in rows}.values())


def classifier_stays_at_init(rows: TidyRows) -> Outcome:
    """The cosine to the initialisation is above .99 at the end of every run."""
    ends = [row["cosine"] for row in select_last_epochs(rows)]
    return judge_cases((value > 0.99 for value in ends), f"smallest cosine {min(ends):.4f} of {len(ends)} runs")


def top_component_is_exaggerated(rows: TidyRows) -> Outcome:
    """The first component has more of the logits' variance than in the optimal classifier, at every run's end."""
    ends = [(row["fine_tuned_top1"], row["optimal_top1"]) for row in select_last_epochs(rows)]
    ours, best = (100 * statistics.fmean(values) for values in zip(*ends, strict=True))
    return judge_cases((a > b for a, b in ends), f"{ours:.0f}% against {best:.0f}%")


def centring_restores_isotropy(rows: TidyRows) -> Outcome:
    """I(W) rises to above .85 by centring alone, and further without the top components."""
    numbers = [f"{r['encoder']}: {r['i1_raw']:.2f}, {r['i1_centred']:.2f}, {r['i1_removed']:.3f}" for r in rows]
    cases = (r["i1_raw"] < r["i1_centred"] < r["i1_removed"] and r["i1_centred"] > 0.85 for r in rows)
    return judge_cases(cases, "; ".join(numbers))


def word_similarity_improves(*methods: str) -> Callable[[TidyRows], Outcome]:
    """Average word similarity is higher than raw, by inner product and by cosine, under each of ``methods``."""

    def check(rows: TidyRows) -> Outcome:
        found = {(r["encoder"], r["similarity"], r["method"]): r["pearson"] for r in rows}
        cases, numbers = [], []
        for (encoder, similarity, method), value in found.items():
            if method in methods and (encoder, similarity, "raw") in found:
                gain = value - found[encoder, similarity, "raw"]
                cases.append(gain > 0)
                numbers.append(f"{encoder}, {method}, {similarity} {gain:+.2f}")
        return judge_cases(cases, "; ".join(numbers))

    return check


def rare_tokens_are_nearer(rows: TidyRows) -> Outcome:
    """Unused or rare tokens are nearer to rare tokens than to frequent ones."""
    pairs: dict[str, list[float]] = {}
    for row in rows:
        if row["vectors"] == "raw":
            pairs.setdefault(row["encoder"], []).append(row["cosine"])
    numbers = (f"{encoder}: {values[0]:.2f} to {values[-1]:.2f}" for encoder, values in pairs.items())
    return judge_cases((values[0] < values[-1] for values in pairs.values()), "; ".join(numbers))


def variance_is_not_importance(rows: TidyRows) -> Outcome:
    """|Spearman| of standard deviation and Fisher score is below .3."""
    numbers = "; ".join(f"{row['encoder']}, {row['task']}: {row['spearman']:+.2f}" for row in rows)
    return judge_cases((abs(row["spearman"]) < 0.3 for row in rows), numbers)
