"""How long runs that are still to do will take, from runs of the same shape that are done."""

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from isobench.config.schema import Config, config_from_plain
from isobench.runs.layout import RECORD_FILE
from isobench.runs.row import Row

RunShape = tuple[Any, ...]


class Forecast:
    """Seconds of a run: the median of finished runs of its shape.

    Shape: task and how much of it, length limit, encoder, batch size, epochs, precision. Where no such run is
    done, runs that differ in batch size and epochs only, by the epoch.

    Args:
        rows: the sweep's runs; the records of the others in their output folder are read if these don't do.
    """

    def __init__(self, rows: list[Row]) -> None:
        self.seconds_by_shape: dict[RunShape, list[float]] = defaultdict(list)
        self.epoch_seconds_by_shape: dict[RunShape, list[float]] = defaultdict(list)
        for row in rows:
            if row.record is not None:
                self._add_record(row.cfg, row.record)
        if any(row.record is None and self.estimate_seconds(row.cfg) is None for row in rows):
            self._add_other_records(rows)

    def estimate_seconds(self, cfg: Config) -> float | None:
        """Of one device; None if nothing comparable is done."""
        if same := self.seconds_by_shape.get(build_run_shape(cfg)):
            return statistics.median(same)
        if alike := self.epoch_seconds_by_shape.get(build_epoch_shape(cfg)):
            return statistics.median(alike) * cfg.optimization.epochs
        return None

    def _add_record(self, cfg: Config, record: dict[str, Any]) -> None:
        if record["status"] == "finished":
            seconds = compute_device_seconds(record)
            self.seconds_by_shape[build_run_shape(cfg)].append(seconds)
            self.epoch_seconds_by_shape[build_epoch_shape(cfg)].append(seconds / cfg.optimization.epochs)

    def _add_other_records(self, rows: list[Row]) -> None:
        known = {row.folder.path.name for row in rows}
        for file in sorted(rows[0].folder.path.parent.glob(f"*/{RECORD_FILE}")):
            if file.parent.name not in known:
                self._add_record_file(file)

    def _add_record_file(self, file: Path) -> None:
        try:
            record = json.loads(file.read_text())
            self._add_record(config_from_plain(record["config"]), record)
        except Exception:  # another version's record, or a damaged one: nothing to learn from it
            return


def compute_device_seconds(record: dict[str, Any]) -> float:
    """A run's seconds, less where it shared its device with others."""
    return record["cost"]["seconds"] / (record.get("where") or {}).get("share", 1)


def build_epoch_shape(cfg: Config) -> RunShape:
    """What decides the time of an epoch, but for the batch size."""
    task = cfg.task
    return task.name, task.train_split, task.train_samples, task.max_length, cfg.encoder.name, cfg.trainer.precision


def build_run_shape(cfg: Config) -> RunShape:
    """What decides the time of a run."""
    return *build_epoch_shape(cfg), cfg.optimization.batch_size, cfg.optimization.epochs


def format_duration(seconds: float) -> str:
    """Device time for people: ``42 s``, ``3.1 min``, ``12.4 h``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
