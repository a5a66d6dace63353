"""Fit calibrations on vectors after an encoder was trained, and apply them to others: nothing is trained."""

import inspect
from collections.abc import Callable
from typing import Any

import hydra.utils
import torch
from torch import Tensor

from isobench.calibration.base import Calibration
from isobench.calibration.chain import find_prepared_once
from isobench.common.errors import refuse
from isobench.config.schema import map_chain, split_chain
from isobench.runs.identity import seed_everything
from isobench.training.instantiate import check_method_settings, instantiate_chain

Transform = Callable[[Tensor], Tensor]  # [N, d] -> [N, out_dim], float64
ROWS = 1024  # in a batch of what methods are prepared with


def check_post_hoc(calibration: dict[str, Any], may_train: bool = False) -> None:
    """Raise UserError for the settings of a method that changes no vector, or has to be trained and may not be."""
    name = calibration["name"]
    check_method_settings([calibration])
    classes: list[Any] = [hydra.utils.get_class(part["_target_"]) for part in split_chain(calibration)]
    is_trained = not may_train and any(kind.objective is not Calibration.objective for kind in classes)
    is_none = classes == [Calibration]  # which has this name, and may be asked for
    changes = is_none or any(kind.forward is not Calibration.forward for kind in classes)
    refuse((is_trained or not changes, f"calibration={name} has to be trained, or changes no vector"))


@torch.no_grad()
def fit_method(calibration: dict[str, Any], fitted_on: Tensor, seed: int = 0) -> Transform:
    """Fit a chain of methods on vectors [M, d] as one batch; return the function that applies it to others.

    Moving averages take the batch whole (momentum 1), because there is no other batch. Everything is float64.

    Args:
        calibration: the settings of the chain, as in a config.
        fitted_on: the vectors.
        seed: of weights that a method draws at random.
    """
    vectors, pooler = fitted_on.double(), torch.nn.Identity()
    seed_everything(seed)
    chain = instantiate_chain(take_batch_whole(calibration), vectors.shape[1]).double()
    for position in find_prepared_once(chain):
        chain.train()(vectors, pooler)  # the methods before it take all rows, as `fit_cure` lets them
        chain.eval().prepare(position, vectors.split(ROWS), pooler)
    chain.train()(vectors, pooler)
    chain.eval()

    @torch.no_grad()
    def transform(h: Tensor) -> Tensor:
        return chain(h.double(), pooler)[0]

    return transform


def take_batch_whole(calibration: dict[str, Any]) -> dict[str, Any]:
    """Copy a chain's settings: methods stay in their order, as vectors have no pooler, and take all rows at once."""

    def adapt(method: dict[str, Any]) -> dict[str, Any]:
        known = {*method, *inspect.signature(hydra.utils.get_class(method["_target_"])).parameters}
        return method | {"placement": "after_pooler"} | ({"momentum": 1.0} if "momentum" in known else {})

    return map_chain(adapt, calibration)
