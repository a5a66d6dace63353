"""The flow: invertible, its log-determinant the Jacobian's, its loss the density's, its gradients kept apart."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isobench.calibration import Flow

FORMS = [(c, p) for c in ("additive", "affine") for p in ("reverse", "learned")]


def stirred(dim=8, coupling="affine", permutation="learned", seed=0, **more) -> Flow:
    """A flow that is no longer at its start: every parameter moved."""
    torch.manual_seed(seed)
    flow = Flow(dim, coupling=coupling, permutation=permutation, **more)
    flow.train()
    flow(torch.randn(64, dim) * 3 + 1)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter) / math.sqrt(parameter.shape[-1]))
    return flow


@pytest.mark.parametrize(("coupling", "permutation"), FORMS)
@pytest.mark.parametrize("dim", [8, 64])
def test_the_inverse_undoes_it_in_float32(coupling, permutation, dim):
    flow = stirred(dim, coupling, permutation).eval()
    h = torch.randn(50, dim) * 3 + 1
    torch.testing.assert_close(flow.inverse(flow(h)), h, rtol=1e-4, atol=1e-4)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.sampled_from(FORMS), st.integers(1, 3), st.integers(1, 4), st.integers(0, 100))
def test_the_inverse_undoes_any_depth(form, levels, steps, seed):
    flow = stirred(16, *form, seed=seed, levels=levels, steps=steps).eval()
    h = torch.randn(5, 16)
    torch.testing.assert_close(flow.inverse(flow(h)), h, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("coupling", "permutation"), FORMS)
def test_the_log_determinant_is_the_jacobians(coupling, permutation):
    flow = stirred(8, coupling, permutation).double()
    h = torch.randn(3, 8, dtype=torch.float64)
    _, log_determinant = flow.glow(h)
    for row, found in zip(h, log_determinant, strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda x: flow.glow(x[None])[0][0], row)
        torch.testing.assert_close(found, torch.linalg.slogdet(jacobian)[1])


def by_hand(flow: Flow, row: torch.Tensor) -> tuple[list[float], float]:
    """An additive, reversing flow of one row, feature by feature; z and the log-determinant."""
    h, out, log_determinant = row.tolist(), [], 0.0
    for number, level in enumerate(flow.glow.levels):
        if number:
            out, h = out + h[: len(h) // 2], h[len(h) // 2 :]
        for step in level:
            h = [
                (x + b) * math.exp(s)
                for x, b, s in zip(h, step.norm.bias.tolist(), step.norm.log_scale.tolist(), strict=True)
            ]
            log_determinant += sum(step.norm.log_scale.tolist())
            h = [float(x) for x in h[::-1]]
            kept, moved = h[: len(h) // 2], h[len(h) // 2 :]
            hidden = kept
            for number_of_layer, layer in enumerate(m for m in step.coupling.network if hasattr(m, "weight")):
                hidden = [
                    sum(w * x for w, x in zip(row_of, hidden, strict=True)) + b
                    for row_of, b in zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
                ]
                if number_of_layer < 2:
                    hidden = [max(0.0, x) for x in hidden]
            h = kept + [x + t for x, t in zip(moved, hidden, strict=True)]
    return out + h, log_determinant


def test_z_and_the_loss_are_those_worked_out_by_hand():
    flow = stirred(8, "additive", "reverse").double()
    h = torch.randn(4, 8, dtype=torch.float64)
    bits = []
    for row, z in zip(h, flow(h), strict=True):
        expected, log_determinant = by_hand(flow, row)
        assert z.tolist() == pytest.approx(expected)
        density = sum(-0.5 * (x * x + math.log(2 * math.pi)) for x in expected) + log_determinant
        bits.append(-density / (8 * math.log(2)))
    assert float(flow.objective(h)) == pytest.approx(sum(bits) / 4)


def test_it_starts_from_the_first_batch_once_and_its_state_travels():
    flow = Flow(8)
    flow.train()
    h = torch.randn(32, 8) * 5 - 3
    z = flow(h)
    torch.testing.assert_close(z.mean(0), torch.zeros(8), rtol=0, atol=1e-5)  # couplings start as the identity
    torch.testing.assert_close(z.std(0, unbiased=False), torch.ones(8), rtol=1e-4, atol=0)
    state = {name: value.clone() for name, value in flow.state_dict().items()}
    flow(h * 7)
    assert all(torch.equal(state[name], value) for name, value in flow.state_dict().items())
    other = Flow(8)
    other.load_state_dict(state)
    other.train()
    assert torch.equal(other(h), flow(h))


def test_the_tasks_gradient_and_the_flows_are_kept_apart():
    flow = stirred(8)
    h = torch.randn(6, 8, requires_grad=True)
    flow(h).square().sum().backward()
    assert h.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in flow.parameters())
    leaf = h.detach().requires_grad_()
    flow.objective(leaf.detach()).backward()
    assert leaf.grad is None
    assert all(parameter.grad.abs().sum() > 0 for parameter in flow.parameters())


@pytest.mark.slow
def test_its_own_loss_makes_skewed_embeddings_more_gaussian():
    torch.manual_seed(0)
    mix = torch.randn(16, 16)
    data = (torch.randn(512, 16) @ mix).exp().clamp(max=20)
    flow = Flow(16)
    (group,) = flow.parameter_groups()
    assert group["lr"] == 1e-3
    flow.train()
    flow(data)
    first = float(flow.objective(data))
    optimizer = torch.optim.Adam(flow.parameters(), lr=group["lr"])
    for _ in range(150):
        optimizer.zero_grad()
        loss = flow.objective(data)
        loss.backward()
        optimizer.step()
    assert float(loss) < first - 0.05


@pytest.mark.parametrize("h", [torch.ones(4, 8), torch.zeros(1, 8), torch.randn(3, 8) * 1e8])
def test_degenerate_first_batches_stay_finite(h):
    flow = Flow(8)
    flow.train()
    assert torch.isfinite(flow(h)).all()
    assert torch.isfinite(flow.objective(h))


def test_under_mixed_precision_it_stays_float32_inside():
    flow = stirred(8).eval()
    h = torch.randn(4, 8).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        out, loss = flow(h), flow.objective(h)
    assert (out.dtype, loss.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(out.float(), flow(h.float()), rtol=0.02, atol=0.02)
