"""The typed config: every setting with its type, its bound, its default and its meaning.

A key that is neither here nor in the YAML of a calibration, monitor or analysis is an error. Bounds are checked by
``isobench.config.bounds``; what concerns several settings at once, by ``isobench.runs.validate``.
"""

import contextlib
import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from isobench.common.errors import UserError
from isobench.config.bounds import (
    NAME,
    Bound,
    Folder,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Seed,
    at_least,
    at_most,
    one_of,
)
from isobench.config.rebuild import NeedsOmegaConf, rebuild_dataclass
from isobench.config.schema_encoder import Encoder, Head
from isobench.config.schema_task import FILES, HELD_OUT, Generation, Task

__all__ = ["HELD_OUT", "Config", "Data", "Encoder", "Experiment", "Generation", "Head", "Selection", "Task"]

LAST_EPOCH = "last"  # a value of evaluation.every
EVALUATION_INTERVAL = Bound(
    lambda every: every == LAST_EPOCH or (type(every) is int and every >= 1),
    f"must be a whole number of epochs, at least 1, or {LAST_EPOCH}",
)
SELECTION_RULES = ("none", "dev", "seeds", "held_out")


@dataclass
class Seeds:
    """Seeds of separate random streams; null derives one from ``seed`` (isobench/runs/seeding.py)."""

    init: Seed | None = None  # of weights that no checkpoint has, the classifier's among them
    order: Seed | None = None  # of the training examples
    dropout: Seed | None = None  # of dropout and of what methods draw at random


@dataclass
class Data:
    """Where examples come from and where prepared ones are kept."""

    root: str | None = None  # folder of Parquet files that are used instead of the hub's
    files: Annotated[Any, FILES] | None = None  # split -> a file of your own, used instead of root and hub
    cache: str | None = None  # folder for tokens and embeddings; null is the user's cache folder


@dataclass
class Optimization:
    """AdamW with linear warm-up, then a decaying or constant learning rate."""

    lr: PositiveFloat = 2e-5  # learning rate after the warm-up
    batch_size: PositiveInt = 32  # examples
    # Padded tokens: a batch holds as many examples as fit, instead of batch_size (translation, summarisation).
    batch_tokens: PositiveInt | None = None
    label_smoothing: Fraction | None = None  # share of the target probability spread over the vocabulary (likewise)
    epochs: PositiveInt = 10  # at most; patience can end a run sooner
    accumulate: PositiveInt = 1  # batches whose mean gradient makes one step; a method's statistics stay a batch's
    schedule: Annotated[str, one_of("linear", "polynomial", "constant")] = "linear"  # linear decays to 0
    power: PositiveFloat | None = None  # of polynomial decay; null is 1
    end_lr: NonNegativeFloat | None = None  # of polynomial decay; null is 1e-7
    warmup: Fraction = 0.06  # share of all steps
    eps: PositiveFloat = 1e-8  # AdamW's epsilon
    weight_decay: NonNegativeFloat = 0.0
    clip: PositiveFloat | None = None  # largest norm of the gradient
    patience: PositiveInt | None = 3  # stop after this many epochs without a better score; null trains them all
    report: Annotated[str, one_of("best", "last")] = "best"  # the epoch that is reported; best on the dev set
    drop_last: bool = False  # leave out a last batch that is not full


@dataclass
class Evaluation:
    """After which epochs a run is scored on the dev set; it is always scored after its last epoch."""

    every: Annotated[Any, EVALUATION_INTERVAL] = 1  # a number of epochs, or last: only after the last epoch


@dataclass
class Trainer:
    """The device, the precision, and what only changes speed."""

    precision: Annotated[str, one_of("32-true", "bf16-mixed", "16-mixed")] = "32-true"
    accelerator: Annotated[str, one_of("auto", "cpu", "gpu", "mps")] = "auto"
    deterministic: bool = True  # ask torch for algorithms that repeat every bit; False can be faster on a GPU
    # Whose random numbers dropout uses: isobench's own on a CPU (lanes), or torch's. isobench/models/dropout.py.
    dropout: Annotated[str, one_of("auto", "lanes", "torch")] = "auto"
    threads: Annotated[int, at_least(1), at_most(4096)] | None = None  # null leaves the choice to torch
    # Cost of one more chunk or group of sentences, in tokens: higher values make fewer of them. Null estimates it.
    chunk_overhead: NonNegativeInt | None = None
    eval_batch_size: PositiveInt = 64  # examples of a batch that is only evaluated
    progress_bar: bool | None = None  # null shows it in a terminal


@dataclass
class Checkpoint:
    """How much work an interrupted run can lose; null turns either interval off."""

    minutes: PositiveFloat | None = 10.0  # between two checkpoints
    steps: PositiveInt | None = None  # optimiser steps between two checkpoints
    keep: bool = False  # leave a finished run's checkpoints in place
    export: Folder | None = None  # folder for the reported model in transformers' format


@dataclass
class Tracking:
    """Weights & Biases; the local record is kept with and without it."""

    backend: Annotated[str, one_of("wandb", "none")] = "none"
    project: str = "isobench"  # of W&B
    entity: str | None = None  # W&B's user or team; null is the login's own
    group: str | None = None  # null is the experiment's name, in a sweep without one a name made from its command
    label: str | None = None  # ends the run's name; in a sweep, null is what varies, such as beta=0.25 lr=1e-05
    mode: Annotated[Any, one_of("online", "offline", "disabled")] | None = None  # null is online if there is a login


@dataclass
class Selection:
    """Which configuration a report shows of a method that has several (isobench/report/selection.py).

    ``rule`` takes all (``none``), the best on the set that is reported (``dev``), the best by the runs of ``seeds``,
    reported on the other seeds (``seeds``), or the best on the examples of ``task.held_out`` (``held_out``).
    """

    rule: Annotated[str, one_of(*SELECTION_RULES)] = "dev"
    seeds: list[Seed] = field(default_factory=list)
    equal_budget: bool = False  # let every method choose among as many configurations as the one with fewest


@dataclass
class Experiment:
    """A named grid of runs."""

    name: Annotated[str, NAME] | None = None
    paper: Annotated[str, NAME] | None = None  # whose published numbers are compared with
    tables: list[str] = field(default_factory=list)  # of that paper
    selection: Selection = field(default_factory=Selection)
    order: list[str] = field(default_factory=list)  # start runs by these settings, such as [encoder, seed]
    # For each scale a list of sub-grids, each a mapping from an override to its values.
    grid: dict[str, list[dict[str, list[Any]]]] = field(default_factory=dict)


@dataclass
class Config:
    """Everything a run is made of."""

    seed: Seed = 1  # of every random stream that seeds leaves open
    scale: Annotated[str, one_of("embedded", "paper")] = "embedded"  # packaged models and data, or the paper's
    seeds: Seeds = field(default_factory=Seeds)
    data: Data = field(default_factory=Data)
    task: Task = field(default_factory=Task)
    encoder: Encoder = field(default_factory=Encoder)
    calibration: dict[str, Any] = field(default_factory=dict)  # MethodSettings and the class's own
    head: Head = field(default_factory=Head)
    optimization: Optimization = field(default_factory=Optimization)
    evaluation: Evaluation = field(default_factory=Evaluation)
    trainer: Trainer = field(default_factory=Trainer)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    tracking: Tracking = field(default_factory=Tracking)
    experiment: Experiment = field(default_factory=Experiment)
    # Lightning callbacks by name, each a _target_ with its settings; what they observe of an epoch is in its record.
    monitors: dict[str, Any] = field(default_factory=dict)
    # A function of isobench.analyses (_target_) with its settings, called when an experiment's runs are finished. Its
    # runs are trained only with trains=true.
    analysis: dict[str, Any] = field(default_factory=dict)
    output_dir: Folder = "outputs"  # folder of all results
    retry_failed: bool = False  # run again what failed before
    dry_run: bool = False  # show what would be run
    report: bool = True  # write the report's page when a sweep ends; false leaves it out


@dataclass
class MethodSettings:
    """What the config of every calibration method has; its other keys are settings of its class."""

    name: Annotated[str, NAME]
    version: PositiveInt  # part of the run key: raise it when the method computes something else
    placement: Annotated[str, one_of("before_pooler", "after_pooler")]
    target: Annotated[
        str, one_of("head", "vocabulary")
    ]  # matrix of a penalty: the classifier's or the embedding matrix


CALIBRATION_KEYS = tuple(setting.name for setting in dataclasses.fields(MethodSettings))


def register_schema() -> None:
    """Put the schema where the defaults list of conf/config.yaml finds it."""
    ConfigStore.instance().store(name="schema", node=Config)


def to_config(cfg: DictConfig) -> Config:
    """Return the typed config of a composed one, without Hydra's own node; interpolations are resolved.

    Raises:
        omegaconf.errors.OmegaConfBaseException: an unknown key, a wrong type, a missing value.
    """
    plain = {str(key): value for key, value in cfg.items_ex(resolve=False) if key != "hydra"}
    with contextlib.suppress(NeedsOmegaConf, OmegaConfBaseException):  # the slow way below converts, or raises
        return rebuild_dataclass(OmegaConf.to_container(OmegaConf.create(plain), resolve=True), Config)
    return _convert_by_omegaconf(plain)


def config_from_plain(resolved: dict[str, Any]) -> Config:
    """Rebuild the typed config from what ``dataclasses.asdict`` made of one, as records and jobs keep it.

    Raises:
        omegaconf.errors.OmegaConfBaseException: an unknown key, a wrong type, a missing value.
        UserError: a value refers to another one. isobench writes none, and a chain of them can fill the memory.
    """
    try:
        return rebuild_dataclass(resolved, Config)
    except NeedsOmegaConf:
        if "${" in str(resolved):
            raise UserError("the config of a run can't refer to other values, as ${...} does") from None
        return _convert_by_omegaconf(resolved)


def _convert_by_omegaconf(settings: dict[str, Any]) -> Config:
    return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), settings))  # type: ignore[return-value]


def split_chain(calibration: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the methods of a ``calibration``, in order, without their ``then``; UserError if one is no mapping."""
    methods, rest = [], calibration
    while rest:
        if not isinstance(rest, dict):
            raise UserError(f"calibration{'.then' * len(methods)}={rest} must be a method's settings: write [a,b]")
        methods.append({key: value for key, value in rest.items() if key != "then"})
        rest = rest.get("then") or {}
    return methods


def format_method_name(calibration: dict[str, Any]) -> str:
    """Return the name of a ``calibration`` in tables: its methods' names, joined."""
    return "+".join(str(method.get("name")) for method in split_chain(calibration))
