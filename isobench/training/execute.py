"""Carry out one run and report its outcome; the command line and every launcher's worker call this."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from omegaconf.errors import OmegaConfBaseException

from isobench.common import environment
from isobench.common.errors import StorageError, UserError
from isobench.common.files import read_json, refuse_file
from isobench.common.interruption import raise_if_noted
from isobench.common.terminal import format_count, print_note
from isobench.config.explain import print_error
from isobench.config.schema import Config
from isobench.data.availability import require_hub_files, require_metric_packages
from isobench.data.own_task import check_files, complete_config
from isobench.data.weights import EXPORT_FILE
from isobench.runs.folder import RunFolder, find_export_folder, runs_folder
from isobench.runs.identity import identify
from isobench.runs.run import Run, format_run_name, format_score
from isobench.runs.validate import validate_config

EXIT_DONE, EXIT_FAILED, EXIT_USER_ERROR, EXIT_BUSY = 0, 1, 2, 3  # exit codes; BUSY: another process has the run


def execute_run(cfg: Config, position: str = "", since: float | None = None) -> tuple[int, Run | None]:
    """Carry out one run and print its outcome in one line; errors are printed too, so that a sweep goes on.

    With ``retry_failed``, failures before ``since`` (seconds since the epoch; by default the command's start) are
    tried again. Returns the exit code and the run; None in its place if an error kept it from starting.

    Raises:
        StorageError: the result can't be written; no other run of the sweep could keep its own either.
        Interrupted: a signal asked to stop.
    """
    raise_if_noted()
    try:
        row, known = train_if_needed(cfg, environment.read_command_start() if since is None else since)
    except StorageError:
        raise
    except Exception as error:
        if environment.is_debugging():
            error.add_note(f"in the run {format_run_name(cfg)}")
            raise
        print_error(error)
        return (EXIT_USER_ERROR if isinstance(error, UserError | OmegaConfBaseException) else EXIT_FAILED), None
    print(f"{position}{format_outcome(row, known)}", file=sys.stderr, flush=True)
    if row.record and row.record.status == "finished":
        for sentence in _describe_further_files(row):
            print_note(sentence)
    return choose_exit_code([row], EXIT_BUSY if row.record is None else EXIT_DONE), row


def train_if_needed(cfg: Config, since: float) -> tuple[Run, bool]:
    """Validate a run's config and train, unless it has a record; returns the run, and whether it had one."""
    cfg = complete_config(cfg)
    validate_config(cfg)
    identity = identify(cfg)
    row = Run(cfg, RunFolder(cfg.output_dir, identity.key), None)
    row.record = row.folder.read_final_record(cfg.retry_failed, since)
    if row.record is not None:
        row.folder.remove_leftovers(row.record)
        return row, True
    require_metric_packages(cfg)
    require_hub_files(cfg)
    check_files([cfg])
    check_export_folder(cfg)
    from isobench.training.train import train

    row.record = train(cfg, identity, row.folder, since)
    return row, False


def check_export_folder(cfg: Config) -> None:
    """Raise UserError if ``checkpoint.export`` is not a folder that can hold models."""
    if cfg.checkpoint.export is None:
        return
    folder = Path(cfg.checkpoint.export).expanduser()
    refuse_file("checkpoint.export", folder)
    if folder.resolve() == runs_folder(cfg.output_dir).resolve():
        raise UserError(f"checkpoint.export={folder} is where the runs' own folders are: name another folder")
    if cfg.encoder.path and folder.resolve() == Path(cfg.encoder.path).expanduser().resolve():
        raise UserError(f"checkpoint.export={folder} is encoder.path too: name another folder")


def format_outcome(run: Run, known: bool) -> str:
    """Describe a run's outcome in one line; ``known``: it was finished before this command."""
    record = run.record
    name = format_run_name(run.cfg)
    if record is None:
        return f"{name}: another process is running it"
    outcome = f"{run.cfg.task.primary} {format_score(run)}"
    if record.failure:
        outcome = f"failed: {record.failure.message}"
    seconds = f" ({record.cost.seconds:.0f} s)" if not known else ", from an earlier command"
    advice = "; retry_failed=true tries again" if known and record.failure else ""
    return f"{name}: {outcome}{seconds}{advice}"


def _describe_further_files(run: Run) -> Iterator[str]:
    split = run.cfg.task.test_split
    if split is not None and run.record and run.record.predictions:
        count = run.record.data.examples.get(split)
        file = run.folder.path / run.record.predictions.file
        yield f"{split} is not scored; its {count} predictions are in {file}"
    if run.cfg.checkpoint.export:
        yield _describe_export(run.cfg.checkpoint.export, run)


def _describe_export(export: str, run: Run) -> str:
    """Say where a run's model was exported to, and which files beside it hold what transformers doesn't load.

    There is no exported model if the reported epoch had ended before ``checkpoint.export`` was set.
    """
    folder = find_export_folder(export, run.folder.key)
    reported = run.record.best.epoch if run.record and run.record.best else None
    try:
        about = read_json(folder / EXPORT_FILE)
    except FileNotFoundError:
        about = {}
    except (OSError, ValueError):
        return f"{folder / EXPORT_FILE} is damaged or was changed: remove {run.folder.path} to train and export again"
    if about.get("epoch") != reported or reported is None:
        return (
            f"not exported, because epoch {reported} had ended before checkpoint.export was set: remove "
            f"{run.folder.path} to train and export it"
        )
    text = f"epoch {about['epoch']} exported to {folder}, for transformers' {about['load_with']}"
    if not about["lacks"]:
        return text
    return f"{text}; beside it, because transformers can't express it: {', '.join(about['lacks'])}"


def print_missing_exports(runs: Iterable[Run]) -> None:
    """Say in one line which finished runs are not in the folder of ``checkpoint.export``."""
    missing = [
        run.folder.path.name
        for run in runs
        if run.cfg.checkpoint.export and run.record and run.record.status == "finished"
        if not (find_export_folder(run.cfg.checkpoint.export, run.folder.key) / EXPORT_FILE).exists()
    ]
    if missing:
        named = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        print_note(
            f"{format_count(len(missing), 'run')} had ended before checkpoint.export was set, so not exported: "
            f"{named}; remove these folders in runs/ to train and export again"
        )


def choose_exit_code(runs: list[Run], *codes: int) -> int:
    """Return the gravest of some exit codes and the one that these runs' records stand for."""
    failed = any(run.record is not None and run.record.status == "failed" for run in runs)
    all_codes = {*codes, EXIT_FAILED if failed else EXIT_DONE}
    return next(code for code in (EXIT_USER_ERROR, EXIT_FAILED, EXIT_BUSY, EXIT_DONE) if code in all_codes)
