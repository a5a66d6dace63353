"""Whitening of sentence embeddings by a moving average of their covariance."""

from typing import Literal

import torch
from torch import Tensor

from isobench.calibration.base import (
    Calibration,
    promote_to_float32,
    require_bool,
    require_choice,
    require_number,
    require_whole_number,
)
from isobench.calibration.batch_statistics import batch_covariance, center_batch
from isobench.common.linalg import eigh


class Whitening(Calibration):
    """Whiten embeddings, h -> (h - mu) T, so that their covariance Sigma becomes the identity (T T^T = Sigma^-1).

    ``zca``: T = U diag(1 / sqrt(s)) U^T = Sigma^-1/2. ``pca``: T = U diag(1 / sqrt(s)), its first k columns, with U
    and s the eigenvectors and eigenvalues of Sigma (BERT-whitening, Su et al. 2021). Under ``pca`` a column keeps its
    sign from step to step, but columns of nearly equal variance may swap places (Huang et al. 2018); ``zca`` has no
    such jumps. ``epsilon`` makes it soft: T has 1 / sqrt(s + epsilon) in place of 1 / sqrt(s) (Soft ZCA, Diera et al.
    2024). The larger epsilon is, the nearer T comes to a multiple of the identity (``zca``), and 0 whitens fully.

    mu and Sigma are moving averages. They are detached, start from the first batch, and are used in training and
    evaluation alike, as in IsoBN. T is computed from (1 - z) Sigma + z tr(Sigma) / d I, with z the shrinkage, which
    has an inverse even where Sigma has none. Epsilon is added after that: for the formula of Diera et al. alone, set
    shrinkage to 0. The averages are float32, the eigenvectors float64. As long as there is no variance at all, the
    layer only subtracts the mean.

    With ``keep_norm``, T is multiplied by c = sqrt((tr(Sigma) + |mu|^2) / tr(T^T Sigma T)), so that the root mean
    square of the whitened embeddings' norms equals that of the embeddings before. Without it, whitening also changes
    how large the numbers are that the head reads.

    Args:
        form: ``zca`` or ``pca``.
        k: number of columns to keep, for ``pca`` only; None for all. The head gets embeddings of this width.
        momentum: weight of the newest batch in the moving averages, in (0, 1].
        shrinkage: z, 0 to 1.
        epsilon: added to the eigenvalues of the shrunk covariance, 0 or more; None for 0.
        keep_norm: whether the root mean square of the embeddings' norms stays as it is; None for False.
    """

    least_batch = 2  # one row has no variance
    mean: Tensor  # [d]
    covariance: Tensor  # [d, d]
    transform: Tensor  # [d, k], T
    batches: Tensor  # [], how many batches the averages hold

    def __init__(
        self,
        dim: int,
        form: Literal["zca", "pca"] = "zca",
        k: int | None = None,
        momentum: float = 0.1,
        shrinkage: float = 0.01,
        epsilon: float | None = None,
        keep_norm: bool | None = None,
    ) -> None:
        super().__init__(dim)
        self.form = require_choice("form", form, ("zca", "pca"))
        if k is not None and not (form == "pca" and require_whole_number("k", k) <= dim):
            raise ValueError(f"k={k} must be between 1 and {dim}, and form=pca")
        self.momentum = require_number("momentum", momentum, above=0, at_most=1)
        self.shrinkage = require_number("shrinkage", shrinkage, at_least=0, at_most=1)
        self.epsilon = 0.0 if epsilon is None else require_number("epsilon", epsilon, at_least=0)
        self.keep_norm = keep_norm is not None and require_bool("keep_norm", keep_norm)
        self.out_dim = k or dim
        self.least_average = self.out_dim + 1  # fewer rows have no variance in some direction
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("covariance", torch.zeros(dim, dim))
        self.register_buffer("transform", torch.eye(dim)[:, : self.out_dim].clone())
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    def forward(self, h: Tensor) -> Tensor:
        """Whiten embeddings [B, d] -> [B, k]; in training first update the moving averages."""
        with torch.autocast(h.device.type, enabled=False):
            x = promote_to_float32(h)
            if self.training:
                self._update_statistics(x.detach().to(self.covariance.dtype))
            whitened: Tensor = (x - self.mean) @ self.transform.to(x.dtype)
            return whitened.to(h.dtype)

    @torch.no_grad()
    def _update_statistics(self, h: Tensor) -> None:
        mean, centred = center_batch(h)
        weight = torch.where(self.batches == 0, 1.0, self.momentum)
        self.mean.lerp_(mean, weight)
        self.covariance.lerp_(batch_covariance(centred), weight)
        self.batches += 1
        self.transform.copy_(self._compute_transform())

    def _compute_transform(self) -> Tensor:
        sigma = self.covariance.double()
        mean_variance = sigma.diagonal().mean()  # tr(Sigma) / d
        sigma = (1 - self.shrinkage) * sigma + self.shrinkage * mean_variance * torch.eye(
            self.dim, device=sigma.device
        )
        values, vectors = eigh(sigma)
        values, vectors = values.flip(0) + self.epsilon, vectors.flip(1)
        noise = mean_variance * self.dim * torch.finfo(torch.float32).eps
        # A smaller variance is rounding error, and its direction is dropped.
        scale = torch.where(values > noise, values.clamp_min(noise).rsqrt(), 0.0)
        transform = vectors * scale  # [d, d]
        if self.form == "zca":
            transform = transform @ vectors.T
        else:
            transform = transform[:, : self.out_dim]
            # An eigenvector's sign is arbitrary: keep the one that the head has learned to read.
            transform = transform * torch.where((transform * self.transform).sum(0) < 0, -1.0, 1.0)
        if self.keep_norm:
            covariance = self.covariance.double()
            before = covariance.trace() + self.mean.double().square().sum()
            transform = transform * (before / ((covariance @ transform) * transform).sum()).sqrt()
        identity = torch.eye(self.dim, self.out_dim, dtype=sigma.dtype, device=sigma.device)
        return torch.where(mean_variance > 0, transform, identity)  # [d, k]
