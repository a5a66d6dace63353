"""isobench verify on real runs: 200 seeded tamperings, training again, a forgery that only training again finds."""

import random
import shutil
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from bundle_tools import edit_rows, list_best_epochs
from helpers import make_config, make_record, tiny_overrides
from hydra.core.global_hydra import GlobalHydra
from made_up_runs import make_bundle
from tampering import CASES, change_byte, change_data_row, edit_record, list_failures, tamper

from isobench import __main__ as entry
from isobench.common.files import sha256_file
from isobench.metrics.task import evaluate_predictions
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
    sweep = ["-m", *settings, "seed=1,2", "calibration=none,isobn_paper", "hydra/launcher=sequential"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["isobench", *sweep])
        patch.delenv("HYDRA_FULL_ERROR", raising=False)
        GlobalHydra.instance().clear()
        entry.main()
    make_bundle(root / "outputs", root / "bundle")
    return root


@pytest.fixture
def here(tiny, reviews, cache) -> dict:
    return {"root": reviews, "encoders": (tiny,), "cache": cache}


def test_200_seeded_tamperings_are_named(trained, here, tmp_path):
    """Each of the ways, in both kinds of folder, with and without repaired checksums, and of data and weights."""
    assert list_failures(trained / "outputs") == list_failures(trained / "bundle") == []
    missed = []
    for number in range(180):
        name, kind, repaired = CASES[number % len(CASES)]
        shutil.copytree(trained / kind, tmp_path / "copy")
        tamper(name, number, tmp_path / "copy", repaired)
        if not list_failures(tmp_path / "copy"):
            missed.append((name, number, kind, repaired))
        shutil.rmtree(tmp_path / "copy")
    for number in range(20):
        rng = random.Random(number)
        root, encoder = (
            shutil.copytree(here["root"], tmp_path / "d"),
            shutil.copytree(here["encoders"][0], tmp_path / "e"),
        )
        if number % 2:
            change_data_row(rng, Path(root))
        else:
            change_byte(rng, Path(encoder) / "model.safetensors")
        changed = here | {"root": str(root), "encoders": (str(encoder),)}
        if not list_failures(trained / "outputs", Options(level=2, **changed)):
            missed.append(("level 2", number))
        shutil.rmtree(root)
        shutil.rmtree(encoder)
    assert missed == []


def test_runs_that_are_trained_again_are_equal_to_the_bit(trained, here, capsys):
    outcomes = verify(trained / "bundle", Options(retrain=2, seed=3, **here))
    assert [line.rpartition(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        f"isobench: trains run {number} of 2 again" for number in (1, 2)
    ]
    assert outcomes.count()["retrained"] == {HOLDS: 2}
    assert not [entry for entry in outcomes.list_entries(DIFFERS) if entry.check == "retrained"]


def forge(outputs: Path, target: Path) -> str:
    """Raise one run's score, and rewrite all that tells of it: predictions, record, manifest."""
    shutil.copytree(outputs, target / "outputs")
    folder = target / "outputs"
    run = sorted((folder / "runs").iterdir())[0]
    file = run / "predictions.parquet"

    def predict_rightly(rows: list[dict]) -> None:
        for row in rows:
            row["logits"] = [-1.25, 1.25] if row["label"] else [1.25, -1.25]
            row["prediction"] = row["label"]

    def change(content: dict) -> None:
        labels = pyarrow.parquet.read_table(file)["label"].to_numpy()
        metrics = evaluate_predictions(content["config"]["task"]["metrics"], labels, labels)
        score = metrics[content["config"]["task"]["primary"]]
        content["predictions"]["sha256"] = sha256_file(file)
        for epoch in list_best_epochs(content):
            epoch |= {"score": score, "selection": score}
            epoch["validation"] |= metrics | {"constant_predictor": False}

    edit_rows(file, predict_rightly)
    edit_record(run, change, repair=True)
    make_bundle(folder, target / "bundle")
    return run.name


def test_a_consistent_forgery_passes_level_1_and_is_named_by_level_3(trained, here, tmp_path):
    forged = forge(trained / "outputs", tmp_path)
    assert list_failures(tmp_path / "bundle") == []
    assert list_failures(tmp_path / "outputs") == []
    level_2 = Options(level=2, **here)
    assert list_failures(tmp_path / "bundle", level_2) == []
    failures = list_failures(tmp_path / "bundle", Options(retrain=4, **here))
    (failure,) = failures
    assert failure.startswith(
        f"{forged} retrained: trained again on the same kind of machine it gives other numbers: score"
    )


def test_the_instruction_set_belongs_to_the_machine_and_old_records_do_not_name_it():
    """Virtual machines show the same processor for AVX2 and AVX512, which round differently."""
    record = make_record(make_config())
    of_avx2, of_avx512 = (
        record.model_copy(update={"provenance": record.provenance.model_copy(update={"instruction_set": name})})
        for name in ("AVX2", "AVX512")
    )
    assert reproduction.is_same_machine(of_avx2, of_avx2)
    assert not reproduction.is_same_machine(of_avx2, of_avx512)
    assert not reproduction.is_same_machine(record, of_avx2)


def test_another_machine_has_a_tolerance(trained, here, monkeypatch):
    monkeypatch.setattr(reproduction, "is_same_machine", lambda old, new: False)
    monkeypatch.setattr(reproduction, "_measure_distance", lambda own, again: 1e-6)
    outcomes = verify(trained / "bundle", Options(retrain=1, **here))
    assert outcomes.count()["retrained"] == {DIFFERS: 1}
    monkeypatch.setattr(reproduction, "TOLERANCE", {"score": -1.0, "logits": -1.0})
    outcomes = verify(trained / "bundle", Options(retrain=1, **here))
    assert [entry.text.partition(":")[0] for entry in outcomes.list_entries(FAILS)] == [
        "trained again it is outside of the tolerance"
    ]


def test_a_config_with_a_foreign_class_is_trained_with_our_own(trained, here, tmp_path):
    """The class of a method is not in a run's key, so that another one is a failure, and is never imported."""
    outputs = tmp_path / "outputs"
    shutil.copytree(trained / "outputs", outputs)
    for run in (outputs / "runs").iterdir():
        edit_record(
            run, lambda record: record["config"]["calibration"].update({"_target_": "os.system"}), repair=True
        )
    outcomes = verify(outputs, Options(retrain=1, **here))
    texts = {entry.text for entry in outcomes.list_entries(FAILS)}
    assert len(texts) == 2
    assert all("is the class os.system, and isobench's is isobench.calibration." in text for text in texts)
    assert outcomes.count()["retrained"] == {HOLDS: 1}
