"""Measures of a search by vectors: exact answers, what they are worth, and hubs among the documents."""

from collections.abc import Sequence

import numpy as np
import torch

CUT = 10  # documents of an answer that count, but for Recall@100
SPARE = 28  # documents more are found in float32, and the cosines of all found are computed again in float64
EQUAL = 1e-6  # cosines in float32 that differ by less may be equal
SCORES = 1 << 22  # that are computed at once
NEIGHBOURS = 10  # k of hubness


def rank_ids(ids: Sequence[str]) -> np.ndarray:
    """Rank documents by the bytes of their ids, [N]: of equal cosines the higher one comes first, as in trec_eval."""
    order = np.empty(len(ids), np.int64)
    order[sorted(range(len(ids)), key=lambda row: ids[row].encode())] = np.arange(len(ids))
    return order


def find_top(queries: np.ndarray, corpus: np.ndarray, order: np.ndarray, depth: int) -> np.ndarray:
    """Find the documents with the highest cosines: unit rows [Q, d] and [N, d] of float32 -> rows [Q, depth].

    Of equal cosines, in float32, the one with the higher ``order`` comes first. Rows with NaN are never found; -1
    stands where there are too few. The blocks' cosines are rounded, so ``SPARE`` more are kept, and all ranked again.
    """
    count, kept = len(queries), depth + SPARE
    step = max(1, SCORES // max(1, count))
    # Each query's highest cosines so far, whose they are, and the highest one of a document that was not kept.
    best, rows = torch.full((count, kept), -torch.inf), torch.full((count, kept), -1)
    lost = torch.full((count,), -torch.inf)
    for start in range(0, len(corpus), step):
        scores = torch.from_numpy(queries @ corpus[start : start + step].T).nan_to_num_(-torch.inf)  # [Q, n]
        top, places = scores.topk(min(kept + 1, scores.shape[1]))
        best, order_of_best = torch.cat([best, top], 1).sort(descending=True)
        rows = torch.cat([rows, start + places], 1).gather(1, order_of_best)
        lost = torch.maximum(lost, best[:, kept])
        best, rows = best[:, :kept], rows[:, :kept]
    rows[best.isinf()] = -1
    return _rank_exactly(queries, corpus, order, depth, rows.numpy(), lost.numpy())


def _rank_exactly(
    queries: np.ndarray, corpus: np.ndarray, order: np.ndarray, depth: int, rows: np.ndarray, lost: np.ndarray
) -> np.ndarray:
    """Rank each query's candidates by cosines in float64: rows [Q, K], -1 for none -> rows [Q, depth].

    ``lost`` [Q]: the highest cosine of a document that is no candidate. If it may be high enough, all are ranked.
    """
    best = np.empty(rows.shape, np.float32)
    # Equal rows get equal cosines, which a product of blocks does not promise.
    for part in range(0, len(queries), 64):
        near = corpus[rows[part : part + 64]].astype(np.float64)
        best[part : part + 64] = np.einsum("qd,qkd->qk", queries[part : part + 64].astype(np.float64), near)
    best[rows < 0] = -np.inf
    ranked = np.lexsort((-order[rows], -best), axis=1)[:, :depth]
    found = np.take_along_axis(rows, ranked, 1)
    last = np.take_along_axis(best, ranked, 1)[:, -1]
    for query in np.flatnonzero(np.isfinite(lost) & (lost >= last - EQUAL)):
        cosines = np.nan_to_num(np.einsum("nd,d->n", corpus, queries[query], dtype=np.float64), nan=-np.inf)
        all_ranked = np.lexsort((-order, -cosines.astype(np.float32)))[:depth]
        found[query] = np.where(np.isfinite(cosines[all_ranked]), all_ranked, -1)
    return found


def score_answers(found: np.ndarray, relevant: np.ndarray, documents: int) -> np.ndarray:
    """Compute nDCG@10, Recall@10, Recall@100 and MRR@10 of each query as trec_eval does, [Q, 4].

    Args:
        found: rows of documents, the best first, -1 for none, [Q, K].
        relevant: query, row of a document and its grade above 0, [R, 3], each pair once.
        documents: how many there are.
    """
    query, document, grade = relevant[np.lexsort((-relevant[:, 2], relevant[:, 0]))].T  # each query's best first
    codes = query * documents + document  # one number for each pair
    sort = np.argsort(codes)
    asked = np.arange(len(found))[:, None] * documents + found
    place = np.searchsorted(codes[sort], asked).clip(max=len(codes) - 1)
    gains = np.where((codes[sort][place] == asked) & (found >= 0), grade[sort][place], 0)  # [Q, K]
    counts = np.bincount(query, minlength=len(found))
    rank = np.arange(len(query)) - np.searchsorted(query, query)  # in the best possible answer
    ideal = np.bincount(query, np.where(rank < CUT, grade / np.log2(rank + 2), 0), len(found))
    top = gains[:, :CUT]
    gained = (top / np.log2(np.arange(top.shape[1]) + 2)).sum(1)
    first = np.where((top > 0).any(1), 1 / ((top > 0).argmax(1) + 1), 0)
    return np.stack([gained / ideal, (top > 0).sum(1) / counts, (gains > 0).sum(1) / counts, first], 1)


def find_neighbours(vectors: np.ndarray, count: int = NEIGHBOURS) -> np.ndarray:
    """Find the rows with the highest cosines to each of n unit rows, itself left out, in no order: [n, count]."""
    found = np.empty((len(vectors), count), np.int64)
    step = max(1, SCORES // max(1, len(vectors)))
    for start in range(0, len(vectors), step):
        scores = vectors[start : start + step] @ vectors.T
        scores[np.arange(len(scores)), np.arange(start, start + len(scores))] = -np.inf
        found[start : start + step] = np.argpartition(scores, -count, axis=1)[:, -count:]
    return found


def measure_hubs(vectors: np.ndarray) -> tuple[float, float]:
    """Measure hubness of unit rows [n, d]: how often each is one of the 10 nearest of another row.

    Returns:
        The skewness of these counts (Radovanovic et al. 2010), and the share of rows with none; NaN of ten or fewer.
    """
    if len(vectors) <= NEIGHBOURS:
        return np.nan, np.nan
    counts = np.bincount(find_neighbours(vectors).ravel(), minlength=len(vectors))
    spread = float(counts.std())
    skew = float(((counts - counts.mean()) ** 3).mean()) / spread**3 if spread else 0.0
    return skew, float((counts == 0).mean())
