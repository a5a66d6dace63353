"""Too Much in Common (Bis et al. 2021), Figures 3 and 4: unused tokens' similarity, and the frequency of tokens."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypedDict

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from isobench.analyses.common_frequency_figures import draw_figure3, draw_figure4
from isobench.analyses.findings import Findings
from isobench.analyses.setting_checks import check_no_calibration
from isobench.analyses.subject import Subject, collect_scale_notes
from isobench.calibration import center
from isobench.common.errors import UserError
from isobench.common.linalg import to_float64
from isobench.config.bounds import Bound, NonNegativeInt, PositiveInt, above, at_least, at_most
from isobench.data.corpus import TEXTS_PER_BATCH, Corpus, open_corpus
from isobench.metrics.isotropy import sum_unit_rows
from isobench.metrics.zipf import zipf_exponents
from isobench.training.build import should_show_progress

UNUSED_TOKEN_PATTERN = re.compile(r"\[unused\d+\]")  # as BERT's vocabularies have them
WORD_PATTERN = re.compile(r"\w+|[^\w\s]")
WORDS_LABEL = "words"
MAX_CURVE_POINTS = 400  # at most so many ranks of a curve, evenly spaced on the logarithmic axis

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


class Head(TypedDict):
    """The most frequent types."""

    types: PositiveInt  # how many
    published: Any  # the share of the corpus, in the paper's words


class Coverage(TypedDict):
    """A share of the corpus that the most frequent types make up."""

    share: Annotated[float, above(0), at_most(1)]
    published: Any  # how many types, in the paper's words


def analyse(
    subjects: list[Subject],
    corpus: str,
    texts: PositiveInt | None,
    width: PositiveInt,
    rare: PositiveInt,
    ranges: list[Annotated[TokenRange, NOT_EMPTY_RANGE]],
    heads: list[Head],
    coverage: Coverage,
    ranks: Annotated[list[Any], RANKS],
) -> Findings:
    """Mean cosine of the unused tokens to bins of the vocabulary; rank-frequency curves of tokens and words.

    Args:
        subjects: encoders.
        corpus: one of ``isobench.data.corpus``.
        texts: only the corpus's first so many; None for all.
        width: of Figure 3's bins, in token ids.
        rare: how many last tokens stand for the unused ones where a vocabulary has none.
        ranges: of token ids, each ``first``, ``end`` (exclusive) and the mean cosine ``published`` for it.
        heads: each a number of most frequent ``types`` and the share of the corpus ``published`` for them.
        coverage: a ``share`` of the corpus and the number of types ``published`` for it.
        ranks: the first and the last between which Zipf's exponent is fitted.

    Raises:
        UserError: a corpus that is not there, a calibration.
    """
    check_no_calibration(subjects)
    read = open_corpus(corpus, subjects[0].cfg.data, texts)
    show = should_show_progress(subjects[0].cfg)
    counts = {WORDS_LABEL: count_words(track_batches(read, WORDS_LABEL, show))}
    similar: list[dict[str, Any]] = []
    ranged: list[dict[str, Any]] = []
    compared = []
    for subject in subjects:
        counts[f"tokens, {subject.encoder}"] = count_tokens(
            track_batches(read, f"tokens, {subject.encoder}", show), subject.tokenizer
        )
        matrix = to_float64(subject.vocabulary())
        rows, what = select_reference_tokens(subject.tokenizer, len(matrix), rare)
        compared.append(f"{subject.encoder}: {what}")
        for vectors, each in (("raw", matrix), ("centred", center(matrix))):
            name = {"encoder": subject.encoder, "vectors": vectors}
            edges = range(0, len(each), width)
            similar += [{**name, **row} for row in compute_range_cosines(each, rows, [(i, i + width) for i in edges])]
            ranged += [
                {**name, **row}
                for row in compute_range_cosines(each, rows, [(one["first"], one["end"]) for one in ranges])
            ]
        subject.release()
    summary = [{"unit": unit, **summarise_counts(found, heads, coverage, ranks)} for unit, found in counts.items()]
    curves = [{"unit": unit, **row} for unit, found in counts.items() for row in sample_rank_curve(found)]
    return Findings(
        numbers={"cosine_bins": similar, "cosine_ranges": ranged, "frequency": summary, "rank_frequency": curves},
        figures={"figure3": draw_figure3(similar, ranges), "figure4": draw_figure4(curves, summary, ranks)},
        tables=[build_similarity_table(ranged, ranges), build_frequency_table(summary, heads, coverage)],
        notes=[
            f"Mean cosines are of all pairs, one of these tokens with one of the bin: {'; '.join(compared)}.",
            "The paper's ids 28500-29500 and its 994 unused tokens are the uncased BERT's, as in its released code; "
            "its Figure 3 names the cased one, whose vocabulary has 28,996 tokens, 101 of them unused.",
            "Words, in their own case: runs of letters, digits and underscores, and every other character that is no "
            f"blank. Zipf's exponent s is of ranks {ranks[0]} to {ranks[1]}. {read.text_count:,} texts.",
        ],
        differs=collect_scale_notes(subjects, "encoder") + read.differs,
    )


def track_batches(corpus: Corpus, what: str, show: bool) -> Iterator[list[str]]:
    """A corpus's batches, with a bar."""
    console = Console(stderr=True)
    total = -(-corpus.text_count // TEXTS_PER_BATCH)
    yield from track(corpus.iter_batches(), what, total, console=console, transient=True, disable=not show)


def select_reference_tokens(tokenizer: Any, rows: int, rare: int) -> tuple[list[int], str]:
    """The ids of BERT's unused tokens; in a vocabulary without any, its last ``rare`` ids. And what they are."""
    unused = sorted(
        number for token, number in tokenizer.get_vocab().items() if UNUSED_TOKEN_PATTERN.fullmatch(token)
    )
    if unused:
        return unused, f"{len(unused)} unused tokens"
    chosen = list(range(max(0, rows - rare), rows))
    return chosen, f"no unused tokens, the last {len(chosen)} ids (rare) in their place"


def compute_range_cosines(matrix: Tensor, rows: list[int], bounds: Iterable[tuple[int, int]]) -> list[dict[str, Any]]:
    """Mean cosine of some rows of [V, d] with each range of rows, all pairs: the product of the mean unit vectors.

    Ranges end before their second bound; those beyond the matrix are left out, those that reach beyond it cut.
    """
    total, count = sum_unit_rows(matrix[rows])
    found = []
    for first, end in bounds:
        if first >= len(matrix):
            continue
        others, number = sum_unit_rows(matrix[first:end])
        cosine = (total @ others).item() / (count * number) if count and number else None
        found.append({"first": first, "end": min(end, len(matrix)), "rows": len(rows), "cosine": cosine})
    return found


def count_words(batches: Iterable[list[str]]) -> np.ndarray:
    """How often each word stands there, descending, [types]."""
    counted: Counter[str] = Counter()
    for texts in batches:
        for text in texts:
            counted.update(WORD_PATTERN.findall(text))
    return np.sort(np.fromiter(counted.values(), np.int64, len(counted)))[::-1]


def count_tokens(batches: Iterable[list[str]], tokenizer: Any) -> np.ndarray:
    """How often each token stands there, descending, [types]; no special tokens are added."""
    size = max(tokenizer.get_vocab().values()) + 1
    counted = np.zeros(size, np.int64)
    for texts in batches:
        ids = tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)["input_ids"]
        counted += np.bincount(np.fromiter(itertools.chain.from_iterable(ids), np.int64), minlength=size)
    return np.sort(counted[counted > 0])[::-1]


def summarise_counts(
    counts: np.ndarray, heads: list[Head], coverage: Coverage, ranks: Sequence[int]
) -> dict[str, Any]:
    """Types, occurrences, shares of the most frequent, types for a share, Zipf's exponent in two ways."""
    if not len(counts):
        raise UserError("the corpus has not a single word; choose another analysis.corpus or more analysis.texts")
    below = np.cumsum(counts)
    total = int(below[-1])
    shares = {make_share_key(head): float(below[min(head["types"], len(below)) - 1] / total) for head in heads}
    covering = int(np.searchsorted(below, coverage["share"] * total)) + 1
    squares, likelihood = zipf_exponents(counts, *ranks)
    return {
        "types": len(counts),
        "occurrences": total,
        **shares,
        "types_covering": covering,
        "zipf_least_squares": squares,
        "zipf_likelihood": likelihood,
    }


def make_share_key(head: Mapping[str, Any]) -> str:
    """What the numbers call the share of the most frequent types."""
    return f"share_of_{head['types']}"


def sample_rank_curve(counts: np.ndarray) -> list[dict[str, Any]]:
    """Rank and count of Figure 4's points, evenly spaced on its logarithmic axis."""
    ranks = np.unique(np.geomspace(1, len(counts), MAX_CURVE_POINTS).astype(np.int64))
    return [{"rank": int(rank), "count": int(counts[rank - 1])} for rank in ranks]


def build_similarity_table(rows: list[dict[str, Any]], ranges: list[TokenRange]) -> Table:
    """Mean cosine of the raw embeddings in the ranges that the paper prints."""
    table = Table(title="Too Much in Common, Section 4.2: mean cosine", title_justify="left", header_style="bold")
    for name in ("", "encoder", *(f"ids {one['first']}-{one['end']}" for one in ranges)):
        table.add_column(name, justify="right" if name.startswith("ids") else "left")
    for encoder in dict.fromkeys(row["encoder"] for row in rows):
        found = {row["first"]: row for row in rows if (row["encoder"], row["vectors"]) == (encoder, "raw")}
        table.add_row("ours", encoder, *(format_range_cell(found.get(one["first"]), one["end"]) for one in ranges))
    table.add_section()
    table.add_row("paper", "BERT", *(str(one["published"]) for one in ranges), style="dim")
    return table


def format_range_cell(row: Mapping[str, Any] | None, end: int) -> str:
    """A mean cosine, and where its range was cut by the vocabulary's end."""
    if row is None or row["cosine"] is None:
        return "-"
    return f"{row['cosine']:.2f}" + (f" (to {row['end']})" if row["end"] < end else "")


def build_frequency_table(rows: list[dict[str, Any]], heads: list[Head], coverage: Coverage) -> Table:
    """The corpus in numbers, beside Section 2.2's."""
    table = Table(title="Too Much in Common, Section 2.2 and Figure 4", title_justify="left", header_style="bold")
    names = ("", "unit", "types", "occurrences", *(f"top {head['types']}" for head in heads))
    for name in (*names, f"for {coverage['share']:.0%}", "s, least squares", "s, likelihood"):
        table.add_column(name, justify="left" if name in ("", "unit") else "right")
    for row in rows:
        shares = [f"{row[make_share_key(head)]:.1%}" for head in heads]
        exponents = [f"{row[name]:.2f}" for name in ("zipf_least_squares", "zipf_likelihood")]
        totals = (f"{row[name]:,}" for name in ("types", "occurrences"))
        table.add_row("ours", row["unit"], *totals, *shares, f"{row['types_covering']:,}", *exponents)
    table.add_section()
    printed = [str(head["published"]) for head in heads]
    table.add_row("paper", "tokens, BERT", "-", "-", *printed, str(coverage["published"]), "-", "-", style="dim")
    return table
