"""Optimisers other than AdamW: torch's, and Coupled Adam."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from isobench.common.errors import UserError, suggest_nearest
from isobench.config.schema import Optimization


class CoupledAdam(torch.optim.AdamW):
    """AdamW whose second moment is one for all rows of some matrices (Stollenwerk & Stollenwerk 2025).

    With g_i the gradient of row i, v_i its second moment and V rows, a step of such a matrix divides by
    sqrt(v) + eps, where v = (1 / V) sum_i v_i / (1 - beta2^t). All else is AdamW. Adam itself divides each row by its
    own second moment, so that rows of rare tokens, which mostly have the same small gradient, drift together.

    Args:
        params, lr, betas, eps, weight_decay: AdamW's.
        coupled: the matrices [V, d], such as the embeddings of a vocabulary.
    """

    def __init__(self, params: Any, lr: float, coupled: Sequence[Tensor] = (), **settings: Any) -> None:
        super().__init__(params, lr, **settings)
        self.coupled = {id(matrix) for matrix in coupled}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        taken = []
        for group in self.param_groups:
            for matrix in group["params"]:
                if id(matrix) in self.coupled and matrix.grad is not None:
                    self._update(matrix, group)
                    taken.append((matrix, matrix.grad))
                    matrix.grad = None  # AdamW's own step leaves it out
        super().step()
        for matrix, gradient in taken:
            matrix.grad = gradient
        return loss

    def _update(self, matrix: Tensor, group: dict[str, Any]) -> None:
        """Update a coupled matrix; the mean of the rows' second moments is all that is kept of them, [1, d]."""
        state, gradient = self.state[matrix], matrix.grad
        assert gradient is not None
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(matrix)
            state["exp_avg_sq"] = torch.zeros_like(matrix[:1])
        state["step"] += 1
        step, (beta1, beta2) = state["step"].item(), group["betas"]
        matrix.mul_(1 - group["lr"] * group["weight_decay"])
        state["exp_avg"].lerp_(gradient, 1 - beta1)
        state["exp_avg_sq"].lerp_(gradient.square().mean(0, keepdim=True), 1 - beta2)
        divisor = (state["exp_avg_sq"] / (1 - beta2**step)).sqrt() + group["eps"]
        matrix.sub_(state["exp_avg"] / divisor, alpha=group["lr"] / (1 - beta1**step))


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adafactor": torch.optim.Adafactor,
    "coupled_adam": CoupledAdam,
    "sgd": torch.optim.SGD,
}


def make_optimizer(
    o: Optimization, groups: list[dict[str, Any]], vocabulary: Sequence[Tensor], fused: bool
) -> torch.optim.Optimizer:
    """Make the optimiser of a config for groups of parameters, which bring their own weight decay.

    ``vocabulary``: the matrices that Coupled Adam couples. ``fused``: torch's faster AdamW, with the same results.
    """
    if o.optimizer is None:
        return torch.optim.AdamW(groups, lr=o.lr, eps=o.eps, fused=fused)
    check_optimizer(o)
    settings = {key: value for key, value in o.optimizer.items() if key != "name"}
    if o.optimizer["name"] == "coupled_adam":
        settings |= {"coupled": vocabulary, "eps": o.eps}
    try:
        return OPTIMIZERS[o.optimizer["name"]](groups, lr=o.lr, **settings)
    except (TypeError, ValueError) as error:
        raise UserError(f"optimizer={o.optimizer['name']}: {error}") from error


def check_optimizer(o: Optimization) -> None:
    """Raise UserError for an optimiser that does not exist, or a setting that it does not take."""
    if o.optimizer is None:
        return
    name = str(o.optimizer.get("name"))
    if name not in OPTIMIZERS:
        raise UserError(f"there is no optimizer={name}: {suggest_nearest(name, ['adamw', *OPTIMIZERS])}")
    kind = torch.optim.AdamW if name == "coupled_adam" else OPTIMIZERS[name]
    known = inspect.signature(kind).parameters.keys() - {"params", "lr", "weight_decay", "eps", "fused"}
    if name == "adafactor":
        known |= {"eps"}
    for key in o.optimizer.keys() - {"name"} - known:
        raise UserError(f"optimizer={name} has no setting {key}: {suggest_nearest(key, sorted(known))}")
