"""A stranger's bundle: whatever is changed or invented, it is named, nothing is imported, and nothing is run."""

import json
import shutil
import sys
from dataclasses import replace

import pytest
from bundle_tools import editable, repair, sign, write_signed_json
from helpers import ROOT, check_done, check_refused
from tampering import edit_record

from isobench.cli import report
from isobench.runs.plan import format_plan, parse_plan, read_plans

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("bundles")]  # they share runs that are trained once


def test_an_imported_plan_writes_nowhere_but_into_the_output_folder(bundle, run_import, tmp_path):
    plan = parse_plan((bundle / "plan.json").read_bytes(), "outputs")
    runs = [(replace(cfg, checkpoint=replace(cfg.checkpoint, export="/e")), own) for cfg, own in plan.runs]
    (bundle / "plan.json").write_bytes(format_plan(replace(plan, runs=runs)))
    repair(bundle)
    check_done(run_import(bundle, tmp_path / "outputs"))
    (imported,) = read_plans(tmp_path / "outputs")
    assert {(cfg.checkpoint.export, cfg.tracking.backend) for cfg, _ in imported.runs} == {(None, "none")}


def check_nothing_is_imported(run_import, bundle, outputs, *words):
    check_refused(run_import(bundle, outputs), *words)
    assert not outputs.exists()


@pytest.mark.parametrize("change", [None, lambda manifest: manifest["files"].update({"../evil": "0" * 64})])
def test_nothing_is_imported_of_a_bundle_that_fails(bundle, run_import, tmp_path, change):
    """tests/verification/test_verify.py has all that fails."""
    sign(bundle, change) if change else (bundle / "evil.html").write_text("evil")
    check_nothing_is_imported(run_import, bundle, tmp_path / "outputs")


def test_a_bundle_with_a_damaged_record_gets_no_report(bundle, command, tmp_path):
    with editable(bundle) as place:
        file = min((place / "runs").glob("*/result.json"))
        file.write_text(file.read_text().replace('"score": 0', '"score": 1', 1))
    check_refused(command(report.main, str(bundle), f"output_dir={tmp_path}/shown"))
    assert not (tmp_path / "shown").exists()


def test_no_class_that_a_bundle_names_is_imported(bundle, run_import, run_report, tmp_path, monkeypatch):
    (tmp_path / "evil_bundle.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\nclass Evil: pass\n")
    monkeypatch.syspath_prepend(tmp_path)

    def name_evil(record):
        record["config"]["calibration"]["_target_"] = f"evil_bundle.{own_class(record)}"
        record["config"]["analysis"] = {"_target_": "evil_bundle.Evil", "trains": True}

    def own_class(record):
        return record["config"]["calibration"]["_target_"].rpartition(".")[2]

    with editable(bundle) as place:
        for run in (place / "runs").iterdir():
            edit_record(run, name_evil)
    check_done(run_import(bundle, tmp_path / "outputs"))
    assert run_report(tmp_path / "outputs")[0] == 0
    assert "evil_bundle" not in sys.modules
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    ("settings", "name"), [({"trains": True}, "isobn_drift"), ({"trains": False}, "isobn_drift"), ({}, "isobn_ev")]
)
def test_an_analysis_without_runs_is_of_an_experiment_that_trains_nothing(run_import, tmp_path, settings, name):
    """It would be shown as the analysis of the runs that are there."""
    bundle = tmp_path / "bundle"
    shutil.copytree(ROOT / "experiments/isobn/results/isobn_ev", bundle)
    about = json.loads((bundle / "analysis" / "about.json").read_text())
    about["analysis"] |= settings
    about["experiment"]["name"] = name
    write_signed_json(bundle / "analysis" / "about.json", about)
    plan = parse_plan((bundle / "plan.json").read_bytes())
    (bundle / "plan.json").write_bytes(format_plan(replace(plan, experiment=name)))
    repair(bundle)
    sign(bundle, lambda manifest: manifest.update(experiment=name))
    if name == "isobn_ev":
        assert run_import(bundle, tmp_path / "outputs")[0] == 0
    else:
        check_nothing_is_imported(run_import, bundle, tmp_path / "outputs", "analysis")
