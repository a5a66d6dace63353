"""Check the settings of a command line as they were typed, before Hydra reads them: Hydra drops some in silence."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

from isobench.common.errors import doing, refuse
from isobench.config.removed import explain_removed
from isobench.papers.folders import list_config_groups

MULTIRUN_FLAGS = ("-m", "--multirun")
CONFIG_DIR_FLAGS = ("--config-dir", "-cd")  # followed by a folder, or by = and a folder
SEARCH_PATH = "hydra.searchpath"
GROUPS = ("task", "encoder", "head", "optimization", "optimizer", "tracking", "scale", "experiment", "hydra/launcher")
PATHS = ("output_dir", "data.root", "data.cache", "data.files", "encoder.path", "checkpoint.export")
# A path from the home folder that begins a value, or an entry of a list or mapping, with quotes or without.
HOME_FOLDER = re.compile(r"""(?:(?<=[,:\[{ ])|^)(?P<quote>["']?)(?P<path>~[\w.-]*(?:/[^"',\]}]*)?)(?P=quote)""")


class Override(NamedTuple):
    """A setting as it is typed, or as a grid names it: its key, with any ``+`` before it, and its value as text."""

    key: str
    value: str | None  # None: there is no = at all

    @classmethod
    def parse(cls, text: str) -> Self:
        """Divide a setting at its first ``=``."""
        key, equals, value = text.partition("=")
        return cls(key, value if equals else None)

    @property
    def name(self) -> str:
        """The setting's name, or the group's."""
        return self.key.strip().lstrip("+")

    @property
    def path(self) -> list[str]:
        """The sections that the key names, and the setting."""
        return self.name.split(".")

    @property
    def is_of_method(self) -> bool:
        """Return whether it is a setting of a method, such as ``calibration.beta``, and not the choice of one."""
        return self.name.startswith("calibration.")

    def __str__(self) -> str:
        return self.key if self.value is None else f"{self.key}={self.value}"


def check_typed_settings(arguments: Sequence[str]) -> None:
    """Raise UserError for what Hydra would drop or half drop in silence: a folder, a setting or one of its values.

    Hydra takes the last value of a setting. Of ``task=[rte,sst2]`` it takes each setting from the last option that
    has it.
    """
    folders, settings = split_config_dirs(arguments)
    groups = list_config_groups()
    for folder in folders:
        is_group = Path(folder).resolve().name in groups and not any(Path(folder, group).is_dir() for group in groups)
        reason = f"--config-dir={folder} is a group's own folder, which isn't read: name the one that holds it"
        refuse((not Path(folder or "-").is_dir(), f"--config-dir: {folder} is no folder"), (is_group, reason))
    typed: dict[str, str] = {}
    for override in map(Override.parse, settings):
        name, value = override.name, override.value
        if value is None or override.key.startswith(("-", "~")):
            continue
        first = typed.setdefault(name, value)
        keys = re.findall(r"(?<!\$)[{,]\s*(\w+)\s*:", value) if value.strip()[:1] == "{" else []
        refers = name == "output_dir" and re.search(r"\$\{(?!oc\.env:)", value)  # in a sweep it is not each run's
        refuse(
            (not name, f"{override} has no name before the ="),
            (first != value, f"{name} is given twice, as {first} and as {value}: leave one out"),
            (gone := explain_removed(name), str(gone)),
            (name.startswith(("hydra.run.", "hydra.sweep.")), f"{name} has no effect: output_dir=FOLDER has one"),
            (refers, f"output_dir={value} refers to a setting: name one folder, which holds any number of runs"),
            (name in GROUPS and value.strip()[:1] == "[", f"{name}={value}: a run has one; write -m {name}=A,B"),
            (len(set(keys)) < len(keys), f"{name}={value} has a name twice: leave one out"),
        )


def split_config_dirs(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command's arguments into the folders given with ``--config-dir`` and the others, without ``-m``."""
    folders, others = [], []
    remaining = iter(arguments)
    for argument in remaining:
        flag, equals, value = argument.partition("=")
        if flag in CONFIG_DIR_FLAGS:
            folder = value if equals else next(remaining, "")
            folders.append(folder)
        elif argument not in MULTIRUN_FLAGS:
            others.append(argument)
    return folders, others


def drop_launch_arguments(arguments: Sequence[str]) -> list[str]:
    """Drop the arguments that only say how, where and whether runs are launched, not which runs there are."""
    return [text for text in arguments if text not in MULTIRUN_FLAGS and not _says_how(Override.parse(text).name)]


def _says_how(name: str) -> bool:
    is_hydras = name.startswith(("hydra/", "hydra.")) and name != SEARCH_PATH  # which has groups' options
    return is_hydras or name in ("dry_run", "retry_failed", "report")


def expand_home_folders(override: Override) -> Override:
    """Write out the home folder where a path in a setting begins with ``~``: shells don't in ``encoder.path=~/x``."""
    if override.value is None or override.name not in PATHS:
        return override
    return override._replace(value=HOME_FOLDER.sub(_expand_home, override.value))


def _expand_home(match: re.Match[str]) -> str:
    with doing(match["path"]):
        return quote_for_hydra(str(Path(match["path"].rstrip()).expanduser()))


def quote_for_hydra(text: str) -> str:
    """Quote a text so that Hydra's grammar reads it as one value."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def write_setting(key: str, text: str) -> str:
    """Write a setting of a text as it is typed in a shell, whatever characters it has."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return shlex.quote(f'{key}="{escaped}"')
