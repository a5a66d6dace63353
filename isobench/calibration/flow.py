"""A normalising flow between encoder and head: Glow as in BERT-flow (Li et al. 2020), trained jointly."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from isobench.calibration.base import Calibration
from isobench.calibration.batch_statistics import batch_mean, center_batch


class Flow(Calibration):
    """z = f(h) with f invertible and z Gaussian under the flow's own loss; the head sees z.

    The task's gradient passes through the flow to the encoder and leaves the flow's parameters alone; the
    flow's own loss, bits per dimension, moves them only, at a learning rate of its own (isotropy-calibration
    paper, Sec. 3: 1e-3 against 5e-5). Float32 or better throughout.

    Args:
        dim: width d of the embedding, a multiple of 2^levels.
        levels, steps, width, coupling, permutation: see ``Glow``.
        lr: the flow's own learning rate.

    Raises:
        ValueError: a width that does not divide, a number not above 0, or an unknown name.
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
        if coupling not in ("additive", "affine"):
            raise ValueError(f"coupling must be additive or affine, not {coupling!r}")
        if permutation not in ("reverse", "learned"):
            raise ValueError(f"permutation must be reverse or learned, not {permutation!r}")
        if min(levels, steps, width) < 1 or not 0 < lr < math.inf:
            raise ValueError(f"levels, steps, width and lr must be above 0, not {levels}, {steps}, {width}, {lr}")
        if dim % 2**levels:
            raise ValueError(f"the embedding's {dim} dimensions can't be halved {levels} times: fewer levels?")
        self.lr = float(lr)
        self.glow = Glow(dim, levels, steps, width, coupling == "affine", permutation == "learned")

    def forward(self, h: Tensor) -> Tensor:
        """[B, d] -> z [B, d]; the flow's parameters are constants here."""
        with torch.autocast(h.device.type, enabled=False):
            given = self._to_parameter_dtype(h)
            if self.training:
                self.glow.start(given.detach())
            constants = {name: parameter.detach() for name, parameter in self.glow.named_parameters()}
            z, _ = functional_call(self.glow, constants, (given,))
            return z.to(h.dtype)

    def objective(self, h: Tensor) -> Tensor:
        """Bits per dimension of embeddings [B, d] under the flow."""
        with torch.autocast(h.device.type, enabled=False):
            z, log_determinant = self.glow(self._to_parameter_dtype(h))
            log_normal = -0.5 * (z.square().sum(1) + self.dim * math.log(2 * math.pi))  # (B,)
            return -(log_normal + log_determinant).mean() / (self.dim * math.log(2))

    def inverse(self, z: Tensor) -> Tensor:
        """z [B, d] -> h [B, d]."""
        return self.glow.inverse(z)

    def _to_parameter_dtype(self, h: Tensor) -> Tensor:
        return h.to(next(self.parameters()).dtype)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The flow's parameters at its own learning rate, without weight decay."""
        return [{"params": list(self.parameters()), "lr": self.lr, "weight_decay": 0.0}]


class Glow(nn.Module):
    """Levels of steps; features are channels. After every level but the last, half of what is left goes out.

    Args:
        dim: d; three levels put out d/2 + d/4 + d/4.
        levels: how many.
        steps: of each level.
        width: hidden width of the coupling networks.
        affine: couplings with scales, else additive ones.
        learned: mix the channels by a learned 1x1 matrix, else reverse them.
    """

    def __init__(self, dim: int, levels: int, steps: int, width: int, affine: bool, learned: bool) -> None:
        super().__init__()
        sizes = [dim // 2**level for level in range(levels)]
        self.levels = nn.ModuleList(
            nn.ModuleList(FlowStep(size, width, affine, learned) for _ in range(steps)) for size in sizes
        )
        self._initialized = False

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """h [B, d] -> z [B, d] and log |det dz/dh| [B]."""
        log_determinant = h.new_zeros(len(h))
        out = []
        for number, level in enumerate(self.levels):
            if number:
                gone, h = h.chunk(2, dim=1)
                out.append(gone)
            for step in level:  # type: ignore[attr-defined]
                h, change = step(h)
                log_determinant = log_determinant + change
        return torch.cat([*out, h], dim=1), log_determinant

    def inverse(self, z: Tensor) -> Tensor:
        """z [B, d] -> h [B, d]."""
        sizes = [z.shape[1] // 2**number for number in range(1, len(self.levels))]
        *out, h = z.split([*sizes, z.shape[1] - sum(sizes)], dim=1)
        for number, level in reversed(list(enumerate(self.levels))):
            for step in reversed(level):  # type: ignore[call-overload]
                h = step.inverse(h)
            if number:
                h = torch.cat([out[number - 1], h], dim=1)
        return h

    @torch.no_grad()
    def start(self, h: Tensor) -> None:
        """Give every actnorm that has none its start from the data, as they reach it: zero mean, unit deviation."""
        if self._initialized:  # known without waiting for a GPU to say it
            return
        if not bool(self.levels[0][0].norm.started):  # type: ignore[index]
            for number, level in enumerate(self.levels):
                h = h.chunk(2, dim=1)[1] if number else h
                for step in level:  # type: ignore[attr-defined]
                    step.norm.start(h)
                    h, _ = step(h)
        self._initialized = True


class FlowStep(nn.Module):
    """Actnorm, permutation, coupling."""

    def __init__(self, dim: int, width: int, affine: bool, learned: bool) -> None:
        super().__init__()
        self.norm = ActNorm(dim)
        self.mixing = nn.Parameter(torch.linalg.qr(torch.randn(dim, dim))[0]) if learned else None
        self.coupling = Coupling(dim, width, affine)

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """[B, n] -> [B, n] and its log-determinant, [B] or []."""
        h, change = self.norm(h)
        if self.mixing is None:
            h = h.flip(1)
        else:
            h = h @ self.mixing.to(h.dtype)
            change = change + torch.linalg.slogdet(self.mixing)[1]
        h, more = self.coupling(h)
        return h, change + more

    def inverse(self, h: Tensor) -> Tensor:
        """[B, n] -> [B, n]."""
        h = self.coupling.inverse(h)
        h = h.flip(1) if self.mixing is None else torch.linalg.solve(self.mixing.to(h.dtype).T, h.T).T
        return self.norm.inverse(h)


class ActNorm(nn.Module):
    """(h + bias) exp(log_scale), which starts by normalising the first batch."""

    started: Tensor  # []

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(dim))
        self.log_scale = nn.Parameter(torch.zeros(dim))
        self.register_buffer("started", torch.zeros((), dtype=torch.bool))

    def start(self, h: Tensor) -> None:
        """Statistics of a batch [B, n]; a feature without spread keeps its scale."""
        mean, centred = center_batch(h)
        deviation = batch_mean(centred.square()).sqrt()
        self.bias.copy_(-mean)
        self.log_scale.copy_(torch.where(deviation > 1e-6, -deviation.clamp_min(1e-6).log(), 0.0))
        self.started.fill_(True)

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """[B, n] -> [B, n] and its log-determinant, []."""
        return (h + self.bias) * self.log_scale.exp(), self.log_scale.sum()

    def inverse(self, h: Tensor) -> Tensor:
        """[B, n] -> [B, n]."""
        return h * (-self.log_scale).exp() - self.bias


class Coupling(nn.Module):
    """The second half moves by what the first half says; it starts as the identity (but for affine's sigmoid(2))."""

    def __init__(self, dim: int, width: int, affine: bool) -> None:
        super().__init__()
        self.untouched, self.affine = dim // 2, affine
        out = (dim - self.untouched) * (2 if affine else 1)
        self.network = nn.Sequential(
            nn.Linear(self.untouched, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, out)
        )
        nn.init.zeros_(self.network[-1].weight)  # type: ignore[arg-type]
        nn.init.zeros_(self.network[-1].bias)  # type: ignore[arg-type]

    def forward(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """[B, n] -> [B, n] and its log-determinant, [B]."""
        kept, moved = h[:, : self.untouched], h[:, self.untouched :]
        shift, log_scale = self._compute_shift_and_scale(kept)
        moved = (moved + shift) * log_scale.exp()
        return torch.cat([kept, moved], dim=1), log_scale.sum(1)

    def inverse(self, h: Tensor) -> Tensor:
        """[B, n] -> [B, n]."""
        kept, moved = h[:, : self.untouched], h[:, self.untouched :]
        shift, log_scale = self._compute_shift_and_scale(kept)
        return torch.cat([kept, moved * (-log_scale).exp() - shift], dim=1)

    def _compute_shift_and_scale(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        out = self.network(kept)
        if not self.affine:
            return out, torch.zeros_like(out)
        shift, raw = out.chunk(2, dim=1)
        return shift, nn.functional.logsigmoid(raw + 2)
