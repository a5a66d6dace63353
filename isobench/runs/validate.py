"""Checks of a config's values that need nothing heavy; everything is checked before anything is started."""

import math
import re
from typing import Any

from isobench.common.errors import UserError, suggest_nearest
from isobench.config.schema import CALIBRATION_KEYS, POOLINGS, Config, Generation, Head, Task, split_chain
from isobench.data import generated_pairs, romanian
from isobench.papers import published

CLASS_METRICS = ("accuracy", "f1", "accuracy_f1", "matthews")
REGRESSION_METRICS = ("pearson", "spearman", "pearson_spearman")
TEXT_METRICS = ("bleu", "chrf", "rouge1", "rouge2", "rougeL")
METRIC_NAMES = CLASS_METRICS + REGRESSION_METRICS + TEXT_METRICS
DRIFT_MONITOR = "isobench.analyses.drift.ClassifierDrift"  # a name, for importing it takes seconds
MIN_VOCABULARY_SIZE = 300  # tokens: all bytes, and special ones


def validate_config(cfg: Config) -> None:
    """Raise UserError, naming the setting and what it may be, for the first value that can't work."""
    o, t = cfg.optimization, cfg.trainer
    _check_above("optimization.lr", o.lr, 0)
    _check_at_least("optimization.batch_size", o.batch_size, 1)
    _check_at_least("optimization.epochs", o.epochs, 1)
    _check_at_least("optimization.accumulate", o.accumulate, 1)
    _check_one_of("optimization.schedule", o.schedule, ("linear", "polynomial", "constant"))
    _check_above("optimization.power", o.power, 0)
    if o.schedule != "polynomial" and (o.power is not None or o.end_lr is not None):
        raise UserError("optimization.power and end_lr are for optimization.schedule=polynomial: unset them")
    _check_at_least("optimization.end_lr", o.end_lr, 0)
    _check_at_most("optimization.end_lr", o.end_lr, o.lr)
    _check_one_of("optimization.report", o.report, ("best", "last"))
    _check_at_least("optimization.weight_decay", o.weight_decay, 0)
    _check_at_least("optimization.patience", o.patience, 1)
    _check_above("optimization.eps", o.eps, 0)
    _check_above("optimization.clip", o.clip, 0)
    _check_fraction("optimization.warmup", o.warmup)
    _check_fraction("head.dropout", cfg.head.dropout)
    _check_one_of("head.init", cfg.head.init, ("uniform", "normal"))
    _check_one_of("trainer.precision", t.precision, ("32-true", "bf16-mixed", "16-mixed"))
    _check_one_of("trainer.accelerator", t.accelerator, ("auto", "cpu", "gpu", "mps"))
    _check_at_least("trainer.threads", t.threads, 1)
    _check_at_most("trainer.threads", t.threads, 4096)
    for stream in ("init", "order", "dropout"):
        _check_at_least(f"seeds.{stream}", getattr(cfg.seeds, stream), 0)
        _check_at_most(f"seeds.{stream}", getattr(cfg.seeds, stream), 2**32 - 1)
    _check_at_least("trainer.chunk_overhead", t.chunk_overhead, 0)
    _check_at_least("trainer.eval_batch_size", t.eval_batch_size, 1)
    _check_above("checkpoint.minutes", cfg.checkpoint.minutes, 0)
    _check_at_least("checkpoint.steps", cfg.checkpoint.steps, 1)
    _check_one_of("tracking.backend", cfg.tracking.backend, ("wandb", "none"))
    _check_one_of("tracking.mode", cfg.tracking.mode or "offline", ("online", "offline", "disabled"))
    if not cfg.output_dir.strip():
        raise UserError("output_dir is empty: name a folder")
    _check_one_of("scale", cfg.scale, ("embedded", "paper"))
    _validate_task(cfg)
    _validate_metrics(cfg.task)
    _validate_encoder(cfg)
    if cfg.task.generation:
        _validate_generation(cfg, cfg.task.generation)
    else:
        _validate_no_generation(cfg)
    _validate_calibration(cfg.calibration)
    _validate_monitors(cfg)
    _validate_experiment_name(cfg.experiment.name)
    published.check_tables_exist(cfg.experiment)


def _validate_task(cfg: Config) -> None:
    task = cfg.task
    _check_at_least("task.max_length", task.max_length, 4)
    _check_at_least("task.train_samples", task.train_samples, 1)
    _check_fraction("task.held_out", task.held_out)
    _check_at_least("task.dev_samples", task.dev_samples, 1)
    _check_at_least("task.as_classes", task.as_classes, 2)
    if not task.dev_splits:
        raise UserError("task.dev_splits names no split")
    if len({task.train_split, *task.dev_splits}) <= len(task.dev_splits):
        raise UserError("task.train_split and task.dev_splits must all be different")
    if task.label_range is not None and not (
        len(task.label_range) == 2 and task.label_range[0] < task.label_range[1]
    ):
        raise UserError("task.label_range must be [lowest, highest]")
    if not 1 <= len(task.text) <= 2:
        raise UserError(f"task.text must name one or two columns, not {len(task.text)}")
    if task.as_classes is not None and task.labels is not None:
        raise UserError(f"task.as_classes is for a regression such as stsb; task={task.name} has classes already")
    if not task.embedded and not cfg.data.root:
        _check_pinned("task", task.hub, task.revision)


def _validate_generation(cfg: Config, generation: Generation) -> None:
    task, name = cfg.task, "task.generation"
    _check_at_least(f"{name}.max_length", generation.max_length, 2)
    _check_at_least(f"{name}.min_length", generation.min_length, 0)
    _check_at_most(f"{name}.min_length", generation.min_length, generation.max_length)
    _check_at_least(f"{name}.beams", generation.beams, 1)
    _check_at_least(f"{name}.no_repeat_ngram", generation.no_repeat_ngram, 0)
    if not math.isfinite(generation.length_penalty):
        raise UserError(f"{name}.length_penalty={generation.length_penalty} must be a number")
    _check_one_of(f"{name}.diacritics", generation.diacritics, romanian.DIACRITIC_CHOICES)
    _check_one_of(f"{name}.precision", generation.precision, ("auto", "32", "bf16"))
    _check_at_least("optimization.batch_tokens", cfg.optimization.batch_tokens, 1)
    _check_at_least("task.reduced", task.reduced, 1)
    _check_fraction("optimization.label_smoothing", cfg.optimization.label_smoothing)
    _check_at_least("encoder.vocabulary_size", cfg.encoder.vocabulary_size, MIN_VOCABULARY_SIZE)
    if generation.grammar is not None:
        _check_one_of(f"{name}.grammar", generation.grammar, generated_pairs.GRAMMARS)
    elif not cfg.data.root and not task.hub:
        raise UserError(
            f"task={task.name} needs its files: data.root=FOLDER, with FOLDER/{task.folder} (see its YAML)"
        )
    if len(task.text) != 1 or task.labels is not None or task.label_range is not None:
        raise UserError("task.text must name one column, and task.labels none, where task.generation has the target")
    if len(generation.languages or ["", ""]) != 2:
        raise UserError(f"{name}.languages must be those of source and target, such as [en,ro]")
    for setting, value in (
        ("task.held_out", task.held_out),
        ("encoder.layer", cfg.encoder.layer),
        ("encoder.compile", cfg.encoder.compile or None),
    ):
        if value is not None:
            raise UserError(
                f"{setting} is for sentence classification, not for translation and summarisation: unset it"
            )
    if cfg.head != Head():
        raise UserError(
            "head is for sentence classification, not for translation and summarisation: leave it as it is"
        )
    if cfg.optimization.drop_last and cfg.optimization.batch_tokens is not None:
        raise UserError("optimization.drop_last needs batches of one size: unset it, or optimization.batch_tokens")
    if cfg.analysis:
        raise UserError(
            f"analyses are of sentences, and task={task.name} is translation or summarisation: choose another"
        )


def _validate_no_generation(cfg: Config) -> None:
    settings = {
        "optimization.batch_tokens": cfg.optimization.batch_tokens,
        "optimization.label_smoothing": cfg.optimization.label_smoothing,
        "encoder.scratch": cfg.encoder.scratch,
        "encoder.instructions": cfg.encoder.instructions,
        "task.reduced": cfg.task.reduced,
    }
    for setting, value in settings.items():
        if value is not None:
            raise UserError(f"{setting} is for translation and summarisation, and task={cfg.task.name} is neither")


def _validate_metrics(task: Task) -> None:
    for name in task.metrics:
        _check_one_of("task.metrics", name, METRIC_NAMES)
    suited: tuple[str, ...] = REGRESSION_METRICS if task.labels is None else CLASS_METRICS
    if task.as_classes is not None:  # classes that are numbers, so that they correlate too
        suited = (*REGRESSION_METRICS, "accuracy", "matthews")
    elif len(task.labels or []) != 2:
        suited = tuple(name for name in suited if "f1" not in name)
    if task.generation:
        suited = TEXT_METRICS
    for name in task.metrics:
        if name not in suited:
            raise UserError(f"task.metrics: {name} doesn't suit this task; it takes {', '.join(suited)}")
    if task.primary not in task.metrics:
        raise UserError(
            f"task.primary={task.primary} must be one of task.metrics ({', '.join(task.metrics) or 'none'})"
        )


def _validate_encoder(cfg: Config) -> None:
    encoder = cfg.encoder
    _check_one_of("encoder.pooling", encoder.pooling, POOLINGS)
    _check_at_least("encoder.layer", encoder.layer, 0)
    if encoder.layer is not None and encoder.pooling == "pooler":
        raise UserError("encoder.layer: the pooler is made for the last layer; set encoder.pooling=cls, mean or last")
    if not (encoder.path or encoder.embedded or encoder.scratch):
        _check_pinned("encoder", encoder.hub, encoder.revision)
    if not (encoder.hub or encoder.embedded or encoder.path or encoder.scratch):
        raise UserError(
            "encoder.path must be set to a transformers folder, or choose another encoder: encoder=minilm"
        )


def _check_pinned(name: str, hub: str | None, revision: str | None) -> None:
    if hub and not revision:
        raise UserError(f"{name}.revision must be set: a result from the hub can only be repeated at a pinned commit")


def _validate_calibration(calibration: dict[str, Any]) -> None:
    if not calibration:
        raise UserError("calibration is empty: choose a method, or calibration=none")
    prefix = "calibration"
    for part in split_chain(calibration):
        for key in ("_target_", *CALIBRATION_KEYS):
            if key not in part:
                raise UserError(f"{prefix}.{key} is missing; see conf/calibration/none.yaml")
        if "dim" in part:
            raise UserError(f"{prefix}.dim can't be set: it is the encoder's width")
        _check_one_of(f"{prefix}.placement", part["placement"], ("before_pooler", "after_pooler"))
        _check_one_of(f"{prefix}.target", part["target"], ("head", "vocabulary"))
        prefix += ".then"


def _validate_monitors(cfg: Config) -> None:
    regression = cfg.task.labels is None and cfg.task.as_classes is None  # or texts
    for name, settings in cfg.monitors.items():
        if regression and isinstance(settings, dict) and settings.get("_target_") == DRIFT_MONITOR:
            why = f"compares with a logistic regression and task={cfg.task.name} has no classes"
            raise UserError(f"monitors.{name} {why}: choose a task with classes, or set task.as_classes")


def _validate_experiment_name(name: str | None) -> None:
    if name is not None and not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", name):
        raise UserError(
            f"experiment.name={name} names a folder: letters, digits, _, - and . only, no . to begin with"
        )


def _check_at_least(name: str, value: float | None, least: float) -> None:
    if value is not None and not value >= least:
        raise UserError(f"{name}={value} must be at least {least}")


def _check_at_most(name: str, value: float | None, most: float) -> None:
    if value is not None and not value <= most:
        raise UserError(f"{name}={value} must be at most {most}")


def _check_above(name: str, value: float | None, bound: float) -> None:
    if value is not None and not bound < value < float("inf"):
        raise UserError(f"{name}={value} must be a number above {bound}")


def _check_fraction(name: str, value: float | None) -> None:
    if value is not None and not 0 <= value < 1:
        raise UserError(f"{name}={value} must be in [0, 1)")


def _check_one_of(name: str, value: str, choices: tuple[str, ...] | list[str]) -> None:
    if value not in choices:
        raise UserError(f"{name}={value} is not known: {suggest_nearest(str(value), choices)}")
