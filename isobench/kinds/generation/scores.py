"""Metrics of generated texts, computed by sacrebleu and rouge-score: bleu, chrf, rouge1, rouge2, rougeL.

BLEU (Papineni et al. 2002) and chrF (Popović 2015) are computed over the whole corpus. ROUGE (Lin 2004) is the mean
of the examples' F1; ROUGE-L takes a text as one sequence, also if it has several lines. ROUGE's tokenizer knows only
ASCII letters and digits, so it is for English. Both packages are imported where they are used, because rouge-score
takes seconds to import.
"""

import contextlib
import sys
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from isobench.common.environment import read_package_version
from isobench.config.schema import Task

METRIC_NAMES = ("bleu", "chrf", "rouge1", "rouge2", "rougeL")
WITHOUT_SPACES = {"zh": "zh", "ja": "char", "ko": "char"}  # language -> sacrebleu's tokenizer for BLEU; others: 13a


def find_target_language(task: Task) -> str:
    """Return the language of the targets, such as ``ro``; empty if the task does not say it."""
    languages = task.generation.languages if task.generation else None
    return languages[1].partition("_")[0] if languages else ""


def evaluate_texts(
    names: Sequence[str], references: Sequence[str], hypotheses: Sequence[str], language: str = ""
) -> dict[str, float]:
    """Compute the named metrics as fractions from 0 to 1, the best; an empty text scores 0.

    The i-th of N hypotheses is for the i-th of N references; at least one. ``language`` is that of both.

    Raises:
        ValueError: if the numbers of hypotheses and references differ or are 0.
    """
    if len(references) != len(hypotheses) or not references:
        raise ValueError(f"{len(hypotheses)} hypotheses for {len(references)} references")
    scores = _compute_rouge([name for name in names if name.startswith("rouge")], references, hypotheses)
    for name in names:
        if name not in scores:
            score = _make_corpus_metric(name, language).corpus_score(list(hypotheses), [list(references)]).score
            scores[name] = min(score / 100, 1.0)  # a perfect BLEU is rounded to a little above 100
    return {name: scores[name] for name in names}


def build_metric_signatures(names: Sequence[str], language: str = "") -> dict[str, str]:
    """Describe how each named metric is computed, and by which version, in the form of sacrebleu's signatures."""
    return {
        name: _rouge_signature(name) if name.startswith("rouge") else _sacrebleu_signature(name, language)
        for name in names
    }


def _make_corpus_metric(name: str, language: str) -> Any:
    from sacrebleu.metrics import BLEU, CHRF

    bleu = BLEU(tokenize=WITHOUT_SPACES.get(language), force=True)  # force: no warning where texts end in " ."
    return {"bleu": bleu, "chrf": CHRF()}[name]


def _compute_rouge(names: list[str], references: Sequence[str], hypotheses: Sequence[str]) -> dict[str, float]:
    if not names:
        return {}
    with contextlib.redirect_stderr(sys.__stderr__):  # absl keeps the stream it finds, and closes any but this
        from rouge_score.rouge_scorer import RougeScorer
        from rouge_score.tokenizers import DefaultTokenizer

    tokenizer = DefaultTokenizer(use_stemmer=True)  # given, so that rouge-score does not log its choice
    scorer = RougeScorer(names, tokenizer=tokenizer)
    scores = [scorer.score(*pair) for pair in zip(references, hypotheses, strict=True)]
    return {name: fmean(score[name].fmeasure for score in scores) for name in names}


def _sacrebleu_signature(name: str, language: str) -> str:
    metric = _make_corpus_metric(name, language)
    metric.corpus_score([""], [[""]])  # the signature needs the number of references
    return str(metric.get_signature())


def _rouge_signature(name: str) -> str:
    variant = "|variant:whole text, not Lsum" if name == "rougeL" else ""
    version = read_package_version("rouge-score")
    return f"nrefs:1|score:f1|stemmer:porter{variant}|average:mean over examples|version:{version}"
