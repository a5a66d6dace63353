"""One run of a sweep: its config, its folder, its record."""

from collections import Counter
from dataclasses import dataclass
from typing import Self

from isobench.common.errors import UserError
from isobench.config.schema import Config, format_method_name
from isobench.data.weights import format_encoder_name
from isobench.runs.folder import RunFolder
from isobench.runs.identity import Identity
from isobench.runs.record import RunRecord


@dataclass
class Row:
    """One run: its config, its folder and its record (None until it has ended; ``state`` says why).

    The record lacks the notes of past epochs, which no table shows (`RunRecord.drop_notes_of_history`).
    """

    cfg: Config
    folder: RunFolder
    record: RunRecord | None
    state: str = "missing"  # isobench.runs.state.add_states returns rows that have it
    trouble: str | None = None  # why its record can't be trusted
    identity: Identity | None = None  # tells apart runs on other data, and with other weights; None if not computed

    @classmethod
    def of(cls, cfg: Config, key: str, identity: Identity | None = None) -> Self:
        """Make the row of the run with this key, and read its record."""
        row = cls(cfg, RunFolder(cfg.output_dir, key), None, identity=identity)
        row.read_record()
        return row

    def read_record(self) -> None:
        """Read the record, or note in ``trouble`` why it can't be read."""
        try:
            self.record, self.trouble = self.folder.read_record(), None
            if self.record is not None:
                self.record.drop_notes_of_history()
        except UserError as error:
            self.record, self.trouble = None, str(error)


def find_failure(row: Row) -> str | None:
    """Return the name of what went wrong in a run; None if nothing did, or the run has not ended."""
    if row.record is None:
        return None
    if row.record.failure:
        return row.record.failure.name
    if row.record.best is None:
        return "no_result"
    metrics = row.record.best.metrics(row.cfg.task.dev_splits[0])
    return "constant_predictor" if metrics["constant_predictor"] else None


def count_troubles(rows: list[Row]) -> Counter[str]:
    """Count runs by what went wrong in them, and runs that have not ended by their state."""
    return Counter(find_failure(row) or row.state for row in rows if find_failure(row) or row.record is None)


def are_constant_predictors(rows: list[Row]) -> bool:
    """Return True if there are runs, and each of them predicts the same for every example."""
    return bool(rows) and all(find_failure(row) == "constant_predictor" for row in rows)


def format_score(row: Row) -> str:
    """Return a run's score x 100 with the name of what went wrong, or the state of a run that has not ended."""
    if row.record is None:
        return row.state
    score = ""
    if best := row.record.best:
        undefined = best.metrics(row.cfg.task.dev_splits[0]).get(row.cfg.task.primary) is None
        score = "NaN" if undefined else f"{100 * best.score:.2f}"
    return f"{score} {find_failure(row) or ''}".strip()


def format_run_name(cfg: Config) -> str:
    """Name a run in one line: task, encoder, method and seed."""
    encoder = format_encoder_name(cfg.encoder)
    return f"{cfg.task.name} {encoder} {format_method_name(cfg.calibration)} seed {cfg.seed}"
