"""I-STAR: value and gradient against the steps of the authors' code, written anew in float64; degenerate inputs."""

import math

import pytest
import torch
from helpers import value_and_gradient

from isobench.calibration import IStar
from isobench.calibration.batch_statistics import sample_covariance
from isobench.metrics import isoscore

DIM = 8
ZETAS = [0.0, 1e-3, 0.2, 0.5, 0.9, 1.0]


def make_points(count, seed=0, dim=DIM):

    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(dim, dim, generator=generator, dtype=torch.float64) + 2 * torch.eye(dim)
    return torch.randn(count, dim, generator=generator, dtype=torch.float64) @ mix * 3 + 5


def compute_by_singular_values(points, target, zeta):
    """IsoScore* in the authors' steps: singular values scaled to length sqrt(d), their distance from 1, a rescale."""
    d = points.shape[1]
    centred = points - points.mean(0)
    covariance = centred.T @ centred / (len(points) - 1)
    values = torch.linalg.svdvals((1 - zeta) * covariance + zeta * target)
    values = values / values.norm() * math.sqrt(d)
    defect = (values - 1).norm() / math.sqrt(2 * (d - math.sqrt(d)))
    return ((d - defect**2 * (d - math.sqrt(d))) ** 2 / d - 1) / (d - 1)


def make_method(target=None, **settings):
    method = IStar(DIM if target is None else len(target), **settings).double()
    if target is not None:
        method.target_covariance.copy_(target)
    return method


@pytest.mark.parametrize("zeta", ZETAS)
@pytest.mark.parametrize("count", [2, 5, 50])
@pytest.mark.parametrize("strength", [1.0, -5.0])
def test_value_and_gradient_are_those_of_the_singular_values(zeta, count, strength):
    points, target = make_points(count), torch.cov(make_points(500, seed=1).T)
    leaf = points.clone().requires_grad_()
    expected = strength * (1 - compute_by_singular_values(leaf, target, zeta))
    expected.backward()
    loss, gradient = value_and_gradient(make_method(target, strength=strength, zeta=zeta).regularize, points)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(gradient, leaf.grad, rtol=1e-7, atol=1e-10)
    if zeta == 1:
        assert not gradient.any()
    measured = isoscore(points, zeta, target)
    assert strength * (1 - measured) == pytest.approx(expected.item(), abs=1e-10)


@pytest.mark.parametrize("size", [1e-15, 1e-3, 1.0, 1e4, 1e15])
@pytest.mark.parametrize("zeta", [0.0, 0.2])
def test_in_float32_points_of_any_size(size, zeta):
    points = (make_points(40) * size).float()
    target = torch.cov(make_points(500, seed=1).T) * size**2
    method = IStar(DIM, zeta=zeta)
    method.target_covariance.copy_(target)
    loss, gradient = value_and_gradient(method.regularize, points)
    expected, wanted = value_and_gradient(make_method(target, zeta=zeta).regularize, points.double())
    assert (loss.dtype, gradient.dtype) == (torch.float32, torch.float32)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
    torch.testing.assert_close(gradient.double() * size, wanted * size, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("zeta", ZETAS)
@pytest.mark.parametrize("points", [make_points(1), make_points(1).repeat(6, 1), torch.zeros(4, DIM).double()])
def test_points_without_variance_leave_the_targets_score_and_get_no_gradient(points, zeta):
    target = torch.cov(make_points(500, seed=1).T)
    loss, gradient = value_and_gradient(make_method(target, zeta=zeta).regularize, points)
    expected = 0.0 if zeta == 0 else 1 - compute_by_singular_values(make_points(2), target, 1.0).item()
    assert loss.item() == pytest.approx(expected, abs=1e-12)
    assert not gradient.any()


@pytest.mark.parametrize("zeta", ZETAS[:-1])
def test_without_a_target_it_is_the_score_of_the_batch_alone(zeta):
    points = make_points(20)
    loss, gradient = value_and_gradient(make_method(zeta=zeta).regularize, points)
    expected, wanted = value_and_gradient(make_method(zeta=0).regularize, points)
    assert loss.item() == pytest.approx(1 - isoscore(points), abs=1e-12)
    torch.testing.assert_close((loss, gradient), (expected, wanted))
    assert value_and_gradient(make_method(zeta=1).regularize, points)[0] == 0


def test_the_target_is_the_covariance_of_the_whole_sample_however_it_is_cut():
    sample = make_points(100) + 1e6  # plain sums of squares would lose six digits here
    expected = torch.cov(sample.T)
    for sizes in ([100], [1, 99], [30, 30, 40]):
        torch.testing.assert_close(sample_covariance(sample.split(sizes), DIM), expected, rtol=1e-9, atol=1e-9)
    method = IStar(DIM)
    method.prepare(sample.float().split(30))
    torch.testing.assert_close(method.target_covariance, torch.cov(sample.float().double().T).float())
    method.prepare([sample[:1]])
    assert not method.target_covariance.any()
