"""Make calibration modules from their config."""

import inspect
import re
from collections.abc import Iterable
from typing import Any

import hydra.utils
import torch

from isobench.calibration.base import Calibration
from isobench.calibration.chain import Chain, Link
from isobench.common.errors import UserError, suggest_nearest
from isobench.config.schema import CALIBRATION_KEYS, format_method_name, split_chain

ANY_WIDTH = 1 << 16  # wide enough for any number of directions, and a multiple of what a flow halves


def check_method_settings(configs: Iterable[dict[str, Any]]) -> None:
    """Make each of isobench's own methods once, without memory for its tensors, to see whether it takes its settings.

    The encoder's width is not known before its weights are loaded, so a setting that is too large for it is found
    only then. A method from elsewhere is not made here, because it may need the right width or much time.

    Args:
        configs: the ``calibration`` of each run.

    Raises:
        UserError: a class can't be imported or refuses its settings.
    """
    parts = {repr(part): part for config in configs for part in split_chain(config)}
    for part in parts.values():
        if part["_target_"].startswith("isobench."):
            with torch.device("meta"):
                instantiate_calibration(part, ANY_WIDTH)


def instantiate_chain(config: dict[str, Any], dim: int) -> Chain:
    """Make the chain of methods that a config describes.

    Args:
        config: a method's settings; under ``then`` the next method's, if there are several.
        dim: width of the encoder's embeddings.

    Raises:
        UserError: a method can't be made, or one before the pooler changes the width that the pooler needs.
    """
    placed: list[Link] = []
    width = dim
    for place in ("before_pooler", "after_pooler"):
        for part in split_chain(config):
            if part["placement"] == place:
                placed.append(Link(instantiate_calibration(part, width), part["placement"], part["target"]))
                width = placed[-1].calibration.out_dim
        if place == "before_pooler" and width != dim:
            raise UserError(
                f"calibration={format_method_name(config)}: {width} columns don't fit the pooler's {dim}; set "
                "placement=after_pooler for the method that changes the width"
            )
    return Chain(placed)


def instantiate_calibration(config: dict[str, Any], dim: int) -> Calibration:
    """Make the method that ``_target_`` names from its settings, for embeddings of width ``dim``.

    Raises:
        UserError: the class can't be imported or refuses its settings, or is no Calibration.
    """
    settings = {key: value for key, value in config.items() if key not in CALIBRATION_KEYS}
    try:
        calibration = hydra.utils.instantiate(settings, dim=dim, _convert_="all")
    except hydra.errors.InstantiationException as error:
        reason = explain_unknown_setting(error.__cause__, settings) or error.__cause__ or error
        raise UserError(f"calibration={config['name']}: {reason}") from error
    if not isinstance(calibration, Calibration):
        raise UserError(
            f"calibration={config['name']}: {config['_target_']} must subclass isobench.calibration.Calibration"
        )
    return calibration


def explain_unknown_setting(error: BaseException | None, settings: dict[str, Any]) -> str | None:
    """Name the settings of a class nearest to one that it does not have; None if the error says something else.

    Args:
        error: what making the class raised.
        settings: the class's path under ``_target_``, and the settings that it was given.
    """
    match = re.search(r"got an unexpected keyword argument '(\w+)'", str(error))
    if not match or match[1] not in settings:
        return None
    known = inspect.signature(hydra.utils.get_class(settings["_target_"])).parameters.keys() - {"dim"}
    return f"{settings['_target_']} has no setting {match[1]}: {suggest_nearest(match[1], known)}"
