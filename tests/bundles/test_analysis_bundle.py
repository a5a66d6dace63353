"""Bundles of analyses: one that trains nothing has files and no runs; that of trained runs goes with its runs."""

import json

import pytest
from bundle_tools import read_content, sign_file

from isobench.cli import export
from isobench.common.checksums import add_json_checksum, drop_json_checksum
from isobench.verification.ledger import FAILS
from isobench.verification.verify import Options, verify

pytestmark = pytest.mark.slow


@pytest.fixture
def explained_variance(small):
    pytest.importorskip("rocrate")
    return ["+experiment=isobn_ev", *small, "encoder.pooling=cls", "task.train_samples=60", "calibration=none"]


def test_an_analysis_without_training_is_exported_and_imported(
    cli, command, explained_variance, outputs, run_import, tmp_path
):
    target = tmp_path / "bundle"
    code, _, err = command(export.main, "--to", str(target), *explained_variance)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "has no analysis of these runs" in err
    assert cli(*explained_variance)[0] == 0
    folder = outputs / "reports" / "isobn_ev"
    code, _, err = command(export.main, "--to", str(target), *explained_variance)
    assert code == 0, err
    manifest = json.loads((target / "manifest.json").read_text())
    assert (manifest["runs"], manifest["experiment"]) == ({}, "isobn_ev")
    assert read_content(target / "report") == read_content(folder)
    assert sorted(manifest["analysis"]) == sorted(read_content(folder))
    elsewhere = tmp_path / "elsewhere"
    code, out, err = run_import(target, elsewhere)
    assert code == 0, err
    assert f"Imported {len(manifest['analysis'])} files of the analysis isobn_ev" in out
    assert read_content(elsewhere / "reports" / "isobn_ev") == read_content(folder)
    assert "Imported 0 files" in run_import(target, elsewhere)[1]
    (elsewhere / "reports" / "isobn_ev" / "about.json").write_text("{}")
    code, _, err = run_import(target, elsewhere)
    assert code == 2
    assert "about.json has other content" in err
    code, _, err = command(export.main, "--to", str(tmp_path / "hidden"), "--anonymous", *explained_variance)
    assert code == 0, err
    for path, content in read_content(tmp_path / "hidden").items():
        assert str(tmp_path.parent).encode() not in content, path
    assert run_import(tmp_path / "hidden", tmp_path / "other")[0] == 0
    (target / "report" / "tables.txt").write_text("I_1 = 1")
    sign_file(target, "report/tables.txt")
    code, _, err = run_import(target, tmp_path / "new")
    assert code == 2
    assert "tables.txt is not the file that it lists" in err
    (folder / "tables.txt").write_text("I_1 = 1")
    code, _, err = command(export.main, "--to", str(tmp_path / "damaged"), *explained_variance)
    assert code == 2
    assert "tables.txt is damaged or missing" in err


def forget_ended_runs(file):
    """Change an about.json as it is if no run had ended when the analysis was made."""
    content = drop_json_checksum(json.loads(file.read_text()))
    file.write_text(json.dumps(add_json_checksum(content | {"ended": []})))


def test_the_analysis_of_trained_runs_goes_with_its_runs(cli, command, small, run_import, outputs, tmp_path):
    pytest.importorskip("rocrate")
    drift = ["+experiment=isobn_drift", *small, "calibration=none", "seed=1", "task.train_samples=64"]
    code, _, err = cli(*drift)
    assert code == 0, err
    target = tmp_path / "bundle"
    code, out, err = command(export.main, "--to", str(target), *drift)
    assert code == 0, err
    manifest = json.loads((target / "manifest.json").read_text())
    assert len(manifest["runs"]) == 1
    assert "about.json" in manifest["analysis"]
    for name in manifest["analysis"]:
        assert (target / "report" / name).read_bytes() == (outputs / "reports" / "isobn_drift" / name).read_bytes()
    assert (target / "report" / "report.html").exists()
    code, out, err = run_import(target, tmp_path / "elsewhere")
    assert code == 0, err
    assert "Its analysis is not imported" in out
    forget_ended_runs(outputs / "reports" / "isobn_drift" / "about.json")
    code, out, err = command(export.main, "--to", str(tmp_path / "outdated"), *drift)
    assert code == 0, err
    assert "Without the analysis" in out
    about = "report/about.json"
    forget_ended_runs(target / about)
    sign_file(target, about)
    failures = [entry.text for entry in verify(target, Options()).list_entries(FAILS)]
    assert "its analysis was made of other runs than it has: repeat the analysis and the export" in failures
    (outputs / "reports" / "isobn_drift" / "about.json").unlink()
    code, out, err = command(export.main, "--to", str(target), *drift)
    assert code == 0, err
    assert "Without the analysis" in out
    assert not (target / "report" / "about.json").exists()
