"""Numbers and readings that the papers' texts give for their figures are those that isobench shows beside its own."""

import re

from helpers import assert_contains, read_experiment

from isobench.papers.folders import find_papers
from isobench_papers.isobn import embeddings as isobn_embeddings
from isobench_papers.task_adaptation import embeddings as adaptation_embeddings
from isobench_papers.task_adaptation.claims import FIGURE_TASKS, RISING_TASKS


def read_text(file):
    return " ".join(file.read_text().split())


def test_the_numbers_beside_isobns_figures_2_to_4_are_in_its_text(papers):
    text = read_text(papers / "isobn_aaai2021.txt")
    assert_contains(
        text,
        "there is a 0.9997 cosine similarity between initialized and fine-tuned weights on COLA with RoBERTa",
        "The first principal component accounts for over 90% variance of logits",
        "(e.g., $[10^{-10}, 1]$ in BERT for MRPC)",
        "usually ranging in [0.01,1]",
    )
    source = (find_papers()["isobn"] / "drift.py").read_text()
    assert_contains(source, "cosine 0.9997 on CoLA with RoBERTa", "over 90% of the logits' variance")
    assert "[1e-10, 1] for BERT-base on MRPC, usually [0.01, 1] for RoBERTa" in isobn_embeddings.RANGES_NOTE


def test_what_the_adaptation_paper_reads_from_its_figures_is_in_its_text(papers):
    text = read_text(papers / "efficient_task_adaptation.txt")
    assert "fall into two clusters" in text
    within = read_experiment("adaptation_embeddings")["analysis"]["within"]
    assert f"most dimensions has an average value within {within}, while some dimensions have very large" in text
    said = r"\(1\) In (\w+), .*? \(2\) In ([\w-]+), ([\w-]+), .*? \(3\) In (\w+) \(also (\w+), (\w+), (\w+)\)"
    types = re.search(said, text)
    named = [name.lower().replace("-", "") for name in types.groups()]
    (grid,) = read_experiment("adaptation_embeddings")["experiment"]["grid"]["paper"]
    assert sorted(grid["task"]) == sorted(named)
    assert sorted(RISING_TASKS) == sorted(named[3:])
    assert "of BERT-base on 4 text classification datasets, and show the average value" in text
    assert sorted(FIGURE_TASKS) == sorted(named[:4])  # the text names the other three as "also"
    for name in types.groups():
        assert name in adaptation_embeddings.TYPES_NOTE


def test_the_numbers_beside_too_much_in_commons_figures_3_and_4_are_in_its_text(papers):
    text = read_text(papers / "too_much_in_common.txt")
    settings = read_experiment("common_frequency")["analysis"]
    near, far = (own for own in settings["ranges"] if own["published"] is not None)
    frequent = f"cosine similarity of {near['published']} with tokens in indices [{near['first']}-{near['end']}]"
    assert frequent in text
    indices, value = rf"\[{far['first']}-{far['end']}\]", re.escape(str(far["published"]))
    assert re.search(rf"tokens in indices {indices}\S* is {value}", text)
    few, more = settings["heads"]
    assert f"{few['published']} of the corpus can be accounted for using {few['types']} most frequent tokens" in text
    assert f"{more['published']} of the corpus can be accounted for using just {more['types']} tokens" in text
    coverage = settings["coverage"]
    share, number = f"{coverage['share']:.0%}", coverage["published"].replace(",", "")
    assert f"to cover at least {share} of the corpus, {number} tokens are needed" in text
