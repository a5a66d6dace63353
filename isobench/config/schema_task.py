"""The typed config of a task: its data, its metrics, and how texts are generated."""

from dataclasses import dataclass, field
from typing import Annotated

from omegaconf import MISSING

from isobench.config.bounds import (
    FOLDER_BELOW,
    NAME,
    Bound,
    Fraction,
    NonNegativeInt,
    PositiveInt,
    Seed,
    at_least,
    one_of,
)

HELD_OUT = "held_out"  # the dev splits' name for a held-out share of the training set
CLASS_METRICS = ("accuracy", "f1", "accuracy_f1", "matthews")
REGRESSION_METRICS = ("pearson", "spearman", "pearson_spearman")
TEXT_METRICS = ("bleu", "chrf", "rouge1", "rouge2", "rougeL")
METRIC_NAMES = CLASS_METRICS + REGRESSION_METRICS + TEXT_METRICS

LANGUAGE_PAIR = Bound(lambda names: len(names) == 2, "must be those of source and target, such as [en,ro]")
COLUMNS = Bound(
    lambda names: len(names) in (1, 2) and len(set(names)) == len(names), "must name one column or two different ones"
)
LABELS = Bound(
    lambda names: len(names) > 1 and len(set(names)) == len(names) and all(map(str.strip, names)),
    "must name at least two classes, each with a name of its own",
)
NOT_EMPTY_NAME = Bound(bool, "is empty: name one, or null")
FILES = Bound(
    lambda files: (
        isinstance(files, dict)
        and len(files) > 0
        and all(isinstance(text, str) for text in (*files, *files.values()))
    ),
    "must name a file for each split: 'data.files={train: FILE, validation: FILE}'",
)
SPLITS = Bound(bool, "must name at least one split")
SCORE_RANGE = Bound(lambda ends: len(ends) == 2 and ends[0] < ends[1], "must be [lowest, highest]")


@dataclass
class Generation:
    """How target texts are read and generated; its presence makes a task one of translation or summarisation."""

    target: str = MISSING  # column with the target text; translation.ro is a field of a struct
    languages: Annotated[list[str], LANGUAGE_PAIR] | None = None  # for tokenizers that mark them (mBART)
    instruction: str | None = None  # put before every source for encoders that want one (T5)
    grammar: Annotated[str, one_of("captions", "bulletins")] | None = (
        None  # generate examples (data/generated_pairs.py)
    )
    # Of Romanian: as they are, cedillas replaced by commas, or removed.
    diacritics: Annotated[str, one_of("keep", "comma_below", "removed")] = "keep"
    max_length: Annotated[int, at_least(2)] = 128  # tokens of a target and of a hypothesis
    min_length: NonNegativeInt = 0  # tokens of a hypothesis
    beams: PositiveInt = 4  # of the beam search
    length_penalty: float = 1.0  # of the beam search: above 0 favours longer hypotheses, below 0 shorter ones
    no_repeat_ngram: NonNegativeInt = 0  # n-grams of this length occur once in a hypothesis; 0 allows any
    precision: Annotated[str, one_of("auto", "32", "bf16")] = (
        "auto"  # of the search; auto is bf16 on a GPU that has it
    )


@dataclass
class Task:
    """One task: of single sentences, of sentence pairs, or with ``generation`` of translation or summarisation.

    ``train_samples`` and ``reduced`` take the examples whose index hashes lowest; ``sample_seed`` changes the hash.
    """

    name: Annotated[str, NAME] = MISSING
    version: PositiveInt = 1  # part of the run key: raise it when the task's data or evaluation changes
    hub: str | None = None  # data set on the Hugging Face hub
    subset: Annotated[str, FOLDER_BELOW] | None = None  # of the data set on the hub, such as rte
    revision: str | None = None  # commit of the hub's data set
    embedded: bool = False  # the data come from an installed package
    folder: Annotated[str, FOLDER_BELOW] | None = None  # of the task's files below data.root; null is glue/<subset>
    text: Annotated[list[str], COLUMNS] = MISSING  # columns with the sentences
    label: Annotated[str, NOT_EMPTY_NAME] | None = None  # column with the labels in data.files; null finds it
    # Names of the classes. Null is a regression or generation; with data.files null finds the classes in the file.
    labels: Annotated[list[str], LABELS] | None = None
    label_range: Annotated[list[float], SCORE_RANGE] | None = None  # of a regression's scores
    as_classes: Annotated[int, at_least(2)] | None = None  # round a regression's scores to this many classes
    metrics: list[Annotated[str, one_of(*METRIC_NAMES)]] = MISSING
    primary: str = MISSING  # the metric that tables show
    train_split: Annotated[str, NAME] = "train"  # split that is trained on
    dev_splits: Annotated[list[Annotated[str, NAME]], SPLITS] = field(default_factory=lambda: ["validation"])
    # Split whose predictions are written, and which is not scored; its file in data.files may lack labels.
    test_split: Annotated[str, NAME] | None = None
    # Share of the training examples that is not trained on. The score on it, not on the dev set, then decides which
    # epoch is reported, and by selection.rule=held_out which configuration.
    held_out: Fraction | None = None
    train_samples: PositiveInt | None = None  # training examples; null is all
    dev_samples: PositiveInt | None = None  # examples of each dev split; null is all
    max_length: Annotated[int, at_least(4)] = 256  # tokens of an input; longer ones are cut
    reduced: PositiveInt | None = None  # training examples of a paper's own smaller training set
    sample_seed: Seed | None = None  # changes which examples train_samples and reduced take
    generation: Generation | None = None

    @property
    def read_splits(self) -> list[str]:
        """The splits that a run reads: of training, dev, and test if there is one."""
        return [self.train_split, *self.dev_splits, *([self.test_split] if self.test_split else [])]

    @property
    def evaluated(self) -> list[str]:
        """The dev splits, and the held-out share if there is one."""
        return [*self.dev_splits, *([HELD_OUT] if self.held_out is not None else [])]
