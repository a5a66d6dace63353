"""Check that wrong calls of methods raise an error of one line, in any PyTorch program."""

import pytest
import torch

from isobench.calibration import Centering, Chain, IsoBN, Link, SpectrumControl, Whitening, center, whiten


@pytest.mark.parametrize("dim", [0, -1, "8", 2.5])
def test_a_width_that_is_none_is_refused(dim):
    with pytest.raises(ValueError, match="dim must be a whole number, at least 1"):
        IsoBN(dim)


@pytest.mark.parametrize("shape", [(8,), (1, 4, 8), (0, 8)])
def test_a_batch_that_is_none_is_refused(shape):
    for method in (IsoBN(8), Centering(8, kind="center"), Whitening(8, form="zca")):
        with pytest.raises(ValueError, match="needs a batch of embeddings"):
            method(torch.ones(shape))


def test_a_chain_of_what_are_no_links_is_refused():
    for links in ([], [IsoBN(8)]):
        with pytest.raises(ValueError, match="at least one Link"):
            Chain(links)
    with pytest.raises(ValueError, match="placement must be"):
        Link(IsoBN(8), "nowhere")
    for function in (center, whiten):
        with pytest.raises(ValueError, match="needs vectors"):
            function(torch.ones(8))


def test_settings_without_effect_are_refused():
    with pytest.raises(ValueError, match="c2=2 has no effect with decay=polynomial"):
        SpectrumControl(4, c2=2)
    for settings in ({"D": 2}, {"centered_projection": False}):
        with pytest.raises(ValueError, match="have no effect with kind=center: leave them out"):
            Centering(4, **settings)
