"""Too Much in Common (Bis et al. 2021), Figures 3 and 4: cosines of unused tokens, and frequencies of tokens."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table
from typing_extensions import TypedDict

from isobench.analyses.rows import TidyRow, group_rows, select_rows
from isobench.analyses.shown import Rows, Shown, format_number, make_table
from isobench.common.errors import UserError
from isobench.common.plots import PALETTE, add_finding, make_panel_grid
from isobench.config.bounds import Bound, NonNegativeInt, PositiveInt, above, at_least, at_most

if TYPE_CHECKING:  # importing them takes seconds
    from torch import Tensor

    from isobench.analyses.subject import Subject

UNUSED_TOKEN_PATTERN = re.compile(r"\[unused\d+\]")  # as in BERT's vocabularies
WORD_PATTERN = re.compile(r"\w+|[^\w\s]")
WORDS_LABEL = "words"
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
    from isobench.analyses.subject import check_no_calibration
    from isobench.calibration import center
    from isobench.common.linalg import to_float64
    from isobench_papers.too_much_in_common.corpus import open_corpus
    from isobench_papers.too_much_in_common.token_counts import count_tokens, fit_to_rows, track_batches

    check_no_calibration(subjects)
    read = open_corpus(corpus, subjects[0].cfg.data, texts)
    counts = {WORDS_LABEL: count_words(track_batches(read, WORDS_LABEL))}
    rows: Rows = {"cosine_bins": [], "cosine_ranges": [], "reference_tokens": []}
    for subject in subjects:
        unit = f"tokens, {subject.encoder}"
        by_id = count_tokens(track_batches(read, unit), subject.tokenizer)
        counts[unit] = np.sort(by_id[by_id > 0])[::-1]
        matrix = to_float64(subject.vocabulary())
        ids, unused = select_reference_tokens(subject.tokenizer, len(matrix), rare)
        rows["reference_tokens"].append({"encoder": subject.encoder, "tokens": len(ids), "unused": unused})
        bins = [(first, first + width) for first in range(0, len(matrix), width)]
        bounds = [(token_range["first"], token_range["end"]) for token_range in ranges]
        versions = {
            "raw": matrix,
            "centred": center(matrix),
            "zipf_centred": center(matrix, fit_to_rows(by_id, len(matrix))),
        }
        for vectors, embeddings in versions.items():
            names = {"encoder": subject.encoder, "vectors": vectors}
            rows["cosine_bins"] += [{**names, **row} for row in compute_range_cosines(embeddings, ids, bins)]
            names["unused"] = unused
            rows["cosine_ranges"] += [{**names, **row} for row in compute_range_cosines(embeddings, ids, bounds)]
        subject.release()
    rows["frequency"] = [
        {"unit": unit, "texts": read.text_count, **summarise_counts(own, heads, coverage, ranks)}
        for unit, own in counts.items()
    ]
    rows["rank_frequency"] = [{"unit": unit, **row} for unit, own in counts.items() for row in sample_rank_curve(own)]
    return rows


def describe_differences(subjects: list["Subject"], rows: Rows, corpus: str) -> list[str]:
    """Describe how encoders and corpus differ from the paper's; no task is read."""
    from isobench.analyses.subject import list_encoder_differences
    from isobench_papers.too_much_in_common.corpus import find_corpus_differences

    return [
        *list_encoder_differences(subjects),
        *find_corpus_differences(corpus, rows["frequency"][0]["texts"]),
    ]


def show(
    rows: Rows, ranges: list[TokenRange], heads: list[FrequentTypes], coverage: Coverage, ranks: list[int]
) -> Shown:
    """Show the mean cosines and the summary of the corpus beside the paper's numbers, and Figures 3 and 4."""
    summary = rows["frequency"]
    compared = [
        f"{row['encoder']}: {row['tokens']} unused tokens"
        if row["unused"]
        else f"{row['encoder']}: no unused tokens, the last {row['tokens']} ids (rare) in their place"
        for row in rows["reference_tokens"]
    ]
    return Shown(
        [build_similarity_table(rows["cosine_ranges"], ranges), build_frequency_table(summary, heads, coverage)],
        {
            "figure3": draw_figure3(rows["cosine_bins"], ranges),
            "figure4": draw_figure4(rows["rank_frequency"], summary, ranks),
        },
        [
            f"Mean cosines are of all pairs, one of these tokens with one of the bin: {'; '.join(compared)}.",
            "The paper's ids 28500-29500 and its 994 unused tokens are the uncased BERT's, as in its released code; "
            "its Figure 3 names the cased one, whose vocabulary has 28,996 tokens, 101 of them unused.",
            "Words, in their own case: runs of letters, digits and underscores, and every other character that is no "
            f"blank. Zipf's exponent s is of ranks {ranks[0]} to {ranks[1]}. {summary[0]['texts']:,} texts.",
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


def compute_range_cosines(matrix: "Tensor", rows: list[int], bounds: Iterable[tuple[int, int]]) -> list[TidyRow]:
    """Compute the mean cosine of some rows of a matrix [V, d] with each range of its rows, over all pairs.

    It is the inner product of the two means of unit vectors. A range ends before its second bound. Ranges beyond the
    matrix are left out; a range that reaches beyond it is cut at its end.
    """
    from isobench.metrics.isotropy import sum_unit_rows

    total, count = sum_unit_rows(matrix[rows])
    cosines = []
    for first, end in bounds:
        if first >= len(matrix):
            continue
        others, number = sum_unit_rows(matrix[first:end])
        cosine = (total @ others).item() / (count * number) if count and number else None
        cosines.append({"first": first, "end": min(end, len(matrix)), "rows": len(rows), "cosine": cosine})
    return cosines


def count_words(batches: Iterable[list[str]]) -> np.ndarray:
    """Count the occurrences of each word in a corpus; returns them, descending, [types]."""
    counted: Counter[str] = Counter()
    for texts in batches:
        for text in texts:
            counted.update(WORD_PATTERN.findall(text))
    return np.sort(np.fromiter(counted.values(), np.int64, len(counted)))[::-1]


def summarise_counts(
    counts: np.ndarray, heads: list[FrequentTypes], coverage: Coverage, ranks: Sequence[int]
) -> dict[str, Any]:
    """Summarise counts, descending, [types], in a tidy row; ``compute`` describes the settings."""
    from isobench_papers.too_much_in_common.zipf import zipf_exponents

    if not len(counts):
        raise UserError("the corpus has no words; choose another analysis.corpus, or raise analysis.texts")
    cumulative = np.cumsum(counts)
    total = int(cumulative[-1])
    top_counts = [cumulative[min(head["types"], len(counts)) - 1] for head in heads]
    shares = {make_share_key(head): float(top / total) for head, top in zip(heads, top_counts, strict=True)}
    covering = int(np.searchsorted(cumulative, coverage["share"] * total)) + 1
    squares, likelihood = zipf_exponents(counts, *ranks)
    return {
        "types": len(counts),
        "occurrences": total,
        **shares,
        "types_covering": covering,
        "zipf_least_squares": squares,
        "zipf_likelihood": likelihood,
    }


def sample_rank_curve(counts: np.ndarray) -> list[TidyRow]:
    """Build a tidy row for each point of a curve in Figure 4, from counts, descending, [types]."""
    ranks = np.unique(np.geomspace(1, len(counts), MAX_CURVE_POINTS).astype(np.int64))
    return [{"rank": int(rank), "count": int(counts[rank - 1])} for rank in ranks]


def build_similarity_table(rows: list[TidyRow], ranges: Sequence[Mapping[str, Any]]) -> Table:
    """Build the table of mean cosines in the ranges that the paper prints, a row for each encoder and its vectors."""
    headings = [f"ids {token_range['first']}-{token_range['end']}" for token_range in ranges]
    title = "Too Much in Common, Section 4.2: mean cosine"
    table = make_table(title, ("", "encoder", "vectors"), headings, wrap_numbers=True)
    for (encoder, vectors), own in group_rows(rows, "encoder", "vectors").items():
        by_first = {row["first"]: row for row in own}
        cells = [format_range_cell(by_first.get(token_range["first"]), token_range["end"]) for token_range in ranges]
        table.add_row("ours", encoder, vectors, *cells)
    table.add_section()
    printed = (format_number(token_range["published"], "") for token_range in ranges)
    table.add_row("paper", "BERT", "raw", *printed, style="dim")
    return table


def format_range_cell(row: Mapping[str, Any] | None, end: int) -> str:
    """Format a mean cosine; add where its range ended if the vocabulary cut it before ``end``."""
    if row is None or row["cosine"] is None:
        return "-"
    return f"{row['cosine']:.2f}" + (f" (to {row['end']})" if row["end"] < end else "")


def build_frequency_table(
    rows: list[TidyRow], heads: Sequence[Mapping[str, Any]], coverage: Mapping[str, Any]
) -> Table:
    """Build the table of the corpus's summary, beside the numbers of Section 2.2."""
    headings = ["types", "occurrences", *(f"top {head['types']}" for head in heads)]
    headings += [f"for {coverage['share']:.0%}", "s, least squares", "s, likelihood"]
    title = "Too Much in Common, Section 2.2 and Figure 4"
    table = make_table(title, ("", "unit"), headings, wrap_numbers=True)
    for row in rows:
        shares = [f"{row[make_share_key(head)]:.1%}" for head in heads]
        exponents = [f"{row[name]:.2f}" for name in ("zipf_least_squares", "zipf_likelihood")]
        totals = (f"{row[name]:,}" for name in ("types", "occurrences"))
        table.add_row("ours", row["unit"], *totals, *shares, f"{row['types_covering']:,}", *exponents)
    table.add_section()
    printed = [str(head["published"]) for head in heads]
    table.add_row("paper", "tokens, BERT", "-", "-", *printed, str(coverage["published"]), "-", "-", style="dim")
    return table


def make_share_key(head: Mapping[str, Any]) -> str:
    """Name the column with a head's share of the corpus."""
    return f"share_of_{head['types']}"


def draw_figure3(rows: list[TidyRow], printed: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the mean cosine against the token id, a panel an encoder; crosses are the paper's printed values."""
    by_encoder = group_rows(rows, "encoder")
    figure, axes = make_panel_grid([encoder for (encoder,) in by_encoder], 2.2, across=3, sharey=True)
    for own, axis in zip(by_encoder.values(), axes, strict=True):
        for vectors, line in (("raw", "-"), ("centred", "--"), ("zipf_centred", ":")):
            bins = select_rows(own, {"vectors": vectors})
            cosines = [np.nan if row["cosine"] is None else row["cosine"] for row in bins]
            axis.plot([_range_midpoint(row) for row in bins], cosines, line, label=vectors)
        known = [bounds for bounds in printed if bounds["published"] is not None]
        places, published = map(_range_midpoint, known), [bounds["published"] for bounds in known]
        axis.plot(list(places), published, "x", color="black", label="paper's BERT, raw")
        axis.set_xlabel("token id (thousands)")
        _label_first_column(axis, "mean cosine")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def _label_first_column(axis: Axes, label: str) -> None:
    if axis.get_subplotspec().is_first_col():  # type: ignore[union-attr]
        axis.set_ylabel(label)


def _range_midpoint(bounds: Mapping[str, Any]) -> float:
    return (bounds["first"] + bounds["end"]) / 2000  # thousands of token ids


def draw_figure4(curves: list[TidyRow], summary: list[TidyRow], ranks: Sequence[int]) -> Figure:
    """Draw the counts of words and tokens against their ranks, both logarithmic, a panel an encoder.

    Thin lines are Zipf's law: with the exponent fitted by least squares, through the mean of the points fitted to.
    ``summary`` has a row for words, then one for each encoder's tokens.
    """
    words, *tokens = summary
    encoders = [row["unit"].removeprefix("tokens, ") for row in tokens]
    figure, axes = make_panel_grid(encoders, 2.4, across=3, sharey=True)
    for row, axis in zip(tokens, axes, strict=True):
        lines = ((words, "words", "-", PALETTE[0]), (row, "tokens", "--", PALETTE[1]))
        for unit, label, line, colour in lines:
            points = select_rows(curves, {"unit": unit["unit"]})
            rank, count = (np.array([row[name] for row in points], float) for name in ("rank", "count"))
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
