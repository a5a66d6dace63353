"""The learning-rate schedule beside those of transformers."""

import math
from functools import partial

import pytest
import torch
import transformers
from torch import nn

from isobench.config.schema import Optimization
from isobench.training.fine_tuned import scale_learning_rate

TOTAL_STEPS = 40


def make_scheduler(o, optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, partial(scale_learning_rate, o, TOTAL_STEPS))


def make_transformers_scheduler(o, optimizer):
    warmup_steps = math.ceil(o.warmup * TOTAL_STEPS)
    if o.schedule == "constant":
        return transformers.get_constant_schedule_with_warmup(optimizer, warmup_steps)
    if o.schedule == "linear":
        return transformers.get_linear_schedule_with_warmup(optimizer, warmup_steps, TOTAL_STEPS)
    return transformers.get_polynomial_decay_schedule_with_warmup(optimizer, warmup_steps, TOTAL_STEPS, lr_end=1e-7)


def collect_rates(o, make, resume_after=None):
    states, rates = [], []
    for step in range(TOTAL_STEPS + 3):
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
@pytest.mark.parametrize("warmup", [0.0, 0.06, 0.33])
@pytest.mark.parametrize("lr", [1e-5, 3e-4])
@pytest.mark.parametrize("schedule", ["linear", "constant"])
def test_linear_and_constant_have_the_bits_of_transformers(schedule, lr, warmup, resume_after):
    o = Optimization(schedule=schedule, lr=lr, warmup=warmup)
    assert collect_rates(o, make_scheduler, resume_after) == collect_rates(o, make_transformers_scheduler)


def test_polynomial_differs_from_transformers_by_rounding_alone():
    o = Optimization(schedule="polynomial", lr=3e-4, warmup=0.1)
    ours, theirs = collect_rates(o, make_scheduler, 17), collect_rates(o, make_transformers_scheduler)
    assert ours == collect_rates(o, make_scheduler)
    assert ours == pytest.approx(theirs, rel=1e-12, abs=0)
