"""isobench verify: what holds in intact folders, and that each kind of tampering is named."""

import json
import math
import os
import random
import shutil
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from made_up_runs import write_manifest
from tampering import (
    WAYS,
    change_byte,
    change_data_row,
    edit_record,
    list_failures,
    tamper,
)

from isobench.cli import verify as verify_command
from isobench.common.errors import UserError
from isobench.runs.tolerance import TOLERANCE, limit_tolerance
from isobench.verification.ledger import DIFFERS, HOLDS, UNCHECKED
from isobench.verification.sources import Locations
from isobench.verification.targets import METHOD_CLASS, MONITOR_CLASS, find_foreign_class
from isobench.verification.verify import Options, verify


def test_an_intact_folder_holds(folder):
    assert list_failures(folder) == []
    counts = verify(folder, Options()).count()
    assert {check: counts[check][HOLDS] for check in ("record", "config", "key", "scores", "labels")} == {
        "record": 4, "config": 4, "key": 4, "scores": 4, "labels": 4,
    }  # fmt: skip
    assert counts["tables"] == {HOLDS: 7}


@pytest.mark.parametrize(("kind", "repair"), [("outputs", False), ("bundle", True)])
@pytest.mark.parametrize("name", WAYS)
def test_each_kind_of_tampering_is_named(places, tmp_path, name, kind, repair):
    """In an output folder as it is, in a bundle with all checksums repaired; test_real_runs.py has the rest."""
    folder = Path(shutil.copytree(places / kind, tmp_path / kind))
    tamper(name, 1, folder, repair)
    assert list_failures(folder), name


def test_level_2_names_changed_data_weights_and_other_versions(places, tmp_path):
    for name in ("data", "encoder"):
        shutil.copytree(places / name, tmp_path / name)
    here = Locations(root=str(tmp_path / "data"), encoders=(str(tmp_path / "encoder"),))
    level_2 = Options(level=2, locations=here)
    ledger = verify(places / "outputs", level_2)
    counts = ledger.count()
    assert counts["data"] == counts["weights"] == {HOLDS: 4}
    texts = {entry.text for entry in ledger.list_entries(DIFFERS)}
    assert any(text.startswith("python is ") for text in texts)  # made-up records say 3.11
    assert not ledger.has_failed
    change_data_row(random.Random(0), tmp_path / "data")
    assert len(list_failures(places / "outputs", level_2)) == 4
    change_byte(random.Random(0), tmp_path / "encoder" / "model.safetensors")
    failures = list_failures(places / "outputs", level_2)
    assert sum("its weights are not those of its record: model.safetensors" in text for text in failures) == 4


def test_level_2_follows_no_path_of_a_config_unless_it_is_trusted(places):
    ledger = verify(places / "bundle", Options(level=2))
    unchecked = {entry.text for entry in ledger.list_entries(UNCHECKED)}
    assert unchecked == {
        "it read data.root: add data.root=FOLDER with the same files",
        "its encoder was read from a folder: add encoder.path=FOLDER with the same files",
    }
    trusted = verify(places / "bundle", Options(level=2, locations=Locations(trust=True))).count()
    assert trusted["data"] == trusted["weights"] == {HOLDS: 4}


def test_a_run_without_predictions_is_counted_as_not_checked(folder):
    next(folder.glob("runs/*/predictions.parquet")).unlink()
    if folder.name == "bundle":
        assert list_failures(folder)[0].endswith("predictions.parquet files: it is missing")
        write_manifest(folder)
    ledger = verify(folder, Options())
    assert not ledger.has_failed
    assert ledger.count()["scores"] == {HOLDS: 3, UNCHECKED: 1}
    texts = {entry.check: entry.text for entry in ledger.list_entries(UNCHECKED)}
    assert texts.keys() == {"scores", "tables"}
    assert texts["scores"] == "no predictions"
    assert ledger.count()["tables"][HOLDS] >= 4  # the rows and what did not change
    assert sum(ledger.count()["tables"].values()) == 7


def test_a_score_that_differs_in_its_last_digit_is_named_and_is_no_failure(folder):
    """Processors with the same name round sums differently."""
    run = sorted(folder.glob("runs/*"))[0]

    def change(content):
        score = math.nextafter(content["best"]["score"], 2.0)
        for epoch in (content["best"], *content["history"]):
            if epoch["epoch"] == content["best"]["epoch"]:
                epoch |= {"score": score, "selection": score}
                epoch["validation"] |= {"accuracy": score}

    edit_record(run, change, repair=True)
    if folder.name == "bundle":
        write_manifest(folder)
    ledger = verify(folder, Options())
    assert ledger.count()["scores"] == {HOLDS: 4, DIFFERS: 1}
    (entry,) = (entry for entry in ledger.list_entries(DIFFERS) if entry.check == "scores")
    assert entry.subject == run.name
    assert entry.text.endswith("rounding of other versions or of another processor")


def test_labels_that_were_changed_with_the_score_are_found_by_other_runs(folder):
    """Labels and score of one run agree again; the other runs on the same data tell."""
    from isobench.common.files import sha256_file
    from isobench.metrics.task import evaluate_predictions

    run = sorted(folder.glob("runs/*"))[0]
    file = run / "predictions.parquet"
    table = pyarrow.parquet.read_table(file)
    rows = table.to_pylist()
    row = next(row for row in rows if row["label"] != row["prediction"])
    row["label"] = row["prediction"]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=table.schema), file)
    labels, predictions = ([row[name] for row in rows] for name in ("label", "prediction"))

    def change(content):
        metrics = evaluate_predictions(content["config"]["task"]["metrics"], labels, predictions)
        content["predictions"]["sha256"] = sha256_file(file)
        for epoch in (content["best"], *content["history"]):
            if epoch["epoch"] == content["best"]["epoch"]:
                epoch["validation"] |= metrics
                epoch |= {"score": metrics["accuracy"], "selection": metrics["accuracy"]}

    edit_record(run, change, repair=True)
    failures = [text for text in list_failures(folder) if " labels:" in text]
    assert failures == [f"{run.name} labels: its labels are not those of 3 other run(s) on the same data"]
    assert not [text for text in list_failures(folder) if " scores:" in text]


def test_what_is_added_is_named_in_a_bundle(places, tmp_path):
    shutil.copytree(places / "bundle", tmp_path / "bundle")
    (tmp_path / "bundle" / "report" / "more.html").write_text("x")
    assert list_failures(tmp_path / "bundle") == ["report/more.html files: the manifest does not name it"]


def test_hostile_files_are_refused_without_being_read(folder):
    runs = sorted(folder.glob("runs/*"))
    (runs[0] / "result.json").unlink()
    os.mkfifo(runs[0] / "result.json")
    (runs[1] / "predictions.parquet").write_bytes(b"PAR1 no Parquet PAR1")
    (runs[2] / "config.yaml").write_text("a: &a [1]\nb: *a\n")
    (runs[3] / "result.json").write_text("[" * 100_000)
    shutil.rmtree(next(iter([*folder.glob("reports/runs"), folder / "report"])))
    failures = "\n".join(list_failures(folder))
    for text in ("it is no regular file", "its predictions can't be used", "config.yaml can't be used", "is damaged"):
        assert text in failures


def test_only_classes_that_isobench_defines_are_made():
    own = {"_target_": "isobench.calibration.IsoBN", "beta": 0.5}
    assert find_foreign_class(own, METHOD_CLASS) is None
    assert find_foreign_class({"_target_": "isobench.calibration.isobn.IsoBN"}, METHOD_CLASS) is None
    drift = {"_target_": "isobench_papers.isobn.drift_monitor.ClassifierDrift"}
    assert find_foreign_class(drift, MONITOR_CLASS) is None
    for target in (
        "os.system", "isobench.calibration.chain.torch.hub.load", "isobench.analyses.runner.hydra.utils.instantiate",
        "isobench.calibration.chain.Any", "isobench.calibration.Nothing", "isobench.cli.prune.RunFolder",
        "isobench.analyses.runner.Table",
    ):  # fmt: skip
        assert find_foreign_class({"_target_": target}, METHOD_CLASS), target
        assert find_foreign_class({"_target_": target}, MONITOR_CLASS), target
    nested = own | {"beta": [{"_target_": "os.system", "command": "true"}]}
    assert find_foreign_class(nested, METHOD_CLASS) == "has settings that Hydra would carry out"


def test_a_bundle_can_declare_a_smaller_tolerance_only():
    assert limit_tolerance({}) == TOLERANCE
    assert limit_tolerance({"score": 0.5, "logits": "large"}) == TOLERANCE
    assert limit_tolerance({"score": 0.001, "logits": -1}) == TOLERANCE | {"score": 0.001}


def test_the_command_prints_what_fails_and_exits_with_1(folder, command):
    main = verify_command.main
    code, out, err = command(main, str(folder))
    assert (code, err) == (0, "")
    assert "Nothing that was checked fails." in out
    tamper("change_score", 3, folder, repair=True)
    code, out, _ = command(main, str(folder))
    assert code == 1
    assert "scores: accuracy on validation is" in out
    code, out, _ = command(main, "--json", str(folder))
    assert code == 1
    assert [(told["folder"], told["failed"]) for told in json.loads(out)] == [(str(folder), True)]


def test_several_folders_are_verified_by_one_command(places, folder, command):
    main, intact = verify_command.main, places / "outputs"
    code, out, _ = command(main, str(intact), str(folder))
    assert code == 0
    assert "2 of 2 folders verified. Nothing that was checked fails." in out
    tamper("change_score", 3, folder, repair=True)
    code, out, _ = command(main, str(folder), str(intact))
    assert (code, out.count("Verified: ")) == (1, 2)
    assert f"2 of 2 folders verified. These fail: {folder}\n" in out
    code, out, _ = command(main, "--json", str(intact), str(folder))
    assert [told["failed"] for told in json.loads(out)] == [False, True]
    code, out, err = command(main, "/nowhere", str(intact), str(intact))
    assert (code, "1 of 2 folders verified. Nothing that was checked fails." in out) == (2, True)
    assert "/nowhere is no folder" in err
    code, out, _ = command(main, "--json", "/nowhere", str(folder))
    assert code == 1  # a failure is not hidden by a folder that can't be verified
    assert [told.get("error", "")[:20] for told in json.loads(out)] == ["", "/nowhere is no folde"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nowhere"], "no folder"),
        (["data.root=/"], "name the bundle or output folder"),
        (["FOLDER", "data.root=/nowhere"], "data.root=/nowhere: /nowhere is no folder"),
        (["FOLDER", "data.rot=x"], "did you mean data.root"),
        (["FOLDER", "+data.root=x"], "did you mean data.root"),
        (["a=b"], "./a=b"),
        (["FOLDER", "a=b"], "a folder is ./a=b"),
        (["FOLDER", "--level", "2", "data.rot=x"], "did you mean data.root"),
        (["FOLDER", "--level", "3"], "invalid choice"),
        (["FOLDER", "--retrain", "0"], "at least 1"),
    ],
)
def test_mistakes_are_one_line(places, command, arguments, message):
    arguments = [str(places / "outputs") if text == "FOLDER" else text for text in arguments]
    code, _, err = command(verify_command.main, *arguments)
    assert code == 2
    assert err.count("\n") == 1
    assert message in err


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(UserError, match="neither a bundle"):
        verify(tmp_path, Options())
