"""`isobench fit` and `apply`, and the file between them: formulas, batches, what is refused."""

import hashlib
import json
import re
import textwrap

import numpy as np
import pytest
import torch
import yaml
from helpers import ROOT, WORDS, check_done, check_refused, fails
from safetensors.numpy import load_file, save_file

from isobench.calibration import Calibration, Chain, Flow, Link
from isobench.common.errors import UserError
from isobench.frozen import cure as cures
from isobench.frozen.cure import Cure, fit_cure
from isobench.frozen.posthoc import fit_method

RNG = np.random.default_rng(0)
ROWS, DIM = 3000, 16
ROTATION = np.linalg.qr(RNG.normal(size=(DIM, DIM)))[0]
X = (RNG.normal(size=(ROWS, DIM)) * np.linspace(0.5, 2, DIM) @ ROTATION + RNG.normal(size=DIM)).astype(np.float32)
Y = (RNG.normal(size=(50, DIM)) * 2).astype(np.float32)


def settings(name, **changes):
    return yaml.safe_load((ROOT / "conf" / "calibration" / f"{name}.yaml").read_text()) | changes


def deviation(ours, derived):
    return np.abs(ours - derived).max() / np.abs(derived).max()


CASES = [
    *((name, {}) for name in "center center_scaled isobn_paper isobn_released isobn_original whitening_zca".split()),
    *((name, {}) for name in "fixed_norm_z fixed_norm_minmax fixed_norm_l2 batch_norm gradient_norm".split()),
    ("all_but_the_top", {"D": 3}), ("all_but_the_top", {"D": 3, "centered_projection": False}),
    ("whitening_zca", {"epsilon": 0.1}), ("whitening_zca", {"keep_norm": True}), ("whitening_pca", {"k": 5}),
]  # fmt: skip


def apply_method(chain):
    """The method itself, which tests/calibration holds against its equations, fitted on the whole array."""
    return fit_method(chain, torch.from_numpy(X))(torch.from_numpy(Y)).numpy()


@pytest.mark.parametrize(("name", "changes"), CASES)
def test_a_cure_is_its_method_whatever_the_batches_and_stays_so_in_the_file(name, changes, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", X)
    monkeypatch.setattr("isobench.frozen.matrix.BATCH_NUMBERS", 700 * DIM)
    monkeypatch.setattr(cures, "PIECE_ROWS", 256)
    cure, _ = fit_cure(settings(name, **changes), np.load(tmp_path / "x.npy", mmap_mode="r"))
    whole = apply_method(settings(name, **changes))
    assert deviation(np.concatenate(list(cure.apply(Y))), whole) < 1e-6
    cure.save(tmp_path / "c.safetensors")
    again = Cure.load(tmp_path / "c.safetensors")
    assert np.array_equal(again.transform(Y), cure.transform(Y))
    assert (again.rows, again.width, again.sha256) == (ROWS, DIM, hashlib.sha256(X.tobytes()).hexdigest())
    assert (cure.chain is None) == (name != "center_scaled" and "centered_projection" not in changes)
    monkeypatch.setattr(cures, "EXACT_ROWS", 0)  # float32 products, as of many rows
    coarse, _ = fit_cure(settings(name, **changes), X)
    assert deviation(coarse.transform(Y), whole) < 1e-5


def test_a_chain_keeps_its_order_and_each_method_is_fitted_on_all_rows():
    chain = settings("isobn_paper", then=settings("fixed_norm_z"))
    whole = fit_method(chain, torch.from_numpy(X))(torch.from_numpy(X)).numpy()
    for found in (whole, fit_cure(chain, X)[0].transform(X)):
        assert found.std(0) == pytest.approx(1, rel=1e-3)
    chain = settings("fixed_norm_minmax", then=settings("whitening_zca", then=settings("center_scaled")))
    assert deviation(fit_cure(chain, X)[0].transform(Y), apply_method(chain)) < 1e-6
    assert fit_cure(settings("fixed_norm_minmax", then=settings("whitening_zca")), X)[0].matrix is not None


def test_every_method_that_diagnose_can_fit_is_among_them():
    def can_be_fitted(name):
        try:
            cures.check_post_hoc(settings(name))
        except UserError:
            return False
        return True

    names = {file.stem for file in (ROOT / "conf" / "calibration").glob("*.yaml") if can_be_fitted(file.stem)}
    assert names - {"none", "gradient_norm_half"} == {name for name, _ in CASES}


class Moving(Calibration):
    def __init__(self, dim, momentum=0.1):
        super().__init__(dim)
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(dim))

    def forward(self, h):
        if self.training:
            self.mean.lerp_(h.mean(0), self.momentum)
        return h - self.mean


def test_an_own_method_takes_all_rows_whole_whose_yaml_does_not_set_its_momentum():
    place = {"placement": "after_pooler", "target": "head"}
    own = {"_target_": f"{__name__}.Moving", "name": "moving", "version": 1} | place
    for chain in (own, settings("gradient_norm", then=own)):  # which changes no vector
        for found in (fit_cure(chain, X)[0].transform(Y), apply_method(chain)):
            assert deviation(found, Y - X.mean(0, dtype=float)) < 1e-6


def test_rows_with_nan_are_left_out_and_stay_nan():
    broken = X.copy()
    broken[[7, 2900], [0, 3]] = np.nan, np.inf
    cure, notes = fit_cure(settings("whitening_zca"), broken)
    assert cure.rows == ROWS - 2
    assert re.search(r"\b2 rows.*\b7\b", notes[0])
    kept = np.delete(X, [7, 2900], 0)
    assert np.array_equal(cure.transform(Y), fit_cure(settings("whitening_zca"), kept)[0].transform(Y))
    assert np.flatnonzero(np.isnan(cure.transform(broken)).all(1)).tolist() == [7, 2900]
    assert np.isfinite(cure.transform(kept)).all()


@pytest.mark.parametrize("row", [np.zeros(DIM), X[0], X[0].astype(float) + 1e4])
def test_equal_rows_are_named(row):
    assert "equal" in fit_cure(settings("whitening_zca"), np.tile(row, (ROWS, 1)))[1][0]


def test_large_means_and_constant_coordinates_leave_no_noise():
    x = X.astype(float) + 1e4
    x[:, 3] = 0.1
    found = fit_cure(settings("whitening_zca", shrinkage=0.0), x)[0].transform(x)
    assert np.abs(np.delete(np.cov(found.T), 3, 0)[:, [0, 1, 2, *range(4, DIM)]] - np.eye(DIM - 1)).max() < 1e-3
    assert np.abs(found[:, 3]).max() < 1e-3


@pytest.mark.slow
def test_a_flow_is_trained_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(cures, "STEPS", 60)
    skewed = np.exp(X / 2)
    cure, _ = fit_cure(settings("flow", levels=1, lr=0.01), skewed)
    cure.save(tmp_path / "c.safetensors")
    again = Cure.load(tmp_path / "c.safetensors")
    assert np.array_equal(again.transform(skewed), cure.transform(skewed))
    untrained = Chain([Link(Flow(DIM, levels=1))])
    untrained.train()(torch.from_numpy(skewed), torch.nn.Identity())
    bits = [own.calibrations[0].objective(torch.from_numpy(skewed)).item() for own in (again.chain, untrained)]
    assert bits[0] < bits[1]


WRONG = {
    "no cure": {"format": "pt"},
    "another class": {"calibration": {"_target_": "os.system", "name": "x"}},
    "a class of torch": {"calibration": {"_target_": "isobench.calibration.base.nn.Linear", "name": "x"}},
    "a setting of another type": {"calibration": {"lr": {"_target_": "os.getcwd"}}},
    "an unknown setting": {"calibration": {"command": "true"}},
}


@pytest.mark.parametrize("case", WRONG)
def test_nothing_in_a_file_is_run(case, tmp_path, monkeypatch):
    monkeypatch.setattr(cures, "STEPS", 1)
    file = tmp_path / "c.safetensors"
    fit_cure(settings("flow", levels=1), X)[0].save(file)
    tensors = load_file(file)
    with cures.safe_open(file, "np") as opened:
        about = opened.metadata()
    change = dict(WRONG[case])
    if "calibration" in change:
        change["calibration"] = json.dumps(json.loads(about["calibration"]) | change["calibration"])
    save_file(tensors, file, about | change)
    with fails():
        Cure.load(file)


@pytest.mark.parametrize(
    ("name", "changes", "vectors"),
    [
        ("uniformity", {}, X), ("center", {}, X[:1]), ("center", {}, X[:0]),
        ("center", {}, X * np.nan), ("all_but_the_top", {"D": DIM}, X), ("all_but_the_top", {}, X[:, :1]),
        ("all_but_the_top", {"D": 4}, X[:4]), ("whitening_pca", {"k": 5}, X[:5]), ("whitening_pca", {"k": 17}, X),
        ("flow", {}, X[:, :3]), ("center", {}, X.astype(float) * 1e200),
    ],
)  # fmt: skip
def test_what_can_not_be_fitted(name, changes, vectors):
    with fails():
        fit_cure(settings(name, **changes), vectors.astype(float))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", X)
    broken = Y.copy()
    broken[3, 1] = np.nan
    np.save("Y.npy", broken)
    (tmp_path / "t.txt").write_text("".join(f"{' '.join(RNG.choice(WORDS, 6))}\n" for _ in range(40)))
    return tmp_path


FIT = ["fit", "X.npy", "calibration=all_but_the_top", "calibration.components=1", "--to", "cure.safetensors"]


def test_fit_and_apply_as_they_are_typed(cli, folder):
    out, _ = check_done(cli(*FIT))
    page = (ROOT / "docs/how-to/cure.md").read_text()
    (printed, for_torch), (documented,) = (
        re.findall(r"^ +from safetensors.*\n.*\n +Z = .*$", text, re.MULTILINE) for text in (out, page)
    )
    assert printed == documented
    out, _ = check_done(cli("apply", "cure.safetensors", "Y.npy", "--to", "Z.npy"))
    assert re.search(r"^1 row .*\b3\b", out, re.MULTILINE)
    z, whole = np.load("Z.npy"), np.arange(len(Y)) != 3
    assert z.dtype == np.float32
    assert deviation(z[whole], apply_method(settings("all_but_the_top", D=1))[whole]) < 1e-6
    check_refused(cli("apply", "cure.safetensors", "Y.npy", "--to", "Y.npy"))
    known = {"Y": np.load("Y.npy")}
    exec(textwrap.dedent(documented), known)
    assert np.allclose(known["Z"], z, rtol=1e-6, atol=1e-6, equal_nan=True)
    known["Y"] = torch.from_numpy(known["Y"]).double()
    exec(textwrap.dedent(for_torch), known)
    assert np.allclose(known["Z"], z, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.slow
def test_an_encoder_that_is_known_and_another_is_refused(cli, folder, tiny, cache):
    local = ["encoder=local", f"encoder.path={tiny}", f"data.cache={cache}"]
    check_done(cli("fit", "t.txt", "calibration=center", *local, "--to=c.safetensors"))
    check_done(cli("apply", "c.safetensors", "t.txt", *local, "--to=z.npy"))
    assert np.abs(np.load("z.npy").mean(0)).max() < 1e-6
    assert Cure.load(folder / "c.safetensors").encoder["pooling"] == "mean"
    np.save("same_width.npy", np.load("z.npy"))
    check_done(cli("apply", "c.safetensors", "same_width.npy", "--to=z.npy"))
    check_refused(cli("apply", "c.safetensors", "same_width.npy", "encoder=minilm", "--to=z.npy"), "minilm")
    check_refused(cli("apply", "c.safetensors", "t.txt", *local, "encoder.pooling=cls", "--to=z.npy"), "cls")


@pytest.mark.slow
def test_mistakes_are_one_line(cli, folder):
    check_done(cli(*FIT))
    np.save("narrow.npy", Y[:, :3])
    for arguments in (
        ["fit"], FIT[:-2], [*FIT[:-1], "c.npy"], ["fit", "gone.npy", *FIT[2:]],
        ["fit", "X.npy", "calibration=center,flow", "--to=c.safetensors"], ["apply", "X.npy", "Y.npy", "--to=Z.npy"],
        ["apply", FIT[-1], "narrow.npy", "--to=Z.npy"], ["apply", FIT[-1], "Y.npy", "--to=Z.safetensors"],
    ):  # fmt: skip
        check_refused(cli(*arguments))
    assert not (folder / "Z.npy").exists()
