"""Tokens that no bundle may hold, and what an anonymous bundle leaves out."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from bundle_tools import list_files
from made_up_runs import write_runs
from tampering import list_failures

from isobench.bundles.privacy import (
    PATH_SETTINGS,
    anonymise_about,
    anonymise_record,
    require_no_folder,
    require_no_secret,
)
from isobench.bundles.transfer import export_bundle
from isobench.cli.export import _list_names
from isobench.common.errors import UserError
from isobench.config.schema import config_from_plain
from isobench.runs.identity import compute_key
from isobench.runs.plan import Plan, read_runs
from isobench.runs.record import RunRecord, format_record

WORD = "zanzibar"  # of the user, the machine and the folders
PLACES = [
    f"/home/{WORD}/x", f"/home/{WORD} b/my x", f"/a,{WORD}/x", f"/it's {WORD}/x", f'/"{WORD}"/x', f"{WORD}/x",
    f"../{WORD}/x", f"~/{WORD}/x", f"~{WORD}/x", f"s3://{WORD}/x", f"smb://{WORD}.lan/x", f"file:///{WORD}/x",
    f"C:\\Users\\{WORD}\\x", f"\\\\{WORD}\\share\\x", f"/home/{WORD}/x/",
]  # fmt: skip


def test_tokens_are_found_by_their_form():
    for text in (
        "hf_" + "a1B2" * 9, "ghp_" + "a1B2" * 9, "AKIA" + "ABCD" * 4, "-----BEGIN OPENSSH PRIVATE KEY-----",
        "api_key: " + "0123456789" * 4, "WANDB_API_KEY=" + "0123456789" * 4,
    ):  # fmt: skip
        with pytest.raises(UserError) as refusal:
            require_no_secret("a record", f"before {text} after".encode())
        assert text not in str(refusal.value)


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    root = tmp_path_factory.mktemp("made_up")
    write_runs(root, root / "outputs", methods=["none"])
    return root / "outputs"


# What says of a result what it is: numbers, names of isobench's own, and the kind of machine.
OF_RESULTS = (
    "key", "status", "failure.name", "scale.name", "data.fingerprint", "encoder.fingerprint", "provenance.git",
    "provenance.python", "provenance.versions", "provenance.cpu", "provenance.instruction_set", "provenance.gpus",
    "predictions", "dropout", "generation", "config", "checksum",
)  # fmt: skip


def plant(value, place=""):
    """Put the word into every text of a record but those that say what the result is."""
    if isinstance(value, dict):
        return {name: plant(item, f"{place}.{name}".lstrip(".")) for name, item in value.items()}
    if isinstance(value, list):
        return [*(plant(item, place) for item in value)]
    return f"of {WORD}" if isinstance(value, str) and not place.startswith(OF_RESULTS) else value


def plant_in_config(config: dict, path: str) -> None:
    for setting in PATH_SETTINGS:
        section, _, name = setting.rpartition(".")
        is_folder = setting in ("output_dir", "checkpoint.export")  # which can't be an address
        (config[section] if section else config)[name] = path.replace("://", "/") if is_folder else path
    config["data"]["files"] = {"train": path, "validation": 0.5}
    config["task"]["folder"] = f"{WORD}/x"
    config["tracking"] |= {"group": WORD, "label": WORD}
    config["analysis"] = {"_target_": "isobench_papers.isobn.drift", "trains": True, "vectors": [f"/{path}"]}
    config["experiment"]["grid"] = {"paper": [{"encoder.path": [path], "calibration": ["none"]}]}


def read_decompressed(file: Path) -> str:
    if file.suffix != ".parquet":
        return file.read_text()
    table = pyarrow.parquet.read_table(file)
    return f"{table.schema.metadata} {table.column_names} {table.to_pylist()}"


@pytest.mark.parametrize("path", PLACES)
def test_no_byte_of_an_anonymous_bundle_names_a_user_a_machine_or_a_folder(made_up, tmp_path, path):
    outputs = Path(shutil.copytree(made_up, tmp_path / "outputs"))
    for file in outputs.glob("runs/*/result.json"):
        content = json.loads(file.read_text())
        content |= {"warnings": ["w"], "note": "n", "failure": None}
        content["where"] |= {"log": "l", "job": "j", "user": "u", "host": "h"}
        content["provenance"] |= {"login": "u", "cwd": "c", "command": ["hydra.launcher.account=x", "--config-path"]}
        content["scale"]["differs"].append("d")
        for epoch in (content["best"], *content["history"]):
            epoch["drift"] = {"l2": 0.5, "text": "t", "texts": ["t"]}
        content = plant(content)
        content["provenance"]["platform"] = f"Linux-6.1-{WORD}"
        plant_in_config(content["config"], path)
        file.write_bytes(format_record(content))
    rows = read_runs(str(outputs))
    assert [row.trouble for row in rows] == [None, None]
    commands = [f"isobench --config-path {path} hydra.launcher.partition={WORD}"]
    plan = Plan(None, commands, [(row.cfg, row.identity) for row in rows])
    bundle = tmp_path / "bundle"
    for anonymous in (False, True):
        export_bundle(bundle, plan, rows, anonymous=anonymous)
        found = [file.name for file in list_files(bundle) if WORD in read_decompressed(file)]
        assert found == ([] if anonymous else ["plan.json", "records.parquet"])
    files = [file for file in list_files(bundle) if WORD.encode() in file.read_bytes()]
    assert files == []
    failures = [text for text in list_failures(bundle) if "its config asks for no such entry" not in text]
    assert failures == []  # the monitor's entries have no monitor
    for text in pyarrow.parquet.read_table(bundle / "records.parquet")["record"].to_pylist():
        record = json.loads(text)
        assert record["where"]["host"] == record["where"]["machine"] == "anonymous"
        assert record["config"]["encoder"]["path"] in ("x", "my x")
        assert record["best"]["drift"] == {"l2": 0.5, "texts": []}
        cfg = config_from_plain(record["config"])
        assert compute_key(cfg, record["data"]["fingerprint"], record["encoder"]["fingerprint"]) == record["key"]


def test_the_command_lists_every_text_of_the_users_that_an_anonymous_bundle_keeps(made_up):
    (row, *_) = read_runs(str(made_up))
    task = replace(row.cfg.task, labels=["my_class", "other"])
    method = {**row.cfg.calibration, "note": "written by me"}
    data = replace(row.cfg.data, files={"train": "my.csv"})
    encoder = replace(row.cfg.encoder, path="my_encoder")
    cfg = replace(row.cfg, task=task, calibration=method, data=data, encoder=encoder)
    ours, yours = (Plan(None, [], [(own, row.identity)]) for own in (row.cfg, cfg))
    found = set(_list_names(yours)) - set(_list_names(ours))
    assert found == {"my_class", "other", "note", "written by me", "my.csv", "my_encoder"}


def test_what_went_wrong_in_a_failed_run_is_left_out_but_for_its_name(made_up):
    content = json.loads(next(made_up.glob("runs/*/result.json")).read_text())
    failure = {"name": "crash", "message": f"no /{WORD}/x", "step": 3, "traceback": f"File /{WORD}/x.py"}
    text = anonymise_record(RunRecord.model_validate(content | {"status": "failed", "failure": failure}))
    assert WORD.encode() not in text
    assert json.loads(text)["failure"] == {"name": "crash", "message": "anonymous", "step": 3}


def test_a_path_that_the_key_is_made_of_is_refused(made_up, tmp_path):
    (row, *_) = read_runs(str(made_up))
    cfg = replace(row.cfg, calibration=row.cfg.calibration | {"vectors": "/home/me/x"})
    row = replace(row, cfg=cfg)
    with pytest.raises(UserError, match="without --anonymous"):
        export_bundle(tmp_path / "bundle", Plan(None, [], [(cfg, row.identity)]), [row], anonymous=True)
    assert not (tmp_path / "bundle").exists()


def test_an_analysis_says_of_its_settings_what_stays_of_them():
    about = {
        "experiment": {"name": "x", "grid": {"paper": [{"data.root": [f"{WORD}/glue"]}]}},
        "analysis": {"_target_": "a.b", "vectors": f"s3://{WORD}/v.npy", "set": "org/model"},
        "scale": {"name": "paper", "differs": ["at most 60 examples", f"own: weights of /home/{WORD}/x lack y"]},
        "provenance": {"command": [WORD], "platform": f"Linux-{WORD}", "cpu": "a cpu"}, "keys": ["k"], "mine": WORD,
    }  # fmt: skip
    kept = anonymise_about(about)
    assert WORD not in str(kept)
    assert kept["analysis"] == {"_target_": "a.b", "vectors": "v.npy", "set": "org/model"}
    assert (kept["experiment"]["grid"], kept["keys"]) == ({"paper": [{"data.root": ["glue"]}]}, ["k"])


def test_rows_that_name_folders_are_refused_and_those_of_texts_and_addresses_are_not(tmp_path):
    def check(*rows):
        pyarrow.parquet.write_table(pyarrow.table({"text": rows, "n": range(len(rows))}), tmp_path / "x.parquet")
        require_no_folder("x", (tmp_path / "x.parquet").read_bytes())

    for row in ("local (/home/me/x)", "~/x", "C:\\Users\\me", ["a", "in /data/me"]):
        with pytest.raises(UserError):
            check(row)
    texts = ["and/or", "https://a.b/c/d", "org/model", "1/2", "a / b", "</s>", "<br />", "9/11/2001", "s3://a/b"]
    check(*texts, None)
