"""What the report says the runs support: every sentence from made-up runs whose answer is known."""

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers import make_config, make_record
from sample_report import HIGH, LOW, compare_all, make_methods, noisy, verdict
from sample_report import list_cells as table

from isobench.report.cells import finish_cells
from isobench.report.methods import compare_methods
from isobench.report.paired_tests import find_majorities, find_unlearned
from isobench.runs.folder import RunFolder, write_predictions
from isobench.runs.run import Run
from isobench.statistics.seeds import Arm, compare_runs

NAN = math.nan


def compare(*tasks):
    """The test of two methods, whose scores on each task have the same seeds."""
    return compare_runs([tuple(Arm(values, list(range(len(values)))) for values in pair) for pair in tasks])


def test_methods_that_help_harm_or_do_neither_are_told_apart():
    columns = {"a": 1, "b": 2}
    arms = {
        "none": {c: noisy(80, 5, 10 * k) for c, k in columns.items()},
        "better": {c: noisy(84, 5, 10 * k + 1) for c, k in columns.items()},
        "worse": {c: noisy(76, 5, 10 * k + 2) for c, k in columns.items()},
        "same": {c: noisy(80, 5, 10 * k)[::-1] for c, k in columns.items()},
        "moved": {c: [x + 9 for x in noisy(80, 5, 10 * k)] for c, k in columns.items()},  # no spread, no test
    }
    found = compare_all(table(arms))
    assert found["is_shown"][["better", "worse", "same", "moved"]].tolist() == [True, True, False, False]
    assert found["difference"].round(1)[["better", "worse", "same"]].gt(0).tolist() == [True, False, False]
    assert math.isnan(found.loc["moved", "p"])
    assert "moved is 9.00 points above plain" in verdict(arms)
    test = compare((HIGH, LOW))
    assert verdict({"none": {"a": LOW}, "isobn": {"a": HIGH}}).startswith(
        f"isobn gains {test.value:.2f} points over plain (95% interval {test.low:.2f} to {test.high:.2f}, p < 0.001"
    )


def test_methods_on_other_tasks_name_them():
    base, x = ({column: noisy(80, 5, k + add) for k, column in enumerate("ab")} for add in (0, 3))
    said = verdict({"none": base, "x": x, "y": {"a": noisy(80, 5, 9)}})
    assert re.search(r"x \S+ \[\S+ \S+\] on a/b, y \S+ \[\S+ \S+\] on a\.", said)


def test_the_verdict_rests_on_the_p_after_holm_over_methods():
    base, ours = [70.0, 71.0, 72.0, 73.0], [70.9, 73.5, 73.2, 74.8]
    p = compare((ours, base)).p
    assert 0.025 > p > 0.05 / 3
    rest = {"y": {"a": base[::-1]}, "z": {"a": [70.5, 70.5, 72.5, 72.5]}}
    assert verdict({"none": {"a": base}, "x": {"a": ours}}).startswith("x gains 1.60 points over plain")
    both = {"none": {"a": base}, "x": {"a": ours}, **rest}
    assert verdict(both).startswith(f"No method differs from plain by more than chance (smallest p = {3 * p:.2g} ")
    assert compare_all(table(both)).loc["x", ["p", "p_holm"]].tolist() == pytest.approx([p, 3 * p])


def test_constant_predictors_and_undefined_scores_are_in_no_mean():
    arms = {
        "none": {"a": LOW, "b": LOW, "c": LOW},
        "flow": {"a": HIGH, "b": [56.34] * 5, "c": [NAN, 80.0, 81.0, 82.0, 83.0]},
    }
    found = compare_all(table(arms, troubles={("flow", "b"): {"constant_predictor": 5}})).loc["flow"]
    assert (found["compared"], found["constant_tasks"], found["is_shown"]) == (["a"], ["b"], True)
    assert found["difference"] == pytest.approx(np.mean(HIGH) - np.mean(LOW))


def test_columns_of_one_task_show_the_same_runs_and_count_once():
    arms = {"none": {"MNLI-m": LOW[:3], "MNLI-mm": LOW[:3]}, "isobn": {"MNLI-m": HIGH[:3], "MNLI-mm": HIGH[:3]}}
    found = compare_all(table(arms, {"MNLI-m": "mnli", "MNLI-mm": "mnli"})).loc["isobn"]
    assert (found["compared"], found["is_shown"]) == (["MNLI-m"], True)


def test_encoders_are_compared_each_with_its_own_base():
    large = table({"none": {"a": HIGH}, "isobn": {"a": HIGH[::-1]}}, encoder="roberta")
    small = table({"none": {"a": LOW}, "isobn": {"a": HIGH}})
    found = compare_all(small, large)
    assert found["is_shown"]["bert"]["isobn"]
    assert not found["is_shown"]["roberta"]["isobn"]
    assert found["p_holm"]["bert"]["isobn"] == pytest.approx(2 * found["p"]["bert"]["isobn"])


def test_the_detectable_difference_is_that_of_the_decision():
    """At Holm's first step over two methods, each with its own spread: a wide method makes no other one wide."""
    base, steady, wide = [80.0, 81.0, 82.0], [80.1, 81.2, 82.0], [70.0, 81.0, 95.0]
    methods = make_methods(finish_cells(table({"none": {"a": base}, "x": {"a": steady}, "y": {"a": wide}})))
    found = methods.set_index("method")["detectable"]
    for name, ours in (("x", steady), ("y", wide)):
        assert found[name] == pytest.approx(compare((ours, base)).find_detectable(2))
    assert found["x"] < 1 < found["y"]


def test_the_best_of_more_configurations_pays_for_them():
    gains = (1, 2, 1, 2, 3)
    arms = {"none": {"a": LOW}, "isobn": {"a": [value + gain for value, gain in zip(LOW, gains, strict=True)]}}
    assert verdict(arms).startswith("isobn gains 1.80 points")
    chosen = verdict(arms, candidates={"isobn": 10})
    assert chosen.startswith("isobn does not differ from plain by more than chance")
    assert f"p = {10 * compare((arms['isobn']['a'], LOW)).p:.2g} times 10 configurations" in chosen
    assert verdict(arms, candidates={"isobn": 6, "none": 6}).startswith("isobn gains")


def test_a_collapse_is_part_of_the_verdict():
    arms = {"none": {"a": LOW}, "more": {"a": HIGH}, "less": {"a": [48.9] * 5}}
    text = verdict(arms, troubles={("less", "a"): {"constant_predictor": 5}})
    assert text.startswith("more gains")
    assert "less (5 of 5 runs on a)" in text
    text = verdict({"none": {"a": LOW}, "less": {"a": HIGH}}, troubles={("less", "a"): {"constant_predictor": 1}})
    assert "less (1 of 5 runs on a)" in text


def test_where_no_mean_is_above_the_largest_class_it_is_said():
    arms = {"none": {"a": LOW, "b": LOW}, "more": {"a": HIGH, "b": HIGH}}
    both = verdict(arms, unlearned=["a (91.00)", "b (92.00)"])
    assert "largest class alone on a (91.00), b (92.00). Train longer" in both
    assert verdict(arms, unlearned=["b (92.00)"]).endswith("alone on b (92.00).")
    assert "largest" not in verdict(arms)
    assert "undefined" not in verdict({"none": {"a": [NAN, 50.0]}, "more": {"a": HIGH}})


def test_isotropy_is_averaged_over_tasks_that_rows_share():
    """Over all tasks, plain fine-tuning would seem more isotropic than it is."""
    ev1 = {("none", "a"): 0.866, ("none", "b"): 0.238, ("x", "a"): 0.757, ("y", "a"): 0.7, ("y", "b"): 0.2}
    columns = {method: {c: LOW for m, c in ev1 if m == method} for method in ("none", "x", "y")}
    cells = finish_cells(table(columns))
    runs = cells[["encoder", "part", "method", "task"]].assign(selected=True, failure=None, candidates=1)
    runs["embedding/ev1"] = [ev1[pair] for pair in zip(runs["method"], runs["task"], strict=True)]
    found = compare_methods(cells, runs).set_index("method")["ev1"]
    assert found.to_dict() == {"none": 0.866, "x": 0.757, "y": 0.7}
    both = runs["method"] != "x"
    found = compare_methods(cells[cells["method"] != "x"], runs[both]).set_index("method")["ev1"]
    assert found.to_dict() == pytest.approx({"none": 0.552, "y": 0.45})
    # A task that all have is missing: the one that most have is shown, and rows without it have none.
    last = runs.assign(task=runs["task"].mask((runs["method"] == "x"), "c"))
    found = compare_methods(cells, last.iloc[[0, 2, 3]]).set_index("method")["ev1"]
    assert (found["none"], math.isnan(found["x"])) == (0.866, True)


def test_the_largest_class_is_that_of_the_one_dev_set(tmp_path):
    """9 of 12 dev examples are of one class; one run predicts it always, the other is right but once."""
    labels = [1] * 9 + [0] * 3
    runs = []
    for seed, predicted in ((1, [1] * 12), (2, [0, *labels[1:]])):
        cfg = make_config("task=rotten_tomatoes", f"seed={seed}")
        task = replace(cfg.task, labels=["neg", "pos"])
        cfg = replace(cfg, output_dir=str(tmp_path), task=task, data=replace(cfg.data, files={"train": "x.csv"}))
        folder = RunFolder(str(tmp_path), str(seed) * 64)
        folder.path.mkdir(parents=True)
        outputs = {"label": np.array(labels), "prediction": np.array(predicted)}
        predictions = write_predictions(folder.predictions_file, {task.dev_splits[0]: outputs})
        runs.append(Run(cfg, folder, make_record(cfg, key=folder.key, predictions=predictions.model_dump())))
    assert find_majorities(runs) == {"rotten_tomatoes": 75.0}
    table = pd.DataFrame({
        "task": "rotten_tomatoes", "encoder": "e", "method": ["none", "x"], "selected": True, "status": "finished",
        "score": [100 * (9 / 12), 100 * (8 / 12)],
    })  # fmt: skip
    assert find_unlearned(runs, table) == ["rotten_tomatoes (75.00)"]
    assert find_unlearned(runs, table.replace({"none": "y"}).assign(score=[50.0, 75.1])) == []
    other = runs[1].record.data.model_copy(update={"fingerprint": {"validation": "another"}})
    runs[1] = replace(runs[1], record=runs[1].record.model_copy(update={"data": other}))
    assert find_majorities(runs) == {}  # two sets have two largest classes
