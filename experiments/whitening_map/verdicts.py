"""Judge the statements about the map by the rules of registration.md. The sets are the units of every test."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from isobench.analyses.rows import TidyRow, group_rows, list_distinct, select_rows
from isobench.statistics.dose_response import SeedMean, average_over_seeds, fit_slopes, narrow_interval
from isobench.statistics.seeds import ALPHA, holm
from isobench_papers.isotropy_dial.second import OPEN, REFUTED, SUPPORTED, choose

SMALL = 0.5  # points: a change within it makes no difference to a user
SMALL_CORRELATION = 0.3
RESAMPLES = 10_000
REGISTERED, ALL_SETS, FEW_LABELS = "registered", "all sets", "without all labels"  # scopes; others are encodings
ENCODING = ("encoder", "pooling", "layer")
SOFT, HARMLESS = BOUNDED = ("soft whitening is no worse than full whitening", "costs at most half a point")
PRIMARY = {"classifier": "logistic", "unit_length": "none"}


def judge(changes: Sequence[TidyRow], isotropy: Sequence[TidyRow]) -> list[TidyRow]:
    """Judge the statements: a row for each test, those of a statement corrected by Holm.

    A row has ``scope``, ``statement`` and ``case``; the mean over sets with its 95% interval, p and Holm's p, and the
    number of sets; the test's verdict, and under ``group_verdict`` that of its ``group`` of tests. The scope
    ``registered`` is the mean over encodings on the held-out sets (statement 7: on all). The other scopes are
    secondary. Empty without both full and soft whitening on sets of both kinds.
    """
    held_out = [row for row in changes if row["held_out"]]
    whitening = select_whitening(held_out)
    if not {0.0} < set(list_distinct(whitening, "shrinkage")) or len(held_out) == len(changes):
        return []
    registered = [
        *judge_curves(whitening),
        *judge_softness(whitening),
        *judge_harmless(held_out),
        *judge_isoscore(changes, isotropy),
        *judge_prediction(changes),
    ]
    scopes = {ALL_SETS: judge_curves(select_whitening(changes))}
    scopes[FEW_LABELS] = judge_growth([row for row in whitening if row["budget"] is not None])
    for encoding, own in group_rows(whitening, *ENCODING).items():
        scopes[name_encoding(*encoding)] = judge_curves(own)
    rows = [row | {"scope": scope} for scope, own in {REGISTERED: registered, **scopes}.items() for row in own]
    for group in group_rows(rows, "scope", "statement", "group").values():
        verdicts = {row["verdict"] for row in group}
        verdict = REFUTED if REFUTED in verdicts else OPEN if OPEN in verdicts else SUPPORTED
        for row in group:
            row["group_verdict"] = verdict
    return rows


def select_whitening(changes: Sequence[TidyRow]) -> list[TidyRow]:
    return [row for row in select_rows(changes, PRIMARY) if row["shrinkage"] is not None]


def name_encoding(encoder: str, pooling: str, layer: str | None) -> str:
    return f"{encoder} {pooling}" + (f" layer {layer}" if layer else "")


def judge_curves(whitening: Sequence[TidyRow]) -> list[TidyRow]:
    """Judge what the curves of the strengths do: 1 to 4."""
    ends = judge_ends(whitening)
    loses = ends[0]["verdict"] == SUPPORTED  # full whitening, with the fewest labels
    return [*judge_growth(whitening), *ends, *judge_crossing(whitening, loses)]


def average_encodings(rows: Iterable[TidyRow]) -> pd.DataFrame:
    """Average changes over encodings: a row for each set (``task``) and budget, the fewest labels first.

    A budget of infinity is all labels.
    """
    columns = ["task", "labels_a_class", "budget"]
    frame = pd.DataFrame(rows, columns=[*columns, "change"]).astype({"budget": float}).fillna({"budget": math.inf})
    means = frame.groupby(columns, sort=False, as_index=False)["change"].mean()
    return means.sort_values("labels_a_class", kind="stable")


def group_strengths(whitening: Sequence[TidyRow]) -> dict[float, pd.DataFrame]:
    """Average the changes of each shrinkage over encodings, full whitening (0) first."""
    strengths = sorted(list_distinct(whitening, "shrinkage"))
    return {strength: average_encodings(select_rows(whitening, {"shrinkage": strength})) for strength in strengths}


def average_sets(means: pd.DataFrame) -> dict[str, SeedMean]:
    """Average changes over sets by budget, the fewest labels first and all labels last."""
    return {
        "all labels" if budget == math.inf else f"{budget:g} a class": average_over_seeds(changes)
        for budget, changes in means.groupby("budget")["change"]
    }


def judge_growth(whitening: Sequence[TidyRow]) -> list[TidyRow]:
    """1: the change grows with the labels. Tests its slope on the binary logarithm of the labels a class."""
    cases = {}
    for strength, means in group_strengths(whitening).items():
        slopes = [
            float(fit_slopes(np.log2(own.labels_a_class), own.change.to_numpy())) if len(own) > 1 else math.nan
            for _, own in means.groupby("task")
        ]
        cases[f"shrinkage {strength:g}"] = average_over_seeds(np.array(slopes))
    return decide("the change grows with the labels", cases, sign=1)


def judge_ends(whitening: Sequence[TidyRow]) -> list[TidyRow]:
    """2 and 3: with the fewest labels whitening loses; with all labels it gains."""
    rows = []
    for statement, end, sign in (("loses with the fewest labels", "first", -1), ("gains with all labels", "last", 1)):
        cases = {
            f"shrinkage {strength:g}": average_over_seeds(means.groupby("task")["change"].agg(end))
            for strength, means in group_strengths(whitening).items()
        }
        rows += decide(statement, cases, sign, SMALL)
    return rows


def judge_crossing(whitening: Sequence[TidyRow], loses: bool) -> list[TidyRow]:
    """4: the stronger the whitening, the more labels it takes until it loses at most half a point.

    Supported only if full whitening ``loses`` with the fewest labels: else the crossings are places of noise.
    """
    crossings = pd.DataFrame({
        strength: {task: find_crossing(own) for task, own in means.groupby("task")}
        for strength, means in group_strengths(whitening).items()
    })  # fmt: skip
    strengths = -np.array([crossings.columns])
    values = [average_correlation(strengths, own[None]) for own in crossings.to_numpy()]
    rows = decide("stronger whitening needs more labels", {"all": average_over_seeds(np.array(values))}, sign=1)
    return [row | {"verdict": OPEN} if row["verdict"] == SUPPORTED and not loses else row for row in rows]


def find_crossing(means: pd.DataFrame) -> float:
    """Find the binary logarithm of the labels a class from which on a set's change is never below -0.5.

    Between two budgets it is interpolated. Where the last change is below, it is one doubling after the last.
    """
    x, y = np.log2(means.labels_a_class.to_numpy()), means.change.to_numpy() + SMALL
    below = np.flatnonzero(y < 0)
    if not len(below):
        return float(x[0])
    if below[-1] == len(x) - 1:
        return float(x[-1]) + 1
    (x0, x1), (y0, y1) = (values[below[-1] :][:2] for values in (x, y))
    return float(x0 + (x1 - x0) * y0 / (y0 - y1))


def judge_softness(whitening: Sequence[TidyRow]) -> list[TidyRow]:
    """5: soft whitening is at most half a point worse than full whitening. Tests the difference at every budget."""
    (_, full), *soft = group_strengths(whitening).items()
    cases = {}
    for strength, means in soft:
        both = means.merge(full, on=["task", "budget"], suffixes=("", "_full"))
        places = average_sets(both.assign(change=both.change - both.change_full))
        cases |= {f"shrinkage {strength:g}, {place}": mean for place, mean in places.items()}
    return judge_lower_bound(SOFT, cases, -SMALL)


def judge_harmless(held_out: Sequence[TidyRow]) -> list[TidyRow]:
    """6: centring and unit length cost at most half a point."""
    cases = {}
    for name, selection in {
        "unit length (logistic)": {"classifier": "logistic", "unit_length": "after", "method": "none"},
        "centring (neighbours)": {"classifier": "neighbours", "unit_length": "none", "method": "center"},
    }.items():
        places = average_sets(average_encodings(select_rows(held_out, selection)))
        cases |= {f"{name}, {place}": mean for place, mean in places.items()}
    return judge_lower_bound(HARMLESS, cases, -SMALL)


def judge_isoscore(changes: Sequence[TidyRow], isotropy: Sequence[TidyRow]) -> list[TidyRow]:
    """7: the gain in IsoScore by full whitening does not predict its gain in accuracy across sets.

    The mean over encodings of Spearman's correlation over all sets. The interval draws the sets with replacement; p
    permutes the changes over the sets, for all encodings alike.
    """
    gain = {tuple(row[name] for name in (*ENCODING, "task")): 1 - row["isoscore"] for row in isotropy}
    full = select_rows(changes, PRIMARY | {"shrinkage": 0.0})
    tasks = list_distinct(full, "task")
    rng = np.random.default_rng(0)
    cases: dict[str, SeedMean] = {}
    for end, name in (("first", "the fewest labels"), ("last", "all labels")):
        x, y = [], []  # [encodings, tasks]
        for encoding, own in group_rows(full, *ENCODING).items():
            x.append([gain[(*encoding, task)] for task in tasks])
            y.append(average_encodings(own).groupby("task")["change"].agg(end)[tasks])
        x, y = np.array(x), np.array(y)
        seen = average_correlation(x, y)
        drawn = [rng.integers(len(tasks), size=len(tasks)) for _ in range(RESAMPLES)]
        resampled = [average_correlation(x[:, own], y[:, own]) for own in drawn]
        low, high = np.quantile(resampled, [ALPHA / 2, 1 - ALPHA / 2])
        permuted = [average_correlation(x, y[:, rng.permutation(len(tasks))]) for _ in range(RESAMPLES)]
        p = (1 + np.sum(np.abs(permuted) >= abs(seen) - 1e-12)) / (1 + RESAMPLES)
        cases[name] = SeedMean(seen, float(low), float(high), float(p), len(tasks))
    rows = add_holm("the gain in IsoScore predicts no gain in accuracy", cases)
    for row in rows:
        is_small = row["low"] > -SMALL_CORRELATION and row["high"] < SMALL_CORRELATION
        row["verdict"] = choose(is_small, row["p_holm"] < ALPHA)
    return rows


def average_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Average Spearman's correlations of the rows of two arrays, [rows, n] each; a row without spread counts 0."""
    from scipy import stats

    ranks = [stats.rankdata(values, axis=1) for values in (x, y)]
    a, b = (own - own.mean(1, keepdims=True) for own in ranks)
    length = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    return float(np.mean(np.divide((a * b).sum(1), length, out=np.zeros(len(a)), where=length > 0)))


def judge_prediction(changes: Sequence[TidyRow]) -> list[TidyRow]:
    """8: the known sets predict the held-out ones. Tests the share of the squared changes that they explain."""
    key = (*ENCODING, "shrinkage", "budget")
    whitening = select_whitening(changes)
    known = group_rows((row for row in whitening if not row["held_out"]), *key)
    predicted = {cell: float(np.mean([row["change"] for row in own])) for cell, own in known.items()}
    shares = []
    for own in group_rows((row for row in whitening if row["held_out"]), "task").values():
        keys = [tuple(row[name] for name in key) for row in own]
        cells = [(row["change"], predicted[cell]) for row, cell in zip(own, keys, strict=True) if cell in predicted]
        total = sum(change**2 for change, _ in cells)
        shares.append(1 - sum((change - guess) ** 2 for change, guess in cells) / total if total else math.nan)
    return decide("other sets predict the change", {"all": average_over_seeds(np.array(shares))}, sign=1)


def decide(statement: str, cases: Mapping[str, SeedMean], sign: int, small: float = 0.0) -> list[TidyRow]:
    """Judge the sign of each mean; one whose 90% interval is within +-``small`` refutes the statement too.

    Where several sets have the same value, which is not 0, there is no p, and its sign decides.
    """
    rows = add_holm(statement, cases)
    for row in rows:
        is_found = row["p_holm"] < ALPHA or (math.isnan(row["p"]) and row["sets"] > 1)
        is_small = abs(row["value"]) + measure_reach(row) < small
        is_so, is_opposite = (is_found and row["value"] * way > 0 for way in (sign, -sign))
        row["verdict"] = choose(is_so, is_opposite or is_small)
    return rows


def judge_lower_bound(statement: str, cases: Mapping[str, SeedMean], bound: float) -> list[TidyRow]:
    """Judge whether means are above a bound: supported where the one-sided 95% limit is, refuted by Holm's p.

    ``p`` is one-sided here, of the hypothesis that the mean is not below the bound.
    """
    from scipy import special

    below = {}
    for name, own in cases.items():
        freedom = max(own.seeds - 1, 1)
        error = narrow_interval(own.low, own.high, own.seeds) / special.stdtrit(freedom, 1 - ALPHA)
        below[name] = own._replace(p=float(special.stdtr(freedom, (own.value - bound) / error)))
    rows = add_holm(statement, below)
    for row in rows:
        row["verdict"] = choose(row["value"] - measure_reach(row) > bound, row["p_holm"] < ALPHA)
    return rows


def measure_reach(row: TidyRow) -> float:
    """Measure half of a row's 90% interval; 0 where several sets have one value, NaN with one set."""
    if math.isnan(row["low"]) and row["sets"] > 1:
        return 0.0
    return narrow_interval(row["low"], row["high"], row["sets"])


def add_holm(statement: str, cases: Mapping[str, SeedMean]) -> list[TidyRow]:
    corrected = holm([own.p for own in cases.values()])
    return [
        {"statement": statement, "group": case.split(", ")[0], "case": case} | list_values(own) | {"p_holm": p}
        for (case, own), p in zip(cases.items(), corrected, strict=True)
    ]


def list_values(mean: SeedMean) -> TidyRow:
    """List a mean over sets, its interval, p, and the number of sets."""
    return {"value": mean.value, "low": mean.low, "high": mean.high, "p": mean.p, "sets": mean.seeds}
