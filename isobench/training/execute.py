"""Carry out one run and say how it went: what the command line and every launcher's worker call."""

import os
import sys
import time
from collections.abc import Iterable

from omegaconf.errors import OmegaConfBaseException

from isobench.common.errors import StorageError, UserError
from isobench.config.explain import is_debugging, print_error
from isobench.config.schema import Config, format_method_name
from isobench.data import hub, sources, weights
from isobench.runs.folder import RunFolder
from isobench.runs.identity import identify
from isobench.runs.row import Row, format_score
from isobench.runs.validate import validate_config

EXIT_DONE, EXIT_FAILED, EXIT_USER_ERROR, EXIT_BUSY = 0, 1, 2, 3  # exit codes; BUSY: another process is at a run
START_TIME_VARIABLE = "ISOBENCH_STARTED"  # when the command was given; workers inherit it


def execute_run(cfg: Config, position: str = "", since: float | None = None) -> tuple[int, Row | None]:
    """One run's exit code and table row. Errors become one line each, but for those that must stop a sweep.

    ``since``: with ``retry_failed``, failures before that moment, by default the command's, are tried again.

    Raises:
        StorageError: no other run could keep its result either.
        Interrupted: asked to stop.
    """
    try:
        row, known = train_if_needed(cfg, read_command_start() if since is None else since)
    except StorageError:
        raise
    except Exception as error:
        if is_debugging():
            raise
        print_error(error)
        return (EXIT_USER_ERROR if isinstance(error, UserError | OmegaConfBaseException) else EXIT_FAILED), None
    print(f"{position}{format_outcome(row, known)}", file=sys.stderr, flush=True)
    return choose_exit_code([row], EXIT_BUSY if row.record is None else EXIT_DONE), row


def read_command_start() -> float:
    """When the command was given, in seconds since the epoch."""
    return float(os.environ.get(START_TIME_VARIABLE) or time.time())


def train_if_needed(cfg: Config, since: float) -> tuple[Row, bool]:
    """Validate, skip if finished, train. Returns the row, and whether it was finished before."""
    validate_config(cfg)
    identity = identify(cfg)
    row = Row(cfg, RunFolder(cfg.output_dir, identity.key), None)
    row.record = row.folder.read_final_record(cfg.retry_failed, since)
    if row.record is not None:
        row.folder.remove_old_checkpoints(row.record)
        return row, True
    probe_hub_if_needed([cfg])
    from isobench.training.train import train

    row.record = train(cfg, identity, row.folder, since)
    return row, False


def probe_hub_if_needed(configs: Iterable[Config]) -> None:
    """Ask whether the hub is there, if any of these needs it; before libraries that read the answer are imported."""
    if any(
        "hub" in (sources.find_data_source(cfg.task, cfg.data), weights.find_encoder_source(cfg.encoder))
        for cfg in configs
    ):
        hub.is_reachable()


def format_outcome(row: Row, known: bool) -> str:
    """A run's progress line."""
    record = row.record
    name = format_run_name(row.cfg)
    if record is None:
        return f"{name}: another process is running it"
    text = f"{row.cfg.task.primary} {format_score(row)}"
    if record.failure:
        text = f"failed: {record.failure.message}"
    seconds = f" ({record.cost.seconds:.0f} s)" if not known else ", ended so before"
    again = "; retry_failed=true tries again" if known and record.failure else ""
    return f"{name}: {text}{seconds}{again}"


def format_run_name(cfg: Config) -> str:
    """What a run is called in one line."""
    return f"{cfg.task.name} {cfg.encoder.name} {format_method_name(cfg.calibration)} seed {cfg.seed}"


def choose_exit_code(rows: list[Row], *codes: int) -> int:
    """The gravest: something to mend, a run failed, another process is at one, done."""
    failed = any(row.record is not None and row.record.status == "failed" for row in rows)
    found = {*codes, EXIT_FAILED if failed else EXIT_DONE}
    return next(code for code in (EXIT_USER_ERROR, EXIT_FAILED, EXIT_BUSY, EXIT_DONE) if code in found)
