"""Read the runs of an output folder: those that its plans name, and those that no plan names."""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from isobench.common.checksums import check_text_checksum
from isobench.common.errors import UserError, extract_first_line
from isobench.common.reading import read_bounded
from isobench.common.terminal import format_count, print_note
from isobench.config.schema import Config, read_section
from isobench.runs.folder import RunFolder
from isobench.runs.grouping import label_rows
from isobench.runs.identity import Identity
from isobench.runs.layout import (
    CONFIG_FILE,
    EARLIER_FOLDERS,
    RECORD_FILE,
    is_run_folder_name,
    run_folder_name,
    runs_folder,
)
from isobench.runs.plan import read_plans
from isobench.runs.record_file import read_record_file
from isobench.runs.run import Run

MAX_DEPTH = 50  # levels of nesting in a config; isobench writes about six
SECTION = re.compile(r"^[a-z].*\n(?:(?: .*)?\n)*", re.MULTILINE)  # a line with a name, then indented and empty lines


def read_rows(output_dir: str, experiment: str | None = None) -> list[Run]:
    """Read the runs of an output folder; neither their data nor their weights need to be there.

    These are the runs of the folder's plans and, with ``experiment`` None, every other run in the folder. Runs that
    an earlier version of isobench carried out are in no plan. They are found by the experiment that their config
    names, and a line on standard error says so.

    Args:
        output_dir: the output folder.
        experiment: its runs only; None reads those of all.

    Raises:
        UserError: a plan is damaged.
    """
    plans = read_plans(output_dir, experiment)
    runs = {identity.key: (cfg, identity) for plan in plans for cfg, identity in plan.runs}
    rows = [Run.of(cfg, key, identity) for key, (cfg, identity) in runs.items()]
    if experiment is None or not plans or has_earlier_sweeps(output_dir):
        others = list(_read_unplanned_rows(output_dir, experiment, {run_folder_name(key) for key in runs}))
        if others and experiment is not None:
            print_note(
                f"{format_count(len(others), 'run')} of {experiment} in {output_dir} stand in no plan, as an earlier "
                "version left them; repeat the commands that you still need, which runs nothing twice"
            )
        rows += others
    label_rows(rows)
    return rows


def has_earlier_sweeps(output_dir: str | Path) -> bool:
    """Return True if an output folder remembers sweeps as an earlier version did, which is not read any more."""
    return any(Path(output_dir, name).is_dir() for name in EARLIER_FOLDERS)


def _read_unplanned_rows(output_dir: str, experiment: str | None, planned: Collection[str]) -> Iterator[Run]:
    """Read the runs that no plan names; say on standard error which can't be read, and why."""
    left_out: dict[str, list[Path]] = {}
    for folder in list_run_folders(output_dir):
        if folder.name in planned:
            continue
        try:
            row = read_stored_row(output_dir, folder)
        except UserError as error:
            left_out.setdefault(extract_first_line(error).replace(str(folder), "its folder"), []).append(folder)
            continue
        if experiment in (None, row.cfg.experiment.name):
            yield row
    for reason, folders in left_out.items():
        more = f" and {format_count(len(folders) - 1, 'more run')}" if len(folders) > 1 else ""
        print_note(f"left out: {folders[0]}{more}: {reason}")


def list_run_folders(output_dir: str) -> list[Path]:
    """List the folders of all runs of an output folder, sorted by name; what has another kind of name is no run."""
    paths = runs_folder(output_dir).glob("*")
    return sorted(path for path in paths if is_run_folder_name(path.name) and path.is_dir())


def read_ended_rows(output_dir: str) -> list[Run]:
    """Read config and record of every run in an output folder that has ended.

    Raises:
        UserError: a record or config is damaged.
    """
    folders = (folder for folder in list_run_folders(output_dir) if os.path.lexists(folder / RECORD_FILE))
    return [read_stored_row(output_dir, folder) for folder in folders]


def read_stored_row(output_dir: str, folder: Path) -> Run:
    """Read config and record of a run from its folder.

    The row's identity has the key and the fingerprints of the record. Without a record it is None, and the key is
    the part of it that names the folder.

    Raises:
        UserError: the record or the config is damaged, or another run's.
    """
    try:
        record = read_record_file(folder / RECORD_FILE)
    except (FileNotFoundError, NotADirectoryError):
        record = None
    if record is not None and run_folder_name(record.key) != folder.name:
        raise UserError(f"{folder / RECORD_FILE} is not this run's record; remove it to run again")
    cfg = replace(read_run_config(folder), output_dir=output_dir)
    if record is None:
        return Run(cfg, RunFolder(output_dir, folder.name), None)
    identity = Identity(record.key, record.data.fingerprint, record.encoder.fingerprint)
    return Run(cfg, RunFolder(output_dir, record.key), record, "done", identity=identity)


def read_run_config(folder: Path) -> Config:
    """Read the config that a run was started with.

    Raises:
        UserError: the config can't be read, was changed, or is not valid in this version of isobench.
    """
    file = folder / CONFIG_FILE
    try:
        return parse_config(check_text_checksum(read_bounded(file).decode(), folder.name))
    except (OSError, ValueError, UserError, yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{file} is damaged or was changed: remove the folder to run again") from error


def parse_config(text: str) -> Config:
    """Parse the text of a run's config.yaml, without its checksum.

    The configs of many runs share most of their sections. A section with the text of an earlier one is not parsed
    again, and the configs then hold the same object: don't change it. A section that is absent has its defaults.

    Raises:
        yaml.YAMLError, ValueError: it is no YAML, or not what isobench writes.
        UserError: a value is out of its bounds.
    """
    texts = SECTION.findall(text)
    sections = dict(map(_parse_section, texts))
    if "".join(texts) != text or not {"task", "encoder"} <= sections.keys():  # these two have no defaults
        raise ValueError("it is not the list of a config's sections")
    return Config(**sections)


@cache
def _parse_section(text: str) -> tuple[str, Any]:
    section = _load_yaml(text)
    if type(section) is not dict or len(section) != 1:
        raise ValueError("it is no list of sections")
    ((name, value),) = section.items()
    return name, read_section(name, value)


def _load_yaml(text: str) -> Any:
    """Parse YAML, with the library in C where there is one.

    Raises:
        yaml.YAMLError: it is no YAML, or has aliases or deep nesting.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    _require_plain_yaml(yaml.parse(text, loader))
    return yaml.load(text, loader)


def _require_plain_yaml(events: Iterable[yaml.Event]) -> None:
    """Raise YAMLError for what isobench never writes, and what can end this process.

    A few lines of aliases (``*name``) can stand for more values than memory holds. Nesting of thousands of levels
    makes the library crash.
    """
    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH or isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError(f"it has aliases, or more than {MAX_DEPTH} levels, and isobench writes neither")
