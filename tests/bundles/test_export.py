"""Export: a bundle holds the runs byte for byte, is written whole or not at all, and can be written again."""

import hashlib
import json
import os
import shlex
import shutil
from pathlib import Path

import pyarrow.parquet
import pytest
from bundle_tools import list_files, pick_run, read_content, read_predictions, read_texts
from helpers import check_done, check_refused, read_records
from tampering import edit_record

from isobench import load_runs
from isobench.bundles import transfer
from isobench.bundles.manifest import find_changes, read_manifest
from isobench.cli import report
from isobench.runs.bundled import simplify
from isobench.runs.plan import parse_plan

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("bundles")]  # they share runs that are trained once


def test_a_bundle_holds_records_byte_for_byte_predictions_a_plan_and_a_checksum_of_every_file(
    alice, run_export, exported, tmp_path
):
    (pick_run(alice) / "checkpoints").mkdir()
    (pick_run(alice) / "checkpoints" / "last.ckpt").write_text("weights")
    target = tmp_path / "new" / "bundle"
    check_done(run_export(alice, target))
    files = read_content(target)
    assert files == read_content(exported)  # the same runs give the same bytes
    assert files.keys() == {"bundle.json", "plan.json", "records.parquet", "predictions.parquet"}
    texts, rows = read_texts(target), read_predictions(target)
    assert {key[:16]: text for key, text in texts.items()} == {
        file.parent.name: file.read_bytes() for file in alice.glob("runs/*/result.json")
    }
    for key in texts:
        own = pyarrow.parquet.read_table(alice / "runs" / key[:16] / "predictions.parquet")
        assert simplify(rows[key]).equals(simplify(own))
    manifest = json.loads(files.pop("bundle.json"))
    assert manifest["files"] == {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
    records = list(map(json.loads, texts.values()))
    assert manifest["runs"].keys() == texts.keys() == rows.keys()
    plan = parse_plan(files["plan.json"])
    assert plan.experiment == manifest["experiment"] == "glue_isobn"
    fingerprints = {identity.key: (identity.data, identity.encoder) for _, identity in plan.runs}
    assert fingerprints == {r["key"]: (r["data"]["fingerprint"], r["encoder"]["fingerprint"]) for r in records}
    assert ["seed=1,2" in command for command in plan.commands] == [True]
    assert [path.name for path in target.parent.iterdir()] == ["bundle"]
    assert len(load_runs(target)) == 4


@pytest.mark.parametrize("flags", [[], ["--anonymous"]])
def test_imported_runs_without_an_experiment_are_listed_and_shown_without_their_data(
    cli, small, tmp_path, monkeypatch, flags
):
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    (there / "a.csv").write_text("text,label\n" + "".join(f"film {n},{n % 2}\n" for n in range(40)))
    monkeypatch.chdir(there)
    run = [text for text in small if not text.startswith(("data.root=", "output_dir="))]
    run += ["task=mine", "data.files={train: a.csv, validation: 0.5}", "seed=1"]
    check_done(cli(*run))
    check_done(cli("export", *run, *flags, "--to", str(tmp_path / "bundle")))
    (there / "a.csv").unlink()
    monkeypatch.chdir(here)
    hint = check_done(cli("import", str(tmp_path / "bundle")))[0].splitlines()[-1].partition(" isobench ")[2]
    assert hint in check_done(cli("report"))[0]
    check_done(cli(*shlex.split(hint)))
    assert len(list(here.glob("outputs/reports/*/report.html"))) == 1
    check_done(cli("report", str(tmp_path / "bundle"), f"output_dir={tmp_path}/shown"))
    assert [path.name for path in (tmp_path / "shown" / "reports").iterdir()] == ["bundle"]


def test_a_run_ends_when_its_record_says_it_and_not_when_its_file_was_copied(alice, run_export, tmp_path):
    for file in alice.glob("runs/*/result.json"):
        os.utime(file, (2e9, 2e9))
    check_done(run_export(alice, tmp_path / "bundle"))
    records = read_records(alice).values()
    manifest = json.loads((tmp_path / "bundle" / "bundle.json").read_text())
    assert manifest["runs"] == {record["key"]: record["ended"] for record in records}
    for record in records:
        assert 0 <= record["ended"] - record["started"] - record["cost"]["seconds"] < 60


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "no space left on device")])
def test_an_interrupted_export_leaves_the_earlier_bundle(alice, run_export, bundle, monkeypatch, tmp_path, error):
    before, write = read_content(bundle), transfer.write_whole

    def fail(path):
        if path.name == "bundle.json":  # the last
            raise error
        return write(path)

    monkeypatch.setattr(transfer, "write_whole", fail)
    assert run_export(alice, bundle)[0] == (130 if error is KeyboardInterrupt else 2)
    assert read_content(bundle) == before
    assert not list(tmp_path.glob(".*"))


def test_an_export_that_is_killed_at_any_file_leaves_what_verify_refuses_and_is_repeated(
    alice, run_export, bundle, monkeypatch, tmp_path
):
    expected = read_content(bundle)
    shutil.rmtree(bundle)
    removed = pick_run(alice)
    removed.rename(tmp_path / "kept")
    check_done(run_export(alice, bundle))
    (tmp_path / "kept").rename(removed)
    replace = Path.replace
    for count in range(len(expected)):
        moved = []

        def die(path, target, moved=moved, count=count):
            if bundle in Path(target).parents and len(moved) == count:
                raise KeyboardInterrupt
            moved += [target] * (bundle in Path(target).parents)
            return replace(path, target)

        monkeypatch.setattr(Path, "replace", die)
        assert run_export(alice, bundle)[0] == 130
        monkeypatch.setattr(Path, "replace", replace)
        is_new = read_content(bundle) == expected  # the plan, which comes last, has not changed
        assert count == 0 or is_new or any(find_changes(bundle, read_manifest(bundle)))
    check_done(run_export(alice, bundle))
    assert read_content(bundle) == expected


def test_a_folder_with_anything_else_is_refused(alice, run_export, bundle, command, tmp_path):
    (tmp_path / "notes").mkdir()
    for name in ("notes/mine.txt", "file", "bundle/mine.txt"):
        (tmp_path / name).write_text("mine")
    before = read_content(tmp_path)
    for target in (tmp_path / "notes", tmp_path / "file", alice, bundle, bundle / "inside"):
        check_refused(run_export(alice, target))
    (bundle / "mine.txt").unlink()
    del before["bundle/mine.txt"]
    check_refused(run_export(alice, bundle / "inside"))
    check_refused(command(report.main, str(bundle), f"output_dir={bundle}"))
    assert read_content(tmp_path) == before


def test_predictions_may_all_be_removed_and_a_run_without_its_own_or_a_damaged_one_is_refused(
    alice, run_export, tmp_path
):
    run = pick_run(alice)
    (run / "predictions.parquet").unlink()
    check_refused(run_export(alice, tmp_path / "bundle"), str(run))
    for file in alice.glob("runs/*/predictions.parquet"):
        file.unlink()
    check_done(run_export(alice, tmp_path / "bundle"))
    assert len(list_files(tmp_path / "bundle")) == 3
    (run / "result.json").write_text((run / "result.json").read_text().replace('"epoch": 1', '"epoch": 2', 1))
    check_refused(run_export(alice, tmp_path / "other"), str(run / "result.json"))
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("secret", ["hf_" + "Ab1" * 12, "s3cr3t-of-mine-123"])
def test_a_token_in_a_record_is_refused_and_not_shown(alice, run_export, tmp_path, monkeypatch, secret):
    monkeypatch.setenv("MY_API_KEY", "s3cr3t-of-mine-123")
    run = pick_run(alice)
    edit_record(run, lambda content: content.update(warnings=[f"Authorization: {secret}"]))
    code, out, err = run_export(alice, tmp_path / "bundle")
    assert code == 2
    assert run.name in err
    assert secret not in out + err
    assert not (tmp_path / "bundle").exists()
