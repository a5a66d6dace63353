"""Bundles of analyses: one that trains nothing has rows and no runs; that of trained runs goes with its runs."""

import json

import pytest
from bundle_tools import read_content, read_manifest, repair, write_signed_json
from helpers import check_done, check_refused

from isobench.cli import export, report
from isobench.verification.folder import FAILS, HOLDS, UNCHECKED
from isobench.verification.reproduction import Options
from isobench.verification.verify import verify

pytestmark = pytest.mark.slow


def test_an_analysis_without_training_is_exported_imported_and_computed_again(
    cli, command, small, outputs, run_import, tmp_path
):
    target, rows = tmp_path / "bundle", "explained_variance.parquet"
    settings = ["+experiment=isobn_ev", *small, "encoder.pooling=cls", "task.train_samples=60", "calibration=none"]
    check_refused(command(export.main, "--to", str(target), *settings))
    check_done(cli(*settings))
    folder = outputs / "reports" / "isobn_ev"
    check_done(command(export.main, "--to", str(target), *settings))
    manifest = read_manifest(target)
    assert (manifest["runs"], manifest["experiment"]) == ({}, "isobn_ev")
    assert manifest["files"].keys() == {"plan.json", "analysis/about.json", f"analysis/{rows}"}
    assert (target / "analysis" / rows).read_bytes() == (folder / rows).read_bytes()
    assert verify(target, Options()).count()["analysis"] == {UNCHECKED: 1}
    assert verify(target, Options(recompute=True, trust=True)).count()["analysis"] == {HOLDS: 1}
    elsewhere = tmp_path / "elsewhere" / "reports" / "isobn_ev"
    for _ in range(2):
        check_done(run_import(target, tmp_path / "elsewhere"))
        assert (elsewhere / rows).read_bytes() == (folder / rows).read_bytes()
    (elsewhere / "about.json").write_text("{}")
    check_refused(run_import(target, tmp_path / "elsewhere"))
    check_done(command(export.main, "--to", str(tmp_path / "hidden"), "--anonymous", *settings))
    assert not any(str(tmp_path.parent).encode() in text for text in read_content(tmp_path / "hidden").values())
    check_done(run_import(tmp_path / "hidden", tmp_path / "other"))
    (folder / rows).write_text("I_1 = 1")
    check_refused(command(export.main, "--to", str(tmp_path / "damaged"), *settings))


def test_the_analysis_of_trained_runs_goes_with_its_runs(cli, command, small, run_import, outputs, tmp_path):
    drift = ["+experiment=isobn_drift", *small, "calibration=none", "seed=1", "task.train_samples=64"]
    check_done(cli(*drift))
    target, own = tmp_path / "bundle", outputs / "reports" / "isobn_drift"
    check_done(command(export.main, "--to", str(target), *drift))
    assert len(read_manifest(target)["runs"]) == 1
    assert (target / "analysis" / "drift.parquet").read_bytes() == (own / "drift.parquet").read_bytes()
    for folder in (target, outputs):
        outcomes = verify(folder, Options())
        assert (outcomes.has_failed, outcomes.count()["analysis"]) == (False, {HOLDS: 1})
    check_done(run_import(target, tmp_path / "elsewhere"))
    assert not (tmp_path / "elsewhere" / "reports").exists()
    half = [text.replace("seed=1", "seed=1,2") for text in drift]
    check_done(command(report.main, *half))
    check_done(command(export.main, "--to", str(tmp_path / "half"), *half))
    file = tmp_path / "half" / "analysis" / "about.json"
    made = json.loads(file.read_text())
    for keys, outcome in ((made["keys"], HOLDS), (made["keys"] * 2, FAILS), ([], FAILS)):
        write_signed_json(file, made | {"keys": keys})
        repair(tmp_path / "half")
        assert verify(tmp_path / "half", Options()).count()["analysis"] == {outcome: 1}
    about = json.loads((own / "about.json").read_text())
    (own / "about.json").write_text(json.dumps(about | {"ended": []}))
    check_done(command(export.main, "--to", str(tmp_path / "outdated"), *drift))
    assert not (tmp_path / "outdated" / "analysis").exists()
