"""Import: runs of a bundle are shown as one's own, merged with others', and never put over other results."""

import hashlib
import json
import random
import shutil
from pathlib import Path

import pandas
import pyarrow.parquet
import pytest
from bundle_tools import edit_rows, pick_run, read_content, read_texts, refuse, sign
from helpers import check_done, check_refused
from tampering import change_byte, list_failures

from isobench import load_runs
from isobench.bundles import transfer
from isobench.cli import import_, report
from isobench.cli.prune import find_orphans
from isobench.runs.plan import parse_plan
from isobench.runs.record import Beat, format_record

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("bundles")]  # they share runs that are trained once


def read_runs(outputs):
    return pandas.read_parquet(outputs / "reports" / "glue_isobn" / "runs.parquet")


def test_an_imported_experiment_has_the_same_report_without_its_data(alice, bundle, run_import, run_report, tmp_path):
    outputs = tmp_path / "outputs"
    code, out, err = run_import(bundle, outputs)
    assert (code, err) == (0, "")
    assert "Imported 4 runs" in out
    assert run_report(outputs)[0] == run_report(alice)[0] == 0
    pandas.testing.assert_frame_equal(read_runs(outputs), read_runs(alice), check_dtype=False)
    assert len(load_runs(outputs, experiment="glue_isobn")) == 4


def test_a_second_import_changes_nothing(bundle, run_import, tmp_path):
    outputs = tmp_path / "outputs"
    assert run_import(bundle, outputs)[0] == 0
    before = read_content(outputs)
    times = {path: path.stat().st_mtime_ns for path in outputs.rglob("*.*")}
    code, out, _ = run_import(bundle, outputs)
    assert code == 0
    assert "Imported 0 runs" in out
    assert "4 of the bundle's 4 were there already" in out
    assert read_content(outputs) == before
    assert {path: path.stat().st_mtime_ns for path in outputs.rglob("*.*")} == times


def test_bundles_of_two_people_merge_into_one_report_and_one_bundle(
    bundle, bob, run_export, run_import, run_report, tmp_path
):
    assert run_export(bob, tmp_path / "second")[0] == 0
    outputs = tmp_path / "outputs"
    out, _ = check_done(run_import(bundle, tmp_path / "second", outputs))
    assert ("Imported 4 runs" in out, "Imported 2 runs" in out) == (True, True)
    assert run_report(outputs)[0] == 0
    assert sorted(read_runs(outputs)["seed"]) == [1, 1, 2, 2, 3, 3]
    check_done(run_export(outputs, tmp_path / "both"))
    commands = parse_plan((tmp_path / "both" / "plan.json").read_bytes()).commands
    assert ["seed=1,2 " in command for command in commands] == [True, False]
    assert "seed=3 " in commands[1]
    created = [json.loads((tmp_path / name / "bundle.json").read_text())["created"] for name in ("second", "both")]
    assert created[0] == created[1]


@pytest.mark.parametrize("name", ["result.json", "predictions.parquet"])
def test_other_results_of_a_run_are_a_conflict_and_nothing_is_imported(alice, bundle, run_import, tmp_path, name):
    outputs = tmp_path / "outputs"
    run = pick_run(alice)
    file = outputs / "runs" / run.name / name
    shutil.copytree(run, file.parent)
    if name == "result.json":
        content = json.loads(file.read_text())
        content["attempts"] += 1
        file.write_bytes(format_record(content))
    else:
        edit_rows(file, lambda rows: rows[:-1])
    before = read_content(outputs)
    check_refused(run_import(bundle, outputs), f"{file} has other content", "nothing of this bundle is imported")
    assert read_content(outputs) == before


def test_missing_files_of_a_run_are_added_and_an_unfinished_run_is_completed(bundle, run_import, tmp_path):
    outputs = tmp_path / "outputs"
    assert run_import(bundle, outputs)[0] == 0
    expected = read_content(outputs)
    first, second, *_ = sorted((outputs / "runs").iterdir())
    (first / "predictions.parquet").unlink()
    (second / "result.json").unlink()
    code, out, _ = run_import(bundle, outputs)
    assert code == 0
    assert "Imported 1 run into" in out
    assert read_content(outputs) == expected


def test_a_run_that_is_being_carried_out_is_a_conflict(bundle, run_import, tmp_path, monkeypatch):
    outputs = tmp_path / "outputs"
    (outputs / "runs" / min(read_texts(bundle))[:16]).mkdir(parents=True)
    monkeypatch.setattr(transfer, "read_live_heartbeat", lambda folder: Beat)
    code, _, err = run_import(bundle, outputs)
    assert code == 2
    assert "is being carried out" in err


def test_an_interrupted_import_is_completed_by_the_next(bundle, run_import, tmp_path, monkeypatch):
    outputs = tmp_path / "outputs"

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(transfer, "write_plan", stop)
    assert run_import(bundle, outputs)[0] == 130
    monkeypatch.undo()
    assert not list(outputs.glob(".*"))
    assert not (outputs / "plans").exists()
    assert run_import(bundle, outputs)[0] == 0
    assert len(list((outputs / "plans").iterdir())) == 1


def test_imported_runs_are_kept_by_prune(bundle, run_import, tmp_path):
    outputs = tmp_path / "outputs"
    assert run_import(bundle, outputs)[0] == 0
    assert find_orphans(str(outputs)) == ([], [])


@pytest.mark.parametrize(
    "arguments",
    [
        ["BUNDLE", "seed=1"], ["./a-b=c"], ["MISSING"], ["output_dir=OUTPUTS"], ["EMPTY"], [],
        ["BUNDLE", "output_dir=BUNDLE"], ["BUNDLE", "output_dir=BUNDLE/x/y"], ["BUNDLE", "EMPTY"],
    ],
)  # fmt: skip
def test_mistakes_are_one_line_and_change_nothing(command, bundle, tmp_path, arguments):
    (tmp_path / "EMPTY").mkdir()
    places = {"BUNDLE": bundle, **{name: tmp_path / name for name in ("MISSING", "EMPTY", "OUTPUTS")}}
    for word, place in places.items():
        arguments = [text.replace(word, str(place)) for text in arguments]
    before = read_content(bundle)
    check_refused(command(import_.main, *arguments))
    assert read_content(bundle) == before
    assert not (tmp_path / "OUTPUTS").exists()


def test_bundles_before_one_that_is_refused_stay_imported(bundle, run_import, tmp_path):
    damaged = Path(shutil.copytree(bundle, tmp_path / "damaged"))
    (damaged / "records.parquet").write_text("changed")
    code, out, err = run_import(bundle, damaged, tmp_path / "outputs")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "nothing of this bundle is imported" in err
    assert "Imported 4 runs" in out
    assert len(list((tmp_path / "outputs" / "runs").iterdir())) == 4


@pytest.mark.parametrize("mistake", ["changed", "added", "removed"])
def test_a_bundle_whose_files_are_not_those_of_its_manifest_is_not_reported(command, bundle, tmp_path, mistake):
    if mistake == "changed":
        change_byte(random.Random(0), bundle / "records.parquet")
    elif mistake == "added":
        (bundle / "notes.txt").write_text("read me")
    else:
        (bundle / "predictions.parquet").unlink()
    code, out, err = command(report.main, str(bundle), f"output_dir={tmp_path}/outputs")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert not (tmp_path / "outputs").exists()


def test_a_bundles_report_takes_the_choice_of_a_launcher(command, bundle, tmp_path):
    """It says how runs are started, not which."""
    check_done(command(report.main, str(bundle), "hydra/launcher=slurm", f"output_dir={tmp_path}/outputs"))


def test_imported_files_are_those_of_the_run_or_say_of_which_they_are_copies(
    alice, bundle, run_import, run_report, tmp_path, monkeypatch
):
    """Another version of pyarrow writes other bytes of the same rows."""
    check_done(run_import(bundle, tmp_path / "same"))
    assert {path: text for path, text in read_content(tmp_path / "same").items() if path.startswith("runs/")} == {
        path: text for path, text in read_content(alice).items() if path.startswith("runs/")
    }
    write = pyarrow.parquet.write_table
    monkeypatch.setattr(pyarrow.parquet, "write_table", lambda *_, **more: write(*_, **more, compression="zstd"))
    check_done(run_import(bundle, tmp_path / "other"))
    monkeypatch.undo()
    assert list_failures(tmp_path / "other") == []
    runs = load_runs(tmp_path / "other", experiment="glue_isobn")
    assert set(runs["status"]) == {"finished"}
    file = pick_run(tmp_path / "other") / "predictions.parquet"
    content = bytearray(file.read_bytes())
    content[200] ^= 1
    file.write_bytes(content)
    assert "damaged" in set(load_runs(tmp_path / "other", experiment="glue_isobn")["status"])
    assert list_failures(tmp_path / "other")


def write_in_the_old_form(alice: Path, bundle: Path, old: Path) -> None:
    """Write the runs of a bundle as isobench did before: a folder for each run."""
    shutil.copytree(alice / "runs", old / "runs", ignore=shutil.ignore_patterns("lock", "*.json.lock"))
    shutil.copy(bundle / "plan.json", old)
    digests = {path: hashlib.sha256(text).hexdigest() for path, text in read_content(old).items()}
    shutil.copy(bundle / "bundle.json", old)
    sign(old, lambda manifest: manifest.update(format=2, files=digests))


def test_a_bundle_of_the_old_form_is_imported(alice, bundle, run_import, command, tmp_path):
    old = tmp_path / "old"
    write_in_the_old_form(alice, bundle, old)
    check_done(run_import(bundle, tmp_path / "expected"))
    check_done(run_import(old, tmp_path / "outputs"))
    found, expected = (read_content(tmp_path / name / "runs") for name in ("outputs", "expected"))
    assert found == expected
    check_refused(command(report.main, str(old)), "isobench import")
    change_byte(random.Random(0), next(old.glob("runs/*/result.json")))
    refuse(run_import, old, tmp_path / "again", "a file was changed")
