"""isobench verify: what holds in intact folders, and that each kind of tampering is named."""

import json
import math
import os
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from bundle_tools import (
    editable,
    list_best_epochs,
    read_predictions,
    read_texts,
    sign,
    write_signed_json,
    write_tables,
)
from helpers import check_done, make_config, make_record
from tampering import CASES, change_byte, change_data_row, edit_record, list_failures, rewrite_predictions, tamper

from isobench.cli import verify as verify_command
from isobench.common.files import sha256_file
from isobench.runs import bundled
from isobench.runs.record import GitState
from isobench.runs.trust import UntrustedError, find_other_classes, use_own_classes
from isobench.verification import reproduction
from isobench.verification.folder import DIFFERS, HOLDS, UNCHECKED
from isobench.verification.reproduction import Options, list_differences
from isobench.verification.verify import verify


def test_an_intact_folder_holds(folder):
    assert list_failures(folder) == []
    counts = verify(folder, Options()).count()
    assert all(counts[check][HOLDS] == 4 for check in ("record", "config", "scores", "labels"))
    assert counts["key"][HOLDS] == (5 if folder.name == "bundle" else 4)  # those of the plan too


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_each_kind_of_tampering_is_named(places, tmp_path, name, kind):
    for seed in range(3):
        folder = Path(shutil.copytree(places / kind, tmp_path / f"{kind} {seed}"))
        tamper(name, seed, folder)
        assert list_failures(folder), seed


@pytest.mark.parametrize("name", ["result.json", "predictions.parquet"])
def test_a_changed_byte_of_a_run_is_named(places, tmp_path, name):
    folder = Path(shutil.copytree(places / "outputs", tmp_path / "outputs"))
    change_byte(random.Random(name), next(folder.glob(f"runs/*/{name}")))
    assert len(list_failures(folder)) == 1


def test_level_2_names_changed_data_weights_and_other_versions(places, tmp_path):
    for name in ("data", "encoder"):
        shutil.copytree(places / name, tmp_path / name)
    level_2 = Options(level=2, root=str(tmp_path / "data"), encoders=(str(tmp_path / "encoder"),))
    outcomes = verify(places / "outputs", level_2)
    counts = outcomes.count()
    assert counts["data"] == counts["weights"] == {HOLDS: 4}
    assert any("python is " in entry.text for entry in outcomes.list_entries(DIFFERS))  # made-up records say 3.11
    assert not outcomes.has_failed
    change_data_row(random.Random(0), tmp_path / "data")
    assert len(list_failures(places / "outputs", level_2)) == 4
    change_byte(random.Random(0), tmp_path / "encoder" / "model.safetensors")
    failures = list_failures(places / "outputs", level_2)
    assert sum("its weights are not those of its record: model.safetensors" in text for text in failures) == 4
    for trust, outcome in ((False, UNCHECKED), (True, HOLDS)):  # no path of a config is followed without trust
        counts = verify(places / "outputs", Options(level=2, trust=trust)).count()
        assert counts["data"] == counts["weights"] == {outcome: 4}


@pytest.mark.parametrize("git", [None, {"commit": "abc", "dirty": True}, {"commit": "abd", "dirty": False}])
def test_code_that_may_be_other_code_is_named(git):
    """Two installed packages, or two checkouts with changes, may differ where both commits read alike."""
    here = make_record(make_config()).provenance
    clean = here.model_copy(update={"git": GitState(commit="abc", dirty=False)})
    assert list_differences(clean, clean) == []
    other = here.model_copy(update={"git": git and GitState(**git)})
    alike = other if git is None or git["dirty"] else clean
    assert [text.split()[0] for text in list_differences(other, alike)] == ["commit"]


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
        edit_record(run, change)
    outcomes = verify(folder, Options())
    assert outcomes.count()["scores"] == {HOLDS: 4, DIFFERS: 1}
    assert [entry.subject for entry in outcomes.list_entries(DIFFERS)] == [run.name]


def test_labels_that_were_changed_with_the_score_are_found_by_other_runs(folder):
    """Labels and score of one run agree again; the other runs on the same data tell."""

    def relabel(rows):
        row = next(row for row in rows if row["label"] != row["prediction"])
        row["label"] = row["prediction"]

    with editable(folder) as place:
        run = sorted(place.glob("runs/*"))[0]
        rewrite_predictions(run, relabel)
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
    assert {text.partition(": ")[0] for text in list_failures(outputs)} == {"plans key"}


OUTSIDE = [
    "../evil", "/etc/passwd", "analysis/../../x", "analysis/x.html", "plan.json\n", "analysis/a\x00.parquet", "",
]  # fmt: skip
MANIFESTS = [
    {"format": 4}, {"files": None}, {"experiment": "../evil"}, {"runs": {}}, {"created": "yesterday\x1b[31m"},
    {"experiment": "other"}, {"runs": {"0" * 64: 1.0}},
]  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        *(lambda m, path=path: m["files"].update({path: "0" * 64}) for path in OUTSIDE),
        *(lambda m, parts=parts: m.update(parts) for parts in MANIFESTS),
        lambda m: m["runs"].pop(next(iter(m["runs"]))), lambda m: m["runs"].update({"x" * 64: 1.0}),
        lambda m: m["runs"].update({"0" * 64: 1.0}), lambda m: m["runs"].update({next(iter(m["runs"])): 1e300}),
        lambda m: m["files"].pop("plan.json"), lambda m: m["files"].update({"plan.json": "0" * 64}),
    ],
)  # fmt: skip
def test_a_manifest_that_contradicts_itself_or_its_files_or_leads_outside_fails(bundle, change):
    sign(bundle, change)
    assert list_failures(bundle)


@pytest.mark.parametrize("added", ["evil.html", "analysis/evil.py", "runs/link"])
def test_a_file_or_link_that_the_manifest_does_not_name_fails(bundle, added):
    (bundle / added).parent.mkdir(exist_ok=True)
    if added.endswith("link"):
        (bundle / added).symlink_to("/etc")
    else:
        (bundle / added).write_text("evil")
    assert list_failures(bundle)


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: plan["settings"]["calibration"][0].update(_target_="os.system"),
        lambda plan: plan["runs"].clear(),
        lambda plan: plan["runs"].pop(),
    ],
)
def test_a_bundles_plan_is_of_its_runs_and_of_isobenchs_classes(bundle, change):
    file = bundle / "plan.json"
    content = json.loads(file.read_text())
    change(content)
    write_signed_json(file, content)
    sign(bundle, lambda manifest: manifest["files"].update({"plan.json": sha256_file(file)}))
    assert list_failures(bundle)


@pytest.mark.parametrize(
    "change",
    [
        lambda texts, rows, one, two: (texts | {one: texts[two], two: texts[one]}, rows),
        lambda texts, rows, one, two: (texts, rows | {one: rows[two], two: rows[one]}),
        lambda texts, rows, one, two: (texts, rows | {one: pyarrow.concat_tables([rows[one]] * 2)}),
        lambda texts, rows, one, two: (texts, rows | {"0" * 64: rows[one]}),
        lambda texts, rows, one, two: (texts, {two: rows[two]}),
        lambda texts, rows, one, two: (texts | {one: texts[one].replace(b'"attempts": 1', b'"attempts": 2')}, rows),
        lambda texts, rows, one, two: (texts | {one: b"[" * 100_000}, rows),
    ],
)
def test_tables_that_contradict_themselves_fail_also_with_new_checksums(bundle, change):
    texts, rows = read_texts(bundle), read_predictions(bundle)
    one, two, *_ = sorted(texts, key=lambda key: json.loads(texts[key])["best"]["score"])[:: len(texts) - 1]
    write_tables(bundle, *change(texts, rows, one, two))
    assert list_failures(bundle)
    write_tables(bundle, texts, rows)
    for name in ("records.parquet", "predictions.parquet"):  # a run that stands in a table twice
        table = pyarrow.parquet.read_table(bundle / name)
        pyarrow.parquet.write_table(pyarrow.concat_tables([table, table.slice(0, 1)]), bundle / name)
        sign(bundle, lambda manifest, name=name: manifest["files"].update({name: sha256_file(bundle / name)}))
        assert list_failures(bundle)


def test_hostile_files_are_refused_without_being_read(places, tmp_path):
    folder = Path(shutil.copytree(places / "outputs", tmp_path / "outputs"))
    runs = sorted(folder.glob("runs/*"))
    (runs[0] / "result.json").unlink()
    os.mkfifo(runs[0] / "result.json")
    (runs[1] / "predictions.parquet").write_bytes(b"PAR1 no Parquet PAR1")
    edit_record(runs[2], lambda record: record["config"]["optimization"].update(epochs="many"))
    (runs[3] / "result.json").write_text("[" * 100_000)
    assert {text.partition(" ")[0] for text in list_failures(folder)} >= {run.name for run in runs}


def test_a_method_of_another_class_is_named_and_never_made():
    """The class is not in the key: isobench's own BatchNorm under the name of plain fine-tuning has plain's key."""
    cfg = make_config("task=sst2", "calibration=none", "+experiment=isobn_drift")
    assert list(find_other_classes(cfg)) == []
    assert use_own_classes(cfg) == cfg
    plain = cfg.calibration
    for target, is_named in (
        ("isobench.calibration.BatchNorm", True), ("os.system", True),
        ("isobench.calibration.former_module.Calibration", False),
    ):  # fmt: skip
        for changed in (plain | {"_target_": target}, plain | {"then": plain | {"_target_": target}}):
            other = replace(cfg, calibration=changed)
            assert any(find_other_classes(other)) == is_named, target
            assert target not in str(use_own_classes(other)), target
    name, monitor = next(iter(cfg.monitors.items()))
    other = replace(cfg, monitors={name: monitor | {"_target_": "isobench.analyses.runner.Table"}})
    assert any(find_other_classes(other))
    for foreign in ({"name": "mine"}, {"beta": [{"_target_": "os.system", "command": "true"}]}):
        with pytest.raises(UntrustedError):
            use_own_classes(replace(cfg, calibration=plain | foreign))


@pytest.mark.parametrize("keys", [["ab" * 8], ["ab" * 32] * 2], ids=["short", "twice"])
def test_keys_are_whole_and_each_stands_once(keys):
    file = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table({"key": keys, "record": ["{}"] * len(keys)}), file)
    with pytest.raises(ValueError, match="key"):
        bundled.parse_records(file.getvalue().to_pybytes())


def test_training_again_repeats_what_was_noted_and_may_note_more():
    old = {"history": [{"score": 0.5, "drift": {"l2": 0.1}}, {"score": 0.6, "drift": {"l2": 0.2}}]}
    more = {"history": [{**epoch, "drift": {**epoch["drift"], "norm": 1.0}, "rows": 7.8} for epoch in old["history"]]}
    assert reproduction._repeats(old, more)
    assert not any(map(reproduction._repeats, (more, old), (old, {"history": more["history"][:1]})))
    for difference, repeats in ((2e-16, True), (1e-9, False)):  # a measure's rounding, another measure
        more["history"][1]["drift"]["l2"] = 0.2 + difference
        assert reproduction._repeats(old, more) == repeats


def test_the_command_prints_what_fails_and_exits_with_1(places, folder, command):
    out, _ = check_done(command(verify_command.main, str(folder)))
    computed, recorded = re.search(r"none .* ([\d.]+) .* ([\d.]+) ", out).groups()  # the mean scores' first row
    assert computed == recorded != "0.00"
    tamper("change_score", 4, folder)
    code, out, _ = command(verify_command.main, str(folder))
    assert (code, "scores: accuracy on validation is" in out) == (1, True)
    code, out, _ = command(verify_command.main, "--json", str(folder))
    assert code == 1
    assert [(told["folder"], told["failed"]) for told in json.loads(out)] == [(str(folder), True)]
    intact = str(folder.parent / "intact")
    shutil.copytree(places / folder.name, intact)
    assert command(verify_command.main, intact, str(folder))[0] == 1
    assert command(verify_command.main, "--json", "/nowhere", str(folder))[0] == 1  # a failure is not hidden


@pytest.mark.parametrize("name", ["records.parquet", "predictions.parquet", "plan.json", "bundle.json"])
def test_a_damaged_bundle_fails(bundle, command, name):
    change_byte(random.Random(name), bundle / name)
    assert command(verify_command.main, str(bundle))[0] == 1
    (bundle / name).unlink()
    assert command(verify_command.main, str(bundle))[0] == 1
