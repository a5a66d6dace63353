"""What the papers' analyses have in common: a module with compute and show, and published rows beside ours."""

import math
import subprocess
import sys

import pytest
import yaml
from helpers import ROOT, fails, load_experiment_analysis

from isobench.analyses.rows import read_about, read_stored_rows
from isobench.analyses.runner import show_rows
from isobench.analyses.shown import build_comparison_tables
from isobench.papers.folders import find_papers


def list_targets():
    files = [file for folder in find_papers().values() for file in sorted(folder.glob("experiment/*.yaml"))]
    analyses = {file.stem: (yaml.safe_load(file.read_text()) or {}).get("analysis") for file in files}
    return {name: analysis["_target_"] for name, analysis in analyses.items() if analysis}


def test_every_analysis_is_a_module_with_compute_and_show_that_imports_no_torch():
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    module = importlib.import_module(name)\n"
        "    assert callable(module.compute) and callable(module.show), name\n"
        "    assert 'torch' not in sys.modules, name\n"
    )
    targets = list_targets()
    assert len(targets) >= 9
    subprocess.run([sys.executable, "-c", code, *targets.values()], check=True)


def read_table(table):
    """Return the headings and lines of a table."""
    lines = list(zip(*(column.cells for column in table.columns), strict=True))
    return [column.header for column in table.columns], lines


def test_published_rows_stand_below_ours_in_the_columns_that_we_have():
    ours = {("mine", "none"): {"MRPC": "0.10/0.20/0.30", "my_task": "0.5"}}
    (table,) = build_comparison_tables("t", ("encoder", "method"), ours, "isobn", "table2")
    headings, lines = read_table(table)
    assert headings == ["", "encoder", "method", "MRPC", "my_task"]
    assert lines[:2] == [
        ("ours", "mine", "none", "0.10/0.20/0.30", "0.5"),
        ("paper", "bert-base-cased", "plain", "0.76/0.87/0.89", "-"),
    ]
    assert len(lines) == 7


def test_published_rows_without_our_columns_are_a_table_of_their_own():
    ours = {("mine", method): {"rotten_tomatoes": "0.31/0.37/0.40"} for method in ("none", "isobn_paper")}
    own, printed = build_comparison_tables("t", ("encoder", "method"), ours, "isobn", "table2")
    assert read_table(own)[1] == [("mine", method, "0.31/0.37/0.40") for method in ("none", "isobn_paper")]
    headings, lines = read_table(printed)
    assert headings == ["encoder", "method", "MRPC", "RTE", "CoLA", "STS-b"]
    values = ("0.76/0.87/0.89", "0.88/0.93/0.95", "0.49/0.58/0.64", "0.89/0.94/0.96")
    assert lines[0] == ("bert-base-cased", "plain", *values)
    assert "-" not in {cell for line in lines for cell in line}


def test_published_rows_without_a_cell_in_our_columns_are_left_out():
    ours = {("mine",): {"avg cos": "0.10"}}
    (table,) = build_comparison_tables("t", ("encoder",), ours, "too_much_in_common", "section5_3")
    lines = [("ours", "mine", "0.10"), ("paper", "roberta-large", "0.33")]
    assert read_table(table) == (["", "encoder", "avg cos"], lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    "experiment",
    [
        "isobn_embeddings",
        "adaptation_embeddings",
        "common_isotropy",
        "common_wordsim",
        "common_frequency",
        "common_gradient",
    ],
)
def test_a_calibration_is_refused_where_it_would_be_ignored(cli, small, outputs, experiment):
    code, out, err = cli(f"+experiment={experiment}", *small, "calibration=isobn_paper")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{experiment} looks at embeddings without calibration: leave calibration out" in err
    assert not outputs.exists()


BUNDLES = sorted(ROOT.glob("experiments/*/results/*/analysis"))


@pytest.mark.slow
@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.parent.name)
def test_a_shipped_analysis_is_shown_from_its_rows_alone(folder):
    about = read_about(folder)
    about["analysis"]["_target_"] = list_targets()[about["experiment"]["name"]]
    rows = read_stored_rows(folder)
    shown = show_rows(about, rows)
    assert len(shown.tables) >= 1
    assert set(shown.draw()) == set(shown.figures)


IMPOSSIBLE = {
    "isobn_ev": [("curve", 0), ("curve", 2.5), ("curve", True)],
    "isobn_embeddings": [
        ("bins", 0), ("strong", 0.5), ("strong", []), ("strong", ["a"]), ("threshold", 2), ("threshold", math.nan),
    ],
    "adaptation_embeddings": [
        ("points", 1), ("perplexity", 0), ("perplexity", "many"), ("seed", None), ("seed", 2**32), ("within", -1),
        ("cluster_share", 1),
    ],
    "common_frequency": [
        ("texts", 0), ("width", "wide"), ("rare", 0), ("ranges", 3), ("ranges", [{"first": 1, "end": 5}]),
        ("ranges", [{"first": 5, "end": "x", "published": 0}]), ("ranges", [{"first": 5, "end": 5, "published": 0}]),
        ("heads", [{"types": 0, "published": "x"}]), ("coverage", {"share": 98, "published": "x"}), ("ranks", [10]),
        ("ranks", [10, 10]),
    ],
    "common_isotropy": [
        ("removed", 2), ("toy", {"points": 0, "shifts": [0.0]}), ("toy", {"points": 9, "shifts": [0.0, "far"]}),
    ],
    "common_gradient": [("length", 0), ("masked", 1), ("predictions", []), ("predictions", [0])],
    "common_wordsim": [("removed", -1), ("removed", "round")],
    "sts_similarity": [("sets", ["sts12", "sts17"]), ("sets", []), ("fit", "all"), ("unit_length", 1)],
}  # fmt: skip


@pytest.mark.parametrize(
    ("experiment", "name", "value"),
    [(experiment, *setting) for experiment, settings in IMPOSSIBLE.items() for setting in settings],
)
def test_a_setting_that_cannot_be_is_named(experiment, name, value):
    with fails():
        load_experiment_analysis(experiment, **{name: value})
