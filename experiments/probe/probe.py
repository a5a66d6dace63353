"""Frozen probes: how well classifiers of frozen vectors do under calibrations, by budget of labels."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from isobench.analyses.rows import TidyRow, group_rows, list_distinct, select_rows
from isobench.analyses.shown import Rows, Shown, make_table
from isobench.common.errors import UserError, refuse
from isobench.common.files import sha256_json
from isobench.common.terminal import format_count
from isobench.config.bounds import NOT_EMPTY, Bound, PositiveInt, one_of
from isobench.data.cache import load_or_make_arrays, name_cached_file
from isobench.data.sources import describe_source
from isobench.data.weights import format_encoder_name
from isobench.statistics.paired_bootstrap import compare_predictions
from isobench.statistics.seeds import Arm, compare_runs, holm
from isobench.tasks.kind import kind_of
from isobench_papers.probe.sets import read_probe_set

if TYPE_CHECKING:  # importing them takes seconds
    from torch import Tensor

    from isobench.analyses.subject import Subject
    from isobench.config.schema import Config

PLAIN = "none"
VERSION = 3  # of the cached predictions, part of their names: raise it when they change
FOLDS = 10  # of a set with one split that all its examples are trained on, as in SentEval
HELD_OUT = 5  # a set with one split keeps one part in so many for testing where a budget is trained on
CLASSIFIERS = ("logistic", "neighbours", "mteb")
SETTING = ("encoder", "layer", "pooling", "classifier", "budget", "unit_length")
SCORES = ("accuracy", "f1", "train", "test", "strength")  # columns of a draw's scores
Fit = Annotated[
    Any,
    Bound(
        lambda fit: fit in ("train", "drawn") or (type(fit) is int and fit > 0),
        "must be train, drawn or a number of texts",
    ),
]
Length = Annotated[str, one_of("none", "before", "after", "both")]
Classifier = Annotated[str, one_of(*CLASSIFIERS)]


@dataclass(frozen=True)
class LabelledSet:
    """Hold N texts, or pairs of texts in two columns, and the numbers of their classes, [N].

    The first ``trained`` examples are for training, the others for testing; if there are no others, the set has one
    split.
    """

    columns: list[list[str]]
    labels: np.ndarray
    classes: list[str]
    trained: int


@dataclass(frozen=True)
class Draw:
    """Hold one classifier's task: indices of the examples that it is trained on, and of those that it is scored on.

    ``pool``: the training texts that it was drawn from.
    """

    number: int
    train: np.ndarray
    test: np.ndarray
    pool: np.ndarray


@dataclass(frozen=True)
class Plan:
    """Hold a classifier, its budget of labels a class (None is all), and its draws."""

    classifier: str
    budget: int | None
    draws: list[Draw]

    def split(self, predicted: np.ndarray) -> list[np.ndarray]:
        """Divide the predictions of all draws into those of each."""
        return np.split(predicted, np.cumsum([len(draw.test) for draw in self.draws])[:-1])


@dataclass(frozen=True)
class Probed:
    """Hold what an encoder gave on a set.

    Attributes:
        names: of encoder, pooling, layer and set.
        own: the set.
        plans: what was trained and tested.
        outcomes: by unit length and method, for each plan and each of its draws: predicted classes, and C.
        vectors: of the set's texts, [columns, N, d].
    """

    names: TidyRow
    own: LabelledSet
    plans: list[Plan]
    outcomes: dict[tuple[str, str], list[list[tuple[np.ndarray, float]]]]
    vectors: "Tensor"


def compute(
    subjects: list["Subject"],
    sets: list[str],
    budgets: Annotated[list[PositiveInt | None], NOT_EMPTY],
    draws: PositiveInt,
    classifiers: Annotated[list[Classifier], NOT_EMPTY],
    unit_length: Annotated[list[Length], NOT_EMPTY],
    fit: Fit,
) -> Rows:
    """Probe every encoder under every method: a row of scores a draw, its predictions, and what each method changes.

    Args:
        subjects: encoders x layers x calibrations x tasks.
        sets: names of sets below ``<data.root>/probe``, in the place of the subjects' tasks; empty for these.
        budgets: examples a class that a classifier is trained on; None for all.
        draws: random draws of the training examples for each budget; all examples are drawn once.
        classifiers: ``logistic`` is tuned inside the training examples, ``neighbours`` takes the nearest by cosine,
            and ``mteb`` is MTEB's untuned one, with MTEB's draws of a budget.
        unit_length: divide vectors by their lengths before or after the calibration, both, or not at all.
        fit: the texts that calibrations are fitted on, without their labels: those of the training split
            (``train``), so many of these at random, or those that the classifier is trained on (``drawn``).

    Raises:
        UserError: a set is missing, a task has no classes or one, a class has fewer examples than a budget, or a
            method can't be applied.
    """
    check_subjects(subjects)
    read = {name: read_set(subjects[0].cfg, name) for name in sets}
    read = read or {subject.task: read_task(subject.cfg) for subject in subjects}
    plans = {
        name: [
            Plan(classifier, budget, plan_draws(own, budget, draws, classifier, name))
            for classifier in classifiers
            for budget in budgets
        ]
        for name, own in read.items()
    }
    scores: list[TidyRow] = []
    predictions: list[TidyRow] = []
    contrasts: list[TidyRow] = []
    for probed in probe_sets(subjects, read, plans, unit_length, fit, grid_tasks=not sets):
        for row, draw, predicted in list_outcomes(probed):
            scores.append(row)
            true = probed.own.labels[draw.test].tolist()
            given = {name: value for name, value in row.items() if name not in SCORES}
            predictions.append(given | {"example": draw.test.tolist(), "true": true, "predicted": predicted.tolist()})
        for plan, length, method, change in compare_methods(probed):
            contrasts.append(name_setting(probed, plan, length) | {"method": method} | change)
    for own in group_rows(contrasts, *SETTING).values():  # a table, of several methods and tasks
        for row, adjusted in zip(own, holm([row["p"] for row in own]), strict=True):
            row["holm"] = adjusted
    return {"scores": scores, "contrasts": contrasts, "predictions": predictions}


def check_subjects(subjects: Sequence["Subject"]) -> None:
    """Raise UserError for a method that needs training."""
    from isobench.frozen.posthoc import check_post_hoc

    for subject in subjects:
        check_post_hoc(subject.cfg.calibration)


def probe_sets(
    subjects: Sequence["Subject"],
    read: Mapping[str, LabelledSet],
    plans: Mapping[str, list[Plan]],
    unit_length: Sequence[str],
    fit: int | str,
    grid_tasks: bool = False,
) -> Iterator[Probed]:
    """Probe every encoder at every layer on every set, under every method; yield each encoder's outcome on a set.

    Predictions are kept in the cache, so that a computation that was stopped goes on where it was. With
    ``grid_tasks`` a subject is probed on the set of its own task only.
    """
    from isobench.common.progress import track_progress
    from isobench.frozen.encode import FrozenEncoder

    for group in group_by_encoder(subjects):
        layers = list(dict.fromkeys(subject.cfg.encoder.layer for subject in group))
        encoder, cfg = FrozenEncoder(group[0].cfg, layers), group[0].cfg.encoder
        for name, own in read.items():
            texts = [text for column in own.columns for text in column]
            for layer, encoded in encoder.encode(name, texts).items():
                methods = {
                    subject.method: subject
                    for subject in group
                    if subject.cfg.encoder.layer == layer and (not grid_tasks or subject.task == name)
                }
                names = {
                    "encoder": format_encoder_name(cfg),
                    "pooling": cfg.pooling,
                    "layer": None if layer is None else str(layer),  # averages have names
                    "task": name,
                }
                vectors = encoded.vectors.view(len(own.columns), len(own.labels), -1)
                steps = [(length, method) for length in unit_length for method in methods]
                outcomes = {}
                for length, method in track_progress(steps, f"probe, {names['encoder']}, {name}"):
                    subject = methods[method]
                    transform = partial(calibrate, subject, vectors, length, fit)
                    settings = [encoded.key, subject.cfg.calibration, length, fit]
                    file = name_outcomes(subject, name, own, plans[name], settings)
                    arrays = load_or_make_arrays(file, partial(probe_plans, transform, own, plans[name], fit))
                    outcomes[length, method] = []
                    for i, plan in enumerate(plans[name]):
                        predicted, strengths = plan.split(arrays[f"predicted{i}"]), arrays[f"strength{i}"].tolist()
                        outcomes[length, method].append(list(zip(predicted, strengths, strict=True)))
                yield Probed(names, own, plans[name], outcomes, vectors)


def name_outcomes(
    subject: "Subject", name: str, own: LabelledSet, plans: Sequence[Plan], settings: list[Any]
) -> Path:
    """Name the cached file of a method's predictions by all that decides them."""
    import hashlib

    import sklearn
    import torch

    drawn = hashlib.sha256(own.labels.tobytes())
    for plan in plans:
        for draw in plan.draws:
            for indices in (draw.train, draw.test, draw.pool):
                drawn.update(len(indices).to_bytes(8) + indices.astype(np.int64).tobytes())
    listed = [(plan.classifier, len(plan.draws)) for plan in plans]
    versions = [VERSION, torch.__version__, sklearn.__version__]
    key = sha256_json([versions, settings, listed, own.columns, len(own.classes), drawn.hexdigest()])
    start = f"{name}-{subject.cfg.encoder.name}-{subject.cfg.calibration['name']}"
    return name_cached_file(subject.cfg.data.cache, "probes", start, key)


def probe_plans(
    transform: Callable[[np.ndarray], np.ndarray], own: LabelledSet, plans: Sequence[Plan], fit: int | str
) -> dict[str, np.ndarray]:
    """Carry out the plans under one method: by plan, the classes that all draws predict, and each draw's C."""
    calibrated: dict[bytes, np.ndarray] = {}
    arrays = {}
    for i, plan in enumerate(plans):
        predicted, strengths = zip(*probe(transform, calibrated, own, plan, fit == "drawn"), strict=True)
        arrays |= {f"predicted{i}": np.concatenate(predicted).astype(np.int32), f"strength{i}": np.array(strengths)}
    return arrays


def name_setting(probed: Probed, plan: Plan, length: str) -> TidyRow:
    """Name the encoder, set, classifier, budget and unit length of a row."""
    return probed.names | {"classifier": plan.classifier, "budget": plan.budget, "unit_length": length}


def list_outcomes(probed: Probed) -> Iterator[tuple[TidyRow, Draw, np.ndarray]]:
    """List each draw under each method: its row of scores, in percent, the draw, and the predicted classes."""
    from sklearn.metrics import f1_score

    for (length, method), by_plan in probed.outcomes.items():
        for plan, outcomes in zip(probed.plans, by_plan, strict=True):
            for draw, (predicted, strength) in zip(plan.draws, outcomes, strict=True):
                labels = probed.own.labels[draw.test]
                row = name_setting(probed, plan, length) | {"method": method, "draw": draw.number}
                row |= {"train": len(draw.train), "test": len(labels), "strength": strength}
                row["accuracy"] = 100 * float(np.mean(predicted == labels))
                row["f1"] = 100 * float(f1_score(labels, predicted, average="macro"))
                yield row, draw, predicted


def group_by_encoder(subjects: Sequence["Subject"]) -> list[list["Subject"]]:
    """Group the subjects whose vectors one encoder computes: they differ in layer, calibration and task only."""
    groups: dict[str, list[Subject]] = {}
    for subject in subjects:
        groups.setdefault(repr(replace(subject.cfg.encoder, layer=None)), []).append(subject)
    return list(groups.values())


def read_set(cfg: "Config", name: str, limit: int | None = None) -> LabelledSet:
    """Read a set below data.root; of a split with more than ``limit`` examples, so many at random, in their order."""
    texts: list[str] = []
    labels: list[str] = []
    sizes = []
    for split in filter(None, read_probe_set(cfg.data.root, name)):
        kept = np.sort(np.random.default_rng(0).permutation(len(split.texts))[:limit])
        texts += [split.texts[i] for i in kept]
        labels += split.labels[kept].tolist()
        sizes.append(len(kept))
    classes, numbers = np.unique(labels, return_inverse=True)
    return LabelledSet([texts], numbers, classes.tolist(), sizes[0])


def read_task(cfg: "Config") -> LabelledSet:
    """Read the training set and the first dev split of the config's task."""
    task = cfg.task
    refuse((task.labels is None, f"task={task.name} has no classes, which a probe needs"))
    limits = {task.train_split: task.train_samples, task.dev_splits[0]: task.dev_samples}
    train, test = (kind_of(task).read(task, cfg.data, split, limit) for split, limit in limits.items())
    columns = [[*own, *other] for own, other in zip(train.texts, test.texts, strict=True)]
    return LabelledSet(columns, np.concatenate([train.labels, test.labels]), list(task.labels), len(train))


def plan_draws(own: LabelledSet, budget: int | None, draws: int, classifier: str, name: str) -> list[Draw]:
    """Plan the draws of a budget.

    A set with one split is tested on a part of it, the same in every draw, that is chosen at random with the
    classes' shares. Trained on all labels it is tested whole: each of ``FOLDS`` parts in turn, as in SentEval.
    """
    from isobench.frozen.probe import split_folds
    from isobench_papers.probe.recipes import DRAWS, draw_budget, draw_examples

    everything = np.arange(len(own.labels))
    parts = [(everything[: own.trained], everything[own.trained :])]
    if own.trained == len(everything):
        count = FOLDS if budget is None else HELD_OUT
        rarest = int(np.bincount(own.labels).argmin())
        if (has := int((own.labels == rarest).sum())) < count:
            raise UserError(
                f"{name} has one split, and {format_count(has, 'example')} of {own.classes[rarest]}: too few"
            )
        parts = split_folds(own.labels, count, seed=0)
    if budget is None:
        return [Draw(number, pool, test, pool) for number, (pool, test) in enumerate(parts)]
    pool, test = parts[0]
    counts = np.bincount(own.labels[pool], minlength=len(own.classes))
    if counts.min() < budget:
        short = f"{own.classes[counts.argmin()]} has {format_count(int(counts.min()), 'training example')}"
        raise UserError(f"analysis.budgets: {name}, {short}, fewer than {budget}: choose a smaller budget")
    if classifier == "mteb":
        drawn = draw_examples(own.labels[pool], budget, DRAWS)
    else:
        drawn = [draw_budget(own.labels[pool], budget, seed) for seed in range(draws)]
    return [Draw(number, pool[chosen], test, pool) for number, chosen in enumerate(drawn)]


def probe(
    transform: Callable[[np.ndarray], np.ndarray],
    calibrated: dict[bytes, np.ndarray],
    own: LabelledSet,
    plan: Plan,
    fit_drawn: bool,
) -> list[tuple[np.ndarray, float]]:
    """Return each draw's predictions and strength C; the draws that share their calibration are fitted together.

    ``transform`` makes a set's features by a pool of texts; ``calibrated`` keeps the newest, for the next plan.
    """
    from isobench.frozen.probe import predict_draws
    from isobench_papers.probe.recipes import predict_as_mteb, predict_nearest

    outcomes: dict[int, tuple[np.ndarray, float]] = {}
    groups: dict[bytes, list[Draw]] = {}
    for draw in plan.draws:
        groups.setdefault((draw.train if fit_drawn else draw.pool).tobytes(), []).append(draw)
    for pool, draws in groups.items():
        if pool not in calibrated:
            calibrated.clear()
            calibrated[pool] = transform(np.frombuffer(pool, np.int64).copy())
        x, y = calibrated[pool], own.labels
        if plan.classifier == "logistic":
            trains, numbers = np.stack([draw.train for draw in draws]), [draw.number for draw in draws]
            found, strengths = predict_draws(x[trains], y[trains], x[draws[0].test], len(own.classes), numbers)
            outcomes |= zip(numbers, zip(found, map(float, strengths), strict=True), strict=True)
            continue
        for draw in draws:
            predict = predict_nearest if plan.classifier == "neighbours" else predict_as_mteb
            outcomes[draw.number] = predict(x[draw.train], y[draw.train], x[draw.test]), math.nan
    return [outcomes[draw.number] for draw in plan.draws]


def calibrate(subject: "Subject", vectors: "Tensor", length: str, fit: int | str, pool: np.ndarray) -> np.ndarray:
    """Fit the calibration on the texts of a pool, and apply it to all: [columns, N, d] -> features [N, ...], float64.

    The features of a pair of texts u and v are |u - v| and u * v (Conneau & Kiela 2018).
    """
    import torch

    from isobench.common.linalg import divide_by_length
    from isobench.frozen.posthoc import fit_method

    given = divide_by_length(vectors) if length in ("before", "both") else vectors.double()
    if isinstance(fit, int):
        pool = np.random.default_rng(0).permutation(pool)[:fit]
    method = fit_method(subject.cfg.calibration, given[:, pool].flatten(0, 1))
    columns = [method(column) for column in given]
    if length in ("after", "both"):
        columns = [divide_by_length(column) for column in columns]
    if len(columns) == 1:
        return columns[0].numpy()
    first, second = columns
    return torch.cat([(first - second).abs(), first * second], 1).numpy()


def compare_methods(probed: Probed, of_length: bool = False) -> Iterator[tuple[Plan, str, str, TidyRow]]:
    """Compare each method with no method, where both saw the same draws: the plan, unit length, method and change.

    Both have the same unit length. With ``of_length`` a unit length alone is compared with the vectors as they are.
    """
    for (length, method), ours in probed.outcomes.items():
        against = ("none" if of_length and method == PLAIN else length, PLAIN)
        if (length, method) == against or against not in probed.outcomes:
            continue
        for plan, *arms in zip(probed.plans, ours, probed.outcomes[against], strict=True):
            found = [[predicted for predicted, _ in arm] for arm in arms]
            yield plan, length, method, compare_draws(plan.draws, probed.own.labels, *found)


def compare_draws(
    draws: Sequence[Draw], labels: np.ndarray, ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]
) -> TidyRow:
    """Compare the accuracies of two methods in points, with a 95% interval and p.

    Several draws share their test examples: the test is for new draws and new examples (Obuchowski & Rockette), and
    where it does not apply, for new draws (paired t). One draw, or one a part of the examples: every example is
    tested once, and the test is for new examples (paired t).
    """
    columns = ("change", "low", "high", "p", "by")
    shared = len(draws) > 1 and np.array_equal(draws[0].test, draws[1].test)
    if shared:
        paired = compare_predictions("accuracy", labels[draws[0].test], np.stack(ours), np.stack(theirs))
        if not paired.reason:
            values = paired.difference, paired.low, paired.high, paired.p
            return dict(zip(columns, (*values, "draw and example"), strict=True))
    arms = []
    for arm in (ours, theirs):
        right = [found == labels[draw.test] for draw, found in zip(draws, arm, strict=True)]
        values = [100 * float(own.mean()) for own in right] if shared else list(100.0 * np.concatenate(right))
        arms.append(Arm(values, range(len(values))))
    test = compare_runs([(arms[0], arms[1])])
    return dict(zip(columns, (*test[:4], "draw" if shared else "example"), strict=True))


def describe_differences(subjects: list["Subject"], rows: Rows, sets: list[str]) -> list[str]:
    """Describe the data and encoders: there is no paper whose numbers these are."""
    cfg = subjects[0].cfg
    where = "sets of data.root" if sets else f"{cfg.task.name} of {describe_source(cfg.task, cfg.data)}"
    return [f"{where}; frozen encoders {', '.join(list_distinct(rows['scores'], 'encoder'))}"]


def show(rows: Rows, fit: int | str) -> Shown:
    """Show the accuracy of each method, and its change with interval, by encoder, classifier and budget."""
    scores, contrasts = rows["scores"], rows["contrasts"]
    tables = []
    for key, own in group_rows(scores, *SETTING).items():
        names = dict(zip(SETTING, key, strict=True))
        tasks = list_distinct(own, "task")
        headings = [*tasks, *(["mean"] if len(tasks) > 1 else [])]
        table = make_table(describe_setting(names), ("method",), headings, True)
        for (method,), of_method in group_rows(own, "method").items():
            cells, means, changes = [], [], []
            for task in tasks:
                values = [row["accuracy"] for row in select_rows(of_method, {"task": task})]
                means.append(np.mean(values) if values else math.nan)
                found = select_rows(contrasts, names | {"method": method, "task": task})
                changes += [row["change"] for row in found]
                cells.append(f"{means[-1]:.2f}" + "".join(map(format_change, found)))
            if len(tasks) > 1:
                mean = f" {np.mean(changes):+.2f}" if len(changes) == len(tasks) else ""
                cells.append(f"{np.mean(means):.2f}{mean}")
            table.add_row(method, *cells)
        tables.append(table)
    return Shown(tables, notes=list_notes(scores, contrasts, fit))


def list_notes(scores: Sequence[TidyRow], contrasts: Sequence[TidyRow], fit: int | str) -> list[str]:
    """Say what the numbers are, what intervals are for, and how often the tuned strength is at the grid's edge."""
    from isobench.frozen.probe import STRENGTHS

    texts = {"train": "the texts of the training split", "drawn": "the texts that a classifier is trained on"}
    on = texts.get(str(fit), f"{fit} texts of the training split, or all if it has fewer")
    ways = {
        "draw and example": "Intervals of several draws are for new draws and new test examples, paired by both.",
        "draw": "Where few examples are tested or disagree, intervals are for new draws alone.",
        "example": "Where all labels are trained on, intervals are for new test examples alone.",
    }
    tuned = [row["strength"] for row in scores if row["classifier"] == "logistic"]
    return [
        "Accuracy in percent, mean over draws; then its change from no method with a 95% interval, and * where "
        "Holm's p over the table is below .05.",
        f"Calibrations are fitted on {on}, without labels.",
        *(text for way, text in ways.items() if way in list_distinct(contrasts, "by")),
        *(
            f"C is the {word} that is tried, {edge:g}, in {count} of {len(tuned)} draws."
            for edge, word in ((STRENGTHS[0], "smallest"), (STRENGTHS[-1], "largest"))
            if (count := tuned.count(edge))
        ),
    ]


def format_change(row: TidyRow) -> str:
    interval = "" if math.isnan(row["low"]) else f" [{row['low']:+.2f}, {row['high']:+.2f}]"
    return f" {row['change']:+.2f}{interval}{'*' if row['holm'] < 0.05 else ''}"


def describe_setting(names: TidyRow) -> str:
    layer = "" if names["layer"] is None else f" layer {names['layer']}"
    budget = "all labels" if names["budget"] is None else f"{names['budget']} labels a class"
    words = {"none": "", "before": ", unit length before", "after": ", unit length after"}
    length = words.get(names["unit_length"], ", unit length before and after")
    return f"{names['encoder']}{layer} ({names['pooling']}), {names['classifier']}, {budget}{length}"
