"""Retrieval as MTEB scores it: an exact search by cosine, and the measures of trec_eval at MTEB's cuts."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from isobench.common.errors import refuse
from isobench.metrics.retrieval import find_top, rank_ids
from isobench_papers.mteb.tasks import Task, read_search

if TYPE_CHECKING:
    from isobench.config.schema import Data

DEPTH = 1000  # documents that a query finds
CUTS = (1, 3, 5, 10, 20, 100, 1000)

Embed = Callable[[str, Sequence[str]], np.ndarray]  # the texts' name and the texts -> unit rows, [N, d] float32


def search(task: Task, data: "Data", split: str, embed: Embed) -> dict[str, float]:
    """Search a task's documents with its judged queries: the mean of each score over queries, by MTEB's names.

    A query without a relevant document scores 0, as in trec_eval.
    """
    documents, queries, judged = read_search(task, data, split)
    unknown = sorted({document for _, document, _ in judged} - documents.keys())
    refuse((bool(unknown), f"{task.name}: {split} judges {unknown[:1]}, which is not in its corpus"))
    grades: dict[str, dict[str, int]] = {}
    for query, document, grade in judged:
        grades.setdefault(query, {})[document] = grade
    asked = {key: text for key, text in queries.items() if key in grades}
    refuse((not asked, f"{task.name}: no query of {split} is judged"))
    name, ids = f"{task.name}-{task.subset}", list(documents)
    corpus = embed(f"{name}-documents", list(documents.values()))
    vectors = embed(f"{name}-queries", list(asked.values()))
    found = find_top(vectors, corpus, rank_ids(ids), min(DEPTH + 1, len(ids)))
    scores = []
    for query, row in zip(asked, found, strict=True):
        left_out = query if task.ignore_identical_ids else None
        answer = [ids[place] for place in row if place >= 0 and ids[place] != left_out]
        scores.append(score_ranking(answer[:DEPTH], grades[query]))
    return {name: float(np.mean([score[name] for score in scores])) for name in scores[0]}


def score_ranking(found: Sequence[str], grades: dict[str, int]) -> dict[str, float]:
    """Score the documents that a query found, the best first, by the grades of the relevant ones.

    Returns:
        ``ndcg_at_k`` (gains are the grades), ``map_at_k``, ``recall_at_k``, ``precision_at_k`` and ``mrr_at_k`` for
        each k of ``CUTS``, those of 10 first.
    """
    gains = np.array([max(grades.get(document, 0), 0) for document in found] + [0] * (max(CUTS) - len(found)), float)
    ideal = np.zeros(max(max(CUTS), len(grades)))
    ideal[: len(grades)] = sorted((max(grade, 0) for grade in grades.values()), reverse=True)
    discounts = np.log2(np.arange(len(ideal)) + 2)
    relevant, ranks = gains > 0, np.arange(1, len(gains) + 1)
    total = max(int((ideal > 0).sum()), 1)
    precision = np.cumsum(relevant) / ranks
    first = relevant.argmax() + 1 if relevant.any() else np.inf
    scores = {}
    for k in sorted(CUTS, key=lambda k: k != 10):
        best = (ideal[:k] / discounts[:k]).sum()
        scores |= {
            f"ndcg_at_{k}": (gains[:k] / discounts[:k]).sum() / best if best else 0.0,
            f"map_at_{k}": (precision * relevant)[:k].sum() / total,
            f"recall_at_{k}": relevant[:k].sum() / total,
            f"precision_at_{k}": relevant[:k].sum() / k,
            f"mrr_at_{k}": 1 / first if first <= k else 0.0,
        }
    return scores
