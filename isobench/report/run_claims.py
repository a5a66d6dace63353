"""Check the papers' claims that are judged by single runs: isotropy and score, and collapse to one class."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from isobench.report.build import Report
from isobench.report.claim_outcome import FAILS, HOLDS, NOT_RUN, UNDECIDED, Outcome
from isobench.report.score_claims import read_compared_setting
from isobench.report.tables import BASE_METHOD, CONSTANT_PREDICTOR
from isobench.statistics.seeds import ALPHA, holm

NO_RELATION = 0.3  # the pooled correlation's interval must lie within plus and minus this to support "no relation"


def isotropy_is_unrelated(report: Report) -> Outcome:
    """Check that I1 of the embeddings does not correlate with the score over the runs of any task and encoder.

    By Spearman's correlation with Holm's correction over tasks and encoders that have six runs or more. Runs of
    different scales, heads or reported epochs are correlated apart. That none is significant supports the claim only
    if the pooled correlation's interval lies within ``NO_RELATION``, and the correlations do not differ by Cochran's
    test.
    """
    from scipy import stats

    groups: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for run in report.runs.to_dict("records"):
        i1, score = (math.nan if run.get(name) is None else run[name] for name in ("embedding/i1", "score"))
        if not run["failure"] and not math.isnan(i1 + score):
            groups.setdefault(read_compared_setting(run), []).append((i1, score))
    large = {key: pairs for key, pairs in groups.items() if len(pairs) >= 6}
    varied = {key: pairs for key, pairs in large.items() if all(len(set(v)) > 1 for v in zip(*pairs, strict=True))}
    constant = [f"{key[1]}, {key[0]}" for key in large if key not in varied]
    left_out = f"; left out, I1 or score is constant: {'; '.join(constant)}" if constant else ""
    if not varied:
        word = UNDECIDED if constant else NOT_RUN
        return Outcome(word, f"no task and encoder with six runs that differ{left_out}")
    tests = [stats.spearmanr(*zip(*pairs, strict=True)) for pairs in varied.values()]
    related = sum(p < ALPHA for p in holm([float(test.pvalue) for test in tests]))
    sizes = [len(pairs) for pairs in varied.values()]
    rho = ", ".join(f"{key[1]} {test.statistic:+.2f}" for key, test in zip(varied, tests, strict=True))
    tested = f"{related} of {len(tests)} with p < {ALPHA} after Holm"
    numbers = f"Spearman's correlation with I1: {rho} ({sum(sizes)} runs); {tested}"
    if related:
        return Outcome(FAILS, numbers + left_out)
    low, pooled, high, p_equal = pool_correlations([test.statistic for test in tests], sizes)
    unrelated = max(-low, high) < NO_RELATION and p_equal >= ALPHA
    numbers += f"; pooled {pooled:+.2f} [{low:+.2f}, {high:+.2f}]{left_out}"
    return Outcome(HOLDS if unrelated else UNDECIDED, numbers)


def pool_correlations(correlations: Sequence[float], sizes: Sequence[int]) -> tuple[float, float, float, float]:
    """Pool Spearman's correlations, each between -1 and 1, of groups of runs.

    By Fisher's z, whose variance is 1.06 / (n - 3) for Spearman's correlation (Fieller, Hartley and Pearson 1957),
    which is good for correlations near 0. It takes runs as independent. Runs of one seed are not quite, so the
    interval is somewhat too narrow. A group's weight is n - 3.

    Returns:
        The pooled correlation between the ends of its 95% interval (low, pooled, high), and Cochran's p for the
        hypothesis that all groups have the same correlation.
    """
    from scipy import stats

    weights = np.array(sizes) - 3
    z = np.arctanh(correlations)
    mean = np.average(z, weights=weights)
    margin = float(stats.norm.ppf(0.975)) * math.sqrt(1.06 / sum(weights))
    p_equal = stats.chi2.sf(float(weights @ (z - mean) ** 2) / 1.06, len(z) - 1) if len(z) > 1 else 1.0
    return math.tanh(mean - margin), math.tanh(mean), math.tanh(mean + margin), float(p_equal)


def collapses(largest_i2: float, *methods: str) -> Callable[[Report], Outcome]:
    """Make the check that runs whose head is as isotropic as printed predict one class for every example.

    Only runs of these methods with an I2 of at most ``largest_i2`` decide. The claim holds if one of them predicts
    one class, and fails if none does. Runs on a task where plain fine-tuning predicts one class too are left out,
    because there the method is not the reason.
    """

    def check(report: Report) -> Outcome:
        ended = [run for run in report.runs.to_dict("records") if run["status"] == "finished"]
        plain = [run for run in ended if run["method"] == BASE_METHOD and run["failure"] == CONSTANT_PREDICTOR]
        hopeless = {read_compared_setting(run): run["task"] for run in plain}
        own = [run for run in ended if run["method"] in methods]
        runs = [run for run in own if read_compared_setting(run) not in hopeless]
        tasks = ", ".join(dict.fromkeys(hopeless.values()))
        left_out = f"; left out, plain fine-tuning predicts one class too: {tasks}" if tasks else ""
        if not runs:
            return Outcome(UNDECIDED if own else NOT_RUN, f"no such run{left_out}")
        i2 = [run.get("head/i2_printed") for run in runs]
        isotropic = [run for run, value in zip(runs, i2, strict=True) if value is not None and value <= largest_i2]
        if not isotropic:
            numbers = f"none of {len(runs)} runs has an I2 of at most {largest_i2}"
            return Outcome(UNDECIDED, f"{numbers}: run calibration=spectrum_polynomial_collapsed{left_out}")
        constant = sum(run["failure"] == CONSTANT_PREDICTOR for run in isotropic)
        numbers = f"{constant} of {len(isotropic)} runs with an I2 of at most {largest_i2} predict one class"
        return Outcome(HOLDS if constant else FAILS, numbers + left_out)

    return check
