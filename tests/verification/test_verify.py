"""isobench verify: what holds in intact folders, and that each kind of tampering is named."""

import json
import math
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from bundle_tools import (
    edit_rows,
    editable,
    list_best_epochs,
    read_predictions,
    read_texts,
    repair,
    sign,
    write_signed_json,
    write_tables,
)
from helpers import make_config
from tampering import CASES, NOT_IN_PREDICTIONS, change_byte, change_data_row, edit_record, list_failures, tamper

from isobench.cli import verify as verify_command
from isobench.common.errors import UserError
from isobench.common.files import sha256_file
from isobench.data.sources import fingerprint_data
from isobench.metrics.task import evaluate_predictions
from isobench.runs import bundled
from isobench.runs.record import format_record
from isobench.runs.trust import UntrustedError, find_other_classes, read_own_classes, use_own_classes
from isobench.verification import reproduction
from isobench.verification.folder import DIFFERS, HOLDS, UNCHECKED
from isobench.verification.reproduction import NotAvailable, Options
from isobench.verification.run_check import CheckedRun, PredictedSplit, parse_predictions
from isobench.verification.verify import verify


def test_an_intact_folder_holds(folder):
    assert list_failures(folder) == []
    counts = verify(folder, Options()).count()
    assert all(counts[check][HOLDS] == 4 for check in ("record", "config", "scores", "labels"))
    assert counts["key"][HOLDS] == (5 if folder.name == "bundle" else 4)  # those of the plan too


@pytest.mark.parametrize(("name", "kind", "repaired"), CASES)
def test_each_kind_of_tampering_is_named(places, tmp_path, name, kind, repaired):
    for seed in range(3):
        folder = Path(shutil.copytree(places / kind, tmp_path / f"{kind} {seed}"))
        tamper(name, seed, folder, repaired)
        assert list_failures(folder), seed


@pytest.mark.parametrize("name", sorted(NOT_IN_PREDICTIONS))
def test_what_only_training_again_can_find_passes(bundle, name):
    """The page on verify says so; a removed run is a planned one that the bundle does not have."""
    tamper(name, 1, bundle, repair=True)
    outcomes = verify(bundle, Options())
    assert not outcomes.has_failed
    texts = [entry.text for entry in outcomes.list_entries(UNCHECKED)]
    assert texts == (["of the 4 runs of the plan, 1 are not in the bundle"] if name == "delete_run" else [])


def test_level_2_names_changed_data_weights_and_other_versions(places, tmp_path):
    for name in ("data", "encoder"):
        shutil.copytree(places / name, tmp_path / name)
    level_2 = Options(level=2, root=str(tmp_path / "data"), encoders=(str(tmp_path / "encoder"),))
    outcomes = verify(places / "outputs", level_2)
    counts = outcomes.count()
    assert counts["data"] == counts["weights"] == {HOLDS: 4}
    texts = {entry.text for entry in outcomes.list_entries(DIFFERS)}
    assert any(text.startswith("python is ") for text in texts)  # made-up records say 3.11
    assert not outcomes.has_failed
    change_data_row(random.Random(0), tmp_path / "data")
    assert len(list_failures(places / "outputs", level_2)) == 4
    change_byte(random.Random(0), tmp_path / "encoder" / "model.safetensors")
    failures = list_failures(places / "outputs", level_2)
    assert sum("its weights are not those of its record: model.safetensors" in text for text in failures) == 4


def test_level_2_follows_no_path_of_a_config_unless_it_is_trusted(places):
    outcomes = verify(places / "outputs", Options(level=2))
    assert outcomes.count()["data"] == outcomes.count()["weights"] == {UNCHECKED: 4}
    trusted = verify(places / "outputs", Options(level=2, trust=True)).count()
    assert trusted["data"] == trusted["weights"] == {HOLDS: 4}


def test_a_folder_of_which_predictions_were_removed_is_counted_as_not_checked(folder):
    """In a bundle, all must lack them: one run whose score can't be computed again may have any."""
    with editable(folder) as place:
        removed = sorted(place.glob("runs/*/predictions.parquet"))[: 4 if folder.name == "bundle" else 1]
        for file in removed:
            file.unlink()
    outcomes = verify(folder, Options())
    assert not outcomes.has_failed
    assert outcomes.count()["scores"][UNCHECKED] == len(removed)


def test_a_score_that_differs_in_its_last_digit_is_named_and_is_no_failure(folder):
    """Processors with the same name round sums differently."""

    def change(content):
        score = math.nextafter(content["best"]["score"], 2.0)
        for epoch in list_best_epochs(content):
            epoch |= {"score": score, "selection": score}
            epoch["validation"] |= {"accuracy": score}

    with editable(folder) as place:
        run = sorted(place.glob("runs/*"))[0]
        edit_record(run, change, repair=True)
    outcomes = verify(folder, Options())
    assert outcomes.count()["scores"] == {HOLDS: 4, DIFFERS: 1}
    assert [entry.subject for entry in outcomes.list_entries(DIFFERS)] == [run.name]


def test_labels_that_were_changed_with_the_score_are_found_by_other_runs(folder):
    """Labels and score of one run agree again; the other runs on the same data tell."""

    def relabel(rows):
        row = next(row for row in rows if row["label"] != row["prediction"])
        row["label"] = row["prediction"]

    def change(content):
        table = pyarrow.parquet.read_table(file)
        labels, predictions = table["label"].to_pylist(), table["prediction"].to_pylist()
        metrics = evaluate_predictions(content["config"]["task"]["metrics"], labels, predictions)
        content["predictions"]["sha256"] = sha256_file(file)
        for epoch in list_best_epochs(content):
            epoch["validation"] |= metrics
            epoch |= {"score": metrics["accuracy"], "selection": metrics["accuracy"]}

    with editable(folder) as place:
        run = sorted(place.glob("runs/*"))[0]
        file = run / "predictions.parquet"
        edit_rows(file, relabel)
        edit_record(run, change, repair=True)
    assert list_failures(folder) == [
        f"{run.name} labels: its labels or numbers of examples are not those of 3 other run(s) on the same data"
    ]


@pytest.mark.parametrize("forge", ["key", "settings"])
def test_each_run_of_an_output_folders_plan_has_the_key_that_its_settings_give(places, tmp_path, forge):
    """A report would lack the run, or show it with other settings."""
    outputs = Path(shutil.copytree(places / "outputs", tmp_path / "outputs"))
    (outputs / "plans").mkdir()
    content = json.loads((places / "bundle" / "plan.json").read_text())
    write_signed_json(outputs / "plans" / "0.json", content)
    assert verify(outputs, Options()).count()["key"] == {HOLDS: 5}
    if forge == "key":
        content["runs"][1]["key"] = "0" * 64
    else:
        content["settings"]["optimization"][0]["lr"] *= 2
    write_signed_json(outputs / "plans" / "0.json", content)
    failures = list_failures(outputs)
    assert failures
    assert all(text.startswith("plans key: ") for text in failures)


def test_a_plan_with_another_class_under_a_methods_name_fails(bundle):
    content = json.loads((bundle / "plan.json").read_text())
    content["settings"]["calibration"][0]["_target_"] = "os.system"
    write_signed_json(bundle / "plan.json", content)
    repair(bundle)
    assert any("is the class os.system" in text for text in list_failures(bundle))


@pytest.mark.parametrize("left", [0, 3])
def test_a_plan_that_lacks_a_run_of_the_bundle_fails(bundle, left):
    content = json.loads((bundle / "plan.json").read_text())
    content["runs"] = content["runs"][:left]
    write_signed_json(bundle / "plan.json", content)
    repair(bundle)
    failures = list_failures(bundle)
    assert len([text for text in failures if text.endswith("the plan does not ask for this run")]) == 4 - left


def test_what_fails_is_not_trained_again(folder, monkeypatch):
    trained = []
    monkeypatch.setattr(reproduction, "_train_again", lambda cfg: trained.append(cfg) or (None, None))
    tamper("change_score", 4, folder, repair=True)
    verify(folder, Options(retrain=4, trust=True))
    assert len(trained) == 3


def test_runs_are_drawn_among_those_that_can_be_trained_here(folder, places, monkeypatch):
    trained = []
    monkeypatch.setattr(reproduction, "_train_again", lambda cfg: trained.append(cfg) or (None, None))
    here = {"root": str(places / "data"), "encoders": (str(places / "encoder"),)}
    other = Options(retrain=1, root=here["root"])
    (text,) = [entry.text for entry in verify(folder, other).list_entries(UNCHECKED) if entry.check == "retrained"]
    assert text.startswith("4 of 4 finished run(s) can't be trained here, and are not drawn: its encoder was read")
    prepare = reproduction._prepare_training
    names = []

    def prepare_the_first(run, options):
        names.append(run.name)
        if len(names) > 1:
            raise NotAvailable("no")
        return prepare(run, options)

    monkeypatch.setattr(reproduction, "_prepare_training", prepare_the_first)
    for seed in range(3):
        names.clear()
        outcomes = verify(folder, Options(retrain=2, seed=seed, **here))
        assert len(trained) == seed + 1
        texts = [entry.text for entry in outcomes.list_entries(UNCHECKED) if entry.check == "retrained"]
        assert "3 of 4 finished run(s) can't be trained here, and are not drawn: no" in texts


def test_files_of_the_users_own_are_found_by_their_sha256_below_a_folder(places, tmp_path):
    """Their names and places are others here, and the config's are not followed."""
    sst2 = places / "data" / "glue" / "sst2"
    cfg = make_config("task=sst2", f"data.files={{train:{sst2}/train.parquet,validation:{sst2}/validation.parquet}}")
    recorded = fingerprint_data(cfg.task, cfg.data)
    hidden = replace(cfg, data=replace(cfg.data, files=dict.fromkeys(cfg.data.files, "PATH/TO/x.parquet")))
    (tmp_path / "deep" / "er").mkdir(parents=True)
    shutil.copy(sst2 / "train.parquet", tmp_path / "deep" / "er" / "renamed.parquet")
    shutil.copy(sst2 / "train.parquet", tmp_path / "x.csv")  # of another format
    with pytest.raises(NotAvailable, match="add data.root=FOLDER"):
        reproduction._locate_data(hidden, recorded, Options())
    with pytest.raises(NotAvailable, match="no file below"):
        reproduction._locate_data(hidden, recorded, Options(root=str(tmp_path)))
    shutil.copy(sst2 / "validation.parquet", tmp_path / "x.parquet")
    found = reproduction._locate_data(hidden, recorded, Options(root=str(tmp_path)))
    assert fingerprint_data(cfg.task, found) == recorded
    assert set(found.files.values()) == {f"{tmp_path}/deep/er/renamed.parquet", f"{tmp_path}/x.parquet"}


def test_a_file_of_another_encoding_is_found_too(tmp_path):
    file = tmp_path / "here" / "train.csv"
    file.parent.mkdir()
    file.write_text("text,label\n" + "\u00e9t\u00e9,0\n\u00e0,1\n" * 3, encoding="latin-1")
    cfg = make_config("task=mine", f"data.files={{train:{file},validation:{file}}}", "data.encoding=latin1")
    recorded = fingerprint_data(cfg.task, cfg.data)
    hidden = replace(cfg, data=replace(cfg.data, files=dict.fromkeys(cfg.data.files, "train.csv")))
    found = reproduction._locate_data(hidden, recorded, Options(root=str(file.parent)))
    assert fingerprint_data(cfg.task, found) == recorded


def test_a_language_model_has_no_labels_to_compare(places):
    cfg = make_config("task=wikitext2", "encoder=gpt-scratch")
    record = SimpleNamespace(data=SimpleNamespace(fingerprint={}))
    run = CheckedRun("x", record, cfg, labels={"validation": "numbers of tokens"})
    assert reproduction._compare_labels(run, Options()) == []
    one, other = (
        PredictedSplit(tokens := np.array([50.0, 100.0]), nats, nats[:, None], tokens[:, None])
        for nats in (np.ones(2), np.full(2, 6.0))
    )
    assert reproduction._measure_distance(one, other) == pytest.approx(math.hypot(0.1, 0.05) / math.sqrt(2))
    assert reproduction._measure_distance(replace(one, units=1.0), other) == 5


def test_runs_of_other_methods_may_have_the_same_outputs(folder):
    """A method of strength 0 is plain fine-tuning."""
    assert list_failures(folder) == []
    with editable(folder) as place:
        runs = {json.loads((run / "result.json").read_text())["key"]: run for run in place.glob("runs/*")}
        contents = {key: json.loads((run / "result.json").read_text()) for key, run in runs.items()}
        one, two = [content for content in contents.values() if content["config"]["seed"] == 1]
        shutil.copy(runs[one["key"]] / "predictions.parquet", runs[two["key"]])
        same = {name: one[name] for name in ("best", "history", "predictions")}
        (runs[two["key"]] / "result.json").write_bytes(format_record(two | same))
    assert list_failures(folder) == []


def test_what_is_added_to_a_bundle_is_named(bundle):
    (bundle / "more.html").write_text("x")
    assert list_failures(bundle) == ["more.html files: the manifest does not name it"]
    repair(bundle)
    assert any("more.html" in failure for failure in list_failures(bundle))


def swap(values, one, two):
    return values | {one: values[two], two: values[one]}


@pytest.mark.parametrize("name", ["records.parquet", "predictions.parquet", "plan.json", "bundle.json"])
@pytest.mark.parametrize("damage", ["byte", "cut", "missing"])
def test_a_damaged_bundle_fails_by_one_line_and_exit_code_1(bundle, command, name, damage):
    file = bundle / name
    if damage == "byte":
        change_byte(random.Random(name), file)
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-20])
    else:
        file.unlink()
    code, out, err = command(verify_command.main, str(bundle))
    assert (code, err) == (1, "")
    assert len([line for line in out.splitlines() if " files: " in line]) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda texts, rows, one, two: (swap(texts, one, two), rows),
        lambda texts, rows, one, two: (texts, swap(rows, one, two)),
        lambda texts, rows, one, two: (
            texts,
            rows | {one: pyarrow.concat_tables([rows[one], rows[one].slice(0, 1)])},
        ),
        lambda texts, rows, one, two: (texts, rows | {one: rows[one].slice(1)}),
        lambda texts, rows, one, two: (texts, rows | {"0" * 64: rows[one]}),
        lambda texts, rows, one, two: (texts, {two: rows[two]}),
        lambda texts, rows, one, two: (texts | {one: texts[one].replace(b'"attempts": 1', b'"attempts": 2')}, rows),
        lambda texts, rows, one, two: (texts | {one: b"{}"}, rows),
        lambda texts, rows, one, two: (texts | {one: b"[" * 100_000}, rows),
    ],
)
def test_tables_that_contradict_themselves_fail_also_with_new_checksums(bundle, change):
    texts, rows = read_texts(bundle), read_predictions(bundle)
    one, two, *_ = sorted(texts, key=lambda key: json.loads(texts[key])["best"]["score"])[:: len(texts) - 1]
    write_tables(bundle, *change(texts, rows, one, two))
    assert list_failures(bundle)


@pytest.mark.parametrize("name", ["records.parquet", "predictions.parquet"])
def test_a_run_that_stands_in_a_table_twice_fails(bundle, name):
    table = pyarrow.parquet.read_table(bundle / name)
    pyarrow.parquet.write_table(pyarrow.concat_tables([table, table.slice(0, 1)]), bundle / name)
    sign(bundle, lambda manifest: manifest["files"].update({name: sha256_file(bundle / name)}))
    (failure,) = list_failures(bundle)
    assert "twice" in failure


def test_hostile_files_are_refused_without_being_read(places, tmp_path):
    folder = Path(shutil.copytree(places / "outputs", tmp_path / "outputs"))
    runs = sorted(folder.glob("runs/*"))
    (runs[0] / "result.json").unlink()
    os.mkfifo(runs[0] / "result.json")
    (runs[1] / "predictions.parquet").write_bytes(b"PAR1 no Parquet PAR1")
    edit_record(runs[2], lambda record: record["config"]["optimization"].update(epochs="many"), repair=True)
    (runs[3] / "result.json").write_text("[" * 100_000)
    failures = "\n".join(list_failures(folder))
    for text in ("not a regular file", "its predictions can't be used", "its config can't be used", "is damaged"):
        assert text in failures


@pytest.mark.parametrize("name", ["result.json", "predictions.parquet"])
def test_a_folder_in_the_place_of_a_file_fails(places, tmp_path, name):
    folder = Path(shutil.copytree(places / "outputs", tmp_path / "outputs"))
    run = sorted(folder.glob("runs/*"))[0]
    (run / name).unlink()
    (run / name).mkdir()
    assert any("not a regular file" in text for text in list_failures(folder))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"experiment": "glue_isobn"}, "it is a plan of None"),
        ({"runs": {"0" * 64: 1.0}}, "its runs are not those"),
    ],
)
def test_what_a_manifest_says_is_compared(bundle, change, message):
    sign(bundle, lambda manifest: manifest.update(change))
    assert any(message in failure for failure in list_failures(bundle)), list_failures(bundle)


def test_a_method_of_another_class_is_named_and_never_made():
    """The class is not in the key: isobench's own BatchNorm under the name of plain fine-tuning has plain's key."""
    cfg = make_config("task=sst2", "calibration=none", "+experiment=isobn_drift")
    assert cfg.monitors
    assert list(find_other_classes(cfg)) == []
    assert use_own_classes(cfg) == cfg
    plain = cfg.calibration
    for target, is_named in (
        ("isobench.calibration.BatchNorm", True),
        ("os.system", True),
        ("isobench.calibration.former_module.Calibration", False),
    ):
        for changed in (plain | {"_target_": target}, plain | {"then": plain | {"_target_": target}}):
            other = replace(cfg, calibration=changed)
            assert any(find_other_classes(other)) == is_named, target
            assert target not in str(use_own_classes(other)), target
    name, monitor = next(iter(cfg.monitors.items()))
    other = replace(cfg, monitors={name: monitor | {"_target_": "isobench.analyses.runner.Table"}})
    assert "the monitor" in str(list(find_other_classes(other)))
    for foreign in ({"name": "mine"}, {"beta": [{"_target_": "os.system", "command": "true"}]}):
        with pytest.raises(UntrustedError, match="--trust"):
            use_own_classes(replace(cfg, calibration=plain | foreign))
    assert read_own_classes()["calibration", "isobn_paper"].endswith(".IsoBN")


def test_a_small_file_can_not_fill_the_memory(monkeypatch):
    file = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table({"x": np.zeros(10**6)}), file, compression="zstd")
    content = file.getvalue().to_pybytes()
    assert bundled.parse_table(content).num_rows == 10**6
    for limit in ("ROW_LIMIT", "UNCOMPRESSED_LIMIT"):
        with monkeypatch.context() as patch:
            patch.setattr(bundled, limit, 1000)
            with pytest.raises(ValueError, match="too many"):
                bundled.parse_table(content)


def test_predictions_have_the_columns_of_their_kind():
    columns = {
        "split": ["validation"] * 6, "index": list(range(6)), "label": [0.0] * 6, "prediction": [0.0] * 6,
        "logits": [[1.0, 0.0]] * 6,
    }  # fmt: skip
    task = make_config("task=sst2").task
    assert parse_predictions(pyarrow.table(columns), task, {}).keys() == {"validation"}
    for name, values in (("split", pyarrow.array(["x"] * 6, pyarrow.binary())), ("label", pyarrow.array([0] * 6))):
        with pytest.raises(ValueError, match="the columns are"):
            parse_predictions(pyarrow.table(columns | {name: values}), task, {})


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(UserError, match="neither a bundle"):
        verify(tmp_path, Options())


def test_training_again_repeats_what_was_noted_and_may_note_more():
    old = {"history": [{"score": 0.5, "drift": {"l2": 0.1}}, {"score": 0.6, "drift": {"l2": 0.2}}]}
    more = {"history": [{**epoch, "drift": {**epoch["drift"], "norm": 1.0}, "rows": 7.8} for epoch in old["history"]]}
    assert reproduction._repeats(old, more)
    assert not reproduction._repeats(more, old)
    assert not reproduction._repeats(old, {"history": more["history"][:1]})
    more["history"][1]["drift"]["l2"] = 0.2 + 1e-16 * 2
    assert not reproduction._repeats(old, more)
