"""A fitted calibration as scikit-learn's transformers are: fit, transform, get_params, in a Pipeline."""

import importlib
import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from isobench.common.errors import UserError, suggest_nearest
from isobench.config.schema import CALIBRATION_KEYS
from isobench.frozen.cure import Cure, fit_cure
from isobench.papers.folders import find_config, list_configs, read_config_file


class Calibrator(TransformerMixin, BaseEstimator):
    """Fit a post-hoc method on vectors [N, d] and apply it to others; what is wrong with them is a ValueError.

    Rows with NaN or infinity are left out with a warning; ``transform`` makes them NaN.

    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> Calibrator("all_but_the_top", components=1).fit(X).transform(X).shape
    (100, 8)

    Args:
        method: a name that ``isobench methods`` lists.
        settings: the method's, as in its YAML. ``components``: the D of ``all_but_the_top``, the k of
            ``whitening_pca``. ``then``: the settings of the next method of a chain.
    """

    cure_: Cure
    n_features_in_: int

    def __init__(self, method: str = "center", **settings: Any) -> None:
        self.method = method
        self.__dict__.update(settings)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the method's name and the settings that were given."""
        return {name: value for name, value in vars(self).items() if name[0] != "_" and name[-1] != "_"}

    def set_params(self, **params: Any) -> Self:
        """Set the method or settings of it."""
        self.__dict__.update(params)
        return self

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the method on vectors [N, d]; ``y`` is not read."""
        vectors = validate_data(self, X, ensure_all_finite=False, ensure_min_samples=2)
        given = self.get_params()
        try:
            settings = _read_settings(given.pop("method"))
            if "components" in given:
                given["D" if "D" in settings else "k"] = given.pop("components")
            self.cure_, notes = fit_cure(settings | given, vectors)
        except UserError as error:
            raise ValueError(str(error)) from error
        for note in notes[:-1]:  # the last describes the vectors, and warns of nothing
            warnings.warn(note, stacklevel=2)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Calibrate vectors: [N, d] -> [N, k], float32 or float64 as they are."""
        check_is_fitted(self)
        vectors = validate_data(self, X, reset=False, ensure_all_finite=False)
        return np.concatenate(list(self.cure_.apply(vectors)))

    def save(self, path: str | Path) -> None:
        """Write the fitted method to a .safetensors file, as ``isobench fit`` does; no pickle."""
        check_is_fitted(self)
        self.cure_.save(Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a fitted method that ``save`` or ``isobench fit`` wrote."""
        cure = Cure.load(Path(path))
        settings = {key: v for key, v in cure.calibration.items() if key == "then" or key not in CALIBRATION_KEYS}
        found = cls(cure.calibration["name"], **settings)
        found.cure_, found.n_features_in_ = cure, cure.width
        return found

    def as_sentence_transformers_module(self) -> Any:
        """Return a ``Dense`` module of sentence-transformers with the same output; the method must be affine."""
        matrix, mean = self.cure_.matrix, self.cure_.mean
        if matrix is None or mean is None:
            raise ValueError(f"{self.method} is not affine: no Dense layer computes it")
        try:
            modules = importlib.import_module("sentence_transformers.sentence_transformer.modules")
        except ImportError:  # versions before 6
            modules = importlib.import_module("sentence_transformers.models")
        bias = -mean.astype(np.float64) @ matrix  # (x - mean) @ matrix = x @ matrix + bias
        weights = torch.tensor(matrix.T), torch.tensor(bias.astype(np.float32))
        return modules.Dense(*matrix.shape, True, torch.nn.Identity(), *weights)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _read_settings(method: str) -> dict[str, Any]:
    file = find_config("calibration", str(method))
    if file is None:
        names = list_configs("calibration")
        raise UserError(f"there is no method {method!r}: {suggest_nearest(str(method), names)}")
    return read_config_file(file)
