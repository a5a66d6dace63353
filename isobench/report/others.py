"""Compare results that other programs wrote: files of MTEB and of lm-evaluation-harness, and tables of models.

A result is one file, or a folder with a file for each task or run. MTEB's files have changed: before version 1.12 a
split's scores stand under its name, the oldest have no main score, and newer ones list the scores of each draw of
training examples (``scores_per_experiment``) or of clustered texts (``v_measures``). A harness's file has all tasks
of one run, each metric with its standard error over the examples.
"""

import csv
import itertools
import json
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import MEBIBYTE, read_bounded
from isobench.common.terminal import format_count, name_some
from isobench.statistics.seeds import Arm, Comparison, compare_by_errors, compare_runs, holm

FILE_LIMIT = 64 * MEBIBYTE
MOST_FILES = 5000
MAIN_SCORES = ("main_score", "cosine_spearman", "ndcg_at_10", "v_measure", "map", "cosine_ap")  # of the oldest files
ROUNDING = 1e-3  # a score may differ from the mean of its draws by this share
# What a test on a task is of -> what it means, and what is missing for more.
BASES = {
    "draws": "paired over draws (scores_per_experiment), the same in both if one version of MTEB drew them. The test "
    "says nothing of other test examples, nor of models trained again",
    "seeds": "paired over the seeds that the paths name",
    "runs": "Welch's t-test over runs, not paired: paths that name seeds (seed1, seed2, ...) would pair them",
    "examples": "one run each, only the standard error over examples: a z-test, not paired and only about examples",
    "one run": "one run of one result or both, no standard errors: no test. Add runs, such as folders seed1, seed2",
}


class Score(NamedTuple):
    """Hold one run's score on one subset of a task: the mean of its draws, if the file has them.

    ``error`` is its standard error over the examples, NaN if unknown; ``names`` the metrics with this value, one of
    which it is.
    """

    value: float
    draws: tuple[float, ...]
    error: float
    names: frozenset[str]


class TaskRun(NamedTuple):
    """Hold one run's scores on a task by split and subset, the seed in its path, and what others should share."""

    seed: int | None
    scores: dict[tuple[str, str], Score]
    origin: dict[str, str]


Results = dict[str, list[TaskRun]]  # task -> its runs


class Pair(NamedTuple):
    """Hold two mean scores under one name, with the test of the second less the first.

    ``basis`` is a key of BASES, or the units that the test is paired over. ``differing`` names what is not alike.
    """

    name: str
    base: float
    other: float
    test: Comparison
    basis: str
    subsets: Sequence[tuple[float, float]] = ()
    differing: Sequence[str] = ()


class Outcome(NamedTuple):
    """Hold the comparisons of two results on each shared task and over all, and why tasks are left out."""

    tasks: list[Pair]
    overall: Pair
    left_out: list[str]


def read_results(path: Path, metric: str | None = None) -> Results:
    """Read a result file, or all of a folder; raise UserError if it has none or one can't be read.

    ``metric`` is a metric's name in the files; by default it is MTEB's main score, or the first that a harness lists.
    """
    files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
    if len(files) > MOST_FILES:
        raise UserError(f"{path} has more than {MOST_FILES:,} JSON files: name the folder of one model")
    results: Results = {}
    for file in files:
        try:
            content = json.loads(read_bounded(file, FILE_LIMIT))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{file} can't be read: {_explain(error)}; name a result's JSON file") from error
        seed = re.search(r"seed[-_=]?(\d{1,9})(?!\d)", str(file.relative_to(path)) if path.is_dir() else file.name)
        for task, scores, origin in _list_tasks(content, file.stem, metric):
            if scores:
                results.setdefault(task, []).append(TaskRun(int(seed[1]) if seed else None, scores, origin))
    if not results:
        raise UserError(f"{path} has no {metric or 'score'} of MTEB or lm-evaluation-harness: try --metric NAME")
    return results


def _explain(error: Exception) -> str:
    return str(error.strerror) if isinstance(error, OSError) else extract_first_line(error)


def _list_tasks(
    content: Any, stem: str, metric: str | None
) -> Iterator[tuple[str, dict[Any, Score], dict[str, str]]]:
    """Yield each task of a file with its scores by split and subset, and its origin."""
    content = _as_dict(content)
    groups, results = _as_dict(content.get("group_subtasks")), _as_dict(content.get("results"))
    for task, numbers in results.items():
        if not set(map(str, _as_list(groups.get(task)))) & results.keys():  # members of a group would count twice
            keys = {"task version": "versions", "number of shots": "n-shot", "number of examples": "n-samples"}
            score = _read_harness_score(_as_dict(numbers), metric)
            origin = {name: str(_as_dict(content.get(key)).get(task)) for name, key in keys.items()}
            yield task, {("", ""): score} if score else {}, origin
    if {"task_name", "mteb_dataset_name", "mteb_version"} & content.keys():
        scores: dict[tuple[str, str], Score] = {}
        for split, found in _as_dict(content.get("scores", content)).items():
            entries = [(str(_as_dict(entry).get("hf_subset")), entry) for entry in _as_list(found)]
            for subset, entry in entries or [("default", found), *_as_dict(found).items()]:
                if score := _read_mteb_score(_as_dict(entry), metric):
                    scores[split, subset] = score
        origin = {name: str(content.get(name)) for name in ("dataset_revision", "mteb_version")}
        task = str(content.get("task_name") or content.get("mteb_dataset_name") or stem)
        yield task, scores, origin


def _read_mteb_score(entry: Mapping[str, Any], metric: str | None) -> Score | None:
    numbers: dict[str, float | None] = {}
    for key, value in entry.items():
        nested = {f"{key}_{name}".replace("cos_sim", "cosine"): number for name, number in _as_dict(value).items()}
        numbers |= {name: _read_number(number) for name, number in (nested or {key: value}).items()}
    value = next((x for name in ([metric] if metric else MAIN_SCORES) if (x := numbers.get(name)) is not None), None)
    if value is None:
        return None
    names = {metric} if metric else {name for name, number in numbers.items() if number == value} - {"main_score"}
    experiments = list(map(_as_dict, _as_list(entry.get("scores_per_experiment"))))
    candidates = [[draw.get(name) for draw in experiments] for name in sorted(names)]
    if "v_measure" in names:
        levels = list(map(_as_list, _as_dict(entry.get("v_measures")).values()))
        candidates.append([_average(draw) for draw in zip(*levels, strict=False)])
    draws = next((found for draws in candidates if (found := _check_draws(draws, value))), ())
    return Score(value, draws, math.nan, frozenset(names))


def _average(values: Sequence[Any]) -> float | None:
    numbers = [number for value in values if (number := _read_number(value)) is not None]
    return statistics.fmean(numbers) if len(numbers) == len(values) > 0 else None


def _check_draws(draws: Sequence[Any], value: float) -> tuple[float, ...]:
    """Return the draws; none if there are fewer than two, one is no number, or the value is not their mean."""
    mean = _average(draws)
    is_mean = mean is not None and abs(mean - value) <= ROUNDING * (1 + abs(value))
    return tuple(map(float, draws)) if is_mean and len(draws) > 1 else ()


def _read_harness_score(numbers: Mapping[str, Any], metric: str | None) -> Score | None:
    found = {key: number for key, value in numbers.items() if (number := _read_number(value)) is not None}
    scores = [key for key in found if "_stderr" not in key]
    scores = [key for key in scores if "," in key] or scores  # before version 0.4 a metric named no filter
    key = next((key for key in scores if metric in (None, key, key.partition(",")[0])), None)
    if key is None:
        return None
    name, comma, answers = key.partition(",")
    error = found.get(f"{name}_stderr{comma}{answers}", math.nan)
    return Score(found[key], (), error if error > 0 else math.nan, frozenset({key.removesuffix(",none")}))


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _read_number(value: Any) -> float | None:
    """Return a finite number as float; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e100
    return float(value) if is_number else None


def compare_results(base: Results, other: Results) -> Outcome:
    """Compare two results on each shared task, and over them; raise UserError if they share none.

    A unit is a task's mean over the shared subsets and the runs; with a single shared task, a subset is a unit.
    """
    pairs, left_out = [], [f"{task} (in one alone)" for task in sorted(base.keys() ^ other.keys())]
    for task in sorted(base.keys() & other.keys()):
        outcome = _compare_task(task, base[task], other[task])
        if isinstance(outcome, Pair):
            pairs.append(outcome)
        else:
            left_out.append(f"{task} ({outcome})")
    if not pairs:
        raise UserError(f"the results share no task that can be compared: {name_some(left_out)}")
    units = [(pair.base, pair.other) for pair in pairs] if len(pairs) > 1 else pairs[0].subsets
    return Outcome(pairs, compare_units("mean", units, "task" if len(pairs) > 1 else "subset"), left_out)


def _compare_task(task: str, base: Sequence[TaskRun], other: Sequence[TaskRun]) -> Pair | str:
    """Compare two results' runs on a task, on the test split if they share it; or return why that can't be done."""
    runs = [*base, *other]
    shared = set.intersection(*(set(run.scores) for run in runs))
    split = min((split for split, _ in shared), key=lambda name: (name != "test", name), default="")
    places = sorted(place for place in shared if place[0] == split)
    if not places:
        return "no shared subset"
    scores = [run.scores[place] for run in runs for place in places]
    for place in places:
        named = [names for run in runs if (names := run.scores[place].names)]
        if named and not frozenset.intersection(*named):
            found = sorted({" or ".join(sorted(names)) for names in named})
            return f"main scores differ, {', '.join(found)}: choose by --metric NAME"
    has_draws = len(runs) == 2 and {len(score.draws) for score in scores} == {len(scores[0].draws) or None}

    def make_arm(side: Sequence[TaskRun], place: tuple[str, str]) -> Arm:
        if has_draws:
            return _number(side[0].scores[place].draws)
        return Arm([run.scores[place].value for run in side], [run.seed for run in side])

    test = compare_runs([(make_arm(other, place), make_arm(base, place)) for place in places])
    unpaired = "runs" if min(len(base), len(other)) > 1 else "one run"
    basis = "draws" if has_draws else "seeds" if test.seeds else unpaired
    if len(scores) == 2 and not math.isnan(scores[0].error + scores[1].error):
        basis, test = "examples", compare_by_errors(test.value, [score.error for score in scores])
    means = [[statistics.fmean(run.scores[at].value for run in side) for at in places] for side in (base, other)]
    differing = [name for name in base[0].origin if len({run.origin.get(name) for run in runs}) > 1]
    subsets = list(zip(*means, strict=True))
    return Pair(task, statistics.fmean(means[0]), statistics.fmean(means[1]), test, basis, subsets, differing)


def _number(values: Sequence[float]) -> Arm:
    return Arm(values, range(len(values)))


def compare_units(name: str, units: Sequence[tuple[float, float]], unit: str) -> Pair:
    """Compare two results by their scores on units, such as tasks, that stand for many: a test paired over them.

    ``units`` has the base's score and the other's for each. The exact test is beside it for up to 16 units.
    """
    base, other = zip(*units, strict=True)
    test = compare_runs([(_number(other), _number(base))])
    return Pair(name, statistics.fmean(base), statistics.fmean(other), test, format_count(len(units), unit))


def describe_tests(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Describe each pair of a family in numbers: Holm's p, and the difference found by 80% at his first step."""
    adjusted = holm([pair.test.p for pair in pairs])
    count = max(sum(not math.isnan(p) for p in adjusted), 1)
    return [
        {"name": pair.name, "base": pair.base, "other": pair.other, **pair.test._asdict(), "p_holm": p_holm}
        | {"detectable": pair.test.find_detectable(count), "test_over": pair.basis}
        for pair, p_holm in zip(pairs, adjusted, strict=True)
    ]


def list_notes(outcome: Outcome) -> list[str]:
    """Say what each test means, what is missing for more, what is not alike and what is left out."""
    notes = ["The mean's test is paired over its units: it speaks of further tasks (or subsets) like these."]
    for basis, text in BASES.items():
        if tasks := [pair.name for pair in outcome.tasks if pair.basis == basis]:
            notes.append(f"{basis} ({name_some(tasks)}): {text}.")
    for name in dict.fromkeys(name for pair in outcome.tasks for name in pair.differing):
        notes.append(f"Not alike, {name}: {name_some([p.name for p in outcome.tasks if name in p.differing])}.")
    notes += [f"Left out: {name_some(outcome.left_out)}."] if outcome.left_out else []
    return [*notes, "No predictions: examples can't be compared one by one."]


def rank_models(file: Path) -> tuple[list[Pair], list[str]]:
    """Compare the neighbours in a ranking by mean score, and name the models left out because they lack a score.

    The CSV's first column is the model, each other one a task. A pair has a model's name; its base is the next lower
    model, and the test is paired over the tasks.
    """
    try:
        header, *rows = filter(None, csv.reader(read_bounded(file, FILE_LIMIT).decode("utf-8-sig").splitlines()))
        scores, left_out = {}, []
        for model, *texts in rows:
            values = [float(text or "nan") for text in texts]
            if model in scores:
                raise ValueError(f"{model} stands in two rows")
            if len(values) == len(header) - 1 and _average(values) is not None:
                scores[model] = values
            else:
                left_out.append(model)
    except (OSError, ValueError, csv.Error) as error:
        reason = f"{_explain(error)}; give a CSV with a row for each model and a column for each task"
        raise UserError(f"{file} is no ranking: {reason}") from error
    if len(scores) < 2 or len(header) < 3:
        raise UserError(f"{file} must have two tasks or more, and two models with a score for each")
    order = sorted(scores, key=lambda model: statistics.fmean(scores[model]), reverse=True)
    pairs = [
        compare_units(above, list(zip(scores[below], scores[above], strict=True)), "task")
        for above, below in itertools.pairwise(order)
    ]
    return pairs, left_out
