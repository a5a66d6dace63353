"""Make calibration modules from their config."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import hydra.utils
import torch

from isobench import calibration as calibration_package
from isobench.calibration.base import Calibration, overrides_hook
from isobench.calibration.chain import Chain, Link
from isobench.common.errors import doing, refuse
from isobench.config.bounds import check_values, read_hints
from isobench.config.classes import locate_class
from isobench.config.schema import CALIBRATION_KEYS, format_method_name, split_chain
from isobench.tasks.kind import Kind

ANY_WIDTH = 1 << 16  # wide enough for any number of directions, and a multiple of what a flow halves


def _is_prepared(method: Calibration) -> bool:
    return bool(method.epoch_sample) or (method.epoch_sample is None and overrides_hook(method, "prepare"))


# What a method may ask of a run beside a batch's vectors and a matrix -> whether it does, and what it is called.
NEEDS: dict[str, tuple[Callable[[Calibration], bool], str]] = {
    "samples": (_is_prepared, "is prepared with vectors of the training set"),
    "token_states": (lambda method: method.reads_token_states, "reads the states of all tokens (scope=cls does not)"),
    "classifier": (lambda method: method.reparametrizes_head, "reparametrizes the classifier"),
}


def check_method_settings(
    configs: Iterable[dict[str, Any]], kind: Kind | None = None, width: int | None = None
) -> None:
    """Make each of isobench's own methods once, without memory for its tensors, to see whether it takes its settings.

    A method from elsewhere is not made here, because it may need much time: its class is imported, and its settings
    must be parameters of it.

    ``configs``: the ``calibration`` of each run. ``kind``: that of all their tasks.
    ``width``: that of the encoder's vectors. None: it is not known before the weights are loaded, so a setting that
    is too large for it is found only then.
    """
    different = {repr(config): config for config in configs}
    parts = {repr(part): part for config in different.values() for part in split_chain(config)}
    for part in parts.values():
        if _is_own(part):
            with torch.device("meta"):
                calibration = instantiate_calibration(part, ANY_WIDTH)
            if kind:
                refuse_unmet(part["name"], [calibration], kind)
        else:
            _check_signature(part)
    for config in different.values():
        if width is not None and all(map(_is_own, split_chain(config))):
            with torch.device("meta"):
                instantiate_chain(config, width)


def _is_own(part: dict[str, Any]) -> bool:
    return str(part["_target_"]).startswith("isobench.")


def _check_signature(config: dict[str, Any]) -> None:
    target = config["_target_"]
    settings = {key: value for key, value in config.items() if key not in CALIBRATION_KEYS and key[0] != "_"}
    with doing(f"calibration={config['name']}"):
        inspect.signature(locate_class(target, Calibration)).bind(dim=ANY_WIDTH, **settings)


def instantiate_chain(config: dict[str, Any], dim: int) -> Chain:
    """Make the chain of methods that a config describes (``then``: the next one), for embeddings of width ``dim``."""
    placed: list[Link] = []
    width = dim
    for place in ("before_pooler", "after_pooler"):
        for part in split_chain(config):
            if part["placement"] == place:
                placed.append(Link(instantiate_calibration(part, width), place, part["target"]))
                width = placed[-1].calibration.out_dim
    heads = sum(link.calibration.reparametrizes_head for link in placed)
    name = format_method_name(config)
    refuse((heads > 1, f"calibration={name}: one method alone can reparametrize the classifier"))
    return Chain(placed)


def instantiate_calibration(config: dict[str, Any], dim: int) -> Calibration:
    """Make the method that ``_target_`` names from its settings, for embeddings of width ``dim``."""
    target, settings = config["_target_"], {key: v for key, v in config.items() if key not in CALIBRATION_KEYS}
    with doing(f"calibration={config['name']}"):
        _check_setting_types(target, settings)
        calibration: Calibration = hydra.utils.instantiate(settings, dim=dim, _convert_="all")
        refuse(
            (not isinstance(calibration, Calibration), f"{target} must subclass isobench.calibration.Calibration"),
            (any(group.get("lr", 0) < 0 for group in calibration.parameter_groups()), f"{target}: an lr is below 0"),
            (
                calibration.reparametrizes_head and config["target"] != "head",
                f"calibration={config['name']}: reparametrize needs target=head, the classifier",
            ),
            (
                calibration.reads_token_states and config["placement"] != "before_pooler",
                f"calibration={config['name']} reads the states of all tokens: set its placement=before_pooler",
            ),
        )
    return calibration


def _check_setting_types(target: str, settings: dict[str, Any]) -> None:
    """Check settings by the type hints of isobench's class; those of a user's class may be loose."""
    method = getattr(calibration_package, target.rpartition(".")[2], None) if target.startswith("isobench.") else None
    if isinstance(method, type):
        check_values("calibration", settings, read_hints(method.__init__))  # type: ignore[misc]


def refuse_unmet(name: str, methods: Iterable[Calibration], kind: Kind) -> None:
    """Raise UserError if a method asks for what this kind of task does not give."""
    for method in methods:
        for need, (asks, words) in NEEDS.items():
            unmet = asks(method) and need not in kind.gives
            refuse((unmet, f"calibration={name} {words}, which {kind.name} does not give: choose another method"))
