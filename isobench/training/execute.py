"""Carry out one run and say how it went: what the command line and every launcher's worker call."""

import os
import sys
import time
from collections.abc import Iterable

from omegaconf.errors import OmegaConfBaseException

from isobench.common.errors import StorageError, UserError
from isobench.config.explain import complain, debugging
from isobench.config.schema import Config, method_name
from isobench.data import hub, sources, weights
from isobench.runs.folder import RunFolder
from isobench.runs.identity import identify
from isobench.runs.row import Row, shown
from isobench.runs.validate import validate

DONE, FAILED, MEND, BUSY = 0, 1, 2, 3  # exit codes; BUSY: another process is at a run
STARTED_VARIABLE = "ISOBENCH_STARTED"  # when the command was given; workers inherit it


def execute(cfg: Config, position: str = "", since: float | None = None) -> tuple[int, Row | None]:
    """One run's exit code and table row. Errors become one line each, but for those that must stop a sweep.

    ``since``: with ``retry_failed``, failures before that moment, by default the command's, are tried again.

    Raises:
        StorageError: no other run could keep its result either.
        Interrupted: asked to stop.
    """
    try:
        row, known = carry_out(cfg, started() if since is None else since)
    except StorageError:
        raise
    except Exception as error:
        if debugging():
            raise
        complain(error)
        return (MEND if isinstance(error, UserError | OmegaConfBaseException) else FAILED), None
    print(f"{position}{outcome(row, known)}", file=sys.stderr, flush=True)
    return exit_code([row], BUSY if row.record is None else DONE), row


def started() -> float:
    """When the command was given, in seconds since the epoch."""
    return float(os.environ.get(STARTED_VARIABLE) or time.time())


def carry_out(cfg: Config, since: float) -> tuple[Row, bool]:
    """Validate, skip if finished, train. Returns the row, and whether it was finished before."""
    validate(cfg)
    identity = identify(cfg)
    row = Row(cfg, RunFolder(cfg.output_dir, identity.key), None)
    row.record = row.folder.settled(cfg.retry_failed, since)
    if row.record is not None:
        row.folder.tidy(row.record)
        return row, True
    ask_hub([cfg])
    from isobench.training.train import train

    row.record = train(cfg, identity, row.folder, since)
    return row, False


def ask_hub(configs: Iterable[Config]) -> None:
    """Ask whether the hub is there, if any of these needs it; before libraries that read the answer are imported."""
    if any("hub" in (sources.source_name(cfg.task, cfg.data), weights.source_name(cfg.encoder)) for cfg in configs):
        hub.reachable()


def outcome(row: Row, known: bool) -> str:
    """A run's progress line."""
    record = row.record
    name = label(row.cfg)
    if record is None:
        return f"{name}: another process is running it"
    text = f"{row.cfg.task.primary} {shown(row)}"
    if record["failure"]:
        text = f"failed: {record['failure']['message']}"
    seconds = f" ({record['cost']['seconds']:.0f} s)" if not known else ", ended so before"
    again = "; retry_failed=true tries again" if known and record["failure"] else ""
    return f"{name}: {text}{seconds}{again}"


def label(cfg: Config) -> str:
    """What a run is called in one line."""
    return f"{cfg.task.name} {cfg.encoder.name} {method_name(cfg.calibration)} seed {cfg.seed}"


def exit_code(rows: list[Row], *codes: int) -> int:
    """The gravest: something to mend, a run failed, another process is at one, done."""
    failed = any(row.record is not None and row.record["status"] == "failed" for row in rows)
    found = {*codes, FAILED if failed else DONE}
    return next(code for code in (MEND, FAILED, BUSY, DONE) if code in found)
