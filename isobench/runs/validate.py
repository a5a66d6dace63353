"""Check a config before anything is started; nothing heavy is needed for it.

A setting's own bound stands beside it in isobench/config. Here is what concerns several settings, whatever the kind
of the task; what a kind checks is in isobench/kinds.
"""

from typing import Annotated, Any

from isobench.common.errors import UserError
from isobench.config.bounds import NAME, check_value, check_values, read_hints
from isobench.config.schema import (
    HELD_OUT,
    LAST_EPOCH,
    Config,
    MethodSettings,
    check_architecture,
    format_method_name,
    split_chain,
)
from isobench.data import weights
from isobench.kinds.base import kind_of
from isobench.papers import published

BASE_METHOD = "none"  # plain fine-tuning


def validate_config(cfg: Config) -> None:
    """Raise UserError for the first value that can't work, naming the setting and what it may be."""
    check_value("", cfg, Config)
    _validate_evaluation(cfg)
    _validate_task(cfg)
    kind_of(cfg.task).check(cfg)
    _validate_encoder(cfg)
    _validate_head(cfg)
    _validate_calibration(cfg.calibration)
    _validate_monitors(cfg)
    _validate_selection(cfg)
    published.check_tables_exist(cfg.experiment.paper, cfg.experiment.tables)


def _validate_evaluation(cfg: Config) -> None:
    every, optimization = cfg.evaluation.every, cfg.optimization
    why = "compares epochs, and evaluation.every=last scores only one: set evaluation.every=1, or optimization"
    if every == LAST_EPOCH and optimization.report == "best":
        raise UserError(f"optimization.report=best {why}.report=last")
    if every == LAST_EPOCH and optimization.patience is not None:
        raise UserError(f"optimization.patience={optimization.patience} {why}.patience=null")
    if every != LAST_EPOCH and every > optimization.epochs:
        most = f"at most {optimization.epochs}, which is optimization.epochs, or {LAST_EPOCH}"
        raise UserError(f"evaluation.every={every} must be {most}")


def _validate_task(cfg: Config) -> None:
    task = cfg.task
    if len(set(task.read_splits)) < len(task.read_splits):
        raise UserError("task.train_split, task.dev_splits and task.test_split must all be different")
    if HELD_OUT in task.read_splits:
        raise UserError(f"no split can be called {HELD_OUT}: task.held_out names its examples so")
    if task.primary not in task.metrics:
        raise UserError(
            f"task.primary={task.primary} must be one of task.metrics ({', '.join(task.metrics) or 'none'})"
        )
    if not task.embedded and not cfg.data.root:
        _check_pinned("task", task.hub, task.revision)


def _validate_calibration(calibration: dict[str, Any]) -> None:
    if not calibration:
        raise UserError("calibration is empty: choose a method, or calibration=none")
    methods = split_chain(calibration)
    if len(methods) > 1 and any(method.get("name") == BASE_METHOD for method in methods):
        raise UserError(
            f"calibration={format_method_name(calibration)}: {BASE_METHOD} does nothing in a chain: leave it out, or "
            "compare several methods with -m calibration=A,B"
        )
    prefix = "calibration"
    hints = read_hints(MethodSettings)
    for method in methods:
        for key in ("_target_", *hints):
            if key not in method:
                raise UserError(f"{prefix}.{key} is missing: add it to the YAML, as in conf/calibration/none.yaml")
        if not isinstance(method["_target_"], str):
            raise UserError(f"{prefix}._target_={method['_target_']} must name a class, such as mine.Method")
        if "dim" in method:
            raise UserError(f"{prefix}.dim can't be set, because it is the encoder's width: leave it out")
        check_values(prefix, method, hints)
        prefix += ".then"


def _validate_selection(cfg: Config) -> None:
    """Raise UserError for a rule that could choose nothing: found here, it costs no training."""
    selection = cfg.experiment.selection
    if selection.rule == "seeds" and not selection.seeds:
        raise UserError(
            "experiment.selection.rule=seeds needs the seeds to select by: experiment.selection.seeds=[1,2]"
        )
    if selection.seeds and selection.rule != "seeds":
        raise UserError("experiment.selection.seeds need experiment.selection.rule=seeds: set it, or leave them out")
    if selection.rule == "held_out" and cfg.task.held_out is None:
        raise UserError("experiment.selection.rule=held_out needs runs with task.held_out=0.1, or another share")


def _validate_monitors(cfg: Config) -> None:
    for name, settings in cfg.monitors.items():
        check_value("a monitor's name", name, Annotated[str, NAME])
        if not isinstance(settings, dict) or not isinstance(settings.get("_target_"), str):
            raise UserError(f"monitors.{name} must name a callback: +monitors.{name}._target_=MODULE.CLASS")


def _validate_encoder(cfg: Config) -> None:
    """Raise UserError for settings of the encoder that don't go together, or a folder without a tokenizer."""
    encoder = cfg.encoder
    if cfg.checkpoint.export and (encoder.attention or encoder.normformer):
        raise UserError(
            "checkpoint.export: transformers has no models with encoder.attention or encoder.normformer: leave it out"
        )
    if encoder.word_vectors:
        if not cfg.analysis or cfg.analysis.get("trains"):
            raise UserError(
                f"encoder={encoder.name} has one vector for each word and is not fine-tuned: choose another, such as "
                "encoder=minilm, or an analysis, such as +experiment=common_wordsim"
            )
        return
    if encoder.layer is not None and encoder.pooling == "pooler" and cfg.head.name == "isobn":
        raise UserError("encoder.layer: the pooler is made for the last layer; set encoder.pooling=cls, mean or last")
    if encoder.missing_from and not encoder.path and (encoder.embedded or not encoder.hub):
        raise UserError("encoder.missing_from is for encoders of the hub or of a folder (encoder.path): leave it out")
    if not (encoder.path or encoder.embedded or encoder.scratch):
        _check_pinned("encoder", encoder.hub, encoder.revision)
    if not cfg.analysis:  # an analysis of the embedding matrix needs no tokenizer
        weights.check_tokenizer_files(encoder)
    if not (encoder.hub or encoder.embedded or encoder.path or encoder.scratch):
        raise UserError(
            "encoder.path must be set to a transformers folder, or choose another encoder: encoder=minilm"
        )


def _validate_head(cfg: Config) -> None:
    """Raise UserError for settings that the head doesn't have, or an encoder that doesn't go with it."""
    head, encoder = cfg.head, cfg.encoder
    if head.name == "isobn":
        return
    if cfg.analysis and not cfg.analysis.get("trains"):
        raise UserError("head=huggingface: this analysis trains no head: choose head=isobn")
    if head.dropout is not None:
        raise UserError(f"head.dropout={head.dropout} is a setting of head=isobn: choose head=isobn, or leave it out")
    if (model_type := weights.read_model_type(encoder)) is not None:
        check_architecture(model_type)
    for setting, default in (("pooling", "pooler"), ("layer", None)):
        value = getattr(encoder, setting)
        if value != default:
            raise UserError(
                f"encoder.{setting}={value} doesn't go with head=huggingface, which has its own pooling: choose "
                f"head=isobn, or set encoder.{setting}={default or 'null'}"
            )


def _check_pinned(name: str, hub: str | None, revision: str | None) -> None:
    if hub and not revision:
        raise UserError(f"{name}.revision must be set: a result from the hub can only be repeated at a pinned commit")
