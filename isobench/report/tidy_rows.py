"""Turn run records into tidy rows: one for each run, and one for each epoch of each run."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from isobench.common.files import sha256_json, shorten_digest
from isobench.report.document import TidyColumns, TidyRows
from isobench.runs.grouping import (
    PROTOCOL_SETTINGS,
    SOURCE_SETTINGS,
    find_varying_settings,
    list_setting_values,
    read_fingerprints,
    read_run_names,
    read_scale_differences,
)
from isobench.runs.row import Row, find_failure

Setting = TypeVar("Setting")
Value = TypeVar("Value")
NON_FRACTION_METRICS = ("loss",)  # metrics that are not fractions, so that they are not printed as percentages
# Settings that change how long a training step takes, apart from the calibration and what the scale says: two runs
# must share them so that their training times may be compared.
SPEED_SETTINGS = (
    "head.name", "task.max_length", "task.generation.max_length", "encoder.pooling", "encoder.layer",
    "encoder.gradient_checkpointing", "optimization.batch_size",
    "optimization.batch_tokens", "optimization.accumulate", "optimization.clip", "trainer.precision",
    "trainer.accelerator",
)  # fmt: skip


def build_run_rows(rows: list[Row], varying: list[str] | None = None) -> TidyRows:
    """Build a row for each run, ended or not: names, settings, score (x 100), metrics, isotropy, cost, provenance.

    ``varying``: what ``find_varying_settings`` finds in these runs, if that is known already.
    """
    identity, speed = make_identity_reader(rows, varying), SettingReader(SPEED_SETTINGS)
    return [
        {**read_identity(row, identity), **read_outcome(row), **read_origin(row), **speed.read(row)} for row in rows
    ]


def build_epoch_columns(rows: list[Row], varying: list[str] | None = None) -> TidyColumns:
    """Build columns of one value for each evaluated epoch of each run: names and settings, score (x 100), isotropy.

    A measure of isotropy that an epoch lacks is NaN. ``varying``: as for ``build_run_rows``.
    """
    reader = make_identity_reader(rows, varying)
    histories = [
        (read_identity(row, reader), row.record.history) for row in rows if row.record and row.record.history
    ]
    if not histories:
        return {}
    identities = [identity for identity, history in histories for _ in history]
    columns: TidyColumns = {name: [own[name] for own in identities] for name in identities[0]}
    epochs = [(e.epoch, e.step, to_percent(e.score), e.isotropy) for _, history in histories for e in history]
    columns["epoch"], columns["step"], columns["score"], isotropies = map(list, zip(*epochs, strict=True))
    measures = list(dict.fromkeys(chain.from_iterable(isotropies)))
    # One pass over the epochs instead of one for each measure: their values lie far apart in memory.
    values = np.array([[own.get(name) for name in measures] for own in isotropies], dtype=np.float64)
    return columns | dict(zip(measures, values.T, strict=True))


class SettingReader:
    """Read the same settings of many runs, whose configs' sections are often the same objects: each is read once.

    Args:
        names: dotted names of the settings.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(dict.fromkeys(names))
        self.sections = list(dict.fromkeys(name.partition(".")[0] for name in self.names))
        self.read_before: dict[tuple[int, ...], tuple[Row, dict[str, str]]] = {}

    def read(self, row: Row) -> dict[str, str]:
        """Return the values of the settings by name, a dash for one that the run lacks; don't change them."""
        parts = (*(getattr(row.cfg, name) for name in self.sections), *read_fingerprints(row), row.cfg.data)
        ids = tuple(map(id, parts))
        if ids not in self.read_before:
            values = dict(zip(self.names, list_setting_values(row, self.names), strict=True))
            self.read_before[ids] = row, values  # the row is kept, so that no other object gets these ids
        return self.read_before[ids][1]


def make_identity_reader(rows: list[Row], varying: list[str] | None) -> SettingReader:
    """Make the reader of the protocol and of the settings that vary among the runs, for ``read_identity``."""
    return SettingReader([*PROTOCOL_SETTINGS, *(find_varying_settings(rows) if varying is None else varying)])


def read_identity(row: Row, settings: SettingReader) -> dict[str, Any]:
    """Return what tells a run from the others: names, protocol, varying settings, seed."""
    cfg = row.cfg
    task, encoder, method = read_run_names(cfg)
    names = {"key": row.folder.path.name, "task": task, "encoder": encoder, "method": method}
    return {**names, "seed": cfg.seed, **settings.read(row)}


def read_compared_setting(run: dict[str, Any]) -> tuple[str, ...]:
    """Return what the run of a tidy row shares with the runs that it may be compared with.

    Returns:
        Its encoder, task, scale, values of ``PROTOCOL_SETTINGS``, and of ``SOURCE_SETTINGS`` where these vary.
    """
    sources = (run.get(name, "-") for name in SOURCE_SETTINGS)
    return (*(run[name] for name in ("encoder", "task", "scale", *PROTOCOL_SETTINGS)), *sources)


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
