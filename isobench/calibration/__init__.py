"""Calibration methods, one file each; a YAML's ``_target_`` names the class."""

from isobench.calibration.base import Calibration
from isobench.calibration.batch_norm import BatchNorm
from isobench.calibration.centering import Centering, all_but_the_top, center, center_scaled, whiten
from isobench.calibration.chain import Chain, Link
from isobench.calibration.cosine import CosineRegularization
from isobench.calibration.fixed_norm import FixedNorm
from isobench.calibration.flow import Flow
from isobench.calibration.gradient_norm import GradientNorm
from isobench.calibration.isobn import IsoBN
from isobench.calibration.spectrum import SpectrumControl
from isobench.calibration.whitening import Whitening

__all__ = [
    "BatchNorm",
    "Calibration",
    "Centering",
    "Chain",
    "CosineRegularization",
    "FixedNorm",
    "Flow",
    "GradientNorm",
    "IsoBN",
    "Link",
    "SpectrumControl",
    "Whitening",
    "all_but_the_top",
    "center",
    "center_scaled",
    "whiten",
]
