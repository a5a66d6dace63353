"""Float32 decompositions with refinement, beside float64 ones and beside matrices whose spectrum is known."""

import pytest
import torch

from isobench.calibration import Centering, SpectrumControl, Whitening
from isobench.common import linalg
from isobench.common.refined_eigh import is_float64_slow, refined_eigh


def make_spectra(n):
    """Eigenvalues [n], none below 1e-5 of the largest."""
    shrunk = torch.cat([torch.tensor([0.5, 0.2, 0.1]), torch.logspace(-3, -9, n - 3)])
    return {
        "condition 1e2": torch.logspace(0, -2, n),
        "condition 1e5": torch.logspace(0, -5, n),
        "shrunk by 0.01": 0.99 * shrunk + 0.01 * shrunk.mean(),
        "one direction": 0.99 * torch.cat([torch.ones(1), torch.zeros(n - 1)]) + 0.01 / n,
        "repeated": torch.cat([torch.ones(n // 2), torch.full((n - n // 2,), 0.1)]),
        "identity": torch.ones(n),
    }


def make_matrix(values, scale=7.3):
    """A matrix with these eigenvalues in a random basis, and the basis."""
    generator = torch.Generator().manual_seed(len(values))
    basis = torch.linalg.qr(torch.randn(len(values), len(values), dtype=torch.float64, generator=generator))[0]
    matrix = scale * (basis * values.double()) @ basis.T
    return (matrix + matrix.T) / 2, basis


def power(values, vectors, exponent):
    return (vectors * values.clamp_min(1e-300) ** exponent) @ vectors.T


def relative_error(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("n", [96, pytest.param(768, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", make_spectra(96))
def test_functions_of_the_matrix_are_those_of_float64(n, name):
    expected = make_spectra(n)[name].double()
    matrix, basis = make_matrix(expected)
    values, vectors = refined_eigh(matrix)
    assert (values.diff() >= 0).all()
    torch.testing.assert_close(values, 7.3 * expected.sort().values, rtol=1e-5, atol=0)
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(n, dtype=torch.float64), rtol=0, atol=1e-9)
    for exponent in (-0.5, 0.5, 1):
        assert relative_error(power(values, vectors, exponent), power(7.3 * expected, basis, exponent)) < 1e-5


def test_plain_float32_is_not_that_exact():
    """Without refinement the inverse root is off by 1e-3 or more, so the test above can fail."""
    matrix, basis = make_matrix(torch.logspace(0, -5, 96).double())
    values, vectors = (x.double() for x in torch.linalg.eigh(matrix.float()))
    assert relative_error(power(values, vectors, -0.5), power(7.3 * torch.logspace(0, -5, 96), basis, -0.5)) > 1e-3


@pytest.mark.parametrize("spectrum", [torch.logspace(0, -12, 96), torch.cat([torch.ones(8), torch.zeros(88)])])
def test_eigenvalues_too_small_to_be_exact_stay_small(spectrum):
    """Below 1e-5 of the largest, only the error beside the largest is small, and the vectors are orthonormal."""
    matrix, _ = make_matrix(spectrum)
    values, vectors = refined_eigh(matrix)
    assert (values - 7.3 * spectrum.sort().values).abs().max() < 1e-6 * 7.3
    assert (vectors.T @ vectors - torch.eye(96)).abs().max() < 1e-9
    assert (matrix @ vectors - vectors * values).norm() < 1e-5 * matrix.norm()


def test_zero_and_non_finite_matrices_are_kept(slow_float64):
    values, vectors = linalg.eigh(torch.zeros(80, 80, dtype=torch.float64))
    assert (values == 0).all()
    assert torch.allclose(vectors.T @ vectors, torch.eye(80, dtype=torch.float64))
    assert linalg.eigh(torch.full((80, 80), float("nan"), dtype=torch.float64))[0].isnan().all()


@pytest.fixture
def slow_float64(monkeypatch):
    """Treat this CPU as a device with slow float64."""
    monkeypatch.setattr(linalg, "is_float64_slow", lambda device: True)


def make_embeddings(n=400, d=96):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, d, generator=generator) * torch.logspace(0, -3, d) + 1


def make_method(kind):
    return {
        "zca": lambda: Whitening(96),
        "pca": lambda: Whitening(96, form="pca", k=8),
        "top": lambda: Centering(96, "all_but_the_top", D=3),
    }[kind]()


@pytest.mark.parametrize("kind", ["zca", "pca", "top"])
def test_methods_give_the_same_embeddings(kind, monkeypatch):
    h, precise, refined = make_embeddings(), make_method(kind), make_method(kind)
    expected = precise(h)
    monkeypatch.setattr(linalg, "is_float64_slow", lambda device: True)
    found = refined(h)
    if kind == "pca":  # an eigenvector's sign is arbitrary
        found = found * (found * expected).sum(0).sign()
    assert relative_error(found, expected) < 1e-5


@pytest.mark.parametrize("decay", ["polynomial", "exponential"])
def test_spectrum_control_gives_the_same_penalty_and_gradient(decay, monkeypatch):
    """For singular values down to 1/300 of the largest: their squares are what is decomposed."""
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(300, 96, generator=generator) * torch.logspace(0, -2, 96)

    def compute():
        weight = matrix.clone().requires_grad_()
        penalty = SpectrumControl(96, decay).penalty(weight)
        penalty.backward()
        return penalty.detach(), weight.grad

    expected = compute()
    monkeypatch.setattr(linalg, "is_float64_slow", lambda device: True)
    for found, correct in zip(compute(), expected, strict=True):
        assert relative_error(found, correct) < 1e-5


def test_desktop_cards_are_slow_and_data_centre_ones_are_not(monkeypatch):
    device = torch.device("cuda", 0)
    for capability, slow in {(8, 6): True, (8, 9): True, (7, 5): True, (8, 0): False, (9, 0): False}.items():
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, found=capability: found)
        assert is_float64_slow(device) is slow
    assert not is_float64_slow(torch.device("cpu"))
