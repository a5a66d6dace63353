"""The typed config: every setting with its type, its bound, its default and its meaning.

A key that is neither here nor in the YAML of a calibration, monitor or analysis is an error. Bounds are checked by
``isobench.config.bounds``; what concerns several settings at once, by ``isobench.runs.validate``.
"""

import dataclasses
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from isobench.common.errors import refuse
from isobench.config.bounds import (
    ENCODING,
    FOLDER_BELOW,
    NAME,
    Bound,
    Folder,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    Number,
    PositiveFloat,
    PositiveInt,
    Section,
    Seed,
    above,
    at_least,
    at_most,
    check_value,
    convert_value,
    one_of,
    read_hints,
)
from isobench.config.removed import drop_removed
from isobench.papers.folders import find_paper

SET = Bound(lambda text: text != MISSING, "must be set")
PLAIN = Bound(
    lambda settings: "${" not in json.dumps(settings, default=lambda _: "${"),
    "must hold texts, numbers, lists and mappings alone, and no reference to another setting, as ${...} is",
)
LAST_EPOCH = "last"  # a value of evaluation.every
EVALUATION_INTERVAL = Bound(
    lambda every: every == LAST_EPOCH or (type(every) is int and every >= 1),
    f"must be a whole number of epochs, at least 1, or {LAST_EPOCH}",
)
SELECTION_RULES = ("none", "dev", "seeds", "held_out")

HELD_OUT = "held_out"  # the dev splits' name for a held-out share of the training set
LANGUAGE_PAIR = Bound(lambda names: len(names) == 2, "must be those of source and target, such as [en,ro]")
COLUMNS = Bound(  # none: data/own_task.py finds them in the user's file
    lambda names: len(names) <= 2 and len(set(names)) == len(names), "must name one column or two different ones"
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
        and all(isinstance(split, str) for split in files)
        and all(isinstance(file, str) or (isinstance(file, float) and 0 < file < 1) for file in files.values())
    ),
    "must name a file for each split, or a share of the training file: 'data.files={train: FILE, validation: 0.2}'",
)
DIFFERENT = Bound(lambda names: len(set(names)) == len(names), "names one twice: leave one out")
SPLITS = Bound(bool, "must name at least one split")
SCORE_RANGE = Bound(lambda ends: len(ends) == 2 and ends[0] < ends[1], "must be [lowest, highest]")

POOLINGS = ("pooler", "cls", "mean", "last")
LAYER_AVERAGES = ("first_last", "last_two")  # averages of two layers' outputs, token by token
LAYER = Bound(
    lambda layer: layer in LAYER_AVERAGES or (type(layer) is int and layer >= 0),
    f"must be the number of a layer, from 0, or {' or '.join(LAYER_AVERAGES)}",
)
FILE_NAME = Bound(
    lambda name: re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name) is not None,
    "names a file in the model's folder, such as pytorch_model.bin",
)
HEADS = ("isobn", "huggingface")
# Of head=huggingface, as transformers' model_type:
WITH_OWN_POOLER = ("bert", "albert")  # architectures whose head reads the encoder's pretrained pooler
WITH_DENSE_LAYER = ("roberta", "xlm-roberta", "camembert", "mpnet", "electra")  # the head brings a dense layer
ARCHITECTURES = (*WITH_OWN_POOLER, *WITH_DENSE_LAYER, "distilbert", "deberta", "deberta-v2", "modernbert")


@dataclass
class Seeds(Section):
    """Seeds of separate random streams; null derives one from ``seed`` (isobench/runs/identity.py)."""

    init: Seed | None = None  # of weights that no checkpoint has, the classifier's among them
    order: Seed | None = None  # of the training examples
    dropout: Seed | None = None  # of dropout and of what methods draw at random


@dataclass
class Data(Section):
    """Where examples come from and where prepared ones are kept."""

    root: str | None = None  # folder of Parquet files that are used instead of the hub's
    # Split -> a file of your own, used instead of root and hub, or its share of the training file's rows.
    files: Annotated[Any, FILES] | None = None
    encoding: Annotated[str, ENCODING] | None = None  # of your CSV and TSV files that are not in UTF-8
    cache: str | None = None  # folder for tokens and embeddings; null is the user's cache folder


@dataclass
class Generation(Section):
    """How target texts are read and generated; its presence makes a task one of translation or summarisation."""

    target: Annotated[str, SET] = MISSING  # column with the target text; translation.ro is a field of a struct
    languages: Annotated[list[str], LANGUAGE_PAIR] | None = None  # for tokenizers that mark them (mBART)
    instruction: str | None = None  # put before every source for encoders that want one (T5)
    # Generate the examples (kinds/generation/grammars.py).
    grammar: Annotated[str, one_of("captions", "bulletins")] | None = None
    # Of Romanian: as they are, cedillas replaced by commas, or removed.
    diacritics: Annotated[str, one_of("keep", "comma_below", "removed")] = "keep"
    max_length: Annotated[int, at_least(2)] = 128  # tokens of a target and of a hypothesis
    min_length: NonNegativeInt = 0  # tokens of a hypothesis
    beams: PositiveInt = 4  # of the beam search
    length_penalty: Number = 1.0  # of the beam search: above 0 favours longer hypotheses, below 0 shorter ones
    no_repeat_ngram: NonNegativeInt = 0  # n-grams of this length occur once in a hypothesis; 0 allows any


@dataclass
class Language(Section):
    """Say what a language model learns. A task that has this is one of language modelling."""

    objective: Annotated[str, one_of("causal", "masked")] = "causal"  # predict the next token, or masked tokens
    masked_share: Annotated[Fraction, above(0)] = 0.15  # of the tokens of a window, which a masked model predicts
    # Keep a token that is a share f of the text with probability sqrt(subsample / f), as in word2vec; null keeps all.
    subsample: PositiveFloat | None = None


@dataclass
class Task(Section):
    """Describe one task, of single sentences or of sentence pairs.

    With ``generation`` it is one of translation or summarisation. With ``language`` it is one of language modelling,
    on windows of ``max_length`` tokens. With ``kind`` it is of a kind that a class of yours defines.

    ``train_samples`` and ``reduced`` take the examples whose index hashes lowest.
    For language modelling ``train_samples`` takes the first windows.
    """

    name: Annotated[str, NAME] = MISSING
    hub: str | None = None  # data set on the Hugging Face hub
    subset: Annotated[str, FOLDER_BELOW] | None = None  # of the data set on the hub, such as rte
    revision: str | None = None  # commit of the hub's data set
    embedded: bool = False  # the data come from an installed package
    folder: Annotated[str, FOLDER_BELOW] | None = None  # of the task's files below data.root; null is glue/<subset>
    text: Annotated[list[str], COLUMNS] = MISSING  # columns with the sentences
    label: Annotated[str, NOT_EMPTY_NAME] | None = None  # column with the labels in data.files; null finds it
    # Names of the classes. Null is a regression or generation; with data.files null finds the classes in the file.
    labels: Annotated[list[str], LABELS] | None = None
    label_range: Annotated[list[Number], SCORE_RANGE] | None = None  # of a regression's scores
    as_classes: Annotated[int, at_least(2)] | None = None  # round a regression's scores to this many classes
    metrics: Annotated[list[Annotated[str, NAME]], DIFFERENT] = MISSING  # those that its kind has
    primary: str = MISSING  # the metric that tables show, one of metrics; empty: that which suits own data
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
    sample_seed: Seed | None = None  # which examples a share in data.files takes; of generation also train_samples
    generation: Generation | None = None
    language: Language | None = None
    kind: Annotated[dict[str, Any], PLAIN] | None = None  # of a kind from outside: its _target_ and settings

    @property
    def train_limit(self) -> int | None:
        """How many training examples are kept at most: the smaller of both limits, None for all."""
        return min((n for n in (self.reduced, self.train_samples) if n is not None), default=None)

    @property
    def limits(self) -> dict[str, int | None]:
        """How many examples are kept at most of each split that is trained on or scored."""
        return {self.train_split: self.train_limit} | dict.fromkeys(self.dev_splits, self.dev_samples)

    @property
    def read_splits(self) -> list[str]:
        """The splits that a run reads: of training, dev, and test if there is one."""
        return [self.train_split, *self.dev_splits, *([self.test_split] if self.test_split else [])]

    @property
    def evaluated(self) -> list[str]:
        """The dev splits, and the held-out share if there is one."""
        return [*self.dev_splits, *([HELD_OUT] if self.held_out is not None else [])]


@dataclass
class Encoder(Section):
    """A pretrained ``AutoModel`` and how its token vectors become one sentence vector.

    In translation and summarisation it is an ``AutoModelForSeq2SeqLM``, and nothing is pooled.
    """

    name: Annotated[str, NAME] = MISSING
    hub: str | None = None  # model on the Hugging Face hub
    revision: str | None = None  # commit of the hub's model
    # Parameters that the safetensors weights lack are loaded from this file of the same commit or folder.
    missing_from: Annotated[str, FILE_NAME] | None = None
    embedded: str | None = None  # weights from an installed package
    path: str | None = None  # a transformers folder, or a file of word vectors
    word_vectors: bool | None = None  # one vector for each word, from path or the package glove; never fine-tuned
    pooling: Annotated[str, one_of(*POOLINGS)] = "pooler"  # how token vectors become one sentence vector
    # Pool this layer's output, 0 the embeddings'; null is the model's own output. first_last and last_two average two
    # layers' outputs.
    layer: Annotated[Any, LAYER] | None = None
    token_type_ids: bool = True  # tell the model which sentence of a pair a token is of
    trust_remote_code: bool = False  # run Python code that comes with the model
    # A transformers config (model_type, ...) to initialise at random.
    scratch: Annotated[dict[str, Any], PLAIN] | None = None
    # With scratch: tokens of a tokenizer that is learned from the training set, unless path has one. At least 300,
    # which are all bytes and some special tokens.
    vocabulary_size: Annotated[int, at_least(300)] | None = None
    # Only for a language model with scratch. average: read all tokens alike. off_by_one: add one to the softmax's
    # denominator.
    attention: Annotated[str, one_of("average", "off_by_one")] | None = None
    normformer: bool | None = None  # add NormFormer's scales and norms to a language model with scratch
    frozen_blocks: bool | None = None  # train what stands before and after a language model's layers, not these
    instructions: bool | None = None  # start every source with task.generation.instruction
    gradient_checkpointing: bool = False  # compute activations again in the backward pass, to save memory


@dataclass
class Head(Section):
    """Settings of the part that turns token vectors into scores of classes.

    ``isobn`` is ``encoder.pooling``, dropout and a linear classifier, as in IsoBN's released code. ``huggingface`` is
    the sequence-classification head that transformers gives the encoder's architecture: its own pooling, pooler,
    dropouts, classifier and initial weights. ``dropout`` is a setting of ``isobn`` alone.
    """

    name: Annotated[str, one_of(*HEADS)] = "isobn"
    dropout: Fraction | None = None  # null takes the encoder's own hidden dropout


@dataclass
class Optimization(Section):
    """AdamW, or another optimiser, with linear warm-up, then a decaying or constant learning rate."""

    lr: PositiveFloat = 2e-5  # learning rate after the warm-up
    batch_size: PositiveInt = 32  # examples
    # Padded tokens: a batch holds as many examples as fit, instead of batch_size (translation, summarisation).
    batch_tokens: PositiveInt | None = None
    label_smoothing: Fraction | None = None  # share of the target probability spread over the vocabulary (likewise)
    epochs: PositiveInt = 10  # at most; patience can end a run sooner
    accumulate: PositiveInt = 1  # batches whose mean gradient makes one step; a method's statistics stay a batch's
    schedule: Annotated[str, one_of("linear", "polynomial", "constant")] = "linear"  # linear decays to 0
    warmup: Fraction = 0.06  # share of all steps
    optimizer: Annotated[dict[str, Any], PLAIN] | None = None  # of conf/optimizer, its name and settings; null: AdamW
    eps: PositiveFloat = 1e-8  # AdamW's epsilon
    weight_decay: NonNegativeFloat = 0.0
    clip: PositiveFloat | None = None  # largest norm of the gradient
    patience: PositiveInt | None = 3  # stop after this many epochs without a better score; null trains them all
    report: Annotated[str, one_of("best", "last")] = "best"  # the epoch that is reported; best on the dev set
    drop_last: bool = False  # leave out a last batch that is not full


@dataclass
class Evaluation(Section):
    """After which epochs a run is scored on the dev set; it is always scored after its last epoch."""

    every: Annotated[Any, EVALUATION_INTERVAL] = 1  # a number of epochs, or last: only after the last epoch


@dataclass
class Trainer(Section):
    """The device, the precision, and what only changes speed."""

    precision: Annotated[str, one_of("32-true", "bf16-mixed", "16-mixed")] = "32-true"
    accelerator: Annotated[str, one_of("auto", "cpu", "gpu")] = "auto"
    threads: Annotated[int, at_least(1), at_most(4096)] | None = None  # null leaves the choice to torch
    eval_batch_size: PositiveInt = 64  # examples of a batch that is only evaluated


@dataclass
class Checkpoint(Section):
    """How much work an interrupted run can lose; null turns either interval off."""

    minutes: PositiveFloat | None = 10.0  # between two checkpoints
    steps: PositiveInt | None = None  # optimiser steps between two checkpoints
    export: Folder | None = None  # folder for the reported model in transformers' format


@dataclass
class Tracking(Section):
    """Weights & Biases; the local record is kept with and without it.

    W&B's own variables say where runs are shown: WANDB_PROJECT (isobench), WANDB_ENTITY, WANDB_MODE.
    """

    backend: Annotated[str, one_of("wandb", "none")] = "none"
    group: str | None = None  # null is the experiment's name, in a sweep without one a name made from its command
    label: str | None = None  # ends the run's name; in a sweep, null is what varies, such as beta=0.25 lr=1e-05


@dataclass
class Selection(Section):
    """Which configuration a report shows of a method that has several (isobench/report/selection.py).

    ``rule`` takes all (``none``), the best on the set that is reported (``dev``), the best by the runs of ``seeds``,
    reported on the other seeds (``seeds``), or the best on the examples of ``task.held_out`` (``held_out``).
    """

    rule: Annotated[str, one_of(*SELECTION_RULES)] = "dev"
    seeds: list[Seed] = field(default_factory=list)
    equal_budget: bool = False  # fix each method's own settings, so that all choose among the same others


@dataclass
class Experiment(Section):
    """A named grid of runs."""

    name: Annotated[str, NAME] | None = None
    paper: Annotated[str, NAME] | None = None  # whose published numbers are compared with
    tables: list[str] = field(default_factory=list)  # of that paper
    selection: Selection = field(default_factory=Selection)
    order: list[str] = field(default_factory=list)  # start runs by these settings, such as [encoder, seed]
    gpu_hours: PositiveFloat | None = None  # of the whole grid at the paper's scale, roughly: docs/how-to/memory.md
    # For each scale a list of sub-grids, each a mapping from an override to its values.
    grid: dict[str, list[dict[str, list[Any]]]] = field(default_factory=dict)


@dataclass
class Config(Section):
    """Everything a run is made of."""

    seed: Seed = 1  # of every random stream that seeds leaves open
    scale: Annotated[str, one_of("embedded", "laptop", "paper")] = "embedded"  # conf/scale/ says what each is
    seeds: Seeds = field(default_factory=Seeds)
    data: Data = field(default_factory=Data)
    task: Task = field(default_factory=Task)
    encoder: Encoder = field(default_factory=Encoder)
    calibration: Annotated[dict[str, Any], PLAIN] = field(default_factory=dict)  # MethodSettings and the class's own
    head: Head = field(default_factory=Head)
    optimization: Optimization = field(default_factory=Optimization)
    evaluation: Evaluation = field(default_factory=Evaluation)
    trainer: Trainer = field(default_factory=Trainer)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    tracking: Tracking = field(default_factory=Tracking)
    experiment: Experiment = field(default_factory=Experiment)
    # Lightning callbacks by name, each a _target_ with its settings; what they observe of an epoch is in its record.
    monitors: Annotated[dict[str, Any], PLAIN] = field(default_factory=dict)
    # A function of isobench.analyses (_target_) with its settings, called when an experiment's runs are finished. Its
    # runs are trained only with trains=true.
    analysis: Annotated[dict[str, Any], PLAIN] = field(default_factory=dict)
    output_dir: Folder = "outputs"  # folder of all results
    retry_failed: bool = False  # run again what failed before
    dry_run: bool = False  # show what would be run
    report: bool = True  # write the report's page when a sweep ends; false leaves it out


@dataclass
class MethodSettings(Section):
    """What the config of every calibration method has; its other keys are settings of its class."""

    name: Annotated[str, NAME]
    version: PositiveInt  # part of the run key: raise it when the method computes something else
    placement: Annotated[str, one_of("before_pooler", "after_pooler")]
    target: Annotated[str, one_of("head", "vocabulary")]  # of a penalty: the classifier's or the embedding matrix


CALIBRATION_KEYS = tuple(setting.name for setting in dataclasses.fields(MethodSettings))


# Parts that can be null.
OPTIONAL_PARTS = ("task.generation", "task.language", "task.kind", "encoder.scratch", "optimization.optimizer")
# Settings that change how long a training step takes, apart from the calibration and what the scale says: two runs
# must share them so that their training times may be compared.
SPEED_SETTINGS = (
    "head.name", "task.max_length", "task.generation.max_length", "encoder.pooling", "encoder.layer",
    "encoder.gradient_checkpointing", "optimization.batch_size",
    "optimization.batch_tokens", "optimization.accumulate", "optimization.clip", "trainer.precision",
    "trainer.accelerator",
)  # fmt: skip


def register_schema() -> None:
    """Put the schema where the defaults list of conf/config.yaml finds it; ``${paper:NAME}`` is a paper's folder."""
    ConfigStore.instance().store(name="schema", node=Config)
    OmegaConf.register_new_resolver("paper", _find_paper_folder, replace=True)


def _find_paper_folder(name: str = "") -> str:
    refuse((not name, "${paper:} is the folder of a paper: name it by --paper=FOLDER, not by --config-dir"))
    return str(find_paper(name))


def to_config(cfg: DictConfig) -> Config:
    """Return the typed config of a composed one, without Hydra's own node; interpolations are resolved."""
    settings = OmegaConf.create({str(key): value for key, value in cfg.items_ex(resolve=False) if key != "hydra"})
    return config_from_plain(OmegaConf.to_container(settings, resolve=True, throw_on_missing=True))


def config_from_plain(resolved: Any) -> Config:
    """Rebuild the typed config from what ``dataclasses.asdict`` made of one, as records and jobs keep it."""
    if isinstance(resolved, dict):
        resolved = {name: drop_removed(name, value) for name, value in resolved.items()}
    config: Config = convert_value("", resolved, Config)
    return config


def read_section(name: str, plain: Any) -> Any:
    """Return the typed value of one section of a config, such as ``task``, from the plain one that a file holds."""
    value = convert_value(name, drop_removed(name, plain), read_hints(Config)[name])
    if name == "calibration":
        split_chain(value)  # so that one wrong file is told from the others
    return value


def split_chain(calibration: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the methods of a ``calibration``, in order, without their ``then``; UserError if one is no mapping."""
    methods: list[dict[str, Any]] = []
    rest = calibration
    while rest:
        check_value(f"calibration{'.then' * len(methods)}", rest, dict[str, Any])
        methods.append({key: value for key, value in rest.items() if key != "then"})
        rest = rest.get("then") or {}
    return methods


def map_chain(change: Callable[[dict[str, Any]], dict[str, Any]], calibration: dict[str, Any]) -> dict[str, Any]:
    """Copy a ``calibration`` with each of its methods, without its ``then``, changed by a function."""
    changed = change({key: value for key, value in calibration.items() if key != "then"})
    if "then" in calibration:
        changed = changed | {"then": calibration["then"] and map_chain(change, calibration["then"])}
    return changed


def format_method_name(calibration: dict[str, Any]) -> str:
    """Return the name of a ``calibration`` in tables: its methods' names, joined."""
    return "+".join(str(method.get("name")) for method in split_chain(calibration))


def check_architecture(model_type: str) -> None:
    """Raise UserError if ``head=huggingface`` has no head for this architecture."""
    check_value("head=huggingface: model_type", model_type, Annotated[str, one_of(*ARCHITECTURES)])
