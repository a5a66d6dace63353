"""Import: runs of a bundle are shown as one's own, merged with others', and never put over other results."""

import json
import shutil
from pathlib import Path

import pandas
import pyarrow.parquet
import pytest
from bundle_tools import edit_rows, pick_run, read_content
from helpers import check_done, check_refused
from tampering import edit_record, list_failures

from isobench import load_runs
from isobench.bundles import transfer
from isobench.cli.prune import find_orphans
from isobench.runs.plan import parse_plan
from isobench.runs.record import Beat

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("bundles")]  # they share runs that are trained once


def read_runs(outputs):
    return pandas.read_parquet(outputs / "reports" / "glue_isobn" / "runs.parquet")


def test_an_import_has_the_same_report_without_its_data_and_a_second_one_adds_what_is_missing(
    alice, bundle, run_import, run_report, tmp_path
):
    outputs = tmp_path / "outputs"
    check_done(run_import(bundle, outputs))
    before, times = read_content(outputs), {path: path.stat().st_mtime_ns for path in outputs.rglob("*.*")}
    check_done(run_import(bundle, outputs))
    assert read_content(outputs) == before
    assert {path: path.stat().st_mtime_ns for path in outputs.rglob("*.*")} == times
    first, second, *_ = sorted((outputs / "runs").iterdir())
    (first / "predictions.parquet").unlink()
    (second / "result.json").unlink()
    check_done(run_import(bundle, outputs))
    assert read_content(outputs) == before
    assert find_orphans(str(outputs)) == ([], [])
    assert run_report(outputs)[0] == run_report(alice)[0] == 0
    pandas.testing.assert_frame_equal(read_runs(outputs), read_runs(alice), check_dtype=False)
    assert len(load_runs(outputs, experiment="glue_isobn")) == 4


def test_bundles_of_two_people_merge_into_one_report_and_one_bundle(
    bundle, bob, run_export, run_import, run_report, tmp_path
):
    check_done(run_export(bob, tmp_path / "second"))
    outputs = tmp_path / "outputs"
    check_done(run_import(bundle, tmp_path / "second", outputs))
    check_done(run_report(outputs))
    assert sorted(read_runs(outputs)["seed"]) == [1, 1, 2, 2, 3, 3]
    check_done(run_export(outputs, tmp_path / "both"))
    commands = parse_plan((tmp_path / "both" / "plan.json").read_bytes()).commands
    assert ["seed=1,2 " in command for command in commands] == [True, False]
    created = [json.loads((tmp_path / name / "bundle.json").read_text())["created"] for name in ("second", "both")]
    assert created[0] == created[1]


@pytest.mark.parametrize("name", ["result.json", "predictions.parquet", "at work"])
def test_other_results_of_a_run_are_a_conflict_and_nothing_is_imported(
    alice, bundle, run_import, tmp_path, monkeypatch, name
):
    outputs = tmp_path / "outputs"
    run = Path(shutil.copytree(pick_run(alice), outputs / "runs" / pick_run(alice).name))
    if name == "result.json":
        edit_record(run, lambda content: content.update(attempts=content["attempts"] + 1))
    elif name == "predictions.parquet":
        edit_rows(run / name, lambda rows: rows[:-1])
    else:
        (run / "result.json").unlink()
        monkeypatch.setattr(transfer, "read_live_heartbeat", lambda folder: Beat)
    before = read_content(outputs)
    check_refused(run_import(bundle, outputs))
    assert read_content(outputs) == before


def test_an_interrupted_import_is_completed_by_the_next(bundle, run_import, tmp_path, monkeypatch):
    outputs = tmp_path / "outputs"

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(transfer, "write_whole", stop)  # of the first record
    assert run_import(bundle, outputs)[0] == 130
    monkeypatch.undo()
    assert not list(outputs.glob(".*"))
    assert not list(outputs.glob("runs/*/result.json"))
    (predictions,) = outputs.glob("runs/*/predictions.parquet")
    predictions.write_bytes(predictions.read_bytes()[:500])  # as a process that is killed may leave it
    assert run_import(bundle, outputs)[0] == 0
    check_done(run_import(bundle, tmp_path / "elsewhere"))
    assert read_content(outputs / "runs") == read_content(tmp_path / "elsewhere" / "runs")
    assert len(list((outputs / "plans").iterdir())) == 1


def test_imported_files_are_those_of_the_run_or_say_of_which_they_are_copies(
    alice, bundle, run_import, tmp_path, monkeypatch
):
    """Another version of pyarrow writes other bytes of the same rows."""
    check_done(run_import(bundle, tmp_path / "same"))
    assert read_content(tmp_path / "same" / "runs") == read_content(alice / "runs")
    write = pyarrow.parquet.write_table
    monkeypatch.setattr(pyarrow.parquet, "write_table", lambda *_, **more: write(*_, **more, compression="zstd"))
    check_done(run_import(bundle, tmp_path / "other"))
    monkeypatch.undo()
    assert list_failures(tmp_path / "other") == []
    assert set(load_runs(tmp_path / "other", experiment="glue_isobn")["status"]) == {"finished"}
    file = pick_run(tmp_path / "other") / "predictions.parquet"
    content = file.read_bytes()
    file.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])  # in a page, which has a checksum
    assert "damaged" in set(load_runs(tmp_path / "other", experiment="glue_isobn")["status"])
    assert list_failures(tmp_path / "other")
