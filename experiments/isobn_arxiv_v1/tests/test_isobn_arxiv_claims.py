"""The claim of IsoBN's first version on unbalanced classes: the tasks are those of the data, and decide alone."""

from made_up_report import PLAIN, make_report, make_runs

from isobench.report.claims import FAILS, NOT_RUN
from isobench_papers.isobn_arxiv_v1.claims import CLAIMS, UNBALANCED_TASKS


def test_the_claim_on_unbalanced_classes_reads_unbalanced_tasks_only():
    (claim,) = CLAIMS
    better = [value + 5 for value in PLAIN]
    rte = [*make_runs("isobn_paper", better), *make_runs("center+isobn_paper", PLAIN)]
    assert claim.check(make_report(*rte)).word == NOT_RUN
    cola = [*make_runs("isobn_paper", PLAIN, task="cola"), *make_runs("center+isobn_paper", better, task="cola")]
    assert claim.check(make_report(*rte, *cola)).word == FAILS


def test_the_unbalanced_tasks_are_those_of_the_data(glue):
    import pyarrow.parquet

    shares = {}
    for task in ("cola", "mrpc", "rte", "sst2", "wnli"):  # the folder has parts only of the larger tasks
        labels = pyarrow.parquet.read_table(f"{glue}/glue/{task}/train.parquet")["label"].to_pylist()
        shares[task] = max(map(labels.count, set(labels))) / len(labels)
    assert {task for task, share in shares.items() if share > 0.6} == set(UNBALANCED_TASKS)
    assert max(share for share in shares.values() if share < 0.6) < 0.56
