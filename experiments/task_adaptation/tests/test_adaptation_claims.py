"""What the task-adaptation paper claims of embeddings: each check on made-up rows either way."""

import pytest

from isobench.report.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED
from isobench_papers.task_adaptation.claims import (
    there_are_two_clusters,
    variance_is_not_importance,
    variance_rises_with_importance,
)


@pytest.mark.parametrize(
    ("check", "task", "spearman", "word"),
    [
        (variance_is_not_importance, "t", 0.9, FAILS),
        (variance_is_not_importance, "t", 0.1, HOLDS),
        (variance_is_not_importance, "rte", 0.9, NOT_RUN),  # excepted
        (variance_rises_with_importance, "rte", 0.9, HOLDS),
        (variance_rises_with_importance, "rte", 0.1, FAILS),
        (variance_rises_with_importance, "sst2", 0.9, NOT_RUN),
    ],
)
def test_variance_and_importance(check, task, spearman, word):
    assert check([{"encoder": "e", "task": task, "spearman": spearman}]).word == word


def clustered(clusters, index, gaussian, task="rte"):
    measured = {"clusters": clusters, "cluster_index": index, "gaussian_cluster_index": gaussian}
    return [{"encoder": "e", "task": task, **measured}]


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        (clustered(2, 0.5, 0.7), HOLDS),
        (clustered(3, 0.5, 0.7), FAILS),
        (clustered(2, 0.7, 0.7), FAILS),  # t-SNE's clusters, not the vectors'
        (clustered(2, 0.5, 0.7) + clustered(1, 0.9, 0.8), UNDECIDED),
        (clustered(2, 0.5, 0.7) + clustered(1, 0.9, 0.8, "mnli"), HOLDS),
        (clustered(2, 0.5, 0.7, "qnli"), NOT_RUN),  # Figure 1 does not show it
    ],
)
def test_two_clusters_are_the_vectors_too(rows, word):
    assert there_are_two_clusters(rows).word == word
