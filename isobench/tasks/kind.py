"""What a run asks of the kind of its task, and how a task's kind is found.

A kind is a class in a folder of its own (classification, generation, language), or a class of yours that
``task.kind`` names (docs/how-to/kinds.md). Nothing else asks of which kind a task is. This file names no torch: runs
are planned and keyed before torch is imported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

from isobench.common.errors import doing, refuse
from isobench.config.classes import locate_class
from isobench.config.schema import Config, Data, Task
from isobench.tasks.predictions import TEXT_COLUMNS, PredictedSplit, read_texts

# The part of a task's settings that only a kind of isobench's has -> this kind. A task without them has sentences.
OWN_KINDS = {
    "language": "isobench.kinds.language.Language",
    "generation": "isobench.kinds.generation.Generation",
    "": "isobench.kinds.classification.Classification",
}
# Settings that only some kinds read (`Kind.reads`): the others refuse them, so that none is ignored in silence.
SPECIAL = (
    "task.label", "task.labels", "task.label_range", "task.as_classes", "task.held_out", "task.test_split",
    "task.reduced", "task.sample_seed", "task.generation", "task.language",
    "encoder.pooling", "encoder.layer", "encoder.missing_from", "encoder.scratch", "encoder.vocabulary_size",
    "encoder.instructions", "encoder.attention", "encoder.normformer", "encoder.frozen_blocks",
    "head", "optimization.batch_tokens", "optimization.label_smoothing",
)  # fmt: skip


@dataclass
class Examples:
    """Hold one or two columns of N texts, and what a model should give for each: labels [N], or texts.

    ``notes``: how the file is written, if it is no usual one of its format.
    """

    texts: list[list[str]]
    labels: Any = None
    notes: str = ""

    def __len__(self) -> int:
        return len(self.texts[0])


class Kind:
    """Answer what a run asks of the kind of its task; a kind of yours overrides `read`, `build` and `score`.

    Predictions are texts unless `columns` and `parse` say otherwise.
    """

    metrics: tuple[str, ...] = ()  # that its tasks can have
    reads: tuple[str, ...] = ()  # the settings of SPECIAL that it reads
    # What methods may ask for beside the vectors of a batch and a matrix (isobench.training.instantiate.NEEDS).
    gives: tuple[str, ...] = ()
    # Settings that decide what is scored, and by what: runs that differ in one of them are not compared.
    scored: tuple[str, ...] = ("task.primary", "task.label")
    packaged = ("rotten_tomatoes", "minilm")  # a task and an encoder that errors suggest: they install as packages
    has_sentences = False  # it has one vector for each example, which analyses read too
    has_labels = True  # its data have labels, which those in predictions are compared with
    predicts_words = False  # calibrations act on the states that an output embedding reads
    own_dropout = False  # on a CPU, dropout takes isobench's random numbers (isobench/models/dropout.py); in the key
    is_corpus = False  # its files are large: they may be parts, and are not read before the run

    def __init__(self, version: int = 1) -> None:
        self.version = version  # of a kind from outside: raise it in the YAML when it computes something else

    @property
    def name(self) -> str:
        """What messages and lists call it."""
        return type(self).__name__.lower()

    def complete(self, cfg: Config) -> Config:
        """Find in the user's own files (``data.files``) what the task leaves open."""
        return cfg

    def list_metrics(self, task: Task) -> Sequence[str]:
        """List the metrics that a task can have."""
        return self.metrics

    def check(self, cfg: Config) -> None:
        """Raise UserError for settings that this kind can't have, or that don't go together."""
        task = cfg.task
        of = f"{self.name}, the kind of task={task.name}"
        is_untrained = cfg.analysis and not cfg.analysis.get("trains")
        changed = [name for name in SPECIAL if attrgetter(name)(cfg) != attrgetter(name)(DEFAULTS)]
        ignored = [name for name in changed if name not in self.reads]
        unfit = [name for name in task.metrics if name not in self.list_metrics(task)]
        refuse(
            (is_untrained and not self.has_sentences, f"analyses read sentences, and not {of}"),
            (ignored, f"{', '.join(ignored)} is not for {of}: leave it out"),
            (unfit, f"task.metrics: {', '.join(unfit)} doesn't suit {of}: {', '.join(self.list_metrics(task))} do"),
        )

    def check_model(self, cfg: Config) -> None:
        """Raise UserError if no model can be made of ``encoder.scratch``; torch may be imported."""

    def require_packages(self, task: Task) -> None:
        """Raise UserError if a package that its metrics need is not installed."""

    def fingerprint(self, task: Task) -> dict[str, str]:
        """Identify the examples of a task that is ``embedded``: those of a package, or generated ones."""
        raise NotImplementedError(f"task={task.name}: {self.name} has no embedded examples")

    def read(self, task: Task, data: Data, split: str, limit: int | None = None) -> Examples:
        """Read one split and check it; keep ``limit`` examples at most, the same ones on every machine."""
        raise NotImplementedError

    def describe_labels(self, task: Task, examples: Examples) -> str:
        """Say what the labels of the training examples are, for the line on a user's own files; empty without."""
        return ""

    def list_differences(self, task: Task, described: Mapping[str, Any]) -> list[str]:
        """List how the task differs from the whole, or from the settings with which a paper describes it."""
        return []

    def count_written(self, task: Task) -> int:
        """Count the tokens that a decoder writes at most for an example, for the forecast of memory."""
        return 0

    def build(self, cfg: Config, identity: Any) -> Any:
        """Make the module and the loaders of a run: `isobench.training.build.RunParts`."""
        raise NotImplementedError

    def make_loaders(self, cfg: Config, identity: Any, tokenizer: Any, loaded: Any) -> Any:
        """Make the loaders alone, for an analysis of sentences (`has_sentences`) by an encoder that is loaded."""
        raise NotImplementedError

    def columns(self) -> dict[str, str]:
        """Name the columns of a file of predictions after ``split`` and ``index``, and whether they hold texts."""
        return TEXT_COLUMNS

    def parse(self, rows: Any, task: Task, split: str) -> PredictedSplit:
        """Read a split's rows, with these columns, from a file of predictions; ValueError if they can't be right."""
        return read_texts(rows)

    def score(self, task: Task, labels: Any, predictions: Any) -> dict[str, Any]:
        """Compute the task's metrics of N predictions: in training, and again when a run is verified."""
        raise NotImplementedError


DEFAULTS = Config()
_loaded: dict[str, Kind] = {}  # kinds from outside that a command of the user's named


def name_kind(task: Any) -> str:
    """Return the class of a task's kind; ``task`` may be the mapping of a YAML file."""
    settings = task if isinstance(task, Mapping) else vars(task)
    if kind := settings.get("kind"):
        return str(kind.get("_target_", ""))
    return OWN_KINDS[next((part for part in OWN_KINDS if settings.get(part)), "")]


def kind_of(task: Task) -> Kind:
    """Return the kind of a task; a bare `Kind` for one from outside that was not loaded (`load_kind`)."""
    return _make_own(name_kind(task)) if task.kind is None else _loaded.get(repr(task.kind)) or Kind()


@cache
def _make_own(target: str) -> Kind:
    kind: Kind = locate_class(target, Kind)()
    return kind


def list_scored() -> list[str]:
    """List the settings that decide what is scored, of all kinds: a table of runs may hold several kinds."""
    kinds = [*map(_make_own, OWN_KINDS.values()), *_loaded.values()]
    return list(dict.fromkeys(name for kind in kinds for name in kind.scored))


def is_known(task: Task) -> bool:
    """Return False if the task's kind is from outside and was not loaded."""
    return task.kind is None or repr(task.kind) in _loaded


def load_kind(task: Task) -> None:
    """Import a kind from outside. Call it only for a task that the user's own command named, or trusts."""
    if is_known(task):
        return
    target, settings = name_kind(task), {key: value for key, value in (task.kind or {}).items() if key != "_target_"}
    with doing("task.kind"):
        kind = locate_class(target, Kind)(**settings)
    refuse((not isinstance(kind, Kind), f"task.kind: {target} must subclass isobench.kinds.Kind"))
    _loaded[repr(task.kind)] = kind
