"""The typed config. A key that is not here, or in a calibration's own YAML, is an error."""

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from isobench.config.schema_task import HELD_OUT, Generation, Task

__all__ = ["HELD_OUT", "Config", "Data", "Encoder", "Experiment", "Generation", "Selection", "Task"]

POOLINGS = ("pooler", "cls", "mean", "last")
CALIBRATION_KEYS = ("name", "version", "placement", "target")  # ours; the rest goes to the class


@dataclass
class Seeds:
    """Separate random streams; each derives from ``seed`` unless set here (see seeding.py)."""

    init: int | None = None
    order: int | None = None
    dropout: int | None = None


@dataclass
class Data:
    """Where examples come from. ``root``: a folder of Parquet files used instead of the hub."""

    root: str | None = None
    cache: str | None = None


@dataclass
class Encoder:
    """A pretrained ``AutoModel`` and how its token vectors become one sentence vector.

    In translation and summarisation an ``AutoModelForSeq2SeqLM``, of which nothing is pooled. ``scratch``: settings
    of a transformers config (``model_type`` and others) that is randomly initialised, with a tokenizer of
    ``vocabulary_size`` learned from the training set unless ``path`` has one. ``instructions``: sources start with
    the task's ``generation.instruction``.

    ``first_token_only``: where only the first token is pooled, the last layer computes no other (lossless).
    ``layer``: whose output is pooled, 0 the embeddings', 1 the first layer's, ...; null is the model's own output.
    """

    name: str = MISSING
    version: int = 1
    hub: str | None = None
    revision: str | None = None
    embedded: str | None = None
    path: str | None = None
    pooling: str = "pooler"
    layer: int | None = None
    token_type_ids: bool = True
    trust_remote_code: bool = False
    first_token_only: bool = True
    scratch: dict[str, Any] | None = None
    vocabulary_size: int | None = None
    instructions: bool | None = None
    gradient_checkpointing: bool = False
    compile: bool = False


@dataclass
class Head:
    """Dropout and linear classifier. ``dropout: null`` takes the encoder's own hidden dropout."""

    init: str = "uniform"
    dropout: float | None = None


@dataclass
class Optimization:
    """AdamW with linear warm-up, then ``linear`` decay to zero, ``polynomial`` decay or a ``constant`` rate.

    Polynomial decay goes from ``lr`` to ``end_lr`` (1e-7) by the power ``power`` (1). ``batch_tokens``: a batch holds
    as many examples as fit into that many padded tokens, instead of ``batch_size`` (translation, summarisation).
    ``label_smoothing``: share of the target probability that is spread over the vocabulary (likewise).

    ``accumulate``: batches whose mean gradient makes one step; a method's statistics remain those of one batch.
    ``report``: which epoch's scores are a run's, the ``best`` on the dev set or the ``last``.
    """

    lr: float = 2e-5
    batch_size: int = 32
    batch_tokens: int | None = None
    label_smoothing: float | None = None
    epochs: int = 10
    accumulate: int = 1
    schedule: str = "linear"
    power: float | None = None
    end_lr: float | None = None
    warmup: float = 0.06
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip: float | None = None
    patience: int | None = 3
    report: str = "best"
    drop_last: bool = False


@dataclass
class Trainer:
    """How the arithmetic is carried out."""

    precision: str = "32-true"
    accelerator: str = "auto"
    threads: int | None = None
    chunk_overhead: int | None = None
    eval_batch_size: int = 64
    progress_bar: bool | None = None


@dataclass
class Checkpoint:
    """How often an interrupted run can lose how much; ``keep`` leaves a finished run's checkpoints in place."""

    minutes: float | None = 10.0
    steps: int | None = None
    keep: bool = False


@dataclass
class Tracking:
    """``backend: wandb`` logs offline unless there is a login; ``none`` keeps the local record only.

    ``group``: the W&B group; by default the experiment's name, in a sweep without one a name made for it.
    """

    backend: str = "none"
    project: str = "isobench"
    entity: str | None = None
    group: str | None = None
    mode: Any = None


@dataclass
class Selection:
    """Which configuration a report shows of a method that has several (report/select.py).

    ``rule``: ``none``, ``dev`` (best on the set that is reported), ``seeds`` (best on ``seeds``, reported on the
    others) or ``held_out`` (best on the examples that ``task.held_out`` keeps from training). ``equal_budget``: every
    method chooses among as many configurations as the one with fewest.
    """

    rule: str = "dev"
    seeds: list[int] = field(default_factory=list)
    equal_budget: bool = False


@dataclass
class Experiment:
    """A named grid: for each scale a list of sub-grids, each a mapping of override to values."""

    name: str | None = None
    paper: str | None = None
    tables: list[str] = field(default_factory=list)
    selection: Selection = field(default_factory=Selection)
    grid: dict[str, list[dict[str, list[Any]]]] = field(default_factory=dict)


@dataclass
class Config:
    """Everything a run is made of.

    ``monitors``: Lightning callbacks by name, each a ``_target_`` with its settings; what they note of an epoch is in
    its record. ``analysis``: a function of ``isobench.analyses`` that an experiment ends with, ``_target_`` and
    settings; unless ``trains``, its runs are not trained.
    """

    seed: int = 1
    scale: str = "embedded"
    seeds: Seeds = field(default_factory=Seeds)
    data: Data = field(default_factory=Data)
    task: Task = field(default_factory=Task)
    encoder: Encoder = field(default_factory=Encoder)
    calibration: dict[str, Any] = field(default_factory=dict)
    head: Head = field(default_factory=Head)
    optimization: Optimization = field(default_factory=Optimization)
    trainer: Trainer = field(default_factory=Trainer)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    tracking: Tracking = field(default_factory=Tracking)
    experiment: Experiment = field(default_factory=Experiment)
    monitors: dict[str, Any] = field(default_factory=dict)
    analysis: dict[str, Any] = field(default_factory=dict)
    output_dir: str = "outputs"
    retry_failed: bool = False
    dry_run: bool = False


def register_schema() -> None:
    """Put the schema where conf/config.yaml's defaults list finds it."""
    ConfigStore.instance().store(name="schema", node=Config)


def to_config(cfg: DictConfig) -> Config:
    """The typed config of a composed one, without Hydra's own node; interpolations resolved.

    Raises:
        omegaconf.errors.OmegaConfBaseException: an unknown key, a wrong type, a missing value.
    """
    plain = {str(key): value for key, value in cfg.items_ex(resolve=False) if key != "hydra"}
    merged = OmegaConf.merge(OmegaConf.structured(Config), plain)
    return OmegaConf.to_object(merged)  # type: ignore[return-value]


def config_from_plain(resolved: dict[str, Any]) -> Config:
    """The typed config of what ``asdict`` made of one: a record's, or a job's."""
    return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), resolved))  # type: ignore[return-value]


def split_chain(calibration: dict[str, Any]) -> list[dict[str, Any]]:
    """The methods of a ``calibration``, in order, each without its ``then``."""
    found, rest = [], calibration
    while rest:
        found.append({key: value for key, value in rest.items() if key != "then"})
        rest = rest.get("then") or {}
    return found


def format_method_name(calibration: dict[str, Any]) -> str:
    """What tables call a ``calibration``: its methods' names, joined."""
    return "+".join(str(part.get("name")) for part in split_chain(calibration))
