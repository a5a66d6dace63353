"""Forecast how long runs will take, from finished runs of the same shape."""

import contextlib
import statistics
from collections import defaultdict
from typing import Any

from isobench.common.errors import UserError
from isobench.config.schema import Config
from isobench.runs.plan import list_run_folders, read_stored_run
from isobench.runs.record import RunRecord
from isobench.runs.run import Run

RunShape = tuple[Any, ...]


class Forecast:
    """Forecasts a run's seconds as the median of the finished runs of its shape.

    The shape is the task and how much of it is used, the length limit, the encoder, the precision, how often it is
    evaluated, the batch size and the number of epochs. Where no such run has finished, runs that differ in batch size
    and epochs only give the seconds of an epoch.

    Args:
        rows: the sweep's runs. If their records don't give a forecast for all of them, the records of other runs in
            the output folder are read too.
    """

    def __init__(self, rows: list[Run]) -> None:
        self.seconds_by_shape: dict[RunShape, list[float]] = defaultdict(list)
        self.epoch_seconds_by_shape: dict[RunShape, list[float]] = defaultdict(list)
        for row in rows:
            if row.record is not None:
                self._add_record(row.cfg, row.record)
        if any(row.record is None and self.estimate_seconds(row.cfg) is None for row in rows):
            self._add_other_records(rows)

    def estimate_seconds(self, cfg: Config) -> float | None:
        """Estimate a run's seconds on one device; None if no comparable run has finished."""
        if same := self.seconds_by_shape.get(build_run_shape(cfg)):
            return statistics.median(same)
        if per_epoch := self.epoch_seconds_by_shape.get(build_epoch_shape(cfg)):
            return statistics.median(per_epoch) * cfg.optimization.epochs
        return None

    def _add_record(self, cfg: Config, record: RunRecord) -> None:
        if record.status == "finished":
            seconds = compute_device_seconds(record)
            self.seconds_by_shape[build_run_shape(cfg)].append(seconds)
            self.epoch_seconds_by_shape[build_epoch_shape(cfg)].append(seconds / cfg.optimization.epochs)

    def _add_other_records(self, rows: list[Run]) -> None:
        own = {row.folder.path.name for row in rows}
        output_dir = rows[0].cfg.output_dir
        for folder in list_run_folders(output_dir):
            if folder.name not in own:
                with contextlib.suppress(UserError):  # a damaged record gives no forecast
                    row = read_stored_run(output_dir, folder)
                    if row.record is not None:
                        self._add_record(row.cfg, row.record)


def compute_device_seconds(record: RunRecord) -> float:
    """Return a run's seconds divided by the number of runs that shared its device."""
    return record.cost.seconds / record.where.share


def build_epoch_shape(cfg: Config) -> RunShape:
    """Return the settings that decide the time of an epoch, except the batch size."""
    task = cfg.task
    data = task.name, task.train_split, task.train_samples, task.max_length
    return *data, cfg.encoder.name, cfg.trainer.precision, cfg.evaluation.every


def build_run_shape(cfg: Config) -> RunShape:
    """Return the settings that decide the time of a run."""
    return *build_epoch_shape(cfg), cfg.optimization.batch_size, cfg.optimization.epochs


def format_duration(seconds: float) -> str:
    """Format a duration for people: ``42 s``, ``3.1 min``, ``12.4 h``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
