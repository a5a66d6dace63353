"""The paper's method: halve every sentence vector."""

from torch import Tensor

from isobench.calibration import Calibration


class Halved(Calibration):
    """Halve every vector (Eq. 1)."""

    def forward(self, h: Tensor) -> Tensor:
        """Return half of the vectors. [B, d] -> [B, d]"""
        return h / 2
