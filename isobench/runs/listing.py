"""List the runs of an output folder, whatever commands they come from."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from isobench.common.checksums import check_text_checksum
from isobench.common.errors import UserError, extract_first_line
from isobench.common.reading import read_bounded
from isobench.common.terminal import format_count, print_note
from isobench.config.schema import Config, config_from_plain, read_section
from isobench.runs.identity import Identifier, Identity
from isobench.runs.layout import CONFIG_FILE, is_run_folder_name, run_folder_name, runs_folder
from isobench.runs.row import Row
from isobench.runs.validate import ConfigValidator

UNREADABLE_CONFIG = "its config can't be read, or is not valid in this version of isobench"
CHANGED_CONFIG = "its config.yaml was changed, or is another run's"
CHANGED_KEY = "its settings have another key now (isobench prune lists it)"
MAX_DEPTH = 50  # levels of nesting in a config; isobench writes about six
SECTION = re.compile(r"^[a-z].*\n(?:(?: .*)?\n)*", re.MULTILINE)  # a line with a name, then indented and empty lines


def list_run_folders(output_dir: str) -> list[Path]:
    """List the folders of all runs of an output folder, sorted by name; what has another kind of name is no run."""
    paths = runs_folder(output_dir).glob("*")
    return sorted(path for path in paths if is_run_folder_name(path.name) and path.is_dir())


def read_run_config(folder: Path, validator: ConfigValidator) -> Config:
    """Read the config that a run was started with.

    Raises:
        UserError: the config can't be read, was changed, or is no longer valid.
    """
    try:
        cfg = parse_config(read_config_text(folder))
        validator.validate(cfg)
    except UserError:
        raise
    except Exception as error:  # it may be damaged in many ways, or be of another version
        raise UserError(UNREADABLE_CONFIG) from error
    return cfg


def read_config_text(folder: Path) -> str:
    """Read a run's config.yaml, without its checksum.

    Raises:
        UserError: it was changed.
        OSError, UnicodeError: it can't be read.
    """
    text = read_bounded(folder / CONFIG_FILE).decode()
    try:
        return check_text_checksum(text, folder.name)
    except ValueError:
        raise UserError(CHANGED_CONFIG) from None


def parse_config(text: str) -> Config:
    """Parse a run's config.yaml.

    The configs of many runs share most of their sections. A section with the text of an earlier one is not parsed
    again, and the configs then hold the same object: don't change it. A file that isobench did not write may be no
    list of sections; it is parsed as a whole.

    Raises:
        yaml.YAMLError, UserError: it is no YAML, or no config.
    """
    texts = SECTION.findall(text)
    try:
        sections = dict(map(parse_section, texts)) if "".join(texts) == text else {}
        if {"task", "encoder"} <= sections.keys():  # those that have no default
            return Config(**sections)
    except yaml.YAMLError:
        pass
    return config_from_plain(load_yaml(text))


@cache
def parse_section(text: str) -> tuple[str, Any]:
    """Parse one section of a config.yaml, and return its name and value.

    Raises:
        yaml.YAMLError: it is no YAML by itself.
        UserError: there is no such setting, or a value of it is not valid.
    """
    section = load_yaml(text)
    if type(section) is not dict or len(section) != 1:
        raise yaml.YAMLError("it is no section of a config")
    ((name, value),) = section.items()
    return name, read_section(name, value)


def load_yaml(text: str) -> Any:
    """Parse YAML, with the library in C where there is one.

    Raises:
        yaml.YAMLError: it is no YAML, or has aliases or deep nesting.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    require_plain_yaml(yaml.parse(text, loader))
    return yaml.load(text, loader)


def require_plain_yaml(events: Iterable[yaml.Event]) -> None:
    """Raise YAMLError for what isobench never writes, and what can end this process.

    A few lines of aliases (``*name``) can stand for more values than memory holds. Nesting of thousands of levels
    makes the library crash.
    """
    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH or isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError(f"it has aliases, or more than {MAX_DEPTH} levels, and isobench writes neither")


@dataclass(frozen=True)
class StoredRun:
    """A run's folder as it is found: its config and identity, or the reason why these can't be told.

    Args:
        folder: the run's folder.
        cfg: the config that it was started with; None if it can't be read, or is not valid any more.
        identity: what identifies these settings today; None if it can't be computed.
        problem: why ``cfg`` or ``identity`` is None, or why the folder can't be trusted; None if nothing is wrong.
    """

    folder: Path
    cfg: Config | None = None
    identity: Identity | None = None
    problem: str | None = None

    @property
    def has_own_key(self) -> bool:
        """True if the settings still give the key that the folder is named after."""
        return self.identity is not None and run_folder_name(self.identity.key) == self.folder.name


def read_stored_runs(output_dir: str, excluded: Collection[str] = ()) -> Iterator[StoredRun]:
    """Read every run's folder in an output folder but those named in ``excluded``: status and prune judge by it."""
    validator, identifier = ConfigValidator(), Identifier()
    for folder in list_run_folders(output_dir):
        if folder.name in excluded:
            continue
        cfg = None
        try:
            cfg = read_run_config(folder, validator)
            yield StoredRun(folder, cfg, identifier.identify(cfg))
        except (UserError, OSError) as error:  # such as data or weights that are missing
            yield StoredRun(folder, cfg, problem=extract_first_line(error))


def read_run_rows(output_dir: str, excluded: Collection[str]) -> Iterator[Row]:
    """Read config and record of every run in an output folder, one Row each.

    Leave out the folders named in ``excluded``. Leave out runs that can't be judged, because their config can't be
    read or their data or weights are missing, and runs whose key, computed anew, no longer names their folder. How
    many these are is printed on standard error, with the reason and an example.
    """
    left_out: dict[str, list[Path]] = {}
    for run in read_stored_runs(output_dir, excluded):
        if run.cfg is not None and run.identity is not None and run.has_own_key:
            yield Row.of(replace(run.cfg, output_dir=output_dir), run.identity.key, run.identity)
        else:
            left_out.setdefault(run.problem or CHANGED_KEY, []).append(run.folder)
    print_left_out(left_out)


def print_left_out(folders_by_reason: Mapping[str, Sequence[Path]]) -> None:
    """Print on standard error, for each reason, how many runs are left out, with an example."""
    for reason, folders in folders_by_reason.items():
        more = f" and {format_count(len(folders) - 1, 'more run')}" if len(folders) > 1 else ""
        print_note(f"left out: {folders[0]}{more}: {reason}")
