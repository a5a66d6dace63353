"""The ledger: every published score that installed weights and data reach, beside ours, and recipes that miss."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isobench.analyses.rows import TidyRow, group_rows, select_rows
from isobench.analyses.shown import Rows, Shown, make_table
from isobench.common.errors import UserError
from isobench_papers.mteb.sts_sets import read_parquet_sets
from isobench_papers.probe.sets import find_probe_folder, read_splits

if TYPE_CHECKING:  # importing them takes seconds
    from torch import Tensor

    from isobench.analyses.subject import Subject
    from isobench.config.schema import Config

HIT = 1e-4  # largest difference of a cell that counts as hit, as a fraction of 1
PUBLISHED = Path(__file__).with_name("published.csv")
MTEB, OTHER_BUDGET = "MTEB's", "other number of examples"  # recipes
NOT_NORMALISED, FIRST_TOKEN = "length kept", "first token's vector"
REASONS = {  # of a task whose cells miss
    "BIOSSES": "the data differ: the authors' own files give other scores than MTEB's copy",
    "AmazonCounterfactualClassification": "two of 4,660 predictions differ, as if a machine had rounded otherwise",
}


@dataclass(frozen=True)
class Classification:
    """Hold where a task's texts are, below ``<data.root>/probe``, and how many examples of a class are drawn."""

    folder: str
    per_class: int
    train: str = "train"


@dataclass(frozen=True)
class Pairs:
    """Hold where a task's pairs are, below ``<data.root>/probe``: splits that are read together."""

    folder: str
    splits: tuple[str, ...] = ("test",)


# MTEB's task, subset and split (any if None) -> where its data are. Recipes as in MTEB 1.12.75.
TASKS: dict[tuple[str, str], Classification | Pairs] = {
    ("AmazonCounterfactualClassification", "de"): Classification("amazon_counterfactual_de", 32),
    ("AmazonCounterfactualClassification", "en"): Classification("amazon_counterfactual_en", 32),
    ("AmazonCounterfactualClassification", "en-ext"): Classification("amazon_counterfactual_en-ext", 32),
    ("Banking77Classification", "default"): Classification("banking77", 8),
    ("EmotionClassification", "default"): Classification("emotion", 16),
    ("TweetSentimentExtractionClassification", "default"): Classification("tweet_sentiment", 32, "train_mteb"),
    ("BIOSSES", "default"): Pairs("biosses"),
    ("SICK-R", "default"): Pairs("sick", ("train", "validation", "test")),
    **{(f"STS{year}", "default"): Pairs(f"sts{year}") for year in range(12, 17)},
    ("STSBenchmark", "default"): Pairs("stsbenchmark"),
    ("STSBenchmarkMultilingualSTS", "en"): Pairs("stsbenchmark"),
}
SPLITS = {"dev": "validation"}  # MTEB's name of a split -> the file's
CONTROL_TASKS = ("Banking77Classification", "STSBenchmark")  # on which a vector of the first token is tried


def compute(subjects: list["Subject"], controls: bool = True) -> Rows:
    """Compute every published score again, a row for each recipe and score.

    Args:
        subjects: encoders, with means over tokens and without calibration.
        controls: compute wrong recipes too, which should miss.

    Raises:
        UserError: data are missing, an encoder has no published score, or a setting is not MTEB's.
    """
    from isobench.analyses.subject import check_no_calibration
    from isobench.common.progress import track_progress

    check_no_calibration(subjects)
    cells = read_published()
    rows: list[TidyRow] = []
    for subject in subjects:
        cfg = subject.cfg
        if cfg.encoder.pooling != "mean" or cfg.encoder.layer is not None:
            raise UserError("the published scores are of means over tokens: leave out encoder.pooling and layer")
        own = select_rows(cells, {"encoder": cfg.encoder.name})
        if not own:
            known = ", ".join(dict.fromkeys(row["encoder"] for row in cells))
            raise UserError(f"encoder={cfg.encoder.name} has no published score; {known} have")
        groups = group_rows(own, "task", "subset", "split")
        for (task, subset, split), published in track_progress(list(groups.items()), f"ledger, {subject.encoder}"):
            for recipe, scores in score_task(cfg, TASKS[task, subset], task, split, controls):
                rows += [compare(row, recipe, scores[row["metric"]]) for row in published if row["metric"] in scores]
    return {"ledger": rows}


def read_published() -> list[TidyRow]:
    """Read the published scores: MTEB's result files at commit f4cc6c8 of embeddings-benchmark/results (CC0).

    They have all digits. Metrics that repeat another one under a second name are left out: main_score, pearson and
    spearman of pairs, and ap_weighted.
    """
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        return [row | {"published": float(row["published"])} for row in csv.DictReader(file)]


def compare(row: TidyRow, recipe: str, ours: float) -> TidyRow:
    """Put our score beside a published one."""
    difference = ours - row["published"]
    is_hit = bool(abs(difference) <= HIT)
    reason = "" if is_hit or recipe != MTEB else REASONS.get(row["task"], "not known")
    return {**row, "recipe": recipe, "ours": ours, "difference": difference, "hit": is_hit, "reason": reason}


def score_task(
    cfg: "Config", task: Classification | Pairs, name: str, split: str, controls: bool
) -> Iterable[tuple[str, dict[str, float]]]:
    """Score a task by MTEB's recipe and, with ``controls``, by wrong ones: yield each with its scores by metric."""
    folder = find_probe_folder(cfg.data.root, task.folder)
    first_token = replace(cfg, encoder=replace(cfg.encoder, pooling="cls"))
    recipes = [(MTEB, cfg)] + [(FIRST_TOKEN, first_token)] * (controls and name in CONTROL_TASKS)
    for recipe, encoder_cfg in recipes:
        tried = controls and recipe == MTEB
        if isinstance(task, Pairs):
            splits = task.splits if len(task.splits) > 1 else (SPLITS.get(split, split),)
            pairs = read_parquet_sets([folder / f"{part}.parquet" for part in splits])
            vectors = encode(encoder_cfg, f"{task.folder}-{'-'.join(splits)}", [*pairs.first, *pairs.second])
            yield recipe, correlate(normalise(vectors), pairs.scores)
            if tried:
                scores = correlate(vectors, pairs.scores)  # a cosine does not depend on the length
                yield NOT_NORMALISED, {key: value for key, value in scores.items() if not key.startswith("cosine")}
        else:
            yield from classify(encoder_cfg, folder, task, split, recipe, tried)


def classify(
    cfg: "Config", folder: Path, task: Classification, split: str, recipe: str, controls: bool
) -> Iterable[tuple[str, dict[str, float]]]:
    """Score MTEB's ten draws of training examples, and yield the means; only texts that are drawn are embedded."""
    from isobench_papers.probe.recipes import draw_examples, score_few_shot

    training, evaluated_on = read_splits(folder, (task.train, split))
    classes, labels = np.unique(training.labels, return_inverse=True)
    expected = np.searchsorted(classes, evaluated_on.labels)
    test = encode(cfg, f"{folder.name}-{split}", evaluated_on.texts)
    budgets = {recipe: task.per_class} | ({OTHER_BUDGET: 16 if task.per_class != 16 else 8} if controls else {})
    draws = {name: draw_examples(labels, count) for name, count in budgets.items()}
    used = np.unique(np.concatenate([index for drawn in draws.values() for index in drawn]))
    train = encode(cfg, f"{folder.name}-{task.train}", [training.texts[index] for index in used])
    for name, drawn in draws.items():
        places = [np.searchsorted(used, index) for index in drawn]
        forms = [(name, normalise(train).numpy(), normalise(test).numpy())]
        if controls and name == recipe:
            forms.append((NOT_NORMALISED, train.numpy(), test.numpy()))
        for title, given, evaluated in forms:
            scores = [
                score_few_shot(given[place], labels[index], evaluated, expected)
                for place, index in zip(places, drawn, strict=True)
            ]
            yield title, {metric: float(np.mean([score[metric] for score in scores])) for metric in scores[0]}


def normalise(vectors: "Tensor") -> "Tensor":
    """Divide vectors by their lengths in float32, as the encoders' own modules do."""
    import torch

    return torch.nn.functional.normalize(vectors)


def encode(cfg: "Config", name: str, texts: Sequence[str]) -> "Tensor":
    """Return the vectors of texts, [N, d] float32, from the cache where they are there."""
    from isobench.frozen.encode import FrozenEncoder

    return FrozenEncoder(cfg, [None]).encode(name, texts)[None].vectors


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
    found: dict[str, float] = {}
    for name, values in similarities.items():
        found[f"{name}_pearson"] = float(stats.pearsonr(scores, values)[0])
        found[f"{name}_spearman"] = float(stats.spearmanr(scores, values)[0])
    return found


def describe_differences(subjects: list["Subject"], rows: Rows) -> list[str]:
    """Describe nothing: encoders and recipes are MTEB's, and where the data are not, a cell says so."""
    return []


def show(rows: Rows) -> Shown:
    """Show how many scores are hit, by encoder and task, the ones that miss, and how far wrong recipes are off."""
    ours, wrong = ([row for row in rows["ledger"] if (row["recipe"] == MTEB) is right] for right in (True, False))
    tables = [
        build_counts("MTEB's scores, computed again", ("encoder", "task"), ours),
        build_counts("Wrong recipes", ("recipe", "encoder"), wrong),
    ]
    missed = [row for row in ours if not row["hit"]]
    count = f"{len(ours) - len(missed)} of {len(ours)} published scores are hit."
    notes = [count, f"A score is hit if it differs by {HIT:g} at most; scores are between 0 and 1."]
    for (encoder, task, reason), cells in group_rows(missed, "encoder", "task", "reason").items():
        notes.append(f"{encoder}, {task}: {len(cells)} miss, because {reason}.")
    return Shown(tables, notes=notes)


def build_counts(title: str, labels: tuple[str, str], rows: Sequence[TidyRow]) -> Any:
    """Build a table of how many scores are hit, and of the largest differences."""
    table = make_table(title, labels, ("scores", "hit", "median difference", "largest"))
    for names, cells in group_rows(rows, *labels).items():
        differences = [abs(row["difference"]) for row in cells]
        hits = sum(row["hit"] for row in cells)
        table.add_row(*names, str(len(cells)), str(hits), f"{np.median(differences):.1e}", f"{max(differences):.1e}")
    return table
