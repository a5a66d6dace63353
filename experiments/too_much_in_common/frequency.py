"""Too Much in Common (Bis et al. 2021), Figures 3 and 4: cosines of unused tokens, and frequencies of tokens."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table
from typing_extensions import TypedDict

from isobench.analyses.rows import TidyRow, group_rows
from isobench.analyses.shown import Rows, Shown, format_number, make_table
from isobench.common.errors import refuse
from isobench.common.plots import PALETTE, add_finding, make_panel_grid
from isobench.config.bounds import Bound, NonNegativeInt, PositiveInt, above, at_least, at_most

if TYPE_CHECKING:  # importing them takes seconds
    from torch import Tensor

    from isobench.analyses.subject import Subject

UNUSED_TOKEN_PATTERN = re.compile(r"\[unused\d+\]")  # as in BERT's vocabularies
WORD_PATTERN = re.compile(r"\w+|[^\w\s]")
MAX_EXPONENT = 100.0  # upper end of the search for Zipf's
MAX_CURVE_POINTS = 400  # a curve has at most so many ranks, evenly spaced on the logarithmic axis

RANKS = Bound(
    lambda ranks: [type(rank) for rank in ranks] == [int, int] and 1 <= ranks[0] < ranks[1],
    "must be two whole numbers, the first below the last, at least 1",
)
NOT_EMPTY_RANGE = Bound(lambda ids: ids["end"] > ids["first"], "must have its end above its first")


class TokenRange(TypedDict):
    """Token ids from ``first`` up to ``end``, which is excluded."""

    first: NonNegativeInt
    end: int
    published: Annotated[float, at_least(-1), at_most(1)] | None  # the paper's mean cosine, if it prints one


class FrequentTypes(TypedDict):
    """The most frequent types of a corpus."""

    types: PositiveInt  # their number
    published: Any  # their share of the corpus, in the paper's words


class Coverage(TypedDict):
    """A share of the corpus that its most frequent types make up."""

    share: Annotated[float, above(0), at_most(1)]
    published: Any  # the number of types, in the paper's words


def compute(
    subjects: list["Subject"],
    corpus: str,
    texts: PositiveInt | None,
    width: PositiveInt,
    rare: PositiveInt,
    ranges: list[Annotated[TokenRange, NOT_EMPTY_RANGE]],
    heads: list[FrequentTypes],
    coverage: Coverage,
    ranks: Annotated[list[Any], RANKS],
) -> Rows:
    """Measure mean cosines of the unused tokens with bins of the vocabulary, and rank-frequency curves of a corpus.

    Args:
        subjects: encoders.
        corpus: name of a corpus of ``corpus.py``.
        texts: read only so many texts from the corpus's start; None for all.
        width: width of Figure 3's bins, in token ids.
        rare: so many last tokens stand for the unused ones in a vocabulary without any.
        ranges: ranges of token ids, of which the paper prints the mean cosine of two.
        heads: the most frequent types, by number, whose share of the corpus it prints.
        coverage: the share of the corpus for which it prints how many types cover it.
        ranks: first and last rank between which Zipf's exponent is fitted.

    Raises:
        UserError: the corpus is missing, or a calibration is set.
    """
    from isobench.calibration import center
    from isobench_papers.too_much_in_common.corpus import open_corpus
    from isobench_papers.too_much_in_common.vocabularies import iterate_vocabularies

    read = open_corpus(corpus, subjects[0].cfg.data, texts)
    words = Counter(word for batch in read.track("words") for text in batch for word in WORD_PATTERN.findall(text))
    units = {"words": np.fromiter(words.values(), np.int64, len(words))}
    rows: Rows = {"cosine_bins": [], "cosine_ranges": [], "reference_tokens": []}
    for subject, matrix, by_row in iterate_vocabularies(subjects, read):
        units[f"tokens, {subject.encoder}"] = by_row[by_row > 0].numpy().astype(np.int64)
        ids, unused = select_reference_tokens(subject.tokenizer, len(matrix), rare)
        rows["reference_tokens"].append({"encoder": subject.encoder, "tokens": len(ids), "unused": unused})
        bins = [(first, first + width) for first in range(0, len(matrix), width)]
        bounds = [(token_range["first"], token_range["end"]) for token_range in ranges]
        versions = {"raw": matrix, "centred": center(matrix), "zipf_centred": center(matrix, by_row)}
        for vectors, embeddings in versions.items():
            names = {"encoder": subject.encoder, "vectors": vectors}
            rows["cosine_bins"] += compute_range_cosines(embeddings, ids, bins, names)
            rows["cosine_ranges"] += compute_range_cosines(embeddings, ids, bounds, {**names, "unused": unused})
    rows |= {"frequency": [], "rank_frequency": []}
    for unit, counts in units.items():
        own = np.sort(counts)[::-1]
        summary = summarise_counts(own, heads, coverage, ranks)
        rows["frequency"].append({"unit": unit, "texts": read.text_count, **summary})
        places = np.unique(np.geomspace(1, len(own), MAX_CURVE_POINTS).astype(np.int64)).tolist()
        rows["rank_frequency"] += [{"unit": unit, "rank": rank, "count": int(own[rank - 1])} for rank in places]
    return rows


def describe_differences(subjects: list["Subject"], rows: Rows, corpus: str) -> list[str]:
    """Describe how encoders and corpus differ from the paper's; no task is read."""
    from isobench.analyses.subject import list_encoder_differences
    from isobench_papers.too_much_in_common.corpus import find_corpus_differences

    return list_encoder_differences(subjects) + find_corpus_differences(corpus, rows["frequency"][0]["texts"])


def show(
    rows: Rows, ranges: list[TokenRange], heads: list[FrequentTypes], coverage: Coverage, ranks: list[int]
) -> Shown:
    """Show the mean cosines and the summary of the corpus beside the paper's numbers, and Figures 3 and 4."""
    texts = rows["frequency"][0]["texts"]
    compared = [
        f"{row['encoder']}: {row['tokens']} unused tokens"
        if row["unused"]
        else f"{row['encoder']}: no unused tokens, the last {row['tokens']} ids (rare) in their place"
        for row in rows["reference_tokens"]
    ]
    return Shown(
        [build_similarity_table(rows["cosine_ranges"], ranges), build_frequency_table(rows, heads, coverage)],
        {"figure3": draw_figure3(rows["cosine_bins"], ranges), "figure4": draw_figure4(rows, ranks)},
        [
            f"Mean cosines are of all pairs, one of these tokens with one of the bin: {'; '.join(compared)}.",
            "The paper's ids 28500-29500 and its 994 unused tokens are the uncased BERT's, as in its released code; "
            "its Figure 3 names the cased one, whose vocabulary has 28,996 tokens, 101 of them unused.",
            "Words, in their own case: runs of letters, digits and underscores, and every other character that is no "
            f"blank. Zipf's exponent s is of ranks {ranks[0]} to {ranks[1]}. {texts:,} texts.",
            "zipf_centred: the mean that is subtracted weighs each token by its count (Yokoi et al. 2024; not in the "
            "paper).",
        ],
    )


def select_reference_tokens(tokenizer: Any, rows: int, rare: int) -> tuple[list[int], bool]:
    """Select the tokens that training never used, BERT's ``[unused...]`` ones, or the last ``rare`` of all rows.

    Returns:
        Their ids, ascending, and whether they are unused tokens.
    """
    unused = sorted(
        number for token, number in tokenizer.get_vocab().items() if UNUSED_TOKEN_PATTERN.fullmatch(token)
    )
    return (unused, True) if unused else (list(range(max(0, rows - rare), rows)), False)


def compute_range_cosines(
    matrix: "Tensor", rows: list[int], bounds: Iterable[tuple[int, int]], names: TidyRow
) -> list[TidyRow]:
    """Compute the mean cosine of some rows of a matrix [V, d] with each range of its rows, over all pairs.

    It is the inner product of the two means of unit vectors. A range ends before its second bound. Ranges beyond the
    matrix are left out; a range that reaches beyond it is cut at its end.
    """
    from isobench.metrics.isotropy import sum_unit_rows

    total, count = sum_unit_rows(matrix[rows])
    cosines = []
    for first, end in bounds:
        if first < len(matrix):
            others, number = sum_unit_rows(matrix[first:end])
            cosine = (total @ others).item() / (count * number) if count and number else None
            place = {"first": first, "end": min(end, len(matrix)), "rows": len(rows)}
            cosines.append({**names, **place, "cosine": cosine})
    return cosines


def summarise_counts(
    counts: np.ndarray, heads: list[FrequentTypes], coverage: Coverage, ranks: Sequence[int]
) -> dict[str, Any]:
    """Summarise counts, descending, [types], in a tidy row; ``compute`` describes the settings."""
    refuse((not len(counts), "the corpus has no words; choose another analysis.corpus, or raise analysis.texts"))
    shares = np.cumsum(counts) / counts.sum()
    squares, likelihood = zipf_exponents(counts, *ranks)
    return {
        "types": len(counts),
        "occurrences": int(counts.sum()),
        **{name_share(head): float(shares[min(head["types"], len(counts)) - 1]) for head in heads},
        "types_covering": int(np.searchsorted(np.cumsum(counts), coverage["share"] * counts.sum())) + 1,
        "zipf_least_squares": squares,
        "zipf_likelihood": likelihood,
    }


def zipf_exponents(counts: np.ndarray, first: int, last: int) -> tuple[float, float]:
    """Estimate Zipf's exponent s of a rank-frequency curve from the counts at some ranks, in two ways.

    Zipf (1949): the count at rank r is proportional to r^-s.

    Least squares takes the slope of log count against log rank; all ranks weigh the same. Maximum likelihood takes
    the occurrences at these ranks as draws with p(r) = r^-s / sum over the ranks of r^-s, so that frequent ranks
    weigh more; at its solution the expected mean log rank equals the observed one.

    Args:
        counts: positive, descending, [N]; rank r is at index r - 1.
        first: first rank used, from 1.
        last: last rank used; ranks above N are left out.

    Returns:
        The estimates by least squares and by maximum likelihood; NaN twice if there are fewer than two ranks, and NaN
        for a maximum-likelihood exponent above MAX_EXPONENT.
    """
    from scipy.optimize import brentq  # slow to import

    used_counts = np.asarray(counts[first - 1 : last], np.float64)
    if len(used_counts) < 2:
        return math.nan, math.nan
    log_ranks = np.log(np.arange(first, first + len(used_counts)))
    observed_mean = np.average(log_ranks, weights=used_counts)

    def excess_mean_log_rank(s: float) -> float:
        weights = np.exp(-s * (log_ranks - log_ranks[0]))
        return float(np.average(log_ranks, weights=weights) - observed_mean)

    least_squares = float(-np.polyfit(log_ranks, np.log(used_counts), 1)[0])
    if excess_mean_log_rank(0.0) <= 0:  # all counts are equal
        return least_squares, 0.0
    if excess_mean_log_rank(MAX_EXPONENT) >= 0:
        return least_squares, math.nan
    return least_squares, float(brentq(excess_mean_log_rank, 0.0, MAX_EXPONENT))


def build_similarity_table(rows: list[TidyRow], ranges: Sequence[Mapping[str, Any]]) -> Table:
    """Build the table of mean cosines in the ranges that the paper prints, a row for each encoder and its vectors.

    A cell says where its range ended if the vocabulary cut it.
    """
    headings = [f"ids {token_range['first']}-{token_range['end']}" for token_range in ranges]
    title = "Too Much in Common, Section 4.2: mean cosine"
    table = make_table(title, ("", "encoder", "vectors"), headings, wrap_numbers=True)
    for (encoder, vectors), own in group_rows(rows, "encoder", "vectors").items():
        found = {row["first"]: row for row in own if row["cosine"] is not None}
        cells = dict.fromkeys((bounds["first"] for bounds in ranges), "-")
        for bounds in ranges:
            if row := found.get(bounds["first"]):
                cut = f" (to {row['end']})" if row["end"] < bounds["end"] else ""
                cells[bounds["first"]] = f"{row['cosine']:.2f}{cut}"
        table.add_row("ours", encoder, vectors, *cells.values())
    table.add_section()
    printed = (format_number(token_range["published"], "") for token_range in ranges)
    table.add_row("paper", "BERT", "raw", *printed, style="dim")
    return table


def build_frequency_table(rows: Rows, heads: Sequence[Mapping[str, Any]], coverage: Mapping[str, Any]) -> Table:
    """Build the table of the corpus's summary, beside the numbers of Section 2.2."""
    columns = {"types": ",", "occurrences": ","} | {name_share(head): ".1%" for head in heads}
    columns |= {"types_covering": ",", "zipf_least_squares": ".2f", "zipf_likelihood": ".2f"}
    headings = ["types", "occurrences", *(f"top {head['types']}" for head in heads)]
    headings += [f"for {coverage['share']:.0%}", "s, least squares", "s, likelihood"]
    title = "Too Much in Common, Section 2.2 and Figure 4"
    table = make_table(title, ("", "unit"), headings, wrap_numbers=True)
    for row in rows["frequency"]:
        table.add_row("ours", row["unit"], *(format(row[name], form) for name, form in columns.items()))
    table.add_section()
    printed = [str(own["published"]) for own in (*heads, coverage)]
    table.add_row("paper", "tokens, BERT", "-", "-", *printed, "-", "-", style="dim")
    return table


def name_share(head: Mapping[str, Any]) -> str:
    """Name the column with a head's share of the corpus."""
    return f"share_of_{head['types']}"


def draw_figure3(rows: list[TidyRow], printed: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the mean cosine against the token id, a panel an encoder; crosses are the paper's printed values."""
    bins = pd.DataFrame(rows).astype({"cosine": float})
    known = pd.DataFrame([bounds for bounds in printed if bounds["published"] is not None])
    for table in (bins, known):
        table["middle"] = (table["first"] + table["end"]) / 2000  # thousands of token ids
    figure, axes = make_panel_grid(bins["encoder"].unique(), 2.2, across=3, sharey=True)
    for (_, own), axis in zip(bins.groupby("encoder", sort=False), axes, strict=True):
        for vectors, line in (("raw", "-"), ("centred", "--"), ("zipf_centred", ":")):
            shown = own[own["vectors"] == vectors]
            axis.plot(shown["middle"], shown["cosine"], line, label=vectors)
        axis.plot(known["middle"], known["published"], "x", color="black", label="paper's BERT, raw")
        axis.set_xlabel("token id (thousands)")
        _label_first_column(axis, "mean cosine")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def _label_first_column(axis: Axes, label: str) -> None:
    if axis.get_subplotspec().is_first_col():  # type: ignore[union-attr]
        axis.set_ylabel(label)


def draw_figure4(rows: Rows, ranks: Sequence[int]) -> Figure:
    """Draw the counts of words and tokens against their ranks, both logarithmic, a panel an encoder.

    Thin lines are Zipf's law: with the exponent fitted by least squares, through the mean of the points fitted to.
    """
    words, *tokens = rows["frequency"]  # of words, then of each encoder's tokens
    curves = dict(list(pd.DataFrame(rows["rank_frequency"]).astype({"rank": float}).groupby("unit")))
    encoders = [row["unit"].removeprefix("tokens, ") for row in tokens]
    figure, axes = make_panel_grid(encoders, 2.4, across=3, sharey=True)
    for row, axis in zip(tokens, axes, strict=True):
        lines = ((words, "words", "-", PALETTE[0]), (row, "tokens", "--", PALETTE[1]))
        for unit, label, line, colour in lines:
            rank, count = curves[unit["unit"]]["rank"].to_numpy(), curves[unit["unit"]]["count"].to_numpy()
            exponent = unit["zipf_least_squares"]
            axis.loglog(rank, count, line, color=colour, label=f"{label}, s = {exponent:.2f}")
            inside = (rank >= ranks[0]) & (rank <= ranks[1])
            if inside.any():
                middle = np.log(count[inside]).mean() + exponent * np.log(rank[inside]).mean()
                axis.loglog(rank, np.exp(middle - exponent * np.log(rank)), color=colour, linewidth=0.6)
        axis.set(xlabel="rank", ylim=(0.6, None))
        _label_first_column(axis, "count")
        add_finding(axis, r"thin lines: count $\propto$ rank$^{-s}$")
        axis.legend(loc="lower left")
    return figure
