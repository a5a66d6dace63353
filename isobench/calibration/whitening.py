"""Whitening by moving statistics."""

from typing import Literal

import torch
from torch import Tensor

from isobench.calibration.base import Calibration, promote_to_float32
from isobench.calibration.batch_statistics import batch_covariance, center_batch
from isobench.common.linalg import eigh


class Whitening(Calibration):
    """h -> (h - mu) T with T T^T the inverse of the moving covariance, so that h's covariance becomes the identity.

    ``zca``: T = Sigma^-1/2. ``pca``: T = U diag(1 / sqrt(s)), its first k columns (BERT-whitening, Su et al. 2021);
    with k < d the embedding that the head sees is k wide. Under ``pca`` a column keeps its sign from step to step,
    but columns of nearly the same variance may still change places (Huang et al. 2018); ``zca`` has no such jumps.
    Sigma is shrunk towards its mean variance, (1 - z) Sigma + z tr(Sigma) / d I, so that singular covariances have
    an inverse. As in IsoBN the statistics are detached, start from the first batch, and serve training and
    evaluation alike. Statistics are float32, the eigenvectors float64. Without
    any variance, the layer only subtracts the mean.

    Args:
        dim: width d of the embedding.
        form: zca or pca.
        k: columns kept, pca only; None for all.
        momentum: weight of the newest batch.
        shrinkage: z.

    Raises:
        ValueError: an unknown form, or a number out of its range.
    """

    mean: Tensor  # [d]
    covariance: Tensor  # [d, d]
    transform: Tensor  # [d, k]
    batches: Tensor  # []

    def __init__(
        self,
        dim: int,
        form: Literal["zca", "pca"] = "zca",
        k: int | None = None,
        momentum: float = 0.1,
        shrinkage: float = 0.01,
    ) -> None:
        super().__init__(dim)
        if form not in ("zca", "pca"):
            raise ValueError(f"form must be zca or pca, not {form!r}")
        if k is not None and not (form == "pca" and 1 <= k <= dim):
            raise ValueError(f"k={k} must be between 1 and {dim}, and form=pca")
        if not (0 < momentum <= 1 and 0 <= shrinkage <= 1):
            raise ValueError(f"momentum must be in (0, 1], shrinkage in [0, 1], not {momentum} and {shrinkage}")
        self.form, self.momentum, self.shrinkage = form, momentum, shrinkage
        self.out_dim = k or dim
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("covariance", torch.zeros(dim, dim))
        self.register_buffer("transform", torch.eye(dim)[:, : self.out_dim].clone())
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    def forward(self, h: Tensor) -> Tensor:
        """[B, d] -> [B, k]; updates the moving statistics in training."""
        with torch.autocast(h.device.type, enabled=False):
            given = promote_to_float32(h)
            if self.training:
                self._update(given.detach().to(self.covariance.dtype))
            return ((given - self.mean) @ self.transform.to(given.dtype)).to(h.dtype)

    @torch.no_grad()
    def _update(self, h: Tensor) -> None:
        mean, centred = center_batch(h)
        covariance = batch_covariance(centred)
        weight = torch.where(self.batches == 0, 1.0, self.momentum)
        self.mean.lerp_(mean, weight)
        self.covariance.lerp_(covariance, weight)
        self.batches += 1
        self.transform.copy_(self._compute_transform())

    def _compute_transform(self) -> Tensor:
        sigma = self.covariance.double()
        average = sigma.diagonal().mean()
        sigma = (1 - self.shrinkage) * sigma + self.shrinkage * average * torch.eye(self.dim, device=sigma.device)
        values, vectors = eigh(sigma)
        values, vectors = values.flip(0), vectors.flip(1)
        noise = average * self.dim * torch.finfo(torch.float32).eps
        scale = torch.where(values > noise, values.clamp_min(noise).rsqrt(), 0.0)
        whitened = vectors * scale  # (d, d)
        if self.form == "zca":
            whitened = whitened @ vectors.T
        else:
            whitened = whitened[:, : self.out_dim]
            # An eigenvector's sign is arbitrary: keep the one the head has learned to read.
            whitened = whitened * torch.where((whitened * self.transform).sum(0) < 0, -1.0, 1.0)
        identity = torch.eye(self.dim, self.out_dim, dtype=sigma.dtype, device=sigma.device)
        return torch.where(average > 0, whitened, identity)  # (d, k)
