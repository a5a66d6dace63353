"""Reports of printed numbers: what they are made of, and the changes that break them."""

import math
import statistics

from isobench.report.printed import PrintedCell, build_printed_report, scale_effects


def average(report, column, **names):
    runs = report.runs
    for name, value in names.items():
        runs = runs[runs[name] == value]
    return round(statistics.fmean(runs[column].astype(float)), 6) if len(runs) else None


def build(*tables, **changes):
    return build_printed_report("isotropy_calibration", tables, seeds=3, **changes)


def test_a_change_scales_a_methods_difference_from_plain_fine_tuning():
    plain, ours = {"mean": 60.0, "sd": 1.0}, {"mean": 64.0, "sd": 2.0}
    cell = PrintedCell("bert", "rte", "cosine", "score", ours, plain)
    assert scale_effects(0)(cell) == plain
    assert scale_effects(-1)(cell) == {"mean": 56.0, "sd": 2.0}
    assert scale_effects(0.5, "score", "time")(cell) == {"mean": 62.0, "sd": 2.0}
    assert scale_effects(-1, "isotropy")(cell) == ours  # of another kind
    assert scale_effects(-1)(cell._replace(plain={})) == ours  # plain fine-tuning has no such cell
    assert scale_effects(-1)(cell._replace(numbers={"mean": None, "sd": None})) == {"mean": None, "sd": None}
    median = cell._replace(numbers={"median": 64.0, "max": 66.0}, plain={"median": 60.0, "max": 61.0})
    assert scale_effects(-1)(median) == {"median": 56.0, "max": 66.0}


def test_print_is_broken_by_changes_and_by_exchanged_rows_and_plain_fine_tuning_stays():
    names = {"task": "wmt16_en_ro"}
    for changes, plain, cosine, seconds in (
        ({}, 26.15, 26.07, 110 * 60),
        ({"change": scale_effects(0, "score")}, 26.15, 26.15, 110 * 60),
        ({"change": scale_effects(-1, "score", "time")}, 26.15, 26.23, 106 * 60),
        ({"rows": {"cosine": "spectrum_polynomial"}}, 26.15, 22.94, 176 * 60),
        ({"rows": {"none": "cosine", "cosine": "none"}}, 26.07, 26.15, 108 * 60),
    ):
        report = build("table2", **changes)
        assert average(report, "score", method="none", **names) == plain
        assert average(report, "score", method="cosine", **names) == cosine
        assert average(report, "training_seconds", method="cosine", **names) == seconds
        (cell,) = report.cells.query("method == 'cosine' and column == 'EN-RO BLEU'").itertuples()
        assert math.isclose(cell.difference, cosine - plain, abs_tol=1e-6)
