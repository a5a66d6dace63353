"""Optimisers: Coupled Adam against an independent float64 derivation, others and schedules beside their originals."""

import math
from copy import deepcopy
from functools import partial

import numpy as np
import pytest
import torch
import transformers
from helpers import make_config
from torch import nn

from isobench.config.schema import Optimization
from isobench.training.fine_tuned import scale_learning_rate
from isobench.training.optimizers import CoupledAdam, Muon, make_optimizer

LR, BETAS, EPS, DECAY = 0.01, (0.9, 0.99), 1e-8, 0.1


def derive(start, gradients, coupled):
    """Adam with decoupled weight decay as its paper has it, by sums over all steps; v averaged over rows."""
    w = start.copy()
    for t in range(1, len(gradients) + 1):
        ages = np.arange(t)[::-1]
        past = np.array(gradients[:t])
        m = np.tensordot((1 - BETAS[0]) * BETAS[0] ** ages, past, 1) / (1 - BETAS[0] ** t)
        v = np.tensordot((1 - BETAS[1]) * BETAS[1] ** ages, past**2, 1) / (1 - BETAS[1] ** t)
        if coupled:
            v = np.broadcast_to(v.mean(0), v.shape)
        w = w - LR * DECAY * w - LR * m / (np.sqrt(v) + EPS)
    return w


@pytest.mark.parametrize("rows", [1, 7])
def test_coupled_adam_is_its_papers(rows):
    rng = np.random.default_rng(0)
    starts = [rng.normal(size=(rows, 4)), rng.normal(size=(5, 4))]
    gradients = [[rng.normal(0, np.exp(rng.normal(size=(len(w), 1))), w.shape) for _ in range(9)] for w in starts]
    gradients[0][3][-1] = 0  # a token that a batch lacks
    coupled, free = (nn.Parameter(torch.tensor(w)) for w in starts)
    optimizer = CoupledAdam([{"params": [coupled, free], "weight_decay": DECAY}], LR, [coupled], betas=BETAS, eps=EPS)
    for step in zip(*gradients, strict=True):
        coupled.grad, free.grad = map(torch.tensor, step)
        optimizer.step()
        assert coupled.grad is not None  # whoever logs gradients after the step still finds it
    np.testing.assert_allclose(coupled.detach().numpy(), derive(starts[0], gradients[0], True), rtol=1e-10)
    np.testing.assert_allclose(free.detach().numpy(), derive(starts[1], gradients[1], False), rtol=1e-10)
    if rows == 1:  # the mean of one row is itself
        np.testing.assert_allclose(coupled.detach().numpy(), derive(starts[0], gradients[0], False), rtol=1e-10)


def test_coupled_adam_goes_on_from_its_state():
    rng = np.random.default_rng(0)
    gradients = [torch.tensor(rng.normal(size=(6, 3))) for _ in range(8)]

    def walk(start, steps, state=None):
        w = nn.Parameter(start.clone())
        optimizer = CoupledAdam([w], LR, [w])
        if state:
            optimizer.load_state_dict(deepcopy(state))
        for gradient in steps:
            w.grad = gradient.clone()
            optimizer.step()
        return w.detach(), optimizer.state_dict()

    start = torch.ones(6, 3, dtype=torch.float64)
    half, state = walk(start, gradients[:4])
    assert torch.equal(walk(half, gradients[4:], state)[0], walk(start, gradients)[0])


@pytest.mark.parametrize("name", ["coupled_adam", "sgd", "adafactor", "muon"])
def test_a_configs_optimiser_steps(name):
    o = make_config(f"optimizer={name}", "optimization.lr=0.01").optimization
    matrix, bias = nn.Parameter(torch.ones(5, 3)), nn.Parameter(torch.ones(3))  # Muon takes the matrix too
    groups = [{"params": [matrix], "weight_decay": 0.1}, {"params": [bias], "weight_decay": 0.0}]
    optimizer = make_optimizer(o, groups, [matrix], [matrix], fused=True)
    matrix.grad, bias.grad = torch.ones(5, 3), torch.ones(3)
    optimizer.step()
    assert (matrix < 1).all()
    assert (bias < 1).all()
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
    assert {group["lr"] for group in optimizer.param_groups} == {0.01}


def test_muon_is_torchs_for_matrices_and_adamw_for_the_rest():
    rng = np.random.default_rng(0)
    starts = [rng.normal(size=(6, 4)), rng.normal(size=(9, 4)), rng.normal(size=4)]
    gradients = [[torch.tensor(rng.normal(size=w.shape)) for w in starts] for _ in range(7)]

    def walk(steps, ours, state=None):
        matrix, embedding, vector = (nn.Parameter(torch.tensor(w)) for w in ours)
        optimizer = Muon([{"params": [matrix, embedding, vector], "weight_decay": DECAY}], LR, [matrix])
        if state:
            optimizer.load_state_dict(state)
        for step in steps:
            matrix.grad, embedding.grad, vector.grad = (g.clone() for g in step)
            optimizer.step()
        return [p.detach().numpy() for p in (matrix, embedding, vector)], deepcopy(optimizer.state_dict())

    found, _ = walk(gradients, starts)
    matrix, *rest = (nn.Parameter(torch.tensor(w)) for w in starts)
    kinds = [
        torch.optim.Muon([matrix], LR, DECAY, 0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, LR, weight_decay=DECAY),
    ]
    for step in gradients:
        for p, gradient in zip((matrix, *rest), step, strict=True):
            p.grad = gradient.clone()
        for optimizer in kinds:
            optimizer.step()
    for ours, theirs in zip(found, (matrix, *rest), strict=True):
        np.testing.assert_array_equal(ours, theirs.detach().numpy())
    half, state = walk(gradients[:3], starts)
    again, _ = walk(gradients[3:], half, state)
    for whole, resumed in zip(found, again, strict=True):
        np.testing.assert_array_equal(whole, resumed)


def collect_rates(o, make, resume_after=None):
    states, rates = [], []
    for step in range(43):
        if step in (0, resume_after):
            optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], lr=o.lr)
            scheduler = make(o, optimizer)
            for part, state in zip((optimizer, scheduler), states, strict=False):
                part.load_state_dict(state)
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
        states = optimizer.state_dict(), scheduler.state_dict()
    return rates


@pytest.mark.parametrize("resume_after", [None, 3, 17])
@pytest.mark.parametrize(("lr", "warmup"), [(1e-5, 0.0), (3e-4, 0.06), (3e-4, 0.33)])
@pytest.mark.parametrize("schedule", ["linear", "constant", "polynomial"])
def test_schedules_are_those_of_transformers(schedule, lr, warmup, resume_after):
    """To the bit, but for the polynomial's rounding; also after resuming, and beyond the last of 40 steps."""

    def make_theirs(o, optimizer):
        steps = (optimizer, math.ceil(warmup * 40))
        if schedule == "constant":
            return transformers.get_constant_schedule_with_warmup(*steps)
        if schedule == "linear":
            return transformers.get_linear_schedule_with_warmup(*steps, 40)
        return transformers.get_polynomial_decay_schedule_with_warmup(*steps, 40, lr_end=1e-7)

    def make_ours(o, optimizer):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, partial(scale_learning_rate, o, 40))

    o = Optimization(schedule=schedule, lr=lr, warmup=warmup)
    ours, theirs = collect_rates(o, make_ours, resume_after), collect_rates(o, make_theirs)
    assert ours == (theirs if schedule != "polynomial" else pytest.approx(theirs, rel=1e-12, abs=0))
