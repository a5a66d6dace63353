"""A normalising flow between encoder and head: Glow, as in BERT-flow (Li et al. 2020), trained jointly."""

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import functional_call

from isobench.calibration.base import Calibration, require_choice, require_number, require_whole_number
from isobench.calibration.glow import Glow


class Flow(Calibration):
    """Map embeddings h to z = f(h), with f invertible and trained to make z Gaussian; the head gets z.

    The task's gradient passes through the flow to the encoder and does not change the flow's parameters. The flow's
    own loss, in bits per dimension, trains them and nothing else, at its own learning rate. The two losses and the
    rate of 1e-3 are those of BERT-flow's public code (Li et al. 2020). "On Isotropy Calibration of Transformers"
    (Sec. 3) uses the flow and does not say how it is trained. All of it is float32 or better.

    Args:
        dim: width d of the embeddings, a multiple of 2^levels.
        levels: number of levels of the Glow.
        steps: number of flow steps in each level.
        width: hidden width of the coupling networks.
        coupling: ``additive``, or ``affine``, which also scales.
        permutation: ``reverse`` the dimensions before each coupling, or mix them by a ``learned`` matrix.
        lr: learning rate of the flow's parameters, above 0.
    """

    def __init__(
        self,
        dim: int,
        levels: int = 3,
        steps: int = 3,
        width: int = 32,
        coupling: Literal["additive", "affine"] = "additive",
        permutation: Literal["reverse", "learned"] = "reverse",
        lr: float = 1e-3,
    ) -> None:
        super().__init__(dim)
        require_choice("coupling", coupling, ("additive", "affine"))
        require_choice("permutation", permutation, ("reverse", "learned"))
        for name, value in {"levels": levels, "steps": steps, "width": width}.items():
            require_whole_number(name, value)
        self.lr = require_number("lr", lr, above=0)
        if dim % 2**levels:
            raise ValueError(f"the embedding's {dim} dimensions can't be halved {levels} times: set fewer levels")
        self.glow = Glow(dim, levels, steps, width, coupling == "affine", permutation == "learned")

    def forward(self, h: Tensor) -> Tensor:
        """Map embeddings [B, d] to z [B, d], with the flow's parameters as constants."""
        with torch.autocast(h.device.type, enabled=False):
            x = self._to_parameter_dtype(h)
            if self.training:
                self.glow.initialize_actnorms(x.detach())
            constants = {name: parameter.detach() for name, parameter in self.glow.named_parameters()}
            z: Tensor = functional_call(self.glow, constants, (x,))[0]
            return z.to(h.dtype)

    def objective(self, h: Tensor) -> Tensor:
        """Compute the flow's loss: the bits per dimension that embeddings [B, d] take under it."""
        with torch.autocast(h.device.type, enabled=False):
            z, log_determinant = self.glow(self._to_parameter_dtype(h))
            log_normal = -0.5 * (z.square().sum(1) + self.dim * math.log(2 * math.pi))  # log N(z; 0, I), [B]
            log_likelihood: Tensor = (log_normal + log_determinant).mean()
            return -log_likelihood / (self.dim * math.log(2))

    def inverse(self, z: Tensor) -> Tensor:
        """Map z [B, d] back to embeddings [B, d]."""
        return self.glow.inverse(z)

    def _to_parameter_dtype(self, h: Tensor) -> Tensor:
        return h.to(next(self.parameters()).dtype)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """List the flow's parameters as one group with its own learning rate, without weight decay."""
        return [{"params": list(self.parameters()), "lr": self.lr, "weight_decay": 0.0}]
