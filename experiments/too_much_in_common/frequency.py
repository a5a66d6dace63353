"""Too Much in Common (Bis et al. 2021), Figures 3 and 4: cosines of unused tokens, and frequencies of tokens."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np
from torch import Tensor
from typing_extensions import TypedDict

from isobench.analyses.findings import Findings
from isobench.analyses.setting_checks import check_no_calibration
from isobench.analyses.subject import Subject, collect_scale_notes
from isobench.calibration import center
from isobench.common.errors import UserError
from isobench.common.linalg import to_float64
from isobench.config.bounds import Bound, NonNegativeInt, PositiveInt, above, at_least, at_most
from isobench.metrics.isotropy import sum_unit_rows
from isobench.metrics.zipf import zipf_exponents
from isobench.training.build import should_show_progress
from isobench_papers.too_much_in_common.corpus import open_corpus
from isobench_papers.too_much_in_common.frequency_figures import draw_figure3, draw_figure4
from isobench_papers.too_much_in_common.frequency_tables import (
    build_frequency_table,
    build_similarity_table,
    make_share_key,
)
from isobench_papers.too_much_in_common.token_counts import count_tokens, fit_to_rows, track_batches

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
    published: Annotated[float, at_least(-1), at_most(1)]  # the paper's mean cosine


class FrequentTypes(TypedDict):
    """The most frequent types of a corpus."""

    types: PositiveInt  # their number
    published: Any  # their share of the corpus, in the paper's words


class Coverage(TypedDict):
    """A share of the corpus that its most frequent types make up."""

    share: Annotated[float, above(0), at_most(1)]
    published: Any  # the number of types, in the paper's words


def analyse(
    subjects: list[Subject],
    corpus: str,
    texts: PositiveInt | None,
    width: PositiveInt,
    rare: PositiveInt,
    ranges: list[Annotated[TokenRange, NOT_EMPTY_RANGE]],
    heads: list[FrequentTypes],
    coverage: Coverage,
    ranks: Annotated[list[Any], RANKS],
) -> Findings:
    """Measure mean cosines of the unused tokens with bins of the vocabulary, and rank-frequency curves of a corpus.

    Args:
        subjects: encoders.
        corpus: name of a corpus of ``corpus.py``.
        texts: read only so many texts from the corpus's start; None for all.
        width: width of Figure 3's bins, in token ids.
        rare: so many last tokens stand for the unused ones in a vocabulary without any.
        ranges: ranges of token ids, each with ``first``, ``end`` (exclusive) and its ``published`` mean cosine.
        heads: each a number of most frequent ``types`` and their ``published`` share of the corpus.
        coverage: a ``share`` of the corpus and the ``published`` number of types that cover it.
        ranks: first and last rank between which Zipf's exponent is fitted.

    Raises:
        UserError: the corpus is missing, or a calibration is set.
    """
    check_no_calibration(subjects)
    read = open_corpus(corpus, subjects[0].cfg.data, texts)
    show = should_show_progress(subjects[0].cfg)
    counts = {WORDS_LABEL: count_words(track_batches(read, WORDS_LABEL, show))}
    bin_rows: list[dict[str, Any]] = []
    range_rows: list[dict[str, Any]] = []
    compared_tokens = []
    for subject in subjects:
        unit = f"tokens, {subject.encoder}"
        by_id = count_tokens(track_batches(read, unit, show), subject.tokenizer)
        counts[unit] = np.sort(by_id[by_id > 0])[::-1]
        matrix = to_float64(subject.vocabulary())
        ids, description = select_reference_tokens(subject.tokenizer, len(matrix), rare)
        compared_tokens.append(f"{subject.encoder}: {description}")
        bins = [(first, first + width) for first in range(0, len(matrix), width)]
        weights = fit_to_rows(by_id, len(matrix))
        versions = {"raw": matrix, "centred": center(matrix), "zipf_centred": center(matrix, weights)}
        for vectors, embeddings in versions.items():
            name = {"encoder": subject.encoder, "vectors": vectors}
            bin_rows += [{**name, **row} for row in compute_range_cosines(embeddings, ids, bins)]
            bounds = [(token_range["first"], token_range["end"]) for token_range in ranges]
            range_rows += [{**name, **row} for row in compute_range_cosines(embeddings, ids, bounds)]
        subject.release()
    summary = [{"unit": u, **summarise_counts(of_unit, heads, coverage, ranks)} for u, of_unit in counts.items()]
    curves = [{"unit": unit, **row} for unit, of_unit in counts.items() for row in sample_rank_curve(of_unit)]
    return Findings(
        numbers={
            "cosine_bins": bin_rows,
            "cosine_ranges": range_rows,
            "frequency": summary,
            "rank_frequency": curves,
        },
        figures={"figure3": draw_figure3(bin_rows, ranges), "figure4": draw_figure4(curves, summary, ranks)},
        tables=[build_similarity_table(range_rows, ranges), build_frequency_table(summary, heads, coverage)],
        notes=[
            f"Mean cosines are of all pairs, one of these tokens with one of the bin: {'; '.join(compared_tokens)}.",
            "The paper's ids 28500-29500 and its 994 unused tokens are the uncased BERT's, as in its released code; "
            "its Figure 3 names the cased one, whose vocabulary has 28,996 tokens, 101 of them unused.",
            "Words, in their own case: runs of letters, digits and underscores, and every other character that is no "
            f"blank. Zipf's exponent s is of ranks {ranks[0]} to {ranks[1]}. {read.text_count:,} texts.",
            "zipf_centred: the mean that is subtracted weighs each token by its count (Yokoi et al. 2024; not in the "
            "paper).",
        ],
        differs=collect_scale_notes(subjects, "encoder") + read.differs,
    )


def select_reference_tokens(tokenizer: Any, rows: int, rare: int) -> tuple[list[int], str]:
    """Select the tokens that training never used.

    These are BERT's ``[unused...]`` tokens; in a vocabulary without any, its last ``rare`` ids: rare tokens.

    Args:
        tokenizer: the encoder's.
        rows: number of rows of its embedding matrix.
        rare: number of ids to take in a vocabulary without unused tokens.

    Returns:
        Their ids, ascending, and a description for the notes.
    """
    unused = sorted(
        number for token, number in tokenizer.get_vocab().items() if UNUSED_TOKEN_PATTERN.fullmatch(token)
    )
    if unused:
        return unused, f"{len(unused)} unused tokens"
    last_ids = list(range(max(0, rows - rare), rows))
    return last_ids, f"no unused tokens, the last {len(last_ids)} ids (rare) in their place"


def compute_range_cosines(matrix: Tensor, rows: list[int], bounds: Iterable[tuple[int, int]]) -> list[dict[str, Any]]:
    """Compute the mean cosine of some rows of a matrix [V, d] with each range of its rows, over all pairs.

    It is the inner product of the two means of unit vectors. A range ends before its second bound. Ranges beyond the
    matrix are left out; a range that reaches beyond it is cut at its end.
    """
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
    """Summarise counts, descending, [types], in a tidy row; ``analyse`` describes the settings.

    The row has the numbers of types and occurrences, the share of each head, the number of types that cover the share
    of ``coverage``, and Zipf's exponent fitted by least squares and by likelihood.

    Raises:
        UserError: there are no counts.
    """
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


def sample_rank_curve(counts: np.ndarray) -> list[dict[str, Any]]:
    """Build a tidy row, rank and count, for each point of a curve in Figure 4, from counts, descending, [types]."""
    ranks = np.unique(np.geomspace(1, len(counts), MAX_CURVE_POINTS).astype(np.int64))
    return [{"rank": int(rank), "count": int(counts[rank - 1])} for rank in ranks]
