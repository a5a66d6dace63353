"""``isobench report`` repeats the analysis that the experiment names, and none that only a copied folder names."""

import sys
from dataclasses import replace

import pytest
from helpers import make_config

from isobench.cli import report
from isobench.common.errors import StorageError, UserError
from isobench.runs.row import Row

TARGET = "isobench_papers.isobn.drift.analyse"


@pytest.mark.parametrize(("target", "is_repeated"), [(TARGET, True), ("evil_analysis.run", False)])
def test_only_the_experiments_own_function_is_called(tmp_path, monkeypatch, capsys, target, is_repeated):
    (tmp_path / "evil_analysis.py").write_text("def run(subjects): raise SystemExit(9)\n")
    monkeypatch.syspath_prepend(tmp_path)
    called = []
    monkeypatch.setattr(report, "analyse_trained_runs", lambda experiment, rows: called.append(rows))
    cfg = replace(make_config("tracking=none"), analysis={"_target_": target, "trains": True})
    rows = [Row.of(replace(cfg, output_dir=str(tmp_path)), "0" * 64)]
    notes = report.repeat_analysis(rows, ["+experiment=isobn_drift"])
    assert len(notes) == (0 if is_repeated else 1)  # for the page
    assert called == ([rows] if is_repeated else [])
    assert ("names evil_analysis.run, and the experiment does not" in capsys.readouterr().err) is not is_repeated
    assert "evil_analysis" not in sys.modules


def test_an_analysis_that_refuses_the_runs_leaves_a_note_and_a_full_folder_stops(tmp_path, monkeypatch, capsys):
    errors = [UserError("the runs differ"), StorageError("no space")]

    def refuse(experiment, rows):
        raise errors.pop(0)

    monkeypatch.setattr(report, "analyse_trained_runs", refuse)
    cfg = replace(make_config("tracking=none"), analysis={"_target_": TARGET, "trains": True})
    rows = [Row.of(replace(cfg, output_dir=str(tmp_path)), "0" * 64)]
    notes = report.repeat_analysis(rows, ["+experiment=isobn_drift"])
    assert notes == ["The analysis can't be carried out: the runs differ."]
    assert "the runs differ" in capsys.readouterr().err
    with pytest.raises(StorageError):
        report.repeat_analysis(rows, ["+experiment=isobn_drift"])
    rows[0].cfg.analysis["typo"] = 1
    with pytest.raises(UserError, match="typo"):
        report.repeat_analysis(rows, ["+experiment=isobn_drift"])
