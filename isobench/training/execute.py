"""Carry out one planned run and report its outcome."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from omegaconf.errors import OmegaConfBaseException

from isobench.common import environment
from isobench.common.errors import StorageError, UserError, refuse
from isobench.common.files import read_json
from isobench.common.interruption import raise_if_noted
from isobench.common.terminal import format_count, print_note
from isobench.config.explain import print_error
from isobench.config.schema import Config
from isobench.data.availability import require_hub_files
from isobench.data.weights import EXPORT_FILE
from isobench.runs.folder import find_export_folder, runs_folder
from isobench.runs.identity import identify
from isobench.runs.record import RunRecord
from isobench.runs.run import Run, describe_failure, find_failure, format_run_name
from isobench.tasks.kind import kind_of

EXIT_DONE, EXIT_FAILED, EXIT_USER_ERROR, EXIT_BUSY = 0, 1, 2, 3  # exit codes; BUSY: another process has the run


def execute_run(run: Run, position: str, since: float) -> int:
    """Carry out a planned run, print its outcome in one line, and return its exit code.

    Errors are printed too, so that a sweep goes on. `train_if_needed` explains ``since``. Nothing is printed of a
    run that another process is carrying out.

    Raises:
        StorageError: the result can't be written; no other run of the sweep could keep its own either.
        Interrupted: a signal asked to stop.
    """
    raise_if_noted()
    try:
        record = train_if_needed(run, since)
    except StorageError:
        raise
    except Exception as error:
        if environment.is_debugging():
            error.add_note(f"in the run {format_run_name(run.cfg)}")
            raise
        print_error(error)
        return EXIT_USER_ERROR if isinstance(error, UserError | OmegaConfBaseException) else EXIT_FAILED
    if record is None:
        return EXIT_BUSY
    ended = replace(run, record=record)
    print(f"{position}{format_outcome(ended)}", file=sys.stderr, flush=True)
    if record.status == "finished":
        for sentence in _describe_further_files(ended):
            print_note(sentence)
    return choose_exit_code([ended])


def train_if_needed(run: Run, since: float) -> RunRecord | None:
    """Train a planned run unless it has a record; return its record, None if another process is training it.

    Its settings are taken as they were planned. A run whose data or weights have changed since is another one, and is
    not started. With ``retry_failed``, a failure from before ``since`` (seconds since 1970) is tried again.
    """
    identity = identify(run.cfg)
    changed = f"{format_run_name(run.cfg)}: its settings, data or weights have changed since it was planned"
    refuse((run.folder.key != identity.key, f"{changed}, so it is another run now: repeat the command"))
    if record := run.folder.read_final_record(run.cfg.retry_failed, since):
        run.folder.remove_leftovers(record)
        return record
    kind_of(run.cfg.task).require_packages(run.cfg.task)
    require_hub_files(run.cfg)
    from isobench.training.train import train

    return train(run.cfg, identity, run.folder, since)


def check_export_folder(cfg: Config) -> None:
    """Raise UserError if ``checkpoint.export`` is not a folder that can hold models."""
    if cfg.checkpoint.export is None:
        return
    folder = Path(cfg.checkpoint.export).expanduser()
    refuse((folder.exists() and not folder.is_dir(), f"checkpoint.export={folder} is a file: name a folder"))
    taken = [runs_folder(cfg.output_dir), *([Path(cfg.encoder.path).expanduser()] if cfg.encoder.path else [])]
    is_taken = folder.resolve() in [other.resolve() for other in taken]
    refuse((is_taken, f"checkpoint.export={folder} is encoder.path, or where runs are: name another folder"))


def format_outcome(run: Run) -> str:
    """Describe the outcome of a run that has ended, in one line."""
    record, task = run.record, run.cfg.task
    assert record is not None
    if record.best is None or record.failure:
        outcome = f"failed: {record.failure.message}" if record.failure else "no epoch was evaluated"
    else:
        is_defined = record.best.metrics(task.dev_splits[0]).get(task.primary) is not None
        trouble = find_failure(run)
        outcome = f"{task.primary} {100 * record.best.score:.2f}" if is_defined else f"{task.primary} NaN"
        outcome += f", {describe_failure(trouble)}" if trouble else ""
    return f"{format_run_name(run.cfg)}: {outcome} ({record.cost.seconds:.0f} s)"


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
    except (OSError, ValueError):
        about = {}
    if about.get("epoch") != reported or reported is None:
        return f"epoch {reported} is not in {folder}: remove {run.folder.path} to train and export it"
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
