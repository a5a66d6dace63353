"""Sentence classification and regression: classes, or scores, of one or two sentences."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from isobench.common.errors import UserError, refuse
from isobench.config.schema import Config, Data, Task
from isobench.data.packaged import movie_reviews
from isobench.data.sources import list_shares
from isobench.kinds.classification.examples import count_outputs, read_examples
from isobench.tasks.kind import Examples, Kind
from isobench.tasks.predictions import NUMBER_COLUMNS, PredictedSplit, read_numbers

CLASS_METRICS = ("accuracy", "f1", "accuracy_f1", "matthews")
REGRESSION_METRICS = ("pearson", "spearman", "pearson_spearman")
MOST_LETTERS = 300  # how long the list of classes may be in the line that describes the user's data


class Classification(Kind):
    """Predict a class or a score of each sentence, or pair of sentences, from its vector."""

    reads = (
        "task.label", "task.labels", "task.label_range", "task.as_classes", "task.held_out", "task.test_split",
        "task.sample_seed", "encoder.pooling", "encoder.layer", "encoder.missing_from", "head",
    )  # fmt: skip
    gives = ("samples", "token_states", "classifier")
    has_sentences = True
    own_dropout = True

    def complete(self, cfg: Config) -> Config:
        from isobench.kinds.classification.own_files import complete_task

        return complete_task(cfg, REGRESSION_METRICS)

    def list_metrics(self, task: Task) -> Sequence[str]:
        """List the metrics of classes or of scores; F1 is computed for two classes only."""
        if task.as_classes is not None:  # rounded scores, so correlations keep their meaning
            return (*REGRESSION_METRICS, "accuracy", "matthews")
        if task.labels is None:
            return REGRESSION_METRICS
        return CLASS_METRICS if len(task.labels) == 2 else ("accuracy", "matthews")

    def check(self, cfg: Config) -> None:
        task = cfg.task
        if task.as_classes is not None and (task.labels is not None or task.label_range is None):
            raise UserError(
                f"task.as_classes is for a regression with a task.label_range such as stsb; task={task.name} is none"
            )
        if task.label_range is not None and task.labels is not None:
            raise UserError(f"task.label_range is for scores, and task={task.name} has classes: leave it out")
        if task.sample_seed is not None and not list_shares(cfg.data):
            raise UserError(f"task.sample_seed chooses shares in data.files, and task={task.name} has none: unset it")
        super().check(cfg)

    def fingerprint(self, task: Task) -> dict[str, str]:
        """Identify the packaged film reviews by their sha256; UserError if they lack what the task reads."""
        bounds = movie_reviews.SPLIT_BOUNDS
        unknown = [split for split in task.read_splits if split not in bounds]
        refuse(
            (unknown, f"task={task.name} has no split {', '.join(unknown)}: it has {', '.join(bounds)}"),
            (list(task.text) != ["sentence"], f"task={task.name} has one column of text: set task.text=[sentence]"),
        )
        movie_reviews.find_csv(f"task={task.name}")  # raises UserError without the package
        return {"embedded": movie_reviews.SHA256}

    def read(self, task: Task, data: Data, split: str, limit: int | None = None) -> Examples:
        return read_examples(task, data, split, limit)

    def describe_labels(self, task: Task, examples: Examples) -> str:
        if task.labels is None:
            return f"; labels in {task.label}, scores"
        counts = Counter(examples.labels.tolist())
        kind = f"classes {', '.join(f'{name} {counts[label]:,}' for label, name in enumerate(task.labels))}"
        if len(kind) > MOST_LETTERS:
            kind = f"{kind[:MOST_LETTERS]} ..."
        return f"; labels in {task.label}, {kind}"

    def list_differences(self, task: Task, described: Mapping[str, Any]) -> list[str]:
        """Say into how many classes scores are divided, unless the paper does so too."""
        if task.as_classes in (None, described.get("as_classes")):
            return []
        return [f"{task.name} as {task.as_classes} classes"]

    def build(self, cfg: Config, identity: Any) -> Any:
        from isobench.kinds.classification.build import build_parts

        return build_parts(cfg, identity)

    def make_loaders(self, cfg: Config, identity: Any, tokenizer: Any, loaded: Any) -> Any:
        from isobench.kinds.classification.build import make_loaders

        return make_loaders(cfg, identity, tokenizer, loaded)

    def columns(self) -> dict[str, str]:
        return NUMBER_COLUMNS

    def parse(self, rows: Any, task: Task, split: str) -> PredictedSplit:
        """Read a split's rows of a predictions file, and check that labels are classes of the task."""
        import numpy as np

        classes, is_test = count_outputs(task), split == task.test_split
        predicted = read_numbers(rows, classes, split, may_lack_labels=is_test)
        if is_test or classes == 1:
            return predicted
        whole = predicted.labels.astype(np.int64)
        if not (whole == predicted.labels).all() or whole.min() < 0 or whole.max() >= classes:
            raise ValueError(f"a label of {split} is no class from 0 to {classes - 1}")
        return PredictedSplit(whole, predicted.predictions, predicted.logits)

    def score(self, task: Task, labels: Any, predictions: Any) -> dict[str, Any]:
        from isobench.metrics.task import evaluate_predictions

        return evaluate_predictions(list(task.metrics), labels, predictions)
