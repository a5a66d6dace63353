"""Every method, configured as in conf/, against its equations in equations.py step by step, on all sorts of input."""

import functools
import math

import equations
import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from isobench.common.packages import conf_dir
from isobench.training.instantiate import instantiate_calibration

DIM, STEPS, LR = 8, 5, 0.05
TRAINING = [True] * STEPS + [False]

# id: conf/calibration/*.yaml, changes to it; the equations, with the papers' numbers (or those that conf/ explains)
PAPER, RELEASED = (0.95, 0.1, 0.5), (0.05, 1e-3, 0.5)  # alpha, epsilon, beta
GLOW = {"steps": 2, "width": 3, "lr": LR}
AFFINE = GLOW | {"levels": 2, "steps": 1, "coupling": "affine", "permutation": "learned"}
UNCENTRED = {"D": 2, "centered_projection": False}
SOFT, KEPT = {"epsilon": 0.3}, {"epsilon": 20.0, "keep_norm": True}
HALF, CURVED = {"strength": 0.5}, {"strength": 0.5, "c1": 2.0, "gamma": -0.5}
FASTER = {"strength": 0.5, "c1": 2.0, "c2": 0.3, "gamma": 1.2}
METHODS = {
    "isobn_paper": ("isobn_paper", {}, equations.isobn, (*PAPER, "sum", "variance")),
    "isobn_released": ("isobn_released", {}, equations.isobn, (*RELEASED, "mean", "released")),
    "isobn_printed": ("isobn_paper", {"rescale": "printed"}, equations.isobn, (*PAPER, "sum", "printed")),
    "isobn_mean": ("isobn_paper", {"gamma": "mean"}, equations.isobn, (*PAPER, "mean", "variance")),
    "isobn_original": ("isobn_original", {}, equations.isobn_original, (0.95,)),
    "batch_norm": ("batch_norm", {}, equations.batch_norm, (0.1, 1e-5)),
    "whitening_zca": ("whitening_zca", {}, equations.whitening, ("zca", DIM, 0.1, 0.01)),
    "whitening_pca": ("whitening_pca", {"k": 2}, equations.whitening, ("pca", 2, 0.1, 0.01)),
    "whitening_zca_soft": ("whitening_zca", SOFT, equations.whitening, ("zca", DIM, 0.1, 0.01, 0.3)),
    "whitening_pca_soft": ("whitening_pca", SOFT | {"k": 2}, equations.whitening, ("pca", 2, 0.1, 0.01, 0.3)),
    "whitening_zca_kept": ("whitening_zca", KEPT, equations.whitening, ("zca", DIM, 0.1, 0.01, 20, True)),
    "whitening_pca_kept": ("whitening_pca", KEPT | {"k": 2}, equations.whitening, ("pca", 2, 0.1, 0.01, 20, True)),
    "center": ("center", {}, equations.centring, ("center", 0, True, 0.1)),
    "center_scaled": ("center_scaled", {}, equations.centring, ("center_scaled", 0, True, 0.1)),
    "all_but_the_top": ("all_but_the_top", {"D": 2}, equations.centring, ("all_but_the_top", 2, True, 0.1)),
    "all_but_original": ("all_but_the_top", UNCENTRED, equations.centring, ("all_but_the_top", 2, False, 0.1)),
    "fixed_norm_z": ("fixed_norm_z", {}, equations.fixed_norm, ("z", 1e-5)),
    "fixed_norm_minmax": ("fixed_norm_minmax", {}, equations.fixed_norm, ("minmax", 1e-5)),
    "fixed_norm_l2": ("fixed_norm_l2", {}, equations.fixed_norm, ("l2", 1e-5)),
    "gradient_norm_half": ("gradient_norm", {"alpha": 0.5}, equations.gradient_norm, (0.5, 1e-6)),
    "gradient_norm_one": ("gradient_norm", {}, equations.gradient_norm, (1.0, 1e-6)),
    "cosine": ("cosine", {"strength": 0.7}, equations.cosine, (0.7,)),
    "spectrum_pol": ("spectrum_polynomial", HALF, equations.spectrum, ("polynomial", 0.5, None, 1, -1)),
    "spectrum_pol_c1": ("spectrum_polynomial", CURVED, equations.spectrum, ("polynomial", 0.5, 2, 1, -0.5)),
    "spectrum_exp": ("spectrum_exponential", HALF, equations.spectrum, ("exponential", 0.5, None, 1, 1)),
    "spectrum_exp_c1": ("spectrum_exponential", FASTER, equations.spectrum, ("exponential", 0.5, 2, 0.3, 1.2)),
    "flow_additive_reverse": ("flow", GLOW, equations.flow, (3, 2, False, False, LR)),
    "flow_affine_learned": ("flow", AFFINE, equations.flow, (2, 1, True, True, LR)),
}

FLOAT32 = ("isobn", "whitening", "center", "all_but")  # whose statistics stay float32

SIZES = {"huge-1e4": 1e4, "huge-1e15": 1e15, "tiny-1e-12": 1e-12}
KINDS = ["random", "constant-feature", "fewer-rows", "one-row", "duplicated-rows", "identical-rows", "zero-rows"]
KINDS += ["all-zero", *SIZES, "uneven-rows", "mixed"]


def rows(kind, step, rng):
    if kind == "mixed":
        kind = ["random", "one-row", "constant-feature", "all-zero", "fewer-rows"][step]
    count = {"fewer-rows": 3, "one-row": 1}.get(kind, 12)
    mix = (np.eye(DIM) + 0.4 * rng.normal(size=(DIM, DIM))) * np.linspace(2, 0.3, DIM)
    x = (rng.normal(size=(count, DIM)) @ mix + rng.normal(size=DIM)) * SIZES.get(kind, 1)
    if kind == "constant-feature":
        x[:, [2, 5]] = 0.1, -3
    elif kind == "duplicated-rows":
        x = x[rng.integers(4, size=count)]
    elif kind == "identical-rows":
        x[:] = x[0]
    elif kind == "zero-rows":
        x[::3] = 0
    elif kind == "all-zero":
        x[:] = 0
    elif kind == "uneven-rows":
        x *= np.where(np.arange(count) % 2, 1e15, 1e-12)[:, None]
    return exact(x)


def exact(x):
    return np.asarray(x).astype(np.float32).astype(float)


@functools.cache
def run_of(name, kind):
    rng = np.random.default_rng(sum(map(ord, kind)))
    inputs = [*(rows(kind, step, rng) for step in range(STEPS)), exact(rows("random", 0, rng) * SIZES.get(kind, 1))]
    penalty, width = name.startswith(("cosine", "spectrum")), 2 if name.startswith("whitening_pca") else DIM
    upstream = [exact(rng.normal(size=() if penalty else (len(x), width))) for x in inputs]
    if name.startswith("gradient_norm"):  # what degenerates here is the gradient
        upstream[:-1] = [rows(kind, step, rng) for step in range(STEPS)]
    return list(zip(inputs, upstream, TRAINING, strict=True))


@functools.cache
def by_equations(name, kind):
    _, _, equations, constants = METHODS[name]
    if name.startswith("flow"):
        constants = (numbers(package(name, torch.float64)), *constants)
    return list(equations(run_of(name, kind), *constants))


def package(name, dtype):
    config, changes, *_ = METHODS[name]
    torch.manual_seed(0)
    settings = OmegaConf.to_container(OmegaConf.load(f"{conf_dir()}/calibration/{config}.yaml"))
    method = instantiate_calibration(settings | changes, DIM)
    return method if name.startswith(FLOAT32) else method.to(dtype)


def numbers(method):
    return {key: value.double().numpy().copy() for key, value in method.state_dict().items()}


def by_package(name, kind, dtype):
    run, method = run_of(name, kind), package(name, dtype)
    method.prepare(torch.tensor(x) for x, _, training in run if training)
    groups = method.parameter_groups()
    optimizer = torch.optim.SGD(groups, lr=math.nan) if groups else None  # the groups have rates of their own
    for x, g, training in run:
        method.train(training)
        leaf = torch.tensor(x, dtype=dtype, requires_grad=True)
        out = method(leaf) if g.ndim else method.penalty(leaf)
        sign = equations.signs(method.transform.numpy()) if name.startswith("whitening_pca") else 1
        out.backward(torch.tensor(g * sign, dtype=out.dtype))
        extra = {"transform": method.transform.numpy() * sign} if name.startswith("whitening") else {}
        if name.startswith("all_but"):  # a basis of the directions is anybody's choice
            extra["top"] = method.top.double().numpy() @ method.top.double().numpy().T
        if optimizer:
            loss = method.objective(leaf.detach())
            extra["loss"] = loss.item()
            if training:
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        assert out.dtype == (torch.float32 if name.startswith("spectrum") else dtype)
        yield out.detach().double().numpy() * sign, leaf.grad.double().numpy(), numbers(method) | extra


def tolerance(name, dtype, part):
    """Float64's where all is float64, else some roundings of float32's 6e-8, and what they are multiplied by."""
    if name.startswith(("whitening", "all_but")):
        return 2e-5  # float32 statistics, whose roundings the shrinkage multiplies by 100 at most
    if name == "isobn_original":
        return 4e-6  # no epsilon, beta = 1: theta has every rounding of 1 - 0.95 in the averages, 2.4e-7 a step
    if name.startswith(("isobn", "center")) or (name.startswith("spectrum") and part == "output"):
        return 1e-6  # float32 statistics; a value handed on as float32
    if dtype == torch.float64:
        return 1e-11
    if name == "batch_norm":
        return 5e-4 if part == "output" else 2e-6  # a constant feature's roundings are over sqrt(eps)
    return 2e-5 if name.startswith("flow") else 2e-6


def compare(name, dtype, part, when, x, found, expected):
    """Relative to every number where a method only scales, else to the largest one, or to the part's natural unit."""
    unit = np.abs(expected).max(initial=0.0)
    if name == "isobn_original" and part == "output":  # what float32's rounding of the mean is multiplied by
        unit = np.abs(x).max()
    elif part in ("output", "gradient") and name.startswith(("isobn", "gradient_norm")):
        unit = 0.0
    elif name == "cosine" and part == "gradient":  # has the unit of 1 / row, row by row
        lengths = np.linalg.norm(x, axis=1, keepdims=True)
        found, expected, unit = found * lengths, expected * lengths, 1.0
    elif name == "cosine" or (name == "batch_norm" and part == "output") or name.startswith("flow"):
        unit = max(unit, 1.0)
    elif name.startswith(("center", "all_but")) and part == "output":
        unit = max(unit, np.abs(x).max())  # what is left where all that is taken away is the row
    elif name.startswith("spectrum") and part in ("output", "gradient"):
        unit = max(unit, np.linalg.norm(x) ** (2 if part == "output" else 1))
    tol = tolerance(name, dtype, part)
    np.testing.assert_allclose(found, expected, rtol=tol, atol=tol * unit, err_msg=f"{part}, {when}")


def cases():
    for name in METHODS:
        for kind in KINDS:
            for dtype in (torch.float64, torch.float32):
                repeated = name.startswith("flow") or dtype == torch.float32
                slow = [pytest.mark.slow] if repeated and kind != "random" else []
                yield pytest.param(name, kind, dtype, marks=slow, id=f"{name}-{kind}-{str(dtype)[6:]}")


@pytest.mark.parametrize(("name", "kind", "dtype"), cases())
def test_it_is_its_equations(name, kind, dtype):
    steps = zip(run_of(name, kind), by_equations(name, kind), by_package(name, kind, dtype), strict=True)
    for number, ((x, g, _), (*expected, state), (*found, found_state)) in enumerate(steps):
        assert found_state.keys() == state.keys()
        if name == "isobn_original":
            x = x * expected[1] / g  # scaled as the output is
        parts = {"output": (found[0], expected[0]), "gradient": (found[1], expected[1])}
        for part, pair in (parts | {key: (found_state[key], state[key]) for key in state}).items():
            compare(name, dtype, part, "evaluation" if number == STEPS else f"step {number}", x, *pair)
