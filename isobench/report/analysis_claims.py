"""Check the papers' claims on embeddings, each on the rows of numbers that an analysis wrote."""

import math
import statistics
from collections.abc import Callable, Iterable

from isobench.common.terminal import format_count
from isobench.report.claim_outcome import FAILS, HOLDS, NOT_RUN, UNDECIDED, Outcome
from isobench.report.document import TidyRows


def judge_cases(holds: Iterable[bool], numbers: str) -> Outcome:
    """Return the outcome: holds in every case, in none, or undecided; ``holds`` has one truth value a case."""
    cases = list(holds)
    if not cases:
        return Outcome(NOT_RUN, "nothing to compare")
    return Outcome(HOLDS if all(cases) else UNDECIDED if any(cases) else FAILS, numbers)


def isobn_lowers_ev(rows: TidyRows) -> Outcome:
    """Check that EV_1 falls from none to BN to IsoBN, and by IsoBN more than twice as much as by BN."""
    first = {(r["encoder"], r["task"], r["method"]): r["ev"] for r in rows if r["k"] == 1}
    cases, numbers = [], []
    for encoder, task in dict.fromkeys(key[:2] for key in first):
        plain, bn, isobn = (first.get((encoder, task, m), math.nan) for m in ("none", "batch_norm", "isobn_paper"))
        cases.append(plain > bn > isobn and plain - isobn > 2 * (plain - bn))
        numbers.append(f"{encoder}, {task}: {plain:.2f}, {bn:.2f}, {isobn:.2f}")
    return judge_cases(cases, f"EV_1 plain, by batch normalisation, by IsoBN: {'; '.join(numbers)}")


def select_last_epochs(rows: TidyRows) -> TidyRows:
    """Return the row of each run's last epoch."""
    return list({(r["encoder"], r["task"], r["method"], r["seed"]): r for r in rows}.values())


def classifier_stays_at_init(rows: TidyRows) -> Outcome:
    """Check that the classifier's cosine to its initialisation is above .99 at the end of every run."""
    ends = [row["cosine"] for row in select_last_epochs(rows)]
    numbers = f"smallest cosine {min(ends):.6f} of {format_count(len(ends), 'run')}"
    return judge_cases((value > 0.99 for value in ends), numbers)


def top_component_is_exaggerated(rows: TidyRows) -> Outcome:
    """Check that the first component's share of the logits' variance exceeds the optimal classifier's in each run."""
    last = [row for row in select_last_epochs(rows) if row.get("optimal_top1") is not None]  # a regression has none
    if not last:
        return Outcome(NOT_RUN, "no task with classes")
    ends = [(row["fine_tuned_top1"], row["optimal_top1"]) for row in last]
    ours, best = (100 * statistics.fmean(values) for values in zip(*ends, strict=True))
    numbers = f"its share of the logits' variance is {ours:.0f}%, and {best:.0f}% with the optimal classifier"
    return judge_cases((a > b for a, b in ends), f"{numbers} ({format_count(len(ends), 'run')})")


def centring_restores_isotropy(rows: TidyRows) -> Outcome:
    """Check that centring alone raises I(W) above .85, and that removing the top components raises it further."""
    numbers = [f"{r['encoder']}: {r['i1_raw']:.2f}, {r['i1_centred']:.2f}, {r['i1_removed']:.3f}" for r in rows]
    cases = (r["i1_raw"] < r["i1_centred"] < r["i1_removed"] and r["i1_centred"] > 0.85 for r in rows)
    return judge_cases(cases, f"I(W) raw, centred, without top components: {'; '.join(numbers)}")


def word_similarity_improves(*methods: str) -> Callable[[TidyRows], Outcome]:
    """Make the check that each method's average word similarity is above that of raw vectors.

    By inner product and by cosine.
    """

    def check(rows: TidyRows) -> Outcome:
        pearson = {(r["encoder"], r["similarity"], r["method"]): r["pearson"] for r in rows}
        cases, numbers = [], []
        for (encoder, similarity, method), value in pearson.items():
            if method in methods and (encoder, similarity, "raw") in pearson:
                gain = value - pearson[encoder, similarity, "raw"]
                cases.append(gain > 0)
                numbers.append(f"{encoder}, {method}, {similarity} {gain:+.2f}")
        return judge_cases(cases, f"gain in Pearson's correlation x 100: {'; '.join(numbers)}")

    return check


def rare_tokens_are_nearer(rows: TidyRows) -> Outcome:
    """Check that unused tokens have a higher cosine with rare tokens than with frequent ones.

    An encoder's rows are ranges of token ids in ascending order, from frequent tokens to rare ones.
    """
    cosines: dict[str, list[float]] = {}
    for row in rows:
        if row["vectors"] == "raw":
            cosines.setdefault(row["encoder"], []).append(row["cosine"])
    numbers = "; ".join(f"{encoder}: {values[0]:.2f}, {values[-1]:.2f}" for encoder, values in cosines.items())
    cases = (values[0] < values[-1] for values in cosines.values())
    return judge_cases(cases, f"mean cosine with frequent tokens, with rare ones: {numbers}")


NEAR = 0.1  # points; a correlation this near a published one counts as repeated; the number is our choice


def scores_are_repeated(rows: TidyRows) -> Outcome:
    """Check that each of our correlations by cosine is within ``NEAR`` points of the published one."""
    rows = [row for row in rows if row["similarity"] == "cosine"]
    differences = {f"{row['encoder']}, {row['set']}, {row['metric']}": row["difference"] for row in rows}
    if not differences:
        return Outcome(NOT_RUN, "no encoder with published scores")
    farthest = max(differences, key=lambda name: abs(differences[name]))
    numbers = f"largest of {len(differences)} differences: {differences[farthest]:+.3f} points ({farthest})"
    return judge_cases((abs(difference) <= NEAR for difference in differences.values()), numbers)


FIGURE_TASKS = ("mrpc", "cola", "sst2", "rte")  # of the adaptation paper's Figures 1 to 3 and of Section 3.2
RISING_TASKS = ("rte", "mnli", "qnli", "wnli")  # where the paper sees importance rise with variance (Sec. 3.3)
RELATED = 0.3  # a |Spearman| below this is what the paper calls "no clear relationship"; the number is our choice


def variance_is_not_importance(rows: TidyRows) -> Outcome:
    """Check that a dimension's deviation and Fisher score correlate little: |Spearman| below ``RELATED``.

    The tasks that the paper excepts (``RISING_TASKS``) are left out.
    """
    return judge_correlations(
        [row for row in rows if row["task"] not in RISING_TASKS], lambda rho: abs(rho) < RELATED
    )


def variance_rises_with_importance(rows: TidyRows) -> Outcome:
    """Check that a dimension's deviation and Fisher score rise together on the tasks where the paper sees it."""
    return judge_correlations([row for row in rows if row["task"] in RISING_TASKS], lambda rho: rho >= RELATED)


def judge_correlations(rows: TidyRows, agrees: Callable[[float], bool]) -> Outcome:
    """Judge every row's Spearman correlation of standard deviation and Fisher score over the dimensions."""
    numbers = "; ".join(f"{row['encoder']}, {row['task']}: {row['spearman']:+.2f}" for row in rows)
    return judge_cases((agrees(row["spearman"]) for row in rows), f"Spearman's correlation: {numbers}")


def there_are_two_clusters(rows: TidyRows) -> Outcome:
    """Check that t-SNE shows two clusters, and that the vectors themselves are more clustered than one Gaussian.

    The second condition is there because t-SNE can show clusters where there are none. The claim is about the four
    tasks of Figure 1 (``FIGURE_TASKS``); others are left out.
    """
    rows = [row for row in rows if row["task"] in FIGURE_TASKS]
    numbers = "; ".join(
        f"{row['encoder']}, {row['task']}: {row['clusters']}, index {row['cluster_index']:.2f} against "
        f"{row['gaussian_cluster_index']:.2f} of one Gaussian"
        for row in rows
    )
    cases = (row["clusters"] == 2 and row["cluster_index"] < row["gaussian_cluster_index"] for row in rows)
    return judge_cases(cases, numbers)
