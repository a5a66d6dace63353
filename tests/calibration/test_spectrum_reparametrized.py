"""Spectrum control with U, sigma and V trained in W's place: its formulas, its start, and whole runs."""

import numpy as np
import pytest
import torch
from helpers import build_parts
from killed_runs import check_accumulation
from torch import nn

from isobench.calibration import SpectrumControl

RHO, STRENGTH, C1 = 0.3, 0.7, 0.9
ON = "+calibration.reparametrize=1.0"


def make_layer(weight, **settings):
    weight = torch.as_tensor(weight)
    layer = nn.Linear(weight.shape[1], len(weight), dtype=weight.dtype)
    layer.weight.data = weight.clone()
    control = SpectrumControl(weight.shape[1], **{"reparametrize": RHO, **settings})
    with torch.no_grad():
        control.adjust(layer.weight)
    control.reparametrize_layer(layer)
    found = layer.parametrizations["weight"]
    return layer, control, [found.original0, found.original1, found.original2]


@pytest.mark.parametrize("shape", [(2, 5), (7, 4), (3, 3), (1, 6)])
@pytest.mark.parametrize("decay", ["polynomial", "exponential"])
def test_loss_and_gradients_are_those_of_the_formulas(shape, decay):
    """By the chain rule in NumPy, for a task's loss sum (W x + b)^2 and the penalty; U and V are not orthogonal."""
    rng = np.random.default_rng(0)
    layer, control, factors = make_layer(rng.normal(size=shape), decay=decay, strength=STRENGTH, c1=C1)
    with torch.no_grad():
        for factor in factors:
            factor += torch.tensor(rng.normal(0, 0.1, factor.shape))
    u, s, v = (factor.detach().numpy().copy() for factor in factors)
    x, bias = rng.normal(size=(5, shape[1])), layer.bias.detach().numpy()
    loss = layer(torch.tensor(x)).square().sum()
    penalty = control.penalty(layer.weight)
    (loss + penalty.double()).backward()

    k = np.arange(1, len(s) + 1)
    target = C1 / k if decay == "polynomial" else C1 * np.exp(-1.0 * k)
    skew_u, skew_v = u.T @ u - np.eye(len(s)), v.T @ v - np.eye(len(s))
    w = u @ np.diag(s) @ v.T
    outputs = x @ w.T + bias
    expected = STRENGTH * ((s - target) ** 2).sum() + RHO * ((skew_u**2).sum() + (skew_v**2).sum())
    assert float(penalty.detach()) == pytest.approx(expected, rel=1e-6)
    assert loss.item() == pytest.approx((outputs**2).sum())
    np.testing.assert_allclose(layer.weight.detach().numpy(), w, rtol=1e-12)
    of_w = 2 * outputs.T @ x
    gradients = [
        of_w @ v * s + 4 * RHO * u @ skew_u,
        np.diag(u.T @ of_w @ v) + 2 * STRENGTH * (s - target),
        of_w.T @ u * s + 4 * RHO * v @ skew_v,
    ]
    for factor, gradient in zip(factors, gradients, strict=True):
        np.testing.assert_allclose(factor.grad.numpy(), gradient, rtol=1e-6, atol=1e-8)


DEGENERATE = {
    "zero": torch.zeros(2, 5), "one zero row": torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]),
    "repeated values": 2 * torch.eye(4), "rank 1": torch.ones(6, 3), "one row": torch.tensor([[3.0, 4.0]]),
    "tiny": 1e-30 * torch.eye(3),
}  # fmt: skip


@pytest.mark.parametrize("weight", DEGENERATE.values(), ids=DEGENERATE)
def test_training_starts_with_the_same_matrix_whatever_it_is(weight):
    layer, control, factors = make_layer(weight)
    torch.testing.assert_close(layer.weight, weight, rtol=1e-6, atol=1e-7)
    left, values, right = (factor.detach() for factor in factors)
    torch.testing.assert_close(values, torch.linalg.svdvals(weight), rtol=1e-5, atol=1e-6)
    for vectors in (left, right):
        torch.testing.assert_close(vectors.T @ vectors, torch.eye(len(values)), rtol=0, atol=1e-6)
    target = values[0] / torch.arange(1, len(values) + 1)  # c1 is sigma_1 at the first call
    loss = control.penalty(layer.weight)
    torch.testing.assert_close(loss, (values - target).square().sum(), rtol=1e-4, atol=1e-6)
    (loss + layer(torch.ones(4, weight.shape[1])).square().sum()).backward()
    assert all(bool(factor.grad.isfinite().all()) for factor in factors)
    if not weight.any():  # a zero singular value has a gradient here
        control.c1 = 1.0
        (gradient,) = torch.autograd.grad(control.penalty(layer.weight), factors[1])
        torch.testing.assert_close(gradient, -2 / torch.arange(1.0, 3.0))


def test_it_can_start_at_the_target_and_under_mixed_precision_is_the_same():
    layer, control, factors = make_layer(torch.randn(3, 6), start_at_target=True, c1=0.01)
    torch.testing.assert_close(factors[1].detach(), 0.01 / torch.arange(1.0, 4.0), rtol=1e-4, atol=1e-8)
    assert float(control.penalty(layer.weight).detach()) < 1e-10
    expected = layer.weight
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer.weight, expected)
        assert float(control.penalty(layer.weight).detach()) < 1e-10


def test_a_run_starts_with_the_same_classifier(small):
    plain = build_parts(*small, "calibration=spectrum_polynomial").module
    factored = build_parts(*small, "calibration=spectrum_polynomial", ON).module
    torch.testing.assert_close(factored.head.weight, plain.head.weight)
    assert torch.equal(factored.head.bias, plain.head.bias)
    groups = factored.configure_optimizers()["optimizer"].param_groups
    trained = {id(parameter) for group in groups for parameter in group["params"]}
    assert {id(parameter) for parameter in factored.head.parameters()} <= trained
    assert any(parameter is factored.head.parametrizations["weight"].original1 for parameter in groups[1]["params"])


@pytest.mark.slow
@pytest.mark.parametrize("more", [[ON], ["task.train_samples=152"]])  # the last step has half the examples
def test_accumulated_gradients_are_the_big_batchs_and_resume_to_the_same_bits(cli, small, tiny, tmp_path, more):
    record = check_accumulation(cli, [*small, "calibration=spectrum_polynomial", *more], tiny, tmp_path)
    assert 0 < record["best"]["isotropy"]["head/ev1"] <= 1
    assert 0 < record["best"]["isotropy"]["head/i1"] < 1
