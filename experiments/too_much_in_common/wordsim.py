"""Too Much in Common (Bis et al. 2021), Tables 2 and 3: word similarity by raw and by centred embeddings."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from rich.table import Table

from isobench.analyses.rows import TidyRow, group_rows, list_distinct
from isobench.analyses.shown import RowLabel, Rows, Shown, build_comparison_tables, find_paper_column, make_table
from isobench.common.errors import UserError
from isobench.config.bounds import NAME, NOT_EMPTY, Bound, PositiveInt

if TYPE_CHECKING:  # importing them takes seconds
    from torch import Tensor

    from isobench.analyses.subject import Subject

PAPER = "too_much_in_common"
METHODS = ("raw", "centered", "centered_scaled", "post_process")  # rows of the paper's tables
RELEASED_CODE_D = 2  # components that the released code removes
RELEASED_CODE = f"post_process_{RELEASED_CODE_D}"
# Of Yokoi et al. (2024): the words weigh alike in "whitened", and by their counts in the others.
FREQUENCY_METHODS = ("zipf_centered", "whitened", "zipf_whitened")
PAPER_D = "floor"  # of d / 100: the number of components that Section 5.1 removes
MIN_PAIRS = 3  # fewer give no correlation: two points always lie on a line
ROUNDINGS = {"ceil": math.ceil, "floor": math.floor}  # of d / 100, the number of components removed
REMOVED = Bound(
    lambda count: count in ROUNDINGS or (type(count) is int and count >= 0),
    "must be ceil, floor or a whole number, at least 0",
)


def compute(
    subjects: list["Subject"],
    removed: Annotated[int | str, REMOVED],
    corpus: str | None = None,
    texts: PositiveInt | None = None,
    sets: Annotated[list[Annotated[str, NAME]], NOT_EMPTY] | None = None,
) -> Rows:
    """Correlate human scores of word pairs with cosine and inner product, by encoder, method and set.

    Args:
        subjects: encoders.
        removed: D, the number of principal components that post-processing removes, or ``ceil`` or ``floor`` for
            d / 100 rounded so. The released code's D stands beside it.
        corpus: name of a corpus of ``corpus.py`` whose tokens are counted, for ``FREQUENCY_METHODS``; None
            leaves these out.
        texts: read only so many texts from the corpus's start; None for all.
        sets: names of sets of word pairs, or ``[all]``; None for the paper's five, or gensim's two without data.root.

    Raises:
        UserError: word pairs or the corpus are missing, D is above the encoder's width, or a calibration is set.
    """
    from isobench_papers.too_much_in_common.corpus import open_corpus
    from isobench_papers.too_much_in_common.vocabularies import iterate_vocabularies
    from isobench_papers.too_much_in_common.word_pairs import load_word_pairs, select_single_token_pairs

    first = subjects[0].cfg
    if first.scale == "paper" and first.data.root is None:
        raise UserError(
            "no hub has the paper's word pairs: set data.root=FOLDER to a folder with wordsim/ (python -m "
            "isobench_papers.too_much_in_common.convert_wordsim makes it), or scale=embedded"
        )
    pairs_of = load_word_pairs(first.data, sets)
    counted = open_corpus(corpus, first.data, texts) if corpus else None
    methods = [*METHODS, *([] if removed == RELEASED_CODE_D else [RELEASED_CODE])]
    methods += FREQUENCY_METHODS if counted else []
    rows: list[TidyRow] = []
    for subject, matrix, counts in iterate_vocabularies(subjects, counted):
        tokens = {name: select_single_token_pairs(pairs, subject.tokenizer) for name, pairs in pairs_of.items()}
        count = resolve_direction_count(removed, matrix.shape[1])
        for method in methods:
            vectors = transform_embeddings(matrix, method, count, counts)
            for name, (ids, scores) in tokens.items():
                names = {"encoder": subject.encoder, "method": method, "set": name}
                names["pairs_in_set"] = len(pairs_of[name])
                rows += [{**names, **correlations} for correlations in correlate_with_scores(vectors, ids, scores)]
    found: Rows = {"word_similarity": rows, "averages": average_over_sets(rows)}
    return found | ({"corpus": [{"corpus": counted.name, "texts": counted.text_count}]} if counted else {})


def describe_differences(subjects: list["Subject"], rows: Rows, removed: int | str) -> list[str]:
    """Describe how encoders, sets of word pairs and D differ from the paper's."""
    from isobench.analyses.subject import list_encoder_differences
    from isobench_papers.too_much_in_common.word_pairs import EMBEDDED_SETS, PAPER_SETS

    differences = list_encoder_differences(subjects)
    names = list_distinct(rows["word_similarity"], "set")
    if tuple(names) != PAPER_SETS:
        gensims = "SimLex-999 and the undivided WordSim-353"
        differences.append(f"{gensims if names == [*EMBEDDED_SETS] else ', '.join(names)} instead of five sets")
    if removed != PAPER_D:
        source = " as in the released code" if removed == RELEASED_CODE_D else ""
        differences.append(f"D = {removed}{source}, not {PAPER_D}(d / 100) as in Section 5.1")
    return differences


def show(rows: Rows, removed: int | str) -> Shown:
    """Show how many pairs count, and Tables 3 and 2 beside the paper's."""
    own, means = rows["word_similarity"], rows["averages"]
    cells3 = format_cells(own, lambda row: find_printed_set_name(row["set"]))
    # Table 2 has the cosine first.
    cells2 = format_cells(
        sorted(means, key=lambda row: row["similarity"]),
        lambda row: find_paper_column(PAPER, "table2", "word_similarity", row["similarity"]),
    )
    notes = explain_tables(own, means, removed)
    for counted in rows.get("corpus", []):
        notes.append(
            f"Not in the paper (Yokoi et al. 2024): {', '.join(FREQUENCY_METHODS)}. zipf_ weighs each word by "
            f"how often its token occurs in {counted['texts']:,} texts of {counted['corpus']}; whitened weighs all "
            "words alike."
        )
    labels = ("encoder", "method")
    return Shown(
        [
            build_pair_count_table(own),
            *build_comparison_tables("Table 3: Pearson x 100, inner/cosine", labels, cells3, PAPER, "table3"),
            *build_comparison_tables("Table 2: averages of Table 3", labels, cells2, PAPER, "table2"),
        ],
        notes=notes,
    )


def resolve_direction_count(removed: int | str, dim: int) -> int:
    """Return D, the number of components to remove, for embeddings of width ``dim``."""
    count = ROUNDINGS[removed](dim / 100) if isinstance(removed, str) else removed
    if count > dim:
        raise UserError(f"analysis.removed={removed} must be ceil, floor or a number from 0 to {dim}")
    return count


def transform_embeddings(matrix: "Tensor", method: str, count: int, counts: "Tensor | None" = None) -> "Tensor":
    """Apply one of ``METHODS`` (Sections 5.1, 5.2), ``RELEASED_CODE`` or ``FREQUENCY_METHODS`` to embeddings [V, d].

    ``count`` is D, how many components ``post_process`` removes; ``counts`` are the words' in a corpus, [V].
    """
    from isobench.calibration import all_but_the_top, center, center_scaled, whiten

    transforms = {
        "raw": lambda: matrix,
        "centered": lambda: center(matrix),
        "centered_scaled": lambda: center_scaled(matrix),
        "post_process": lambda: all_but_the_top(matrix, count),
        RELEASED_CODE: lambda: all_but_the_top(matrix, RELEASED_CODE_D),
        "zipf_centered": lambda: center(matrix, counts),
        "whitened": lambda: whiten(matrix),
        "zipf_whitened": lambda: whiten(matrix, weights=counts),
    }
    return transforms[method]()


def correlate_with_scores(vectors: "Tensor", ids: np.ndarray, scores: np.ndarray) -> Iterator[dict[str, Any]]:
    """Correlate human scores with the words' inner product, then with their cosine.

    Args:
        vectors: word embeddings, [V, d], float64.
        ids: the rows of ``vectors`` for each pair's words, [n, 2].
        scores: the human scores, [n].

    Yields:
        For each similarity its name, the number of pairs, and Pearson's and Spearman's correlation x 100; NaN for
        fewer than three pairs.
    """
    import torch

    from isobench.common.linalg import cosine
    from isobench.metrics.task import METRIC_FUNCTIONS

    left, right = (vectors[torch.from_numpy(ids[:, side])] for side in (0, 1))  # (n, d)
    similarities = {"inner": (left * right).sum(1), "cosine": cosine(left, right)}
    for name, values in similarities.items():
        correlations = dict.fromkeys(("pearson", "spearman"), math.nan)
        if len(scores) >= MIN_PAIRS:
            correlations = {kind: 100 * METRIC_FUNCTIONS[kind](scores, values.numpy()) for kind in correlations}
        yield {"similarity": name, "pairs": len(scores), **correlations}


def average_over_sets(rows: list[TidyRow]) -> list[TidyRow]:
    """Average the correlations over sets, by encoder, method and similarity; sets without a number are left out."""
    groups = pd.DataFrame(rows).dropna(subset="pearson").groupby(["encoder", "method", "similarity"], sort=False)
    means = groups.agg(sets=("set", ", ".join), pearson=("pearson", "mean"), spearman=("spearman", "mean"))
    return means.reset_index().to_dict("records")


def format_cells(rows: Iterable[TidyRow], find_name: Callable[[TidyRow], str]) -> dict[RowLabel, dict[str, str]]:
    """Format our cells of a table: encoder and method -> column, which is found for a row -> its numbers."""
    cells: dict[RowLabel, dict[str, str]] = {}
    for row in rows:
        line, name = cells.setdefault((row["encoder"], row["method"]), {}), find_name(row)
        line[name] = f"{line[name]}/{row['pearson']:.2f}" if name in line else f"{row['pearson']:.2f}"
    return cells


def build_pair_count_table(rows: list[TidyRow]) -> Table:
    """Build the table of how many pairs have two words of one token each: a row an encoder, a column a set."""
    sets = map(find_printed_set_name, list_distinct(rows, "set"))
    table = make_table("Pairs that count: both words one known token", ("encoder",), sets)
    for (encoder,), own in group_rows(rows, "encoder").items():
        counts = {row["set"]: f"{row['pairs']} of {row['pairs_in_set']}" for row in own}
        table.add_row(encoder, *counts.values())
    return table


def find_printed_set_name(name: str) -> str:
    return find_paper_column(PAPER, "table3", name, "pearson")


def explain_tables(rows: list[TidyRow], means: list[TidyRow], removed: int | str) -> list[str]:
    """Write the notes below the tables: what D is, which sets are averaged, and which have too few pairs."""
    notes = [
        f"analysis.removed={removed} is how many principal components post_process takes away: Section 5.1 has "
        f"floor(d / 100), the released code {RELEASED_CODE_D}, Table 1's caption ceil(d / 100)."
    ]
    averaged = {row["encoder"]: row["sets"] for row in means}
    notes += [f"Table 2, {encoder}: the average of {names}." for encoder, names in averaged.items()]
    few = {(row["encoder"], row["set"]): row["pairs"] for row in rows if row["pairs"] < MIN_PAIRS}
    notes += [
        f"{encoder}: only {number} pairs of {name} count: no number." for (encoder, name), number in few.items()
    ]
    if any(row["set"] == "men" for row in rows):
        notes.append("MEN is taken in its lemma form.")
    return notes
