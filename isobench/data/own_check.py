"""Read a user's own files before any run starts: a mistake in one of them is then found before time is spent."""

from collections.abc import Iterable
from pathlib import Path

from isobench.common.errors import UserError
from isobench.config.schema import Config
from isobench.data.own_examples import fingerprint_own_file
from isobench.data.sources import read_examples


def check_own_files(configs: Iterable[Config]) -> None:
    """Read every split of the completed configs' ``data.files`` once, as their runs will; others pass.

    Raises:
        UserError: a file lacks a column, a text or a label, or has a label that the task doesn't have; or two splits
            have the same content, so that a run would be scored on what it was trained on.
    """
    checked = set()
    for cfg in configs:
        task = cfg.task
        reading = repr((cfg.data.files, task.text, task.label, task.labels, task.label_range, task.read_splits))
        if cfg.data.files and reading not in checked:
            checked.add(reading)
            refuse_equal_files(cfg.data.files)
            for split in task.read_splits:
                read_examples(task, cfg.data, split)


def refuse_equal_files(files: dict[str, str]) -> None:
    """Raise UserError if the files of two splits have the same content; ``files``: split -> path."""
    splits: dict[str, str] = {}
    for split, file in files.items():
        other = splits.setdefault(fingerprint_own_file(Path(file)), split)
        if other != split:
            raise UserError(
                f"data.files: {split} ({Path(file).name}) has the same content as {other}: name a file with other "
                "examples"
            )
