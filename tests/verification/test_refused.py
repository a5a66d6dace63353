"""isobench verify on what a folder may not have, and on runs that can't be trained again."""

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import make_config, make_record
from made_up_runs import write_manifest
from tampering import list_failures, tamper

from isobench.cli import verify as verify_command
from isobench.common.checksums import add_json_checksum
from isobench.config.schema import Evaluation
from isobench.verification.folder import VerifiedFolder
from isobench.verification.ledger import UNCHECKED, Ledger
from isobench.verification.report_text import read_tables
from isobench.verification.retrain import retrain_runs
from isobench.verification.run_check import CheckedRun, check_schedule
from isobench.verification.sources import Locations
from isobench.verification.tables import make_row
from isobench.verification.targets import find_renamed_class


def test_a_method_of_another_class_is_named():
    """The class is not in the key: isobench's own BatchNorm under the name of plain fine-tuning has plain's key."""
    cfg = make_config("task=sst2", "calibration=none", "+experiment=isobn_drift")
    assert cfg.monitors
    assert find_renamed_class(cfg) is None
    plain = cfg.calibration
    for target, is_named in (
        ("isobench.calibration.BatchNorm", True),
        ("os.system", True),
        ("isobench.calibration.former_module.Calibration", False),
    ):
        changed = replace(cfg, calibration=plain | {"_target_": target})
        assert (find_renamed_class(changed) is not None) == is_named, target
    chain = replace(cfg, calibration=plain | {"then": plain | {"_target_": "isobench.calibration.BatchNorm"}})
    assert "the calibration none is the class isobench.calibration.BatchNorm" in str(find_renamed_class(chain))
    name, monitor = next(iter(cfg.monitors.items()))
    other = replace(cfg, monitors={name: monitor | {"_target_": "isobench.analyses.runner.Table"}})
    assert "the monitor" in str(find_renamed_class(other))


def test_outcomes_are_printed_though_no_run_can_be_trained_again(folder, command):
    code, out, err = command(verify_command.main, "--retrain", "2", str(folder))
    assert code == 2
    assert "Nothing that was checked fails." in out
    assert f"no run can be trained again: {folder}: it read data.root" in err
    tamper("change_score", 3, folder, repair=True)
    code, out, err = command(verify_command.main, "--retrain", "2", str(folder))
    assert (code, err) == (1, "")
    assert "scores: accuracy on validation is" in out
    assert "not checked: retrained: it read data.root" in out


def test_failed_runs_and_unusable_predictions_are_not_drawn(folder):
    runs = {name: CheckedRun(name) for name in ("a", "b", "c")}
    for run, status in zip(runs.values(), ("failed", "finished", "failed"), strict=True):
        run.record = SimpleNamespace(status=status)
    runs["b"].has_unusable_predictions = True
    ledger = Ledger()
    retrain_runs(VerifiedFolder(folder), runs, 3, 0, Locations(), {}, ledger)
    texts = [entry.text for entry in ledger.list_entries(UNCHECKED)]
    assert texts == [
        "2 failed run(s), which are never drawn",
        "there is no finished run with an intact record and config",
    ]


@pytest.mark.parametrize("trace", ["ro-crate-metadata.json", "commands.txt", "report"])
def test_a_bundle_without_its_manifest_is_no_output_folder(places, tmp_path, trace):
    folder = Path(shutil.copytree(places / "bundle", tmp_path / "bundle"))
    (folder / "manifest.json").unlink()
    if trace != "report":
        shutil.rmtree(folder / "report")
        (folder / trace).write_text("{}")
    assert list_failures(folder) == ["manifest.json files: manifest.json is missing"]


def test_folders_that_are_too_deep_are_named_and_the_rest_is_checked(places, tmp_path):
    folder = Path(shutil.copytree(places / "bundle", tmp_path / "bundle"))
    (folder / "report" / "/".join("abcdefghij")).mkdir(parents=True)
    tamper("change_isotropy", 3, folder, repair=False)
    failures = list_failures(folder)
    assert any(failure.startswith("report/a/b/c/d/e/f/g/h files: isobench writes no") for failure in failures)
    assert any("record: " in failure for failure in failures)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"planned": 3}, "and lists 4"),
        ({"anonymous": True}, "its record names a machine"),
        ({"commands": ["python -m isobench task=sst2"]}, "commands.txt is missing"),
        ({"runs": {"task": "mrpc"}}, "its task is mrpc, and its record sst2"),
        ({"runs": {"encoder": "other"}}, "its encoder is other, and its record local"),
        ({"runs": {"method": "other"}}, "its method is other, and its record"),
    ],
)
def test_what_a_manifest_says_is_compared(places, tmp_path, change, message):
    folder = Path(shutil.copytree(places / "bundle", tmp_path / "bundle"))
    file = folder / "manifest.json"
    content = json.loads(file.read_text())
    del content["checksum"]
    for run in content["runs"].values():
        run.update(change.get("runs", {}))
    content.update({name: value for name, value in change.items() if name != "runs"})
    file.write_text(json.dumps(add_json_checksum(content)))
    assert any(message in failure for failure in list_failures(folder)), list_failures(folder)


def test_another_file_in_the_report_is_named_though_the_manifest_lists_it(places, tmp_path):
    folder = Path(shutil.copytree(places / "bundle", tmp_path / "bundle"))
    (folder / "report" / "more.html").write_text("x")
    write_manifest(folder)
    assert any("report/more.html, which is no file of a report" in failure for failure in list_failures(folder))


def test_the_epochs_of_a_history_are_those_that_its_config_evaluates():
    cfg, history = make_config("optimization.patience=null"), [SimpleNamespace(epoch=epoch) for epoch in range(1, 30)]
    for epochs, every in itertools.product(range(1, 8), (*range(1, 9), "last")):
        one = replace(cfg, optimization=replace(cfg.optimization, epochs=epochs), evaluation=Evaluation(every=every))
        interval = epochs if every == "last" else every
        own = [epoch for epoch in history[:epochs] if epoch.epoch % interval == 0 or epoch.epoch == epochs]
        assert check_schedule(one, SimpleNamespace(history=own, status="finished")) == []
        assert check_schedule(one, SimpleNamespace(history=own[:-1], status="finished"))
        assert check_schedule(one, SimpleNamespace(history=own[:-1], status="failed")) == []
        assert check_schedule(one, SimpleNamespace(history=[*own, history[epochs]], status="finished"))


def test_epochs_without_number_are_not_counted_one_by_one():
    cfg = make_config("optimization.patience=null")
    cfg = replace(cfg, optimization=replace(cfg.optimization, epochs=10**400))
    record = SimpleNamespace(history=[SimpleNamespace(epoch=1)], status="finished")
    assert "ends after 1 of 1000" in check_schedule(cfg, record)[0]


def test_the_report_of_a_record_under_another_name_reads_the_folder_that_was_checked(tmp_path):
    run = CheckedRun("a" * 16, cfg=make_config())
    run.record = make_record(run.cfg, key="f" * 64)
    row = make_row(SimpleNamespace(root=tmp_path), run, "done", run.cfg.experiment)
    assert row.folder.path == tmp_path / "runs" / ("a" * 16)


def test_the_text_of_a_cell_is_all_that_stands_in_it():
    page = "<table><tr><th>a &lt; <b>b</b> c</th>no<td>1<tr><td>2</table>no<table><tr><td>3 <i>4"
    assert read_tables("report.html", page.encode()) == [[("a < b c", "1"), ("2",)], [("3 4",)]]
