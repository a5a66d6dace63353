"""Calibration methods, one file each; a YAML's ``_target_`` names the class."""

from isobench.calibration.base import Calibration
from isobench.calibration.centring import all_but_the_top, center, center_scaled, whiten
from isobench.calibration.cosine import CosineRegularization
from isobench.calibration.gradient_norm import GradientNorm
from isobench.calibration.isobn import IsoBN
from isobench.calibration.spectrum import SpectrumControl

__all__ = [
    "Calibration",
    "CosineRegularization",
    "GradientNorm",
    "IsoBN",
    "SpectrumControl",
    "all_but_the_top",
    "center",
    "center_scaled",
    "whiten",
]
