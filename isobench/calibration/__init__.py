"""Calibration methods, one file each; a YAML's ``_target_`` names the class."""

from isobench.calibration.base import Calibration
from isobench.calibration.isobn import IsoBN

__all__ = ["Calibration", "IsoBN"]
