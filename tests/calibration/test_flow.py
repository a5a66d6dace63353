"""The flow is invertible at any depth; test_official_implementations.py has its equations, loss and gradients."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isobench.calibration import Flow

FORMS = [(c, p) for c in ("additive", "affine") for p in ("reverse", "learned")]


def stirred(dim=8, coupling="affine", permutation="learned", seed=0, **more) -> Flow:
    torch.manual_seed(seed)
    flow = Flow(dim, coupling=coupling, permutation=permutation, **more)
    flow.train()
    flow(torch.randn(64, dim) * 3 + 1)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter) / math.sqrt(parameter.shape[-1]))
    return flow


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.sampled_from(FORMS), st.integers(1, 3), st.integers(1, 4), st.integers(0, 100))
def test_the_inverse_undoes_any_depth(form, levels, steps, seed):
    flow = stirred(16, *form, seed=seed, levels=levels, steps=steps).eval()
    h = torch.randn(5, 16)
    torch.testing.assert_close(flow.inverse(flow(h)), h, rtol=1e-4, atol=1e-4)
