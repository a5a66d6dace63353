"""One lookup of a batch's words: the same states and gradients as with a lookup for each chunk, from fewer calls."""

import contextlib

import pytest
import torch
from test_seq2seq import FAMILIES, SOURCES, TARGETS, small_model

from isobench.training.seq2seq import WordLookup

CHUNKS = [(SOURCES, TARGETS), (SOURCES[:1, :3] + 1, TARGETS[1:, :2]), (SOURCES[1:, :2], TARGETS[:1])]


def count_nodes(output: torch.Tensor, name: str) -> int:
    """How many backward nodes of this name stand behind an output."""
    seen, waiting = set(), [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [parent for parent, _ in node.next_functions]
    return sum(node.name() == name for node in seen)


def compute(model, share: bool) -> tuple[torch.Tensor, dict[str, torch.Tensor], int]:
    """All chunks' logits, the gradients of a function of them, and the number of lookups in the graph."""
    words = WordLookup(model)
    with words.share(CHUNKS) if share else contextlib.nullcontext():
        logits = torch.cat([
            model(input_ids=read, decoder_input_ids=written, use_cache=False).logits.flatten(0, 1)
            for read, written in CHUNKS
        ])  # fmt: skip
    total = logits.sin().sum()
    lookups = count_nodes(total, "EmbeddingBackward0")
    total.backward()
    return logits.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}, lookups


@pytest.mark.parametrize("kind", FAMILIES)
def test_states_and_gradients_are_those_of_a_lookup_for_each_chunk(kind):
    logits, gradients, lookups = compute(small_model(kind).double(), share=True)
    expected, others, more_lookups = compute(small_model(kind).double(), share=False)
    assert torch.equal(logits, expected)
    assert gradients.keys() == others.keys()
    for name, gradient in gradients.items():
        assert (gradient - others[name]).norm() <= 1e-12 * others[name].norm(), name
    assert more_lookups - lookups == 4  # three chunks' words are looked up once instead of thrice, on both sides


def test_other_ids_than_those_announced_are_looked_up_as_ever():
    model = small_model("bart")
    ids = {"input_ids": SOURCES, "decoder_input_ids": TARGETS}
    with torch.no_grad():
        expected = model(**ids).logits
        words = WordLookup(model)
        with words.share([(SOURCES.flip(1), TARGETS.flip(1))]):
            assert torch.equal(model(**ids).logits, expected)
        assert torch.equal(model(**ids).logits, expected)
