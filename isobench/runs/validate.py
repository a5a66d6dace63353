"""Check a config before anything is started; nothing heavy is needed for it.

A setting's own bound stands beside it in isobench/config. Here is what concerns several settings, whatever the kind
of the task; what a kind checks is in isobench/kinds.
"""

from typing import Annotated, Any

from isobench.common.errors import UserError, refuse
from isobench.config.bounds import NAME, check_value, check_values, read_hints
from isobench.config.schema import (
    HELD_OUT,
    LAST_EPOCH,
    Config,
    MethodSettings,
    check_architecture,
    split_chain,
)
from isobench.data import weights
from isobench.papers import published
from isobench.tasks.kind import kind_of

BASE_METHOD = "none"  # plain fine-tuning
PINNED = "{0}.revision must be set: a result from the hub can only be repeated at a pinned commit"


def validate_config(cfg: Config) -> None:
    """Raise UserError for the first value that can't work, naming the setting and what it may be."""
    check_value("", cfg, Config)
    _validate_evaluation(cfg)
    _validate_task(cfg)
    kind_of(cfg.task).check(cfg)
    _validate_encoder(cfg)
    _validate_head(cfg)
    _validate_calibration(cfg.calibration)
    for name in cfg.monitors:
        check_value("a monitor's name", name, Annotated[str, NAME])
    _validate_selection(cfg)
    published.check_tables_exist(cfg.experiment.paper, cfg.experiment.tables)


def _validate_evaluation(cfg: Config) -> None:
    every, optimization = cfg.evaluation.every, cfg.optimization
    compares = optimization.report == "best" or optimization.patience is not None
    remedy = "set optimization.report=last and optimization.patience=null"
    refuse((every == LAST_EPOCH and compares, f"evaluation.every=last scores one epoch: {remedy}"))
    bound = f"at most {optimization.epochs}, which is optimization.epochs, or last"
    refuse((every != LAST_EPOCH and every > optimization.epochs, f"evaluation.every={every} must be {bound}"))


def _validate_task(cfg: Config) -> None:
    task = cfg.task
    are_different = len({HELD_OUT, *task.read_splits}) == 1 + len(task.read_splits)
    own = "files of yours: 'data.files={train: FILE, validation: FILE}'"
    refuse(
        (not are_different, f"task.train_split, dev_splits and test_split must be different, and none {HELD_OUT}"),
        (not (task.primary or cfg.data.files), f"task={task.name} needs {own}"),
        (task.primary not in task.metrics, f"task.primary={task.primary} must be one of task.metrics"),
        (not task.embedded and not cfg.data.root and task.hub and not task.revision, PINNED.format("task")),
    )


def _validate_calibration(calibration: dict[str, Any]) -> None:
    prefix = "calibration"
    hints = read_hints(MethodSettings)
    for method in split_chain(calibration):
        missing = [key for key in ("_target_", *hints) if key not in method]
        if missing:
            raise UserError(f"{prefix}.{missing[0]} is missing: add it to the YAML, as in conf/calibration/none.yaml")
        refuse(
            (not isinstance(method.get("_target_"), str), f"{prefix}._target_ must name a class"),
            ("dim" in method, f"{prefix}.dim can't be set, because it is the encoder's width: leave it out"),
        )
        check_values(prefix, method, hints)
        prefix += ".then"


def _validate_selection(cfg: Config) -> None:
    """Raise UserError for a rule that could choose nothing: found here, it costs no training."""
    selection = cfg.experiment.selection
    lacks_other = (selection.rule == "seeds") != bool(selection.seeds)
    lacks_share = selection.rule == "held_out" and cfg.task.held_out is None
    refuse(
        (lacks_other, "experiment.selection: rule=seeds and seeds=[1,2] need each other"),
        (lacks_share, "experiment.selection.rule=held_out needs runs with task.held_out=0.1, or another share"),
    )


def _validate_encoder(cfg: Config) -> None:
    """Raise UserError for settings of the encoder that don't go together."""
    encoder, trains = cfg.encoder, not cfg.analysis or cfg.analysis.get("trains")
    is_own = encoder.embedded or encoder.scratch or encoder.path
    refuse(
        (
            cfg.checkpoint.export and (encoder.attention or encoder.normformer),
            "checkpoint.export: transformers has no models with encoder.attention or encoder.normformer",
        ),
        (
            encoder.word_vectors and trains,
            f"encoder={encoder.name} has one vector for each word and is not fine-tuned",
        ),
    )
    if encoder.word_vectors:
        return
    reads_layer = encoder.layer is not None and encoder.pooling == "pooler" and cfg.head.name == "isobn"
    refuse(
        (reads_layer, "encoder.layer: the pooler is made for the last layer; set encoder.pooling=cls, mean or last"),
        (
            encoder.missing_from and not encoder.path and (encoder.embedded or not encoder.hub),
            "encoder.missing_from is for encoders of the hub or of a folder (encoder.path): leave it out",
        ),
        (not is_own and encoder.hub and not encoder.revision, PINNED.format("encoder")),
        (not is_own and not encoder.hub, "encoder.path must be set to a transformers folder (or choose an encoder)"),
    )


def _validate_head(cfg: Config) -> None:
    """Raise UserError for settings that the head doesn't have, or an encoder that doesn't go with it."""
    head, encoder = cfg.head, cfg.encoder
    if head.name == "isobn":
        return
    if (model_type := weights.read_model_type(encoder)) is not None:
        check_architecture(model_type)
    refuse(
        (cfg.analysis and not cfg.analysis.get("trains"), "head=huggingface: this analysis trains no head"),
        (head.dropout is not None, f"head.dropout={head.dropout} is a setting of head=isobn"),
        (encoder.pooling != "pooler", f"encoder.pooling={encoder.pooling}: head=huggingface has its own"),
        (encoder.layer is not None, f"encoder.layer={encoder.layer}: head=huggingface has its own pooling"),
    )
