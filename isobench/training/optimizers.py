"""Optimisers other than AdamW: torch's, and two that treat some matrices in another way than AdamW does."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from isobench.common.errors import doing, refuse
from isobench.config.bounds import convert_value, read_hints
from isobench.config.schema import Optimization


class _AdamWBut(torch.optim.AdamW):
    """AdamW but for some matrices, which ``update`` treats in another way."""

    def __init__(self, params: Any, lr: float, taken: Sequence[Tensor] = (), **settings: Any) -> None:
        super().__init__(params, lr, **settings)
        self.taken = {id(matrix) for matrix in taken}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradients: list[tuple[Tensor, Tensor]] = []
        for group in self.param_groups:
            matrices = [p for p in group["params"] if id(p) in self.taken and p.grad is not None]
            if matrices:
                self.update(group, matrices)
            for matrix in matrices:
                gradients.append((matrix, matrix.grad))
                matrix.grad = None  # AdamW's own step leaves it out
        super().step()
        for matrix, gradient in gradients:
            matrix.grad = gradient
        return loss

    def update(self, group: dict[str, Any], matrices: list[Tensor]) -> None:
        """Update the matrices of a group, which have gradients."""
        raise NotImplementedError


class CoupledAdam(_AdamWBut):
    """AdamW whose second moment is one for all rows of some matrices (Stollenwerk & Stollenwerk 2025).

    With g_i the gradient of row i, v_i its second moment and V rows, a step of such a matrix divides by
    sqrt(v) + eps, where v = (1 / V) sum_i v_i / (1 - beta2^t). All else is AdamW. Adam itself divides each row by its
    own second moment, so that rows of rare tokens, which mostly have the same small gradient, drift together.

    Args:
        params, lr, betas, eps, weight_decay: AdamW's.
        taken: the matrices [V, d], such as the embeddings of a vocabulary.
    """

    def update(self, group: dict[str, Any], matrices: list[Tensor]) -> None:
        """Update coupled matrices. Of the second moments only their mean over rows is kept, [1, d]."""
        beta1, beta2 = group["betas"]
        for matrix in matrices:
            state, gradient = self.state[matrix], matrix.grad
            assert gradient is not None
            if not state:
                state["step"] = torch.tensor(0.0)
                state["exp_avg"] = torch.zeros_like(matrix)
                state["exp_avg_sq"] = torch.zeros_like(matrix[:1])
            state["step"] += 1
            step = state["step"].item()
            matrix.mul_(1 - group["lr"] * group["weight_decay"])
            state["exp_avg"].lerp_(gradient, 1 - beta1)
            state["exp_avg_sq"].lerp_(gradient.square().mean(0, keepdim=True), 1 - beta2)
            divisor = (state["exp_avg_sq"] / (1 - beta2**step)).sqrt() + group["eps"]
            matrix.sub_(state["exp_avg"] / divisor, alpha=group["lr"] / (1 - beta1**step))


class Muon(_AdamWBut):
    """torch's Muon (Jordan et al. 2024) for matrices inside a model, AdamW for its vectors and embeddings.

    Steps of a matrix have the size of AdamW's (Moonshot's rule), so that both take one learning rate.

    Args:
        params, lr, betas, eps, weight_decay: AdamW's.
        taken: the matrices [m, n] inside of the model.
        momentum, nesterov: Muon's.
    """

    def __init__(
        self, params: Any, lr: float, taken: Sequence[Tensor] = (), momentum: float = 0.95, nesterov: bool = True,
        **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__(params, lr, taken, **settings)
        options = {"momentum": momentum, "nesterov": nesterov, "adjust_lr_fn": "match_rms_adamw"}
        self.muon = torch.optim.Muon(list(taken), lr, **options)  # type: ignore[arg-type]

    def update(self, group: dict[str, Any], matrices: list[Tensor]) -> None:
        own = {"params": matrices, "lr": group["lr"], "weight_decay": group["weight_decay"]}
        self.muon.state, self.muon.param_groups = self.state, [self.muon.defaults | own]
        self.muon.step()
        for matrix in matrices:
            self.state[matrix].setdefault("step", torch.tensor(0.0))  # AdamW looks for it when it is loaded


OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adafactor": torch.optim.Adafactor,
    "coupled_adam": CoupledAdam,
    "muon": Muon,
    "sgd": torch.optim.SGD,
}
# Parameters that other settings, or none, decide.
NOT_SET = ("params", "lr", "weight_decay", "taken", "fused", "differentiable", "settings", "return")
OF_ADAMW = {"betas": tuple[float, float], "amsgrad": bool}  # what a kind of AdamW takes besides its own


def make_optimizer(
    o: Optimization,
    groups: list[dict[str, Any]],
    vocabulary: Sequence[Tensor],
    hidden: Sequence[Tensor],
    fused: bool,
) -> torch.optim.Optimizer:
    """Make the optimiser of a config for groups of parameters, which bring their own weight decay.

    ``vocabulary``: the matrices that Coupled Adam couples. ``hidden``: those that Muon takes. ``fused``: take torch's
    faster AdamW, with the same results.
    """
    if o.optimizer is None:
        return torch.optim.AdamW(groups, lr=o.lr, eps=o.eps, fused=fused)
    kind, settings = _read_optimizer(o.optimizer)
    refuse((kind is Muon and not hidden, "optimizer=muon: no matrix inside the model is trained"))
    if kind in (CoupledAdam, Muon):
        settings |= {"taken": vocabulary if kind is CoupledAdam else hidden, "eps": o.eps}
    with doing(f"optimizer={o.optimizer['name']}"):
        return kind(groups, lr=o.lr, **settings)  # type: ignore[call-arg]


def check_optimizer(o: Optimization) -> None:
    """Raise UserError for an unknown optimiser, or a setting or value that it does not take."""
    matrix = torch.nn.Parameter(torch.zeros(1, 1))
    make_optimizer(o, [{"params": [matrix]}], [matrix], [matrix], fused=False)


def _read_optimizer(settings: dict[str, Any]) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """Return the class and the arguments that ``optimization.optimizer`` names; UserError if they don't exist."""
    with doing("optimizer"):
        kind = OPTIMIZERS[name := settings["name"]]
    hints = read_hints(kind.__init__) | (OF_ADAMW if issubclass(kind, _AdamWBut) else {})
    known = sorted(hints.keys() - set(NOT_SET))
    given = {}
    for key in settings.keys() - {"name"}:
        refuse((key not in known, f"optimizer={name} has no setting {key}, only {', '.join(known)}"))
        given[key] = convert_value(f"optimization.optimizer.{key}", settings[key], hints[key])
    return kind, given
