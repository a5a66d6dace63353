"""What the papers' analyses have in common: a module with compute and show, and published rows beside ours."""

import math

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


def test_published_rows_stand_below_ours_in_the_columns_that_we_have():
    def read(ours, *names):
        tables = build_comparison_tables("t", ("encoder", "method"), ours, *names)
        return [list(zip(*(column.cells for column in table.columns), strict=True)) for table in tables]

    paper = ("0.76/0.87/0.89", "0.88/0.93/0.95", "0.49/0.58/0.64", "0.89/0.94/0.96")
    (lines,) = read({("mine", "none"): {"MRPC": "0.1", "my_task": "0.5"}}, "isobn", "table2")
    assert lines[:2] == [("ours", "mine", "none", "0.1", "0.5"), ("paper", "bert-base-cased", "plain", paper[0], "-")]
    own, printed = read({("mine", "none"): {"rotten_tomatoes": "0.3"}}, "isobn", "table2")
    assert (own, printed[0]) == ([("mine", "none", "0.3")], ("bert-base-cased", "plain", *paper))


@pytest.mark.parametrize(
    ("experiment", "name", "value"),
    [
        ("isobn_ev", "curve", 0), ("isobn_ev", "curve", 2.5), ("isobn_embeddings", "threshold", math.nan),
        ("adaptation_embeddings", "within", -1), ("adaptation_embeddings", "cluster_share", 1),
        ("common_frequency", "ranges", [{"first": 5, "end": 5, "published": 0}]), ("common_frequency", "ranks", [10]),
        ("common_frequency", "coverage", {"share": 98, "published": "x"}), ("common_isotropy", "removed", 2),
        ("common_gradient", "masked", 1), ("common_gradient", "predictions", [0]), ("common_wordsim", "removed", -1),
        ("sts_similarity", "sets", ["sts12", "sts17"]), ("sts_similarity", "fit", "all"),
        ("sts_similarity", "unit_length", 1),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_is_refused(experiment, name, value):
    with fails():
        load_experiment_analysis(experiment, **{name: value})
