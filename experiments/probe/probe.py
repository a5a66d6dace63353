"""Frozen probes: how well classifiers of frozen vectors do under calibrations, by budget of labels."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from isobench.analyses.rows import TidyRow, group_rows, list_distinct, select_rows
from isobench.analyses.shown import Rows, Shown, make_table
from isobench.common.errors import UserError
from isobench.config.bounds import PositiveInt, one_of
from isobench.data.probe_sets import LabelledTexts, read_probe_set
from isobench.data.sources import read_examples
from isobench.data.weights import format_encoder_name

if TYPE_CHECKING:  # importing them takes seconds
    from torch import Tensor

    from isobench.analyses.subject import Subject
    from isobench.config.schema import Config

PLAIN = "none"
FOLDS = 10  # of a set with one split, as in SentEval
LENGTHS = ("kept", "before", "after")
CLASSIFIERS = ("logistic", "neighbours", "mteb")
Length = Annotated[str, one_of(*LENGTHS)]
Classifier = Annotated[str, one_of(*CLASSIFIERS)]


@dataclass(frozen=True)
class Draw:
    """Hold one classifier's task: indices of the training examples and of the examples that it is scored on."""

    number: int
    train: np.ndarray
    test: np.ndarray


def compute(
    subjects: list["Subject"],
    sets: list[str],
    budgets: list[PositiveInt | None],
    draws: PositiveInt,
    classifiers: list[Classifier],
    unit_length: list[Length],
    unlabelled: PositiveInt | None = None,
) -> Rows:
    """Probe every encoder under every method: a row of scores a draw, and what each method changes.

    Args:
        subjects: encoders x layers x calibrations x tasks.
        sets: names of sets below ``<data.root>/probe``, in the place of the subjects' tasks; empty for these.
        budgets: examples a class that a classifier is trained on; None for all.
        draws: random draws of the training examples for each budget; all examples are drawn once.
        classifiers: ``logistic`` is tuned inside the training examples, ``neighbours`` takes the nearest by cosine,
            and ``mteb`` is MTEB's, with its ten draws.
        unit_length: divide vectors by their lengths before or after the calibration, or keep the lengths.
        unlabelled: how many training texts, the first in random order, calibrations are fitted on; None for all.

    Raises:
        UserError: a set is missing, a task has no classes, a class has fewer examples than a budget, or a method
            can't be applied.
    """
    from isobench.common.progress import track_progress
    from isobench.frozen.encode import FrozenEncoder
    from isobench.frozen.posthoc import check_post_hoc

    for subject in subjects:
        check_post_hoc(subject.cfg.calibration)
        if subject.cfg.encoder.pooling == "pooler":
            raise UserError("encoder.pooling=pooler is made for fine-tuning: set encoder.pooling=mean, cls or last")
    rows: list[TidyRow] = []
    contrasts: list[TidyRow] = []
    for group in group_by_vectors(subjects, by_task=not sets):
        cfg = group[0].cfg
        encoder = FrozenEncoder(cfg, [cfg.encoder.layer])
        for name in sets or [cfg.task.name]:
            train, test = read_probe_set(cfg.data.root, name) if sets else read_task(cfg)
            texts = [*train.texts, *(test.texts if test else ())]
            vectors = encoder.encode(name, texts)[cfg.encoder.layer].vectors
            labels = np.concatenate([train.labels, *([test.labels] if test else [])])
            plans = [
                (classifier, budget, list(plan_draws(labels, len(train.texts), budget, draws, classifier, name)))
                for classifier in classifiers
                for budget in budgets
            ]
            own = {"encoder": format_encoder_name(cfg.encoder), "layer": cfg.encoder.layer, "task": name}
            own["pooling"] = cfg.encoder.pooling
            steps = [(subject, length) for subject in group for length in unit_length]
            predicted: dict[tuple[Any, ...], np.ndarray] = {}
            for subject, length in track_progress(steps, f"probe, {own['encoder']}, {name}"):
                calibrated = calibrate(subject, vectors, len(train.texts), length, unlabelled)
                for classifier, budget, plan in plans:
                    names = {**own, "classifier": classifier, "budget": budget, "unit_length": length}
                    outcome, found = probe(calibrated, labels, plan, classifier)
                    predicted[subject.method, length, classifier, budget] = found
                    rows += [{**names, "method": subject.method, **scores} for scores in outcome]
            contrasts += compare_methods(own, plans, labels, predicted)
    return {"scores": rows, "contrasts": contrasts}


def group_by_vectors(subjects: Sequence["Subject"], by_task: bool) -> list[list["Subject"]]:
    """Group the subjects that differ in their calibration alone (``by_task``: also in their task)."""
    groups: dict[str, list[Subject]] = {}
    for subject in subjects:
        key = [subject.cfg.encoder, subject.cfg.task if by_task else None]
        groups.setdefault(repr(key), []).append(subject)
    return list(groups.values())


def read_task(cfg: "Config") -> tuple[LabelledTexts, LabelledTexts]:
    """Read the training set and the first dev split of the config's task: single texts in classes."""
    task = cfg.task
    if task.generation or task.labels is None or len(task.text) != 1:
        raise UserError(f"task={task.name}: a probe needs single texts in classes, such as task=rotten_tomatoes")
    limits = {task.train_split: task.train_samples, task.dev_splits[0]: task.dev_samples}
    splits = [read_examples(task, cfg.data, split, limit) for split, limit in limits.items()]
    train, test = (LabelledTexts(split.texts[0], np.array(task.labels)[split.labels]) for split in splits)
    return train, test


def plan_draws(
    labels: np.ndarray, trained: int, budget: int | None, draws: int, classifier: str, name: str
) -> Iterator[Draw]:
    """Plan the draws of a budget: the first ``trained`` examples are for training, the others for testing.

    Without others, each draw tests on a tenth of the examples, chosen at random with the classes' shares, and trains
    on the rest. Then all examples make ten draws, one for each tenth, as SentEval does.
    """
    from isobench.frozen.probe import DRAWS, draw_budget, draw_examples, split_folds

    everything = np.arange(len(labels))
    test = everything[trained:]
    if classifier == "mteb":
        if budget is None or not len(test):
            raise UserError(f"MTEB's recipe needs analysis.budgets=[N], examples a class, and a test split ({name})")
        for number, drawn in enumerate(draw_examples(labels[:trained], budget, DRAWS)):
            yield Draw(number, drawn, test)
        return
    if not len(test):
        folds = split_folds(labels, FOLDS, seed=0)
    for number in range((1 if len(test) else FOLDS) if budget is None else draws):
        pool, scored = (everything[:trained], test) if len(test) else folds[number % FOLDS]
        if budget is None:
            yield Draw(number, pool, scored)
            continue
        try:
            yield Draw(number, pool[draw_budget(labels[pool], budget, seed=number)], scored)
        except ValueError as error:
            raise UserError(f"analysis.budgets: {name}, {error}: choose a smaller budget") from error


def calibrate(subject: "Subject", vectors: "Tensor", trained: int, length: str, unlabelled: int | None) -> np.ndarray:
    """Fit the subject's calibration on training vectors, and apply it to all: [N, d] -> [N, out_dim] float64."""
    from isobench.frozen.posthoc import divide_by_length, fit_method

    given = divide_by_length(vectors) if length == "before" else vectors.double()
    fitted_on = given[:trained]
    if unlabelled is not None:
        fitted_on = fitted_on[np.random.default_rng(0).permutation(trained)[:unlabelled]]
    calibrated = fit_method(subject.cfg.calibration, fitted_on)(given)
    return (divide_by_length(calibrated) if length == "after" else calibrated).numpy()


def probe(
    vectors: np.ndarray, labels: np.ndarray, plan: Sequence[Draw], classifier: str
) -> tuple[list[TidyRow], np.ndarray]:
    """Train and test a classifier on each draw; return its scores and its predictions, [draws, M]."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score

    from isobench.frozen.probe import SEED, predict_nearest, predict_tuned

    rows, predictions = [], []
    for draw in plan:
        given = vectors[draw.train], labels[draw.train], vectors[draw.test]
        strength = math.nan
        if classifier == "mteb":
            predicted = LogisticRegression(random_state=SEED, max_iter=100).fit(*given[:2]).predict(given[2])
        elif classifier == "neighbours":
            predicted = predict_nearest(*given)
        else:
            predicted, strength = predict_tuned(*given, seed=draw.number)
        accuracy, f1 = (
            (predicted == labels[draw.test]).mean(),
            f1_score(labels[draw.test], predicted, average="macro"),
        )
        row = {"draw": draw.number, "train": len(draw.train), "test": len(draw.test), "strength": strength}
        rows.append({**row, "accuracy": 100 * float(accuracy), "f1": 100 * float(f1)})
        predictions.append(predicted)
    return rows, np.array(predictions, dtype=object)


def compare_methods(
    names: TidyRow,
    plans: Sequence[tuple[str, int | None, Sequence[Draw]]],
    labels: np.ndarray,
    predicted: dict[tuple[Any, ...], np.ndarray],
) -> list[TidyRow]:
    """Compare each method with no method, where both saw the same draws, by draw and test example."""
    rows = []
    for (method, length, classifier, budget), ours in predicted.items():
        theirs = predicted.get((PLAIN, length, classifier, budget))
        if method == PLAIN or theirs is None:
            continue
        plan = next(draws for name, number, draws in plans if (name, number) == (classifier, budget))
        rows.append(
            {**names, "classifier": classifier, "budget": budget, "unit_length": length, "method": method}
            | compare_draws(plan, labels, ours, theirs)
        )
    return rows


def compare_draws(plan: Sequence[Draw], labels: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> TidyRow:
    """Compare the accuracies of two methods over shared draws, in points, with a 95% interval.

    Several draws that are tested on the same examples: for new draws and new examples (Obuchowski & Rockette).
    Otherwise each example is tested once, or each draw on its own examples: a z-test of the examples' differences.
    """
    from isobench.statistics.paired_bootstrap import compare_predictions
    from isobench.statistics.seeds import compare_by_errors

    same = all(len(draw.test) == len(plan[0].test) and (draw.test == plan[0].test).all() for draw in plan)
    if len(plan) > 2 and same:
        classes, expected = np.unique(labels[plan[0].test].astype(str), return_inverse=True)
        ids = [np.searchsorted(classes, found.astype(str)) for found in (ours, theirs)]
        paired = compare_predictions("accuracy", expected, *ids)
        value = paired.difference
        if paired.reason == "":
            return {
                "change": value.value,
                "low": value.low,
                "high": value.high,
                "p": paired.p,
                "by": "draw and example",
            }
    changes = np.concatenate(
        [
            (mine == labels[draw.test]).astype(float) - (his == labels[draw.test])
            for draw, mine, his in zip(plan, ours, theirs, strict=True)
        ]
    )
    test = compare_by_errors(100 * changes.mean(), [100 * changes.std(ddof=1) / math.sqrt(len(changes))])
    return {"change": test.value, "low": test.low, "high": test.high, "p": test.p, "by": "example"}


def describe_differences(subjects: list["Subject"], rows: Rows) -> list[str]:
    """Describe nothing: there is no paper whose numbers these are."""
    return []


def show(rows: Rows) -> Shown:
    """Show the accuracy of each method, and its change with interval, by encoder, classifier and budget."""
    scores, contrasts = rows["scores"], rows["contrasts"]
    tasks = list_distinct(scores, "task")
    tables = []
    columns = ("encoder", "layer", "pooling", "classifier", "budget", "unit_length")
    for key, own in group_rows(scores, *columns).items():
        names = dict(zip(columns, key, strict=True))
        table = make_table(describe_setting(names), ("method",), tasks, wrap_numbers=True)
        for method in list_distinct(own, "method"):
            cells = []
            for task in tasks:
                wanted = names | {"method": method, "task": task}
                values = [row["accuracy"] for row in select_rows(own, {"method": method, "task": task})]
                change = select_rows(contrasts, wanted)
                text = f"{np.mean(values):.2f}" if values else "-"
                if change:
                    row = change[0]
                    text += f" {row['change']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}]"
                cells.append(text)
            table.add_row(method, *cells)
        tables.append(table)
    notes = ["Accuracy in percent, mean over draws; then its change from no method, with a 95% interval."]
    ways = list_distinct(contrasts, "by")
    if "draw and example" in ways:
        notes.append("Intervals are for new draws and new test examples, paired by both; they are not corrected.")
    if "example" in ways:
        notes.append("Where all examples are trained on, intervals are for new test examples alone.")
    return Shown(tables, notes=notes)


def describe_setting(names: TidyRow) -> str:
    """Write a table's title."""
    layer = "" if names["layer"] is None else f" layer {names['layer']}"
    budget = "all labels" if names["budget"] is None else f"{names['budget']} labels a class"
    length = {"kept": "", "before": ", unit length first", "after": ", unit length last"}[names["unit_length"]]
    return f"{names['encoder']}{layer} ({names['pooling']}), {names['classifier']}, {budget}{length}"
