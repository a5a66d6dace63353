"""An analysis of one's own: planned like a sweep, carried out once, its rows whole or not there at all."""

import json

import pytest
from helpers import check_done, read_analysis_rows

from isobench.analyses.runner import _list_earlier_files
from isobench.common.files import write_json

pytestmark = pytest.mark.slow

MODULE = """
from typing import Annotated
from matplotlib.figure import Figure
from isobench.analyses.shown import Shown, make_table
from isobench.config.bounds import at_least

def compute(subjects, k: Annotated[int, at_least(1)]):
    norms = [k * subject.embeddings().norm(dim=1).mean().item() for subject in subjects]
    pairs = zip(subjects, norms, strict=True)
    return {"norms": [{"encoder": own.encoder, "method": own.method, "norm": norm} for own, norm in pairs]}

def show(rows, k):
    table, figure = make_table(f"Norms x {k}", ("encoder",), ("norm",)), Figure()
    axis = figure.subplots()
    for row in rows["norms"]:
        table.add_row(row["encoder"], f"{row['norm']:.3f}")
        axis.bar(row["method"], row["norm"])
    return Shown([table], {"lengths": figure}, ["A note."])
"""


def test_rows_are_computed_written_and_shown(cli, small, outputs, tmp_path, monkeypatch):
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "my_own_analysis.py").write_text(MODULE)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(
        "# @package _global_\nexperiment: {name: mine, grid: {embedded: [{calibration: [none, batch_norm]}]}}\n"
        "analysis: {_target_: my_own_analysis, k: 10}\nhydra: {mode: MULTIRUN}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    mine = [f"--config-dir={tmp_path}/conf", "+experiment=mine", *small, "encoder.pooling=cls"]
    mine += ["task.train_samples=60"]
    out, _ = check_done(cli(*mine))
    folder = outputs / "reports" / "mine"
    rows = read_analysis_rows(outputs, "mine")["norms"]
    assert [row["method"] for row in rows] == ["none", "batch_norm"]
    assert f"{rows[0]['norm']:.3f}" in out
    about = json.loads((folder / "about.json").read_text())
    assert {run["calibration"]["name"] for run in about["runs"]} == {"none", "batch_norm"}
    assert about["analysis"] == {"_target_": "my_own_analysis", "k": 10}
    assert {file.name for file in folder.iterdir()} == {"about.json", *about["files"]}
    (folder / "lengths.svg").unlink()
    out, _ = check_done(cli("report", f"output_dir={outputs}", *mine[:2]))  # by the rows alone
    assert f"{rows[0]['norm']:.3f}" in out
    assert (folder / "lengths.svg").is_file()
    written = {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "about.json"}
    assert cli(*mine)[0] == 0
    assert {name: (folder / name).read_bytes() for name in written} == written


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["a.csv", "../../victim", "/etc/passwd", "sub/a.csv", "..", ".", "", 7, None], {"a.csv"}), ("a.csv", set()),
        ({"a.csv": 1}, set()), (7, set()),
    ],
)  # fmt: skip
def test_only_files_in_the_folder_are_an_earlier_analysis(tmp_path, files, expected):
    write_json(tmp_path / "about.json", {"files": files})
    assert _list_earlier_files(tmp_path) == expected
