"""From a calibration's config to the module."""

from typing import Any

import hydra.utils

from isobench.calibration.base import Calibration
from isobench.errors import UserError
from isobench.validate import CALIBRATION_KEYS


def make(config: dict[str, Any], dim: int) -> Calibration:
    """The class that ``_target_`` names, with its settings and the embedding's width."""
    settings = {key: value for key, value in config.items() if key not in CALIBRATION_KEYS}
    try:
        calibration = hydra.utils.instantiate(settings, dim=dim, _convert_="all")
    except hydra.errors.InstantiationException as error:
        cause = error.__cause__ or error
        raise UserError(f"calibration={config['name']}: {cause}") from error
    if not isinstance(calibration, Calibration):
        raise UserError(
            f"calibration={config['name']}: {config['_target_']} is not an isobench.calibration.Calibration"
        )
    if config["placement"] == "before_pooler" and calibration.out_dim != dim:
        raise UserError(f"calibration={config['name']}: {calibration.out_dim} columns don't fit the pooler's {dim}")
    return calibration
