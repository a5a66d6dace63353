"""Results of MTEB and lm-evaluation-harness: read from every form of their files, and tested as scipy does."""

import json
import math
import os
import statistics

import numpy as np
import pytest
from scipy import stats

from isobench.cli import compare
from isobench.common.errors import UserError
from isobench.report.others import FILE_LIMIT, compare_results, describe_tests, rank_models, read_results

DRAWS = [0.877922, 0.879545, 0.873052, 0.874026, 0.867532, 0.873377, 0.872727, 0.868506, 0.868182, 0.872403]
LOWER = [0.861183, 0.873862, 0.876138, 0.875813, 0.870286, 0.871586, 0.872562, 0.869311, 0.871261, 0.877438]


def write(file, content):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def make_entry(draws, subset="default"):
    """An entry of an MTEB file of version 1.12 or later, with a metric that is NaN, as version 2 writes it."""
    mean = statistics.fmean(draws)
    experiments = [{"accuracy": draw, "f1": draw / 2, "ap": None} for draw in draws]
    entry = {"hf_subset": subset, "main_score": mean, "accuracy": mean, "f1": mean / 2, "ap": math.nan}
    return entry | {"scores_per_experiment": experiments}


def make_mteb(task, *entries, split="test", version="2.13.1"):
    return {
        "task_name": task,
        "mteb_version": version,
        "dataset_revision": "0fd18e2",
        "scores": {split: list(entries)},
    }


def make_harness(**tasks):
    """A harness's file: task=(accuracy, standard error)."""
    results = {
        task: {"alias": task, "acc,none": score, "acc_stderr,none": error, "acc_norm,none": score / 2}
        for task, (score, error) in tasks.items()
    }
    return {"results": results, "versions": dict.fromkeys(tasks, 1.0), "n-samples": {}}


def compare_files(tmp_path, base, other, metric=None):
    paths = [write(tmp_path / f"{name}.json", content) for name, content in (("base", base), ("other", other))]
    return compare_results(*(read_results(path, metric) for path in paths))


def require_equal(test, reference):
    low, high = reference.confidence_interval()
    found = [test.p, test.low, test.high, test.freedom]
    assert found == pytest.approx([reference.pvalue, low, high, reference.df], rel=1e-9)


def flip_all_signs(differences):
    patterns = np.array(np.meshgrid(*[[-1, 1]] * len(differences))).reshape(len(differences), -1)
    sums = np.abs(np.array(differences) @ patterns)
    return np.mean(sums >= abs(sum(differences)) - 1e-12)


def test_draws_are_paired(tmp_path):
    outcome = compare_files(tmp_path, make_mteb("B", make_entry(LOWER)), make_mteb("B", make_entry(DRAWS)))
    [pair] = outcome.tasks
    require_equal(pair.test, stats.ttest_rel(DRAWS, LOWER))
    assert (pair.basis, pair.base, pair.other) == ("draws", statistics.fmean(LOWER), statistics.fmean(DRAWS))
    assert pair.test.p_exact == pytest.approx(flip_all_signs(np.subtract(DRAWS, LOWER)))
    [row] = describe_tests([pair])
    noncentrality = row["detectable"] / (np.std(np.subtract(DRAWS, LOWER), ddof=1) / np.sqrt(10))
    assert stats.nct.sf(stats.t.ppf(0.975, 9), 9, noncentrality) == pytest.approx(0.8, abs=1e-5)
    assert row["value"] == pytest.approx(np.mean(DRAWS) - np.mean(LOWER))


def test_subsets_are_averaged_draw_by_draw_and_are_the_units_of_a_single_task(tmp_path):
    ours, theirs = np.array([DRAWS, LOWER, DRAWS[::-1]]), np.array([LOWER, LOWER[::-1], LOWER]) - 0.01
    files = [
        make_mteb("T", *(make_entry(list(draws), name) for draws, name in zip(side, names, strict=True)))
        for side, names in ((theirs, ["en", "de", "fr"]), (ours, ["en", "de", "ja"]))
    ]
    outcome = compare_files(tmp_path, *files)  # "fr" and "ja" are not shared
    require_equal(outcome.tasks[0].test, stats.ttest_rel(ours[:2].mean(0), theirs[:2].mean(0)))
    require_equal(outcome.overall.test, stats.ttest_rel(ours[:2].mean(1), theirs[:2].mean(1)))


def test_tasks_are_units_and_what_is_not_shared_is_left_out(tmp_path):
    scores = {"A": (0.5, 0.6), "B": (0.7, 0.72), "C": (0.2, 0.29)}
    for task, pair in scores.items():
        for side, score in zip(("base", "other"), pair, strict=True):
            write(tmp_path / side / f"{task}.json", make_mteb(task, {"main_score": score, "hf_subset": "default"}))
    write(tmp_path / "base" / "D.json", make_mteb("D", make_entry(DRAWS)))
    write(tmp_path / "base" / "model_meta.json", {"name": "a model"})
    outcome = compare_results(read_results(tmp_path / "base"), read_results(tmp_path / "other"))
    assert [pair.basis for pair in outcome.tasks] == ["one run"] * 3
    assert all(math.isnan(pair.test.p) for pair in outcome.tasks)
    base, other = zip(*scores.values(), strict=True)
    require_equal(outcome.overall.test, stats.ttest_rel(other, base))
    assert outcome.overall.test.p_exact == 2 / 2**3
    assert [name.split()[0] for name in outcome.left_out] == ["D"]


def test_the_oldest_files_have_subsets_under_the_split_and_no_main_score(tmp_path):
    def make_old(*spearmans):
        subsets = {f"s{i}": {"cos_sim": {"pearson": 0.1, "spearman": x}} for i, x in enumerate(spearmans)}
        return {"test": subsets | {"evaluation_time": 3.2}, "mteb_version": "0.0.2", "mteb_dataset_name": "STS17"}

    new = [{"hf_subset": f"s{i}", "cosine_spearman": x, "main_score": x} for i, x in enumerate([0.5, 0.6])]
    [pair] = compare_files(tmp_path, make_old(0.4, 0.3, 0.9), make_mteb("STS17", *new)).tasks
    assert (pair.base, pair.other) == pytest.approx((0.35, 0.55))  # s2 is not shared
    assert pair.differing == ["dataset_revision", "mteb_version"]
    flat = {"test": {"cos_sim": {"spearman": 0.25}}, "mteb_version": "0.0.2"}  # its name is the file's
    assert read_results(write(tmp_path / "STS12.json", flat))["STS12"][0].scores["test", "default"].value == 0.25


def test_main_scores_of_other_metrics_are_not_compared(tmp_path):
    old = {"test": {"en": {"accuracy": 0.64, "ap": 0.27, "main_score": 0.27}}, "mteb_dataset_name": "A"}
    new = make_mteb("A", {"accuracy": 0.66, "ap": 0.3, "main_score": 0.66, "hf_subset": "en"})
    with pytest.raises(UserError, match=r"A \(main scores differ, accuracy, ap"):
        compare_files(tmp_path, old, new)
    old["dev"] = new["scores"]["dev"] = {"en": {"accuracy": 0.1}}  # which the test split goes before
    [pair] = compare_files(tmp_path, old, new, metric="accuracy").tasks
    assert (pair.base, pair.other) == (0.64, 0.66)


def test_draws_of_clusterings_are_means_over_levels(tmp_path):
    def make(levels):
        mean = float(np.mean(list(levels.values())))
        return make_mteb("C", {"v_measures": levels, "v_measure": mean, "main_score": mean, "hf_subset": "default"})

    ours, theirs = {"Level 0": DRAWS, "Level 1": LOWER}, {"Level 0": LOWER[::-1], "Level 1": DRAWS[::-1]}
    [pair] = compare_files(tmp_path, make(theirs), make(ours)).tasks
    require_equal(pair.test, stats.ttest_rel(np.mean(list(ours.values()), 0), np.mean(list(theirs.values()), 0)))


@pytest.mark.parametrize("draws", [[0.5, None], [0.5, "x"], [0.9, 0.9], [0.5]])
def test_draws_that_do_not_make_up_the_score_are_not_used(tmp_path, draws):
    entry = {"hf_subset": "default", "main_score": 0.5, "accuracy": 0.5}
    entry["scores_per_experiment"] = [{"accuracy": draw} for draw in draws]
    results = read_results(write(tmp_path / "a.json", make_mteb("A", entry)))
    assert results["A"][0].scores["test", "default"].draws == ()


def test_standard_errors_make_a_z_test(tmp_path):
    base = make_harness(a=(0.70, 0.012), b=(0.6, "N/A"), mmlu_x=(0.4, 0.02), mmlu=(0.4, 0.02))
    base["group_subtasks"] = {"mmlu": ["mmlu_x"], "a": []}
    other = make_harness(a=(0.74, 0.015), b=(0.65, 0.01), mmlu_x=(0.45, 0.02), mmlu=(0.45, 0.02))
    other["versions"]["a"] = 2.0
    first, second, third = compare_files(tmp_path, base, other).tasks  # the group's mean is in base a group alone
    error = math.sqrt(0.012**2 + 0.015**2)
    assert first.test.p == pytest.approx(2 * stats.norm.sf(0.04 / error))
    assert (first.test.low, first.test.high) == pytest.approx(stats.norm.interval(0.95, 0.04, error))
    power = stats.norm.sf(stats.norm.ppf(0.975) - first.test.find_detectable() / error)
    assert power == pytest.approx(0.8, abs=1e-5)
    assert [pair.basis for pair in (first, second, third)] == ["examples", "one run", "examples"]
    assert first.differing == ["task version"]
    assert (second.name, third.name) == ("b", "mmlu_x")
    assert compare_files(tmp_path, base, other, metric="acc_norm").tasks[0].other == 0.37


def test_runs_are_paired_by_the_seeds_in_their_paths(tmp_path):
    for seed, (base, other, third) in enumerate(zip(DRAWS, LOWER, DRAWS[3:], strict=False)):
        write(tmp_path / "base" / f"seed{seed}" / "results_1.json", make_harness(a=(base, 0.01)))
        write(tmp_path / "other" / f"seed_{seed}" / "results_2.json", make_harness(a=(other, 0.01)))
        write(tmp_path / "third" / f"run{seed}" / "results_3.json", make_harness(a=(third, 0.01)))
    base, other, third = (read_results(tmp_path / name) for name in ("base", "other", "third"))
    [pair] = compare_results(base, other).tasks
    require_equal(pair.test, stats.ttest_rel(LOWER[:7], DRAWS[:7]))
    [unpaired] = compare_results(base, third).tasks
    require_equal(unpaired.test, stats.ttest_ind(DRAWS[3:], DRAWS[:7], equal_var=False))
    assert (pair.basis, unpaired.basis) == ("seeds", "runs")


BAD = {
    "no JSON": "a,b\n1,2",
    "other JSON": [1, 2],
    "of nothing": {},
    "deep": "[" * 200_000,
    "deep objects": '{"scores":' * 100_000,
    "NaN": make_mteb("A", {"main_score": math.nan, "hf_subset": "default"}),
    "infinite": '{"task_name": "A", "scores": {"test": [{"main_score": 1e999}]}}',
    "huge integer": '{"task_name": "A", "scores": {"test": [{"main_score": 1' + "0" * 4000 + "}]}}",
    "wrong shapes": {
        "task_name": ["A"],
        "mteb_version": 1,
        "scores": {"test": [7, [], {"main_score": "0.5"}], "x": 3},
    },
    "harness of wrong shapes": {"results": {"a": 3, "b": {"acc,none": True}}, "group_subtasks": {"a": [[]]}},
    "not UTF-8": "\udce9",
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_bad_files_are_one_line(tmp_path, content):
    file = tmp_path / "bad.json"
    file.write_bytes(
        (content if isinstance(content, str) else json.dumps(content)).encode("utf-8", "surrogateescape")
    )
    with pytest.raises(UserError) as error:
        read_results(file)
    assert str(error.value).startswith(str(file))
    assert len(str(error.value).splitlines()) == 1


def test_files_that_never_end_or_do_not_exist_are_one_line(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(FILE_LIMIT + 1)
    for name in ("pipe.json", "huge.json", "missing.json"):
        with pytest.raises(UserError, match="can't be read"):
            read_results(tmp_path / name)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has no score"):
        read_results(tmp_path / "empty")


def test_the_command_corrects_over_all_tasks_and_comparisons(tmp_path, capsys, monkeypatch):
    harness = [make_harness(a=(x, 0.02), b=(x + 0.1, 0.02)) for x in (0.5, 0.55, 0.59)]
    paths = [str(write(tmp_path / f"{number}.json", content)) for number, content in enumerate(harness)]
    monkeypatch.setattr("sys.argv", ["isobench", *paths, "--json"])
    compare.main()
    found = json.loads(capsys.readouterr().out)
    rows = [row for comparison in found for row in comparison["tasks"]]
    assert [row["value"] for row in rows] == pytest.approx([0.05, 0.05, 0.09, 0.09])
    p = 2 * stats.norm.sf(np.array([5, 5, 9, 9]) / (2 * math.sqrt(2)))
    assert [row["p_holm"] for row in rows] == pytest.approx([2 * p[0], 2 * p[0], 4 * p[2], 4 * p[2]])
    found_by_most = 0.02 * math.sqrt(2) * (stats.norm.ppf(1 - 0.05 / 4 / 2) + stats.norm.ppf(0.8))
    assert [row["detectable"] for row in rows] == pytest.approx([found_by_most] * 4, rel=1e-5)
    monkeypatch.setattr("sys.argv", ["isobench", *paths])
    compare.main()
    assert capsys.readouterr().out.count("examples") >= 4


@pytest.mark.parametrize(
    "text", ["", "model,a\nx,1\ny,2", "model,a,b\nx,1,2", "m,a,b\nx,1,2\nx,1,2", "m,a,b\nx,1,q\ny,2,3"]
)
def test_a_table_that_is_no_ranking_is_one_line(tmp_path, text):
    with pytest.raises(UserError) as error:
        rank_models(write(tmp_path / "ranking.csv", text))
    assert "\n" not in str(error.value)
