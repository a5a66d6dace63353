"""The ledger: every published score that installed weights and data reach, beside ours, and recipes that miss."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isobench.analyses.rows import TidyRow, group_rows, list_distinct, select_rows
from isobench.analyses.shown import Rows, Shown, make_table
from isobench.common.errors import UserError, refuse
from isobench_papers.mteb.retrieval import search
from isobench_papers.mteb.tasks import Task, find_tasks, list_names, read_classes, read_pairs

if TYPE_CHECKING:  # importing them takes seconds
    from torch import Tensor

    from isobench.analyses.subject import Subject
    from isobench.config.schema import Config, Encoder

HIT = 1e-4  # largest difference of a cell that counts as hit, as a fraction of 1
PUBLISHED = Path(__file__).with_name("published.csv")
MTEB, OTHER_BUDGET = "MTEB's", "other number of examples"  # recipes
NOT_NORMALISED, FIRST_TOKEN = "length kept", "first token's vector"
CONTROL_TASKS = ("Banking77Classification", "STSBenchmark")  # on which a vector of the first token is tried
CELL = ("encoder", "task", "subset", "split")


def compute(subjects: list["Subject"], controls: bool = True, tasks: list[str] | None = None) -> Rows:
    """Compute scores as MTEB does, a row for each recipe and score, beside the published ones.

    Args:
        subjects: encoders, with means over tokens and without calibration.
        controls: compute wrong recipes too, which should miss.
        tasks: names of tasks, or files with tasks of one's own, whose scores are shown also where none is published;
            None for every published score in reach.

    Raises:
        UserError: no task's data are here, an encoder has no published score, or a setting is not MTEB's.
    """
    from isobench.analyses.subject import check_no_calibration
    from isobench.common.progress import track_progress

    check_no_calibration(subjects)
    known = read_published()
    for subject in subjects:
        check_recipe(subject.cfg.encoder, list_distinct(known, "encoder") if tasks is None else None)
    data = subjects[0].cfg.data
    found = find_tasks(tasks)
    present = [task for task in found if not task.is_absent(data)]
    if not present:
        raise UserError(f"no data of {list_names(found)}: set data.root=FOLDER, which has {found[0].folder}/")
    rows: list[TidyRow] = []
    for subject in subjects:
        cfg = subject.cfg
        published = [row for task in present for row in list_published(known, task, cfg.encoder.name)]
        cells = [(task, split) for task in present for split in task.splits]
        for task, split in track_progress(cells, f"ledger, {subject.encoder}"):
            cell = dict(zip(CELL, (cfg.encoder.name, task.name, task.subset, split), strict=True))
            known_scores = {row["metric"]: row for row in select_rows(published, cell)}
            if not known_scores and tasks is None:
                continue
            for recipe, scores in score_task(cfg, task, split, controls):
                shown = {name: known_scores[name] for name in known_scores if name in scores}
                if tasks is not None and recipe == MTEB:  # every score, the main one first
                    check_metrics(task, scores)
                    names = sorted(scores, key=lambda name: name != task.main_score)
                    shown = {name: {**cell, "metric": name} for name in names} | shown
                rows += [compare(row, recipe, scores[name], task) for name, row in shown.items()]
    return {"ledger": rows}


def check_metrics(task: Task, scores: Iterable[str]) -> None:
    """Raise UserError if a task's file names a score that is not computed."""
    named = {task.main_score, *(metric for by in task.published.values() for own in by.values() for metric in own)}
    unknown = sorted(named - {*scores})
    refuse((unknown, f"{task.name}: there is no score {unknown[:1]}; there are: {', '.join(scores)}"))


def check_recipe(encoder: "Encoder", known: Sequence[str] | None) -> None:
    """Raise UserError unless vectors are means of the last layer, and the encoder is ``known``; None: any may be."""
    if encoder.pooling != "mean" or encoder.layer is not None:
        raise UserError("the published scores are of means over tokens: leave out encoder.pooling and layer")
    if known is not None and encoder.name not in known:
        raise UserError(f"encoder={encoder.name} has no published score; {', '.join(known)} have")


def list_published(known: Sequence[TidyRow], task: Task, encoder: str) -> list[TidyRow]:
    """List the published scores of a task and an encoder: the ``known`` ones, and those that its file has."""
    names = {"encoder": encoder, "task": task.name, "subset": task.subset}
    own = [
        {**names, "split": split, "metric": metric, "published": score, "revision": "", "mteb": ""}
        for split, scores in task.published.get(encoder, {}).items()
        for metric, score in scores.items()
    ]
    return [*select_rows(known, names), *own]


def read_published() -> list[TidyRow]:
    """Read the published scores: MTEB's result files at commit f4cc6c8 of embeddings-benchmark/results (CC0).

    They have all digits. Metrics that repeat another one under a second name are left out: main_score, pearson and
    spearman of pairs, and ap_weighted.
    """
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        return [row | {"published": float(row["published"])} for row in csv.DictReader(file)]


def compare(row: TidyRow, recipe: str, ours: float, task: Task | None = None) -> TidyRow:
    """Put our score beside a published one, if there is one."""
    empty = {"published": None, "revision": "", "mteb": ""}
    if row.get("published") is None:
        return {**row, **empty, "recipe": recipe, "ours": ours, "difference": None, "hit": None, "reason": ""}
    difference = ours - row["published"]
    is_hit = bool(abs(difference) <= HIT)
    reason = "" if is_hit or recipe != MTEB else (task and task.misses) or "not known"
    return {**row, "recipe": recipe, "ours": ours, "difference": difference, "hit": is_hit, "reason": reason}


def score_task(cfg: "Config", task: Task, split: str, controls: bool) -> Iterable[tuple[str, dict[str, float]]]:
    """Score a task by MTEB's recipe and, with ``controls``, by wrong ones: yield each with its scores by metric."""
    first_token = replace(cfg, encoder=replace(cfg.encoder, pooling="cls"))
    recipes = [(MTEB, cfg)] + [(FIRST_TOKEN, first_token)] * (controls and task.name in CONTROL_TASKS)
    name = f"{task.name}-{task.subset}-{split}"
    for recipe, encoder_cfg in recipes:
        tried = controls and recipe == MTEB
        if task.kind == "pairs":
            pairs = read_pairs(task, cfg.data, split)
            vectors = encode(encoder_cfg, name, [*pairs.first, *pairs.second])
            yield recipe, correlate(normalise(vectors), pairs.scores)
            if tried:
                scores = correlate(vectors, pairs.scores)  # a cosine does not depend on the length
                yield NOT_NORMALISED, {key: value for key, value in scores.items() if not key.startswith("cosine")}
        elif task.kind == "retrieval":
            yield recipe, search(task, cfg.data, split, partial(embed, encoder_cfg))
        else:
            yield from classify(encoder_cfg, task, split, recipe, tried)


def classify(
    cfg: "Config", task: Task, split: str, recipe: str, controls: bool
) -> Iterable[tuple[str, dict[str, float]]]:
    """Score MTEB's ten draws of training examples, and yield the means; only texts that are drawn are embedded."""
    from isobench_papers.probe.recipes import draw_examples, score_few_shot

    training, evaluated_on = read_classes(task, cfg.data, split)
    classes, labels = np.unique(training.labels, return_inverse=True)
    expected = np.searchsorted(classes, evaluated_on.labels)
    name = f"{task.name}-{task.subset}"
    test = encode(cfg, f"{name}-{split}", evaluated_on.texts)
    budgets = {recipe: task.per_class} | ({OTHER_BUDGET: 16 if task.per_class != 16 else 8} if controls else {})
    draws = {title: draw_examples(labels, count) for title, count in budgets.items()}
    used = np.unique(np.concatenate([index for drawn in draws.values() for index in drawn]))
    train = encode(cfg, f"{name}-{task.train}", [training.texts[index] for index in used])
    for title, drawn in draws.items():
        places = [np.searchsorted(used, index) for index in drawn]
        forms = [(title, normalise(train).numpy(), normalise(test).numpy())]
        if controls and title == recipe:
            forms.append((NOT_NORMALISED, train.numpy(), test.numpy()))
        for form, given, evaluated in forms:
            scores = [
                score_few_shot(given[place], labels[index], evaluated, expected)
                for place, index in zip(places, drawn, strict=True)
            ]
            yield form, {metric: float(np.mean([score[metric] for score in scores])) for metric in scores[0]}


def normalise(vectors: "Tensor") -> "Tensor":
    """Divide vectors by their lengths in float32, as the encoders' own modules do."""
    import torch

    return torch.nn.functional.normalize(vectors)


def encode(cfg: "Config", name: str, texts: Sequence[str]) -> "Tensor":
    """Return the vectors of texts, [N, d] float32, from the cache where they are there."""
    from isobench.frozen.encode import FrozenEncoder

    return FrozenEncoder(cfg, [None]).encode(name, texts)[None].vectors


def embed(cfg: "Config", name: str, texts: Sequence[str]) -> np.ndarray:
    """Return the vectors of texts divided by their lengths, [N, d] float32."""
    found: np.ndarray = normalise(encode(cfg, name, texts)).numpy()
    return found


def correlate(vectors: "Tensor", scores: np.ndarray) -> dict[str, float]:
    """Correlate scores with the similarities of the first and the second half of vectors [2N, d], as MTEB does."""
    from scipy import stats
    from sklearn.metrics.pairwise import (
        paired_cosine_distances,
        paired_euclidean_distances,
        paired_manhattan_distances,
    )

    left, right = (half.numpy() for half in vectors.chunk(2))
    similarities = {
        "cosine": 1 - paired_cosine_distances(left, right),
        "euclidean": -paired_euclidean_distances(left, right),
        "manhattan": -paired_manhattan_distances(left, right),
    }
    return {
        f"{name}_{kind}": float(correlation(scores, values)[0])
        for name, values in similarities.items()
        for kind, correlation in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr))
    }


def describe_differences(subjects: list["Subject"], rows: Rows, tasks: list[str] | None = None) -> list[str]:
    """Name the tasks whose data are not here, and the sets with one split, of which a part is held out."""
    found = find_tasks(tasks)
    absent = [task for task in found if task.is_absent(subjects[0].cfg.data)]
    phrases = [f"{task.name}: {task.held_out:.0%} of {task.train} held out" for task in found if task.held_out]
    own = [task for task in found if task not in find_tasks(None)]
    phrases += [f"no task of MTEB's: {list_names(own)}"] if own else []
    return [*phrases, *([f"data not here, left out: {list_names(absent)}"] if absent else [])]


def show(rows: Rows) -> Shown:
    """Show how many scores are hit, by encoder and task, the ones that miss, and how far wrong recipes are off."""
    ours, wrong = ([row for row in rows["ledger"] if (row["recipe"] == MTEB) is right] for right in (True, False))
    published = [row for row in ours if row["published"] is not None]
    tables = [build_scores(ours)] if len(published) < len(ours) else []
    if published:
        tables.append(build_counts("MTEB's scores, computed again", ("encoder", "task"), published))
    if wrong:
        tables.append(build_counts("Wrong recipes", ("recipe", "encoder"), wrong))
    missed = [row for row in published if not row["hit"]]
    count = f"{len(published) - len(missed)} of {len(published)} published scores are hit."
    notes = [count, f"A score is hit if it differs by {HIT:g} at most; scores are between 0 and 1."]
    for (encoder, task, reason), cells in group_rows(missed, "encoder", "task", "reason").items():
        notes.append(f"{encoder}, {task}: {len(cells)} miss; the reason: {reason}.")
    return Shown(tables, notes=notes if published else [])


def build_scores(rows: Sequence[TidyRow]) -> Any:
    """Build a table of all scores, the main one of each task first, beside the published ones."""
    table = make_table("Scores", ("encoder", "task", "split", "metric"), ("ours", "published"))
    for row in rows:
        published = "-" if row["published"] is None else f"{row['published']:.4f}"
        task = row["task"] if row["subset"] == "default" else f"{row['task']} ({row['subset']})"
        table.add_row(row["encoder"], task, row["split"], row["metric"], f"{row['ours']:.4f}", published)
    return table


def build_counts(title: str, labels: tuple[str, str], rows: Sequence[TidyRow]) -> Any:
    """Build a table of how many scores are hit, and of the largest differences."""
    table = make_table(title, labels, ("scores", "hit", "median difference", "largest"))
    for names, cells in group_rows(rows, *labels).items():
        differences = [abs(row["difference"]) for row in cells]
        hits = sum(row["hit"] for row in cells)
        table.add_row(*names, str(len(cells)), str(hits), f"{np.median(differences):.1e}", f"{max(differences):.1e}")
    return table
