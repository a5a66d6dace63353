"""One run of a sweep: its config, its folder, its record."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from isobench.common.errors import UserError, extract_first_line
from isobench.common.terminal import format_count, print_note
from isobench.config.command_line import Override
from isobench.config.schema import Config, format_method_name
from isobench.data.weights import format_encoder_name
from isobench.runs.folder import RunFolder, is_intact
from isobench.runs.identity import Identity
from isobench.runs.record import Beat, RunRecord, name_remedy

MAX_NAMED_TROUBLES = 20
NOT_IDENTIFIED = Identity("", {}, {})  # of a run that is compared with no other


@dataclass
class Run:
    """One run: its config, its folder and its record (None until it has ended; ``state`` says why).

    The record lacks past epochs' metrics and curves, which no table shows (`RunRecord.drop_notes_of_history`).
    """

    cfg: Config
    folder: RunFolder
    record: RunRecord | None
    state: str = "missing"  # this and its last heartbeat: isobench.runs.state.add_states
    beat: Beat | None = None
    trouble: str | None = None  # why its record can't be trusted
    identity: Identity = NOT_IDENTIFIED  # tells apart runs on other data, and with other weights
    overrides: Sequence[Override] = ()  # of a planned sweep: what gives its config
    left_out: Sequence[str] = ()  # and the sweep's settings that its method lacks

    @classmethod
    def of(cls, cfg: Config, key: str, identity: Identity = NOT_IDENTIFIED) -> Self:
        run = cls(cfg, RunFolder(cfg.output_dir, key), None, identity=identity)
        run.read_record()
        return run

    @property
    def was_killed(self) -> bool:
        """True if the run's process died without saving: by SIGKILL, for lack of memory, in a power cut."""
        return self.state == "interrupted" and self.beat is not None and self.beat.state != "interrupted"

    def read_record(self) -> None:
        """Read the record, or note in ``trouble`` why it can't be read."""
        try:
            self.record, self.trouble = self.folder.read_record(), None
            if self.record is not None:
                self.record.drop_notes_of_history()
        except UserError as error:
            self.record, self.trouble = None, str(error)


def check_predictions(runs: Iterable[Run]) -> None:
    """Compare each run's file of predictions with its sum in the record; a run whose file differs counts as damaged.

    A file that was removed is no damage: the scores are in the record.
    """
    for run in runs:
        if run.record is None or run.record.predictions is None or run.folder.bundle:  # whose manifest is compared
            continue
        file = run.folder.predictions_file
        try:
            if file.exists() and not is_intact(file, run.record.predictions.sha256):
                remedy = name_remedy(file, remove=str(run.folder.result_file))
                run.trouble = f"{file} is damaged; {remedy} (its sha256 is not the record's)"
        except (OSError, UserError) as error:  # it may be intact
            run.trouble = extract_first_line(error)
        if run.trouble:
            run.record = None


def print_troubles(runs: Iterable[Run]) -> None:
    """Name the damaged runs on standard error, a line for each."""
    troubles = [run.trouble for run in runs if run.trouble]
    for trouble in troubles[:MAX_NAMED_TROUBLES]:
        print_note(trouble)
    if len(troubles) > MAX_NAMED_TROUBLES:
        print_note(f"... and {len(troubles) - MAX_NAMED_TROUBLES} more damaged runs")


def find_failure(run: Run) -> str | None:
    """Return the name of what went wrong in a run; None if nothing did, or the run has not ended."""
    if run.record is None:
        return None
    if run.record.failure:
        return run.record.failure.name
    if run.record.best is None:
        return "no_result"
    metrics = run.record.best.metrics(run.cfg.task.dev_splits[0])
    return "constant_predictor" if metrics["constant_predictor"] else None


def describe_failure(name: str, count: int | None = None) -> str:
    """Say in words what went wrong in a run, or which state it has; with ``count``, in how many runs this is so."""
    if name != "constant_predictor":
        return f"{'' if count is None else f'{count:,} '}{name.replace('_', ' ')}"
    runs = "" if count is None else f"{format_count(count, 'run')} "
    return f"{runs}predict{'' if count and count > 1 else 's'} one class only"


def format_run_name(cfg: Config) -> str:
    """Name a run in one line: task, encoder, method, seed, and what else tells it from its sweep's other runs."""
    encoder, method = format_encoder_name(cfg.encoder), format_method_name(cfg.calibration)
    return " ".join([cfg.task.name, encoder, method, f"seed {cfg.seed}", *filter(None, [cfg.tracking.label])])
