"""Metrics of generated texts, by sacrebleu and rouge-score; config.schema_task.TEXT_METRICS names them.

BLEU (Papineni et al. 2002) and chrF (Popović 2015) are of the corpus. ROUGE (Lin 2004) is the F1 of each example,
averaged; L is of the whole text as one sequence. ROUGE's tokenizer knows ASCII letters and digits only: it is for
English. Both packages are imported where they are used: rouge-score takes seconds.
"""

import contextlib
import sys
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from isobench.common.provenance import read_package_version


def evaluate_texts(names: Sequence[str], references: Sequence[str], hypotheses: Sequence[str]) -> dict[str, float]:
    """Every named metric, a fraction, best 1; of an empty text 0.

    Args:
        names: some of config.schema_task.TEXT_METRICS.
        references: N texts, at least one.
        hypotheses: N texts, the i-th for the i-th reference.

    Raises:
        ValueError: another number of hypotheses than of references, or none.
    """
    if len(references) != len(hypotheses) or not references:
        raise ValueError(f"{len(hypotheses)} hypotheses for {len(references)} references")
    scores = _compute_rouge([name for name in names if name.startswith("rouge")], references, hypotheses)
    for name in names:
        if name not in scores:
            score = _make_corpus_metric(name).corpus_score(list(hypotheses), [list(references)]).score
            scores[name] = min(score / 100, 1.0)  # a perfect BLEU is rounded to a little above 100
    return {name: scores[name] for name in names}


def build_metric_signatures(names: Sequence[str]) -> dict[str, str]:
    """How every named metric is computed, by which version: sacrebleu's own signature, and the like for ROUGE."""
    return {
        name: _rouge_signature(name) if name.startswith("rouge") else _sacrebleu_signature(name) for name in names
    }


def _make_corpus_metric(name: str) -> Any:
    from sacrebleu.metrics import BLEU, CHRF

    return {"bleu": BLEU(force=True), "chrf": CHRF()}[name]  # force: no warning where texts end in " ."


def _compute_rouge(names: list[str], references: Sequence[str], hypotheses: Sequence[str]) -> dict[str, float]:
    """All asked ROUGE types in one pass over the examples."""
    if not names:
        return {}
    with contextlib.redirect_stderr(sys.__stderr__):  # absl, which it logs by, would one day close another
        from rouge_score.rouge_scorer import RougeScorer
        from rouge_score.tokenizers import DefaultTokenizer

    scorer = RougeScorer(names, tokenizer=DefaultTokenizer(use_stemmer=True))  # given, it isn't logged
    scores = [scorer.score(*pair) for pair in zip(references, hypotheses, strict=True)]
    return {name: fmean(score[name].fmeasure for score in scores) for name in names}


def _sacrebleu_signature(name: str) -> str:
    metric = _make_corpus_metric(name)
    metric.corpus_score([""], [[""]])  # the number of references is known only then
    return str(metric.get_signature())


def _rouge_signature(name: str) -> str:
    variant = "|variant:whole text, not Lsum" if name == "rougeL" else ""
    version = read_package_version("rouge-score")
    return f"nrefs:1|score:f1|stemmer:porter{variant}|average:mean over examples|version:{version}"
