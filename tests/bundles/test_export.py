"""Export: a bundle holds the runs byte for byte, is written whole or not at all, and can be written again."""

import hashlib
import json
import os
import shutil
import subprocess

import orjson
import pytest
from bundle_tools import pick_run, read_content

from isobench import load_runs
from isobench.bundles import export
from isobench.common import packages
from isobench.config.schema import config_from_plain
from isobench.runs.identity import compute_key
from isobench.runs.record_file import format_record

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("bundles")]  # they share runs that are trained once

RUN_FILES = ("config.yaml", "result.json", "predictions.parquet")


def test_a_bundle_holds_the_runs_byte_for_byte_and_a_sum_of_every_file(alice, run_export, tmp_path):
    (pick_run(alice) / "checkpoints").mkdir()
    (pick_run(alice) / "checkpoints" / "last.ckpt").write_text("weights")
    target = tmp_path / "new" / "bundle"
    code, out, err = run_export(alice, target)
    assert (code, err) == (0, "")
    assert "Exported all 4 runs" in out
    assert f"isobench verify {target}" in out
    files = read_content(target)
    expected = {
        f"runs/{run.name}/{name}": (run / name).read_bytes() for run in alice.glob("runs/*") for name in RUN_FILES
    }
    assert {path: content for path, content in files.items() if path.startswith("runs/")} == expected
    manifest = json.loads(files.pop("manifest.json"))
    crate = json.loads(files.pop("ro-crate-metadata.json"))
    assert manifest["files"] == {
        path: {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        for path, content in files.items()
    }
    assert {"report/report.html", "report/report.md", "report/tables.tex", "report/runs.csv"} <= files.keys()
    assert len(manifest["runs"]) == 4
    for key, run in manifest["runs"].items():
        record = json.loads(files[f"{run['folder']}/result.json"])
        assert (record["key"], record["status"], record["config"]["seed"]) == (key, run["status"], run["seed"])
        assert manifest["data"][run["data"]] == record["data"]["fingerprint"]
        assert manifest["weights"][run["weights"]] == record["encoder"]["fingerprint"]
        assert run["score"] == record["best"]["score"]
    described = {entity["@id"] for entity in crate["@graph"] if entity["@type"] == "File"}
    assert described == {*files, "manifest.json"}
    assert [path.name for path in target.parent.iterdir()] == ["bundle"]
    assert len(load_runs(target)) == 4


def test_commands_name_no_folder_of_this_machine(alice, run_export, tmp_path):
    assert run_export(alice, tmp_path / "bundle")[0] == 0
    command, comment = (tmp_path / "bundle" / "commands.txt").read_text().splitlines()
    assert command.startswith("python -m isobench -m ")
    assert "+experiment=glue_isobn" in command
    assert "seed=1,2" in command
    assert "encoder.path=PATH/TO/" in command
    assert str(tmp_path.parent.parent) not in command
    assert comment.startswith("# ")


def test_the_same_runs_give_the_same_bytes(alice, run_export, exported, tmp_path):
    assert run_export(alice, tmp_path / "again")[0] == 0
    assert read_content(tmp_path / "again") == read_content(exported)


def test_times_in_the_manifest_are_those_of_the_records_files(alice, run_export, bundle, tmp_path):
    for file in alice.glob("runs/*/result.json"):
        os.utime(file, (1e9, 1e9))
    assert run_export(alice, tmp_path / "copied")[0] == 0
    copied, plain = (json.loads((folder / "manifest.json").read_text()) for folder in (tmp_path / "copied", bundle))
    assert copied["created"] == "2001-09-09T01:46:40+00:00"
    assert {run.pop("ended") for run in copied["runs"].values()} == {1e9}
    assert all(run.pop("ended") > 1e9 for run in plain["runs"].values())
    assert copied["runs"] == plain["runs"]


def test_growing_results_replace_the_earlier_bundle(alice, run_export, tmp_path):
    record = pick_run(alice) / "result.json"
    record.rename(tmp_path / "kept")
    code, out, _ = run_export(alice, tmp_path / "bundle")
    assert code == 0
    assert "Exported 3 of 4 runs; 1 has not ended: export again later" in out
    before = read_content(tmp_path / "bundle")
    (tmp_path / "kept").rename(record)
    code, out, _ = run_export(alice, tmp_path / "bundle")
    assert code == 0
    assert "Exported all 4 runs" in out
    after = read_content(tmp_path / "bundle")
    assert len(after) == len(before) + 3
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "no space left on device")])
def test_an_interrupted_export_leaves_the_earlier_bundle(alice, run_export, bundle, monkeypatch, tmp_path, error):
    before = read_content(bundle)

    def fail(*_):
        raise error

    monkeypatch.setattr(export, "write_crate", fail)
    code, _, err = run_export(alice, bundle)
    assert code == (130 if error is KeyboardInterrupt else 2)
    assert len(err.splitlines()) == 1
    assert error is KeyboardInterrupt or "no space left on device; make room" in err
    assert read_content(bundle) == before
    assert not list(tmp_path.glob(".*"))


def test_folders_that_are_replaced_without_the_system_call_keep_one_of_the_two(bundle, tmp_path, monkeypatch):
    from isobench.bundles import exchange

    monkeypatch.setattr(exchange, "exchange", lambda *_: False)
    new = tmp_path / "new"
    new.mkdir()
    (new / "file").write_text("new")
    before = read_content(bundle)
    exchange.replace_folder(new, bundle)
    assert read_content(bundle) == {"file": b"new"}
    assert read_content(new) == before


def test_a_folder_with_anything_else_is_refused(alice, bob, run_export, bundle, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for target in (tmp_path / "notes", tmp_path / "file", alice):
        before = read_content(tmp_path)
        code, _, err = run_export(alice, target)
        assert code == 2
        assert len(err.splitlines()) == 1
        assert read_content(tmp_path) == before
    (bundle / "report" / "mine.txt").write_text("mine")
    code, _, err = run_export(alice, bundle)
    assert code == 2
    assert "report/mine.txt, which is not the bundle's" in err


def test_removed_predictions_are_said_and_damaged_runs_refused(alice, run_export, tmp_path):
    run = pick_run(alice)
    (run / "predictions.parquet").unlink()
    code, out, _ = run_export(alice, tmp_path / "bundle")
    assert code == 0
    assert f"Without predictions, which were removed: runs/{run.name}" in out
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    assert sorted(entry["predictions"] for entry in manifest["runs"].values()) == ["kept", "kept", "kept", "removed"]
    (run / "result.json").write_text((run / "result.json").read_text().replace('"epoch": 1', '"epoch": 2', 1))
    code, _, err = run_export(alice, tmp_path / "other")
    assert code == 2
    assert str(run / "result.json") in err
    assert not (tmp_path / "other").exists()


def test_what_can_not_be_exported_is_said_in_one_line(command, run_export, tmp_path, monkeypatch, alice):
    code, _, err = command(export_main(), "--to", str(tmp_path / "x"))
    assert (code, len(err.splitlines())) == (2, 1)
    assert "+experiment=NAME" in err
    code, _, err = command(export_main(), "+experiment=glue_isobn")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "--to" in err
    monkeypatch.setattr(packages, "find_package_folder", lambda name: None)
    code, _, err = run_export(alice, tmp_path / "x")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "pip install 'isobench[bundle]'" in err


def export_main():
    from isobench.cli import export

    return export.main


def test_the_crate_is_read_back_by_its_library(bundle):
    from rocrate.rocrate import ROCrate

    crate = ROCrate(bundle)
    assert crate.name == "isobench runs: glue_isobn"
    manifest = json.loads((bundle / "manifest.json").read_text())
    for path, about in manifest["files"].items():
        entity = crate.dereference(path)
        assert (entity["sha256"], entity["contentSize"]) == (about["sha256"], str(about["bytes"]))
    assert crate.root_dataset["datePublished"] == manifest["created"]


def test_an_anonymous_bundle_names_no_machine_and_no_folder_and_keeps_keys_and_scores(
    alice, run_export, run_import, bundle, tmp_path
):
    target = tmp_path / "hidden"
    for file in alice.glob("runs/*/result.json"):
        content = orjson.loads(file.read_bytes())
        content["where"] |= {"host": "node17.cluster", "machine": "node17.cluster", "log": "/home/alice/log.txt"}
        content["warnings"] = ["/home/alice/data/a.csv has 2 empty texts"]
        file.write_bytes(format_record(content))
    code, out, err = run_export(alice, tmp_path / "named")
    assert "name machines (node17.cluster) and folders (/home/alice/data/a.csv, /home/alice/log.txt" in out
    code, out, err = run_export(alice, target, "--anonymous")
    assert code == 0, err
    assert "node17" not in out
    for path, content in read_content(target).items():
        for word in ("node17", "alice", str(tmp_path.parent.parent), "/tmp/"):
            assert word.encode() not in content, path
    assert b"PATH/TO/a.csv has 2 empty texts" in (pick_run(target) / "result.json").read_bytes()
    manifest, plain = (json.loads((folder / "manifest.json").read_text()) for folder in (target, bundle))
    assert manifest["anonymous"]
    scores = [{key: run["score"] for key, run in m["runs"].items()} for m in (manifest, plain)]
    assert scores[0] == scores[1]
    for run in (target / "runs").iterdir():
        record = json.loads((run / "result.json").read_text())
        cfg = config_from_plain(record["config"])
        assert compute_key(cfg, record["data"]["fingerprint"], record["encoder"]["fingerprint"]) == record["key"]
    code, _, err = run_import(target, tmp_path / "imported")
    assert code == 0, err


@pytest.mark.parametrize("secret", ["hf_" + "Ab1" * 12, "s3cr3t-of-mine-123"])
def test_a_token_in_a_record_is_refused_and_not_shown(alice, run_export, tmp_path, monkeypatch, secret):
    monkeypatch.setenv("MY_API_KEY", "s3cr3t-of-mine-123")
    file = pick_run(alice) / "result.json"
    content = orjson.loads(file.read_bytes())
    content["warnings"] = [f"Authorization: {secret}"]
    file.write_bytes(format_record(content))
    code, out, err = run_export(alice, tmp_path / "bundle")
    assert code == 2
    assert str(file) in err
    assert secret not in out + err
    assert not (tmp_path / "bundle").exists()


def test_a_subset_of_a_sweep_is_exported_with_its_own_command(alice, run_export, tmp_path, tiny):
    more = ["task=sst2", "encoder=local", f"encoder.path={tiny}", "tracking=none", "optimization.epochs=2"]
    more += ["optimization.batch_size=16", "optimization.lr=3e-3", "seed=2", "calibration=none,isobn_paper"]
    code, out, err = run_export(alice, tmp_path / "bundle", *more)
    assert code == 0, err
    assert "Exported all 2 runs" in out
    assert "seed=2" in (tmp_path / "bundle" / "commands.txt").read_text()
    shutil.rmtree(tmp_path / "bundle")


@pytest.mark.skipif(shutil.which("rocrate-validator") is None, reason="roc-validator is not installed")
def test_the_crate_is_valid(bundle):
    """roc-validator needs another version of rich, so it is installed elsewhere, and it reads a file of the web."""
    command = ["rocrate-validator", "-y", "validate", "-p", "ro-crate-1.1", "-l", "required", "--no-paging"]
    done = subprocess.run([*command, str(bundle)], capture_output=True, text=True, check=False)
    if "Unable to retrieve the JSON-LD context" in done.stdout + done.stderr:
        pytest.skip("the RO-Crate context can't be read from the web")
    assert done.returncode == 0, done.stdout
