"""Turn run records into tidy rows: one for each run, and one for each epoch of each run."""

from collections.abc import Mapping
from typing import Any, TypeVar

from isobench.common.files import sha256_json, shorten_digest
from isobench.config.schema import format_method_name
from isobench.report.document import TidyRows
from isobench.runs.grouping import (
    PROTOCOL_SETTINGS,
    find_varying_settings,
    list_setting_values,
    read_scale_differences,
)
from isobench.runs.row import Row, find_failure

Setting = TypeVar("Setting")
Value = TypeVar("Value")
NON_FRACTION_METRICS = ("loss",)  # metrics that are not fractions, so that they are not printed as percentages
# Settings that change how long a training step takes, apart from the calibration and what the scale says.
SPEED_SETTINGS = (
    "head.name", "task.max_length", "task.generation.max_length", "encoder.pooling", "encoder.layer",
    "encoder.first_token_only", "encoder.gradient_checkpointing", "encoder.compile", "optimization.batch_size",
    "optimization.batch_tokens", "optimization.accumulate", "optimization.clip", "trainer.precision",
    "trainer.accelerator", "trainer.chunk_overhead",
)  # fmt: skip


def build_run_rows(rows: list[Row]) -> TidyRows:
    """Build a row for each run, ended or not: names, settings, score (x 100), metrics, isotropy, cost, provenance."""
    varying = find_varying_settings(rows)
    return [
        {**read_identity(row, varying), **read_outcome(row), **read_origin(row), **read_speed_settings(row)}
        for row in rows
    ]


def build_epoch_rows(rows: list[Row]) -> TidyRows:
    """Build a row for each evaluated epoch of each run: names and settings, score (x 100), isotropy."""
    varying = find_varying_settings(rows)
    return [
        {
            **identity,
            "epoch": epoch.epoch,
            "step": epoch.step,
            "score": to_percent(epoch.score),
            **epoch.isotropy,
        }
        for row in rows
        if row.record
        for identity in [read_identity(row, varying)]
        for epoch in row.record.history
    ]


def read_identity(row: Row, varying: list[str]) -> dict[str, Any]:
    """Return what tells a run from the others: names, protocol, varying settings, seed."""
    cfg = row.cfg
    names = {"key": row.folder.path.name, "task": cfg.task.name, "encoder": cfg.encoder.name}
    names |= {"method": format_method_name(cfg.calibration), "seed": str(cfg.seed)}
    settings = list(dict.fromkeys((*PROTOCOL_SETTINGS, *varying)))
    return {**names, **dict(zip(settings, list_setting_values(cfg, settings), strict=True)), "seed": cfg.seed}


def read_compared_setting(run: dict[str, Any]) -> tuple[str, ...]:
    """Return what the run of a tidy row shares with the runs that it may be compared with.

    Returns:
        Its encoder, task, scale, and values of ``PROTOCOL_SETTINGS``.
    """
    return tuple(run[name] for name in ("encoder", "task", "scale", *PROTOCOL_SETTINGS))


def pair_methods(
    by_setting: Mapping[Setting, Mapping[str, Value]], method: str, other: str
) -> dict[Setting, tuple[Value, Value]]:
    """Pair what two methods have in each compared setting; settings that lack one of them are left out."""
    return {
        setting: (values[method], values[other])
        for setting, values in by_setting.items()
        if method in values and other in values
    }


def read_outcome(row: Row) -> dict[str, Any]:
    """Return status, cost, and the reported epoch's score, metrics and isotropy; None for what a run lacks."""
    record = row.record
    outcome: dict[str, Any] = {"status": record.status if record else row.state, "failure": find_failure(row)}
    best = record.best if record else None
    outcome |= {"metric": row.cfg.task.primary, "score": to_percent(best.score) if best else None}
    if record is None:
        return outcome
    if best:
        splits = {split: best.metrics(split) for split in row.cfg.task.evaluated}
        outcome |= {"epoch": best.epoch}
        outcome |= {
            f"{s}/{m}": scale_metric(m, v) for s, scores in splits.items() for m, v in scores.items() if is_score(v)
        }
        outcome |= best.isotropy
    cost = record.cost
    return {
        **outcome,
        "epochs": record.history[-1].epoch if record.history else 0,
        "seconds": cost.seconds,
        "training_seconds": cost.training_seconds,
        "evaluation_seconds": cost.evaluation_seconds,
        "examples": cost.examples,
        "tokens_per_second": cost.tokens_per_second,
        "peak_memory_mib": cost.peak_memory_mib.resident,
        "peak_gpu_memory_mib": cost.peak_memory_mib.gpu,
        "attempts": record.attempts,
        "share": record.where.share,
    }


def read_origin(row: Row) -> dict[str, Any]:
    """Return where a run comes from: scale, data, weights, code, machine; None for what is not recorded."""
    record = row.record
    provenance = record.provenance if record else None
    git = provenance.git if provenance else None
    return {
        "scale": "; ".join(read_scale_differences(row)),
        "data": shorten_fingerprint(record.data.fingerprint) if record else None,
        "weights": shorten_fingerprint(record.encoder.fingerprint) if record else None,
        "commit": git.commit if git else None,
        "code_changed": git.dirty if git else None,
        "python": provenance.python if provenance else None,
        "torch": provenance.versions.get("torch") if provenance else None,
        "machine": (", ".join(provenance.gpus) or provenance.cpu) if provenance else None,
        "threads": provenance.threads if provenance else None,
    }


def read_speed_settings(row: Row) -> dict[str, str]:
    """Return the settings that two runs must share so that their training times may be compared."""
    return dict(zip(SPEED_SETTINGS, list_setting_values(row.cfg, SPEED_SETTINGS), strict=True))


def shorten_fingerprint(hashes: dict[str, str]) -> str | None:
    """Shorten a set of hashes to one digest of sixteen digits; None if there are none."""
    return shorten_digest(sha256_json(hashes)) if hashes else None


def scale_metric(metric: str, value: Any) -> float | None:
    """Return a metric x 100, or unchanged if it is not a fraction, such as a loss."""
    return value if metric in NON_FRACTION_METRICS else to_percent(value)


def to_percent(value: Any) -> float | None:
    """Return a score x 100; None if there is none."""
    return None if value is None else 100 * float(value)


def is_score(value: Any) -> bool:
    """Return True if a value is a metric: a number, or None for an undefined one; truth values are not metrics."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
