"""Calibration methods for any PyTorch program: they need torch and nothing of Hydra or Lightning.

A method is a ``Calibration``: it transforms sentence embeddings between encoder and classifier, penalises a weight
matrix or the embeddings, or has a loss of its own. In isobench a YAML file in conf/calibration names the class and
its settings.
"""

from isobench.calibration.base import Calibration
from isobench.calibration.centering import Centering, all_but_the_top, center, center_scaled, whiten
from isobench.calibration.chain import Chain, Link
from isobench.calibration.flow import Flow
from isobench.calibration.isobn import IsoBN
from isobench.calibration.istar import IStar
from isobench.calibration.normalisation import BatchNorm, FixedNorm, GradientNorm
from isobench.calibration.penalties import CosineRegularization, Decorrelation, SIGReg, Uniformity
from isobench.calibration.spectrum import SpectrumControl
from isobench.calibration.whitening import Whitening

__all__ = [
    "BatchNorm",
    "Calibration",
    "Centering",
    "Chain",
    "CosineRegularization",
    "Decorrelation",
    "FixedNorm",
    "Flow",
    "GradientNorm",
    "IStar",
    "IsoBN",
    "Link",
    "SIGReg",
    "SpectrumControl",
    "Uniformity",
    "Whitening",
    "all_but_the_top",
    "center",
    "center_scaled",
    "whiten",
]
