"""A stranger's bundle: whatever is changed or invented, it is named, nothing is imported, and nothing is run."""

import hashlib
import json
import os
import re
import sys

import orjson
import pyarrow.parquet
import pytest
import yaml
from bundle_tools import pick_run, refuse, sign, sign_file

from isobench.bundles.layout import is_bundle_path
from isobench.common.checksums import add_text_checksum
from isobench.runs.record_file import format_record

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("bundles")]  # they share runs that are trained once

FILES = ["config.yaml", "result.json", "predictions.parquet", "report/runs.csv", "commands.txt", "manifest.json"]
OUTSIDE = [
    "../evil", "/etc/passwd", "runs/../../evil", "runs/0123456789abcdef/../../x", "report/../../x", "report/a/b",
    "report/.bashrc", "report/", "runs/0123456789abcdef/evil.pkl", "runs/0123456789ABCDEF/result.json",
    "Commands.txt", "report/a\\b", "report/C:x", "report/a\x00b", "report/a\nb", "report/" + "x" * 300,
    "ro-crate-metadata.json", "manifest.json", "", ".", "runs",
]  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_changed_byte_is_named(bundle, run_import, tmp_path, name):
    file = pick_run(bundle) / name if "/" not in name and name in FILES[:3] else bundle / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    refuse(run_import, bundle, tmp_path, str(file))


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(bundle, run_import, tmp_path, name):
    file = pick_run(bundle) / name if name in FILES[:3] else bundle / name
    file.unlink()
    refuse(run_import, bundle, tmp_path, name.rpartition("/")[2])


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_other_path_can_be_listed(bundle, run_import, tmp_path, path):
    about = {"sha256": "0" * 64, "bytes": 1}
    sign(bundle, lambda manifest: manifest["files"].update({path: about}))
    assert not is_bundle_path(path)
    refuse(run_import, bundle, tmp_path, "manifest.json")


def change_manifest(**parts):
    return lambda manifest: manifest.update(parts)


def change_run(**parts):
    return lambda manifest: next(iter(manifest["runs"].values())).update(parts)


@pytest.mark.parametrize(
    "change",
    [
        change_manifest(format=2), change_manifest(format="1"), change_manifest(format=True),
        change_manifest(runs=[]), change_manifest(files=None), change_manifest(experiment="../evil"),
        change_manifest(experiment="a/b"), change_manifest(runs={}), change_run(folder="runs/../.."),
        change_run(status="running"), change_run(seed=99), change_run(status="failed"),
        change_run(predictions="removed"), change_run(ended=-1), change_run(ended=1e300),
        change_manifest(more=1), change_run(more=1), lambda m: m["files"]["commands.txt"].update(more=1),
        change_run(task="rte"), change_run(encoder="bert"), change_run(method="batch_norm"), change_run(score=0.999),
        change_manifest(planned=1), change_manifest(anonymous=True), change_manifest(created="yesterday\x1b[31m"),
        change_manifest(created="2026-01-02T03:04:05+00:00"), change_manifest(created="2999-01-02T03:04:05+00:00"),
        change_manifest(data={}), lambda m: m["weights"].update(x={}), change_manifest(isobench="1\x1b[31m"),
        lambda m: m["runs"].pop(next(iter(m["runs"]))),
        lambda m: m["runs"].update({"x" * 64: next(iter(m["runs"].values()))}),
        lambda m: m["files"].update({"report/RUNS.csv": m["files"]["report/runs.csv"]}),
        lambda m: m["files"]["report/runs.csv"].update({"bytes": -1}),
        lambda m: m["files"]["report/runs.csv"].update({"bytes": 10**15}),
        lambda m: m["files"]["report/runs.csv"].update({"sha256": "x"}),
    ],
)  # fmt: skip
def test_a_manifest_that_contradicts_itself_or_its_files_is_refused(bundle, run_import, tmp_path, change):
    sign(bundle, change)
    refuse(run_import, bundle, tmp_path)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"null", b"[" * 100_000, b'{"format": 1e999}', b"\xff\xfe"])
def test_a_manifest_of_anything_else_is_refused(bundle, run_import, tmp_path, text):
    (bundle / "manifest.json").write_bytes(text)
    refuse(run_import, bundle, tmp_path, "manifest.json")


@pytest.mark.parametrize("name", ["result.json", "config.yaml", "predictions.parquet"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "device"])
def test_only_regular_files_are_read(bundle, run_import, tmp_path, name, kind):
    file = pick_run(bundle) / name
    content = file.read_bytes()
    file.unlink()
    if kind == "link":
        (tmp_path / "elsewhere").write_bytes(content)
        file.symlink_to(tmp_path / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    else:
        file.mkdir()
    refuse(run_import, bundle, tmp_path, str(file))


@pytest.mark.parametrize("place", ["runs", "report"])
def test_a_folder_behind_a_link_is_not_read(bundle, run_import, tmp_path, place):
    (bundle / place).rename(tmp_path / "elsewhere")
    (bundle / place).symlink_to(tmp_path / "elsewhere")
    refuse(run_import, bundle, tmp_path, "link")


def forge_record(bundle, change, also_config: bool = True, run=None) -> None:
    """Change a run's record, and its config with it, and give every file the checksums of its new content."""
    run = run or pick_run(bundle)
    content = json.loads((run / "result.json").read_text())
    change(content)
    (run / "result.json").write_bytes(format_record(content))
    sign_file(bundle, f"runs/{run.name}/result.json")
    if also_config:
        text = yaml.safe_dump(content["config"], sort_keys=False)
        (run / "config.yaml").write_text(add_text_checksum(text, run.name))
        sign_file(bundle, f"runs/{run.name}/config.yaml")


@pytest.mark.parametrize(
    ("change", "also_config"),
    [
        (lambda record: record["config"]["optimization"].update(lr=0.5), True),
        (lambda record: record["config"]["optimization"].update(lr=0.5), False),
        (lambda record: record["config"]["task"].update(train_samples=1), True),
        (lambda record: record["data"]["fingerprint"].update(train="0" * 64), True),
        (lambda record: record["encoder"]["fingerprint"].update({"config.json": "0" * 64}), True),
        (lambda record: record["predictions"].update(sha256="0" * 64), True),
        (lambda record: record["best"].update(score=0.999), True),
        (lambda record: record.update(key="0" * 64), True),
        (lambda record: record["config"].update(output_dir="${oc.env:HOME}"), True),
    ],
)
def test_a_signed_forgery_of_settings_data_or_scores_is_refused(bundle, run_import, tmp_path, change, also_config):
    forge_record(bundle, change, also_config)
    refuse(run_import, bundle, tmp_path, str(pick_run(bundle)))


def test_two_runs_that_changed_places_are_refused(bundle, run_import, tmp_path):
    first, second, *_ = sorted((bundle / "runs").iterdir())
    first.rename(tmp_path / "kept")
    second.rename(first)
    (tmp_path / "kept").rename(second)
    for run in (first, second):
        for name in ("result.json", "config.yaml", "predictions.parquet"):
            sign_file(bundle, f"runs/{run.name}/{name}")
    refuse(run_import, bundle, tmp_path, "runs/")


@pytest.mark.parametrize("text", ["a: &a [1]\nb: *a\n", "[" * 5000, "!!python/object/apply:os.system ['true']\n"])
def test_yaml_that_could_harm_is_refused(bundle, run_import, tmp_path, text):
    run = pick_run(bundle)
    (run / "config.yaml").write_text(add_text_checksum(text + "\n", run.name))
    sign_file(bundle, f"runs/{run.name}/config.yaml")
    refuse(run_import, bundle, tmp_path, str(run))


def test_no_class_that_a_bundle_names_is_imported(bundle, run_import, run_report, tmp_path, monkeypatch):
    (tmp_path / "evil_bundle.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\nclass Evil: pass\n")
    monkeypatch.syspath_prepend(tmp_path)

    def name_evil(record):
        record["config"]["calibration"]["_target_"] = "evil_bundle.Evil"
        record["config"]["monitors"] = {}
        record["config"]["analysis"] = {"_target_": "evil_bundle.Evil", "trains": True}

    for run in sorted((bundle / "runs").iterdir()):
        forge_record(bundle, name_evil, run=run)
    code, _, err = run_import(bundle, tmp_path / "outputs")
    assert code == 0, err
    assert run_report(tmp_path / "outputs")[0] == 0
    assert "evil_bundle" not in sys.modules
    assert not (tmp_path / "imported").exists()


def test_texts_of_a_bundle_reach_the_terminal_without_control_characters(bundle, run_import, tmp_path):
    sign(bundle, lambda manifest: manifest["files"].update({"report/\x1b[2Jx": {"sha256": "0" * 64, "bytes": 1}}))
    _, out, err = run_import(bundle, tmp_path / "outputs")
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", out + err)


def test_a_damaged_plan_of_an_import_is_named(bundle, run_import, run_report, tmp_path):
    outputs = tmp_path / "outputs"
    assert run_import(bundle, outputs)[0] == 0
    (note,) = (outputs / "plans").iterdir()
    content = orjson.loads(note.read_bytes())
    content["runs"] = content["runs"][:1]
    note.write_bytes(orjson.dumps(content))
    code, _, err = run_report(outputs)
    assert (code, len(err.splitlines())) == (2, 1)
    assert str(note) in err


def change_predictions(bundle, change) -> None:
    """Change the table of a run's predictions, and make record and manifest name the new file."""
    run = pick_run(bundle)
    file = run / "predictions.parquet"
    pyarrow.parquet.write_table(change(pyarrow.parquet.read_table(file)), file)
    sign_file(bundle, f"runs/{run.name}/predictions.parquet")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    forge_record(bundle, lambda record: record["predictions"].update(sha256=digest), also_config=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop_columns(["logits"]), "the columns are"),
        (lambda table: table.slice(1), "rows, and its record says"),
        (lambda table: table.set_column(3, "prediction", table["label"]), "is not the one that its logits give"),
    ],
)
def test_predictions_of_another_form_are_refused(bundle, run_import, tmp_path, change, message):
    change_predictions(bundle, change)
    refuse(run_import, bundle, tmp_path, str(pick_run(bundle)), message)


def test_an_added_epoch_is_refused(bundle, run_import, tmp_path):
    def add_epoch(record):
        last = record["history"][-1]
        record["history"].append({**last, "epoch": last["epoch"] + 1, "step": last["step"] + 1, "score": 0.0})
        record["history"][-1]["selection"] = 0.0

    forge_record(bundle, add_epoch, also_config=False)
    refuse(run_import, bundle, tmp_path, str(pick_run(bundle)))
