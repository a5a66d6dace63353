"""Search a corpus with queries, exactly and by cosine, and measure what post-hoc methods change of the answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isobench.common.errors import doing, refuse
from isobench.common.linalg import Array, divide_by_length
from isobench.common.progress import track_progress
from isobench.data.tables import FORMATS, read_own_file, read_text
from isobench.frozen.diagnosis import Retrieval
from isobench.frozen.effects import REFITS, Z, draw_refits, fit_methods, measure_spread
from isobench.frozen.matrix import INDEX, describe_missing, read_rows, split_rows
from isobench.frozen.posthoc import Transform
from isobench.statistics.seeds import holm

DEPTH, CUT = 100, 10  # documents of an answer: all that count for Recall@100, and those of the other measures
SPARE = 28  # documents more are found in float32, and the cosines of all found are computed again in float64
SCORES = 1 << 22  # that are computed at once
NEIGHBOURS, HUB_ROWS = 10, 4_000  # of documents among documents: k of hubness, and how many are drawn for it
REFIT_ROWS = 5_000  # documents that a refitted method is searched in, those that are relevant among them
RESAMPLES = 10_000  # of the queries
IDS = ("_id", "id", "docid", "doc_id", "qid", "query_id", "query-id")
NAMES = ({"query-id", "query_id", "query", "qid"}, {"corpus-id", "corpus_id", "doc_id", "docid", "document"},
         {"score", "relevance", "rel", "label"})  # fmt: skip


@dataclass(frozen=True)
class Search:
    """Hold queries [Q, d] and what is relevant to each.

    ``judged``: query, row of the document and grade of each judgement, [R, 3]; 0 and less is not relevant.
    ``order`` [N]: ranks of the documents' ids as texts; of two documents with the same cosine the larger id comes
    first, as trec_eval has it.
    """

    queries: Tensor
    judged: np.ndarray
    order: np.ndarray

    @cached_property
    def relevant(self) -> np.ndarray:
        """The judgements whose grade is above 0, sorted by query, the highest grade first."""
        found = self.judged[self.judged[:, 2] > 0]
        return found[np.lexsort((-found[:, 2], found[:, 0]))]

    def restrict(self, rows: np.ndarray) -> "Search":
        """Return the search in some documents, whose rows are ascending; relevant ones must be among them."""
        places = np.searchsorted(rows, self.relevant[:, 1])
        return Search(
            self.queries, np.column_stack([self.relevant[:, 0], places, self.relevant[:, 2]]), self.order[rows]
        )

    def score(self, transform: Callable[[Tensor], Tensor], corpus: np.ndarray) -> np.ndarray:
        """Compute nDCG@10, Recall@10, Recall@100 and MRR@10 of each query, [Q, 4]; ``corpus``: unit rows [N, k]."""
        found = find_top(divide_by_length(transform(self.queries)).float().numpy(), corpus, self.order, DEPTH)
        return self.judge(found)

    def judge(self, found: np.ndarray) -> np.ndarray:
        """Compute the measures of answers: rows of documents, the best first, -1 for none: [Q, K] -> [Q, 4]."""
        query, document, grade = self.relevant.T
        codes = query * len(self.order) + document
        sort = np.argsort(codes)
        asked = np.arange(len(found))[:, None] * len(self.order) + found
        place = np.searchsorted(codes[sort], asked).clip(max=len(codes) - 1)
        gains = np.where((codes[sort][place] == asked) & (found >= 0), grade[sort][place], 0)
        counts = np.bincount(query, minlength=len(found))
        rank = np.arange(len(query)) - np.searchsorted(query, query)
        ideal = np.bincount(query, np.where(rank < CUT, grade / np.log2(rank + 2), 0), len(found))
        top = gains[:, :CUT]
        gained = (top / np.log2(np.arange(top.shape[1]) + 2)).sum(1)
        first = np.where((top > 0).any(1), 1 / ((top > 0).argmax(1) + 1), 0)
        return np.stack([gained / ideal, (top > 0).sum(1) / counts, (gains > 0).sum(1) / counts, first], 1)


def find_top(queries: np.ndarray, corpus: np.ndarray, order: np.ndarray, depth: int) -> np.ndarray:
    """Find the documents with the highest cosines: unit rows [Q, d] and [N, d] of float32 -> rows [Q, depth].

    Of equal cosines, in float32, the one with the higher ``order`` comes first. Rows with NaN are never found; -1
    stands where there are too few.
    """
    count, kept = len(queries), depth + SPARE
    step = max(1, SCORES // max(1, count))
    best, rows = np.full((count, kept), -np.inf, np.float32), np.full((count, kept), -1)
    for start in track_progress(range(0, len(corpus), step), "searching"):
        scores = queries @ corpus[start : start + step].T
        at, column = np.nonzero(scores > best.min(1)[:, None])
        place = np.arange(len(at)) - np.searchsorted(at, at)
        more = np.full((count, place.max(initial=-1) + 1), -np.inf, np.float32)
        new = np.full(more.shape, -1)
        more[at, place], new[at, place] = scores[at, column], start + column
        best, rows = np.concatenate([best, more], 1), np.concatenate([rows, new], 1)
        top = np.argpartition(best, -kept, axis=1)[:, -kept:]
        best, rows = np.take_along_axis(best, top, 1), np.take_along_axis(rows, top, 1)
    for part in range(0, count, 64):  # equal rows get equal cosines, which a product of blocks does not promise
        near = corpus[rows[part : part + 64]].astype(np.float64)
        best[part : part + 64] = np.einsum("qd,qkd->qk", queries[part : part + 64].astype(np.float64), near)
    best[rows < 0] = -np.inf
    ranked = np.lexsort((-order[rows], -best), axis=1)[:, :depth]
    return np.take_along_axis(rows, ranked, 1)


def measure_hubs(vectors: np.ndarray) -> tuple[float, float]:
    """Measure hubness of unit rows [n, d]: how often each is one of the 10 nearest of another row.

    Returns:
        The skewness of these counts (Radovanovic et al. 2010), and the share of rows with none.
    """
    counts = np.zeros(len(vectors))
    step = max(1, SCORES // max(1, len(vectors)))
    for start in range(0, len(vectors) if len(vectors) > NEIGHBOURS else 0, step):
        scores = vectors[start : start + step] @ vectors.T
        scores[np.arange(len(scores)), np.arange(start, start + len(scores))] = -np.inf
        nearest = np.argpartition(scores, -NEIGHBOURS, axis=1)[:, -NEIGHBOURS:]
        counts += np.bincount(nearest.ravel(), minlength=len(vectors))
    if not np.ptp(counts):  # too few rows, or no row is nearer than another
        return (0.0, 0.0) if counts.any() else (np.nan, np.nan)
    return float(((counts - counts.mean()) ** 3).mean() / counts.std() ** 3), float((counts == 0).mean())


def measure_retrieval(
    corpus: Array, sample: Tensor, search: Search, own: Mapping[str, dict[str, Any]], seed: int
) -> tuple[list[Retrieval], list[str]]:
    """Measure the search with no method and with each, fitted on a sample [n, d] of the corpus [N, d] alone.

    Changes of nDCG@10 are compared query by query: a bootstrap over the queries, and over refits of the method.
    """
    rng = np.random.default_rng(seed)
    transforms, _ = fit_methods(sample, own, None, seed)
    refits = draw_refits(sample, own, seed)
    weights = rng.multinomial(len(search.queries), np.full(len(search.queries), 1 / len(search.queries)), RESAMPLES)
    hubs = np.sort(rng.choice(len(corpus), min(len(corpus), HUB_ROWS), replace=False))
    others = rng.permutation(len(corpus))
    few = np.union1d(search.relevant[:, 1], others[: max(0, REFIT_ROWS - len(np.unique(search.relevant[:, 1])))])
    smaller, part = search.restrict(few), torch.from_numpy(read_rows(corpus, few)).double()
    found: list[Retrieval] = []
    plain = np.array([])
    for name, transform in track_progress(list(transforms.items()), "searches"):
        if name == "unit length":  # has the same cosines
            continue
        with doing(f"applying {name}"):
            unit = _make_unit(corpus, transform)
            scores = search.score(transform, unit)
        plain = scores if not found else plain
        change = scores[:, 0] - plain[:, 0]
        resampled = np.array([np.nan])
        if found:
            refitted = [smaller.score(fit[name], _make_unit(part, fit[name]))[:, 0].mean() for fit in refits]
            resampled = weights @ change / len(change) + measure_spread(refitted) / Z * rng.normal(size=RESAMPLES)
        low, high = np.quantile(resampled, (0.025, 0.975))
        tail = min((resampled <= 0).sum(), (resampled >= 0).sum()) + 1
        p = min(1.0, 2 * tail / (RESAMPLES + 1)) if found else np.nan
        skew, share = measure_hubs(unit[hubs][np.isfinite(unit[hubs]).all(1)])
        numbers = [*scores.mean(0), change.mean(), low, high, p, skew, share]
        found.append(Retrieval(name, *map(float, numbers)))
    corrected = holm([row.p for row in found])
    note = (
        f"The search is exact, by cosine: {len(search.queries):,} queries, {len(corpus):,} documents. Methods are "
        f"fitted on {len(sample):,} documents and no query. The interval is a bootstrap over the queries and over "
        f"{REFITS} refits of the method; p is Holm's over the methods. Hubness is of {len(hubs):,} documents."
    )
    return [replace(row, p=p) for row, p in zip(found, corrected, strict=True)], [note]


def _make_unit(vectors: Array, transform: Transform) -> np.ndarray:
    """Apply a method to rows in batches, and divide them by their lengths: [N, d] -> [N, k] float32."""
    found = np.empty((len(vectors), transform(torch.zeros(1, vectors.shape[1]).double()).shape[1]), np.float32)
    for part in split_rows(vectors, "applying"):
        found[part] = divide_by_length(transform(torch.from_numpy(read_rows(vectors, part)).double())).numpy()
    return found


def read_ids(path: Path | None, rows: int, encoding: str | None = None) -> list[str]:
    """Read the ids of a table's rows, from its column ``_id``, ``id`` or the like; else they are numbered from 0."""
    if path and path.suffix.lower() in FORMATS:
        table = read_own_file(path, encoding)
        if name := next((name for name in IDS if name in table.column_names), None):
            return list(map(str, table[name].to_pylist()))
    return list(map(str, range(rows)))


def read_relevance(path: Path, encoding: str | None = None) -> list[tuple[str, str, str]]:
    """Read judgements (query, document, grade): TREC's four columns, three as BEIR has them, or a Parquet file."""
    if path.suffix.lower() in FORMATS and path.suffix.lower() != ".tsv":
        table = read_own_file(path, encoding)
        names, rows = table.column_names, list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    else:
        lines = [line for line in read_text(path, encoding)[0].splitlines() if line.strip()]
        rows = [tuple(line.split("\t" if "\t" in line else None)) for line in lines]
        refuse((not rows, f"{path} is empty"))
        wrong = next((row for row in rows if len(row) not in (3, 4) or len(row) != len(rows[0])), None)
        refuse((wrong is not None, f"{path}: three or four columns are needed, not {wrong}"))
        names = ["query", "document", "score"] if len(rows[0]) == 3 else ["query", "", "document", "score"]
        if {name.strip().lower() for name in rows[0]} & NAMES[2]:
            names = list(rows.pop(0))
    query, document, grade = (
        next((i for i, name in enumerate(names) if name.strip().lower() in known), -1) for known in NAMES
    )
    refuse((min(query, document, grade) < 0, f"{path} lacks a column: query-id, corpus-id and score are needed"))
    return [(str(row[query]).strip(), str(row[document]).strip(), str(row[grade]).strip()) for row in rows]


def make_search(
    queries: Array, judgements: Sequence[tuple[Any, Any, Any]], query_ids: Sequence[str], ids: Sequence[str],
    where: str = "relevance",
) -> tuple[Search, list[str]]:  # fmt: skip
    """Check judgements against the ids of queries [Q, d] and documents; leave out queries that can't be judged."""
    places, known = {name: row for row, name in enumerate(ids)}, {name: row for row, name in enumerate(query_ids)}
    wrong = next((str(document) for _, document, _ in judgements if str(document) not in places), None)
    refuse(
        (wrong is not None, f"{where}: {wrong} is no document of the corpus"),
        (len(places) < len(ids), "two documents have the same id"),
        (len(known) < len(query_ids), "two queries have the same id"),
    )
    grade = next((str(g) for _, _, g in judgements if not INDEX.fullmatch(str(g).removeprefix("-"))), None)
    refuse((grade is not None, f"{where}: {grade} is no whole number"))
    graded = {(known[str(q)], places[str(d)]): int(float(g)) for q, d, g in judgements if str(q) in known}
    vectors = read_rows(queries, slice(None))
    usable = np.isfinite(vectors).all(1)
    notes = [f"Queries: {describe_missing(~usable)}"] if not usable.all() else []
    asked = np.isin(np.arange(len(vectors)), [q for (q, _), g in graded.items() if g > 0])
    refuse((not (usable & asked).any(), f"{where}: no query has a relevant document"))
    if lacking := int((~asked).sum()):
        notes.append(f"Queries left out, because no document is relevant to them: {lacking:,}.")
    if strange := len({str(q) for q, _, _ in judgements} - known.keys()):
        notes.append(f"Queries of the relevance that were not asked: {strange:,}.")
    number = np.cumsum(usable & asked) - 1
    judged = [(number[q], d, g) for (q, d), g in graded.items() if usable[q] and asked[q]]
    order = np.empty(len(ids), np.int64)
    order[sorted(range(len(ids)), key=lambda row: ids[row].encode())] = np.arange(len(ids))
    kept = torch.from_numpy(vectors[usable & asked]).double()
    return Search(kept, np.array(judged, np.int64), order), notes
