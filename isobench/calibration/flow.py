"""A normalising flow between encoder and head: Glow, as in BERT-flow (Li et al. 2020), trained jointly."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from isobench.calibration.base import Calibration, require_choice, require_number, require_whole_number
from isobench.calibration.batch_statistics import batch_mean, center_batch


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

    def _to_parameter_dtype(self, h: Tensor) -> Tensor:
        return h.to(next(self.parameters()).dtype)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """List the flow's parameters as one group with its own learning rate, without weight decay."""
        return [{"params": list(self.parameters()), "lr": self.lr, "weight_decay": 0.0}]


class Glow(nn.Module):
    """Multi-scale Glow (Kingma & Dhariwal 2018), with the dimensions of a vector as channels.

    After each level but the last, half of the remaining dimensions leave the flow as part of z: three levels output
    d/2, d/4 and d/4 dimensions.

    Args:
        steps: number of flow steps in each level.
        width: hidden width of the coupling networks.
        affine: True for affine couplings, False for additive ones.
        learned: True to mix the dimensions by a learned matrix (Glow's 1x1 convolution), False to reverse them.
    """

    def __init__(self, dim: int, levels: int, steps: int, width: int, affine: bool, learned: bool) -> None:
        super().__init__()
        sizes = [dim // 2**level for level in range(levels)]
        self.levels = nn.ModuleList(
            nn.ModuleList(_FlowStep(size, width, affine, learned) for _ in range(steps)) for size in sizes
        )
        self._initialized = False

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Map h [B, d] to z [B, d], and compute log |det dz/dh| of each row, [B]."""
        log_determinant = h.new_zeros(len(h))
        outputs: list[Tensor] = []
        for number, level in enumerate(self.levels):
            if number:
                output, h = h.chunk(2, dim=1)
                outputs.append(output)
            for step in level:  # type: ignore[attr-defined]
                h, step_log_determinant = step(h)
                log_determinant = log_determinant + step_log_determinant
        return torch.cat([*outputs, h], dim=1), log_determinant

    @torch.no_grad()
    def initialize_actnorms(self, h: Tensor) -> None:
        """Initialise every actnorm from the first training batch [B, d], unless a checkpoint brought its values.

        Each one's own output gets zero mean and unit deviation over the whole batch, that of all processes.
        """
        if self._initialized:  # a Python flag: reading the buffer makes a training step wait for the GPU
            return
        if not bool(self.levels[0][0].norm.initialized):  # type: ignore[index]
            for number, level in enumerate(self.levels):
                h = h.chunk(2, dim=1)[1] if number else h
                for step in level:  # type: ignore[attr-defined]
                    step.norm.initialize(h)
                    h, _ = step(h)
        self._initialized = True


class _FlowStep(nn.Module):
    """Carry out a flow step on [B, n]: actnorm, then a permutation of the dimensions, then a coupling.

    ``forward`` of this layer and of its parts returns [B, n] and the log-determinant, [B] or [] if all rows share it.
    """

    def __init__(self, dim: int, width: int, affine: bool, learned: bool) -> None:
        super().__init__()
        self.norm = _ActNorm(dim)
        self.mixing = nn.Parameter(torch.linalg.qr(torch.randn(dim, dim))[0]) if learned else None
        self.coupling = _Coupling(dim, width, affine)

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Transform rows [B, n] -> [B, n]; return with them the log of the Jacobian's determinant, [B]."""
        h, log_determinant = self.norm(h)
        if self.mixing is None:
            h = h.flip(1)
        else:
            h = h @ self.mixing.to(h.dtype)
            log_determinant = log_determinant + torch.linalg.slogdet(self.mixing)[1]
        h, coupling_log_determinant = self.coupling(h)
        return h, log_determinant + coupling_log_determinant


class _ActNorm(nn.Module):
    """Glow's activation normalisation, (h + bias) exp(log_scale), initialised from the first batch."""

    initialized: Tensor  # [], bool

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(dim))
        self.log_scale = nn.Parameter(torch.zeros(dim))
        self.register_buffer("initialized", torch.zeros((), dtype=torch.bool))

    def initialize(self, h: Tensor) -> None:
        """Give a batch [B, n] zero mean and unit deviation; a deviation below 1e-6 keeps its scale."""
        mean, centred = center_batch(h)
        deviation = batch_mean(centred.square()).sqrt()
        self.bias.copy_(-mean)
        self.log_scale.copy_(torch.where(deviation > 1e-6, -deviation.clamp_min(1e-6).log(), 0.0))
        self.initialized.fill_(True)

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        return (h + self.bias) * self.log_scale.exp(), self.log_scale.sum()


class _Coupling(nn.Module):
    """A coupling layer: shift (and scale) the second half of the dimensions by a network of the first half.

    Before training it is the identity, except that an affine coupling scales by sigmoid(2).
    """

    def __init__(self, dim: int, width: int, affine: bool) -> None:
        super().__init__()
        self.kept_count, self.affine = dim // 2, affine
        out_width = (dim - self.kept_count) * (2 if affine else 1)
        self.network = nn.Sequential(
            nn.Linear(self.kept_count, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, out_width),
        )
        nn.init.zeros_(self.network[-1].weight)  # type: ignore[arg-type]
        nn.init.zeros_(self.network[-1].bias)  # type: ignore[arg-type]

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        kept, moved = h[:, : self.kept_count], h[:, self.kept_count :]
        shift = self.network(kept)
        log_scale = torch.zeros_like(shift)
        if self.affine:
            shift, raw_scale = shift.chunk(2, dim=1)
            log_scale = nn.functional.logsigmoid(raw_scale + 2)
        moved = (moved + shift) * log_scale.exp()
        return torch.cat([kept, moved], dim=1), log_scale.sum(1)
