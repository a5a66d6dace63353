"""isobench verify on real runs: training again, a forgery that only training again finds."""

import shutil
from pathlib import Path

import pytest
from helpers import carry_out, make_config, make_record, tiny_overrides
from made_up_runs import make_bundle
from tampering import list_failures, rewrite_predictions

from isobench.verification import reproduction
from isobench.verification.folder import DIFFERS, FAILS, HOLDS
from isobench.verification.reproduction import Options
from isobench.verification.verify import verify

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("verified_runs")]


@pytest.fixture(scope="module")
def trained(tiny, reviews, cache, tmp_path_factory) -> Path:
    """An output folder of four real runs, and a bundle of them."""
    root = tmp_path_factory.mktemp("trained")
    settings = tiny_overrides(tiny, reviews, cache, root / "outputs")
    carry_out("-m", *settings, "seed=1,2", "calibration=none,isobn_paper", "hydra/launcher=sequential")
    make_bundle(root / "outputs", root / "bundle")
    return root


@pytest.fixture
def here(tiny, reviews, cache) -> dict:
    return {"root": reviews, "encoders": (tiny,), "cache": cache}


def test_runs_that_are_trained_again_are_equal_to_the_bit(trained, here):
    assert verify(trained / "bundle", Options(retrain=2, seed=3, **here)).count()["retrained"] == {HOLDS: 2}


def forge(outputs: Path, target: Path) -> str:
    """Raise one run's score, and rewrite all that tells of it: predictions, record, manifest."""
    shutil.copytree(outputs, target / "outputs")
    folder = target / "outputs"
    run = sorted((folder / "runs").iterdir())[0]

    def predict_rightly(rows: list[dict]) -> None:
        for row in rows:
            row["logits"] = [-1.25, 1.25] if row["label"] else [1.25, -1.25]
            row["prediction"] = row["label"]

    rewrite_predictions(run, predict_rightly)
    make_bundle(folder, target / "bundle")
    return run.name


def test_a_consistent_forgery_passes_level_1_and_is_named_by_level_3(trained, here, tmp_path):
    forged = forge(trained / "outputs", tmp_path)
    assert list_failures(tmp_path / "bundle") == []
    assert list_failures(tmp_path / "outputs") == []
    level_2 = Options(level=2, **here)
    assert list_failures(tmp_path / "bundle", level_2) == []
    (failure,) = list_failures(tmp_path / "bundle", Options(retrain=4, **here))
    assert failure.startswith(
        f"{forged} retrained: trained again on the same kind of machine it gives other numbers: score"
    )


def test_the_instruction_set_belongs_to_the_machine_and_old_records_do_not_name_it():
    """Virtual machines show the same processor for AVX2 and AVX512, which round differently."""
    cfg = make_config()
    made = make_record(cfg).provenance.model_dump()
    sets = ({}, {"instruction_set": "AVX2"}, {"instruction_set": "AVX512"})
    record, avx2, avx512 = (make_record(cfg, provenance=made | more) for more in sets)
    mixed, untold = (avx2.model_copy(update={"mixed": told, "attempts": 2}) for told in (True, None))
    pairs = ((avx2, avx2), (avx2, avx512), (record, avx2), (mixed, avx2), (untold, avx2))
    assert [reproduction.is_same_machine(*pair) for pair in pairs] == [True, False, False, False, False]


def test_another_machine_has_a_tolerance(trained, here, monkeypatch):
    monkeypatch.setattr(reproduction, "is_same_machine", lambda old, new: False)
    monkeypatch.setattr(reproduction, "_measure_distance", lambda own, again: 1e-6)
    for tolerance, outcome in ((reproduction.TOLERANCE, DIFFERS), ({"score": -1.0, "logits": -1.0}, FAILS)):
        monkeypatch.setattr(reproduction, "TOLERANCE", tolerance)
        assert verify(trained / "bundle", Options(retrain=1, **here)).count()["retrained"].keys() == {outcome}
