"""`isobench.Calibrator` as a transformer of scikit-learn, and as a layer of sentence-transformers."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import isobench

RNG = np.random.default_rng(0)
X, Y = ((RNG.normal(size=(rows, 12)) * np.linspace(1, 3, 12) + 1).astype(np.float32) for rows in (200, 30))
NOT_APPLICABLE = {
    "check_no_attributes_set_in_init": "the parameters are those of the method, so the signature can't list them",
    "check_array_api_input": "skipped by scikit-learn itself unless an environment variable is set",
}


@pytest.mark.slow
@pytest.mark.parametrize("made", [{}, {"method": "whitening_zca", "epsilon": 0.1}, {"method": "center_scaled"}])
def test_scikit_learns_own_checks(made):
    results = check_estimator(isobench.Calibrator(**made), on_skip=None, on_fail=None)
    failed = {result["check_name"] for result in results if result["status"] != "passed"}
    assert failed <= NOT_APPLICABLE.keys()
    assert len(results) > 30


def test_parameters_clones_pipelines_and_searches():
    made = isobench.Calibrator("all_but_the_top", components=2)
    assert clone(made).get_params() == {"method": "all_but_the_top", "components": 2}
    steps = make_pipeline(made, LogisticRegression()).fit(X, X[:, 0] > 1)
    assert steps.score(X, X[:, 0] > 1) > 0.8
    search = GridSearchCV(steps, {"calibrator__components": [1, 2]}, cv=2).fit(X, X[:, 0] > 1)
    assert search.best_params_["calibrator__components"] in (1, 2)
    pca = isobench.Calibrator("whitening_pca").set_params(components=3).fit(X)
    assert pca.transform(torch.from_numpy(Y)).shape == (30, 3)
    with pytest.raises(ValueError, match="whitening_zca"):
        isobench.Calibrator("whitening_zcaa").fit(X)
    with pytest.raises(ValueError, match="epsilonn"):
        isobench.Calibrator("whitening_zca", epsilonn=1).fit(X)


@pytest.mark.parametrize(
    "made", [{"method": "whitening_zca", "epsilon": 0.1}, {"method": "center_scaled"}, {"method": "all_but_the_top"}]
)
def test_saved_and_loaded_it_is_the_same(made, tmp_path):
    fitted = isobench.Calibrator(**made).fit(X)
    fitted.save(tmp_path / "c.safetensors")
    again = isobench.Calibrator.load(tmp_path / "c.safetensors")
    assert again.get_params() == again.get_params() | made
    assert again.n_features_in_ == 12
    assert np.array_equal(again.transform(Y), fitted.transform(Y))
    assert clone(again).fit(X).transform(Y) == pytest.approx(fitted.transform(Y))


def test_the_same_as_a_layer_of_sentence_transformers():
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    fitted = isobench.Calibrator("whitening_zca", epsilon=0.1).fit(X)
    layer = fitted.as_sentence_transformers_module()
    theirs = layer({"sentence_embedding": torch.from_numpy(Y)})["sentence_embedding"].detach().double()
    ours = torch.from_numpy(fitted.transform(Y)).double()
    assert torch.cosine_similarity(ours, theirs).min() > 1 - 1e-6
    with pytest.raises(ValueError, match="affine"):
        isobench.Calibrator("center_scaled").fit(X).as_sentence_transformers_module()
