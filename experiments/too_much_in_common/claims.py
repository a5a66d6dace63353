"""Define what "Too Much in Common" claims, and judge each claim."""

from collections.abc import Callable

from isobench.report.checks import judge_cases
from isobench.report.claims import Claim, Outcome, Rows


def centring_restores_isotropy(rows: Rows) -> Outcome:
    """Check that centring alone raises I(W) above .85, and that removing the top components raises it further."""
    numbers = [f"{r['encoder']}: {r['i1_raw']:.2f}, {r['i1_centred']:.2f}, {r['i1_removed']:.3f}" for r in rows]
    cases = (r["i1_raw"] < r["i1_centred"] < r["i1_removed"] and r["i1_centred"] > 0.85 for r in rows)
    return judge_cases(cases, f"I(W) raw, centred, without top components: {'; '.join(numbers)}")


def word_similarity_improves(*methods: str) -> Callable[[Rows], Outcome]:
    """Make the check that each method's average word similarity is above that of raw vectors.

    By inner product and by cosine.
    """

    def check(rows: Rows) -> Outcome:
        pearson = {(r["encoder"], r["similarity"], r["method"]): r["pearson"] for r in rows}
        cases, numbers = [], []
        for (encoder, similarity, method), value in pearson.items():
            if method in methods and (encoder, similarity, "raw") in pearson:
                gain = value - pearson[encoder, similarity, "raw"]
                cases.append(gain > 0)
                numbers.append(f"{encoder}, {method}, {similarity} {gain:+.2f}")
        return judge_cases(cases, f"gain in Pearson's correlation x 100: {'; '.join(numbers)}")

    return check


def rare_tokens_are_nearer(rows: Rows) -> Outcome:
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


CLAIMS = [
    Claim(
        "Centring alone makes word embeddings nearly isotropic (Table 1)",
        "common_isotropy",
        centring_restores_isotropy,
        rows_file="isotropy",
    ),
    Claim(
        "Scaled centring and post-processing improve word similarity (Table 2)",
        "common_wordsim",
        word_similarity_improves("centered_scaled", "post_process"),
        rows_file="averages",
    ),
    Claim(
        "Unused tokens are nearer to rare tokens than to frequent ones (Figure 3)",
        "common_frequency",
        rare_tokens_are_nearer,
        rows_file="cosine_ranges",
    ),
]
