"""Print an error as one line; of Hydra's errors, explain the mistakes that everybody makes, and leave the rest."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from isobench.common.environment import read_arguments
from isobench.common.errors import UserError, extract_first_line, suggest_nearest
from isobench.common.terminal import print_note
from isobench.config.bounds import find_section, read_hints
from isobench.config.command_line import split_config_dirs
from isobench.config.removed import explain_removed
from isobench.config.schema import OPTIONAL_PARTS, Config
from isobench.papers.folders import advise_on_experiment, find_config_folders, list_config_groups, read_config_file

ADVICE = (  # what Hydra says -> what to do
    (r"is not a ListConfig.*\n\s*full_key: (\S+)", "{0} is a list: put its values into brackets, {0}=[...]"),
    (r"To append to your default list use \+(\S+)", "{0} needs a + before it: write +{0}"),
    (r"(?i)missing mandatory value: (\S+)", "{0} must be set: add {0}=..."),
)


def print_error(error: Exception) -> None:
    """Print an error as one line on stderr; of a library's, say how to get its traceback."""
    known = isinstance(error, UserError | HydraException | OmegaConfBaseException)
    print_note(f"{explain_error(error)}{'' if known else ' (HYDRA_FULL_ERROR=1 shows where)'}")


def explain_error(error: BaseException) -> str:
    """Explain an error in one line: a mistake in a setting or a YAML file, else its own first line."""
    if isinstance(error, UserError):
        return str(error)
    causes = [error]
    while cause := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(cause)
    for one in causes:
        if isinstance(one, UserError):  # raised while Hydra composed or built something
            return str(one)
        if isinstance(one, yaml.YAMLError):
            return extract_first_line(one)  # names file and line
    return _explain_hydra(error, causes)


def _explain_hydra(error: BaseException, causes: Sequence[BaseException]) -> str:
    """Explain by the words of Hydra or OmegaConf, which often stand in one of the errors that caused this one."""
    text = "\n".join(map(str, reversed(causes)))
    if isinstance(error, OverrideParseException):
        written = str(error.override)
        if advice := advise_on_experiment(written):
            return advice
        is_cut = any(written.count(a) > written.count(b) for a, b in ("{}", "[]"))  # mostly by the shell
        reason = (
            "a bracket is not closed: put a setting with blanks into quotes" if is_cut else extract_first_line(error)
        )
        return f"{written}: {reason}"
    if match := re.search(r"Could not find '([^']+)/([^'/]*)'", text):
        options = re.findall(r"^\t(\S+)$", text, re.MULTILINE)  # Hydra lists all, a user's own search path included
        yours = "; for one of yours add --config-dir=FOLDER or --paper=FOLDER"
        hint = "" if split_config_dirs(read_arguments())[0] else yours
        return f"{match[1]}={match[2]} is not known: {suggest_nearest(match[2], options)}{hint}"
    for pattern, advice in ADVICE:
        if match := re.search(pattern, text):
            return advice.format(*match.groups())
    if match := re.search(r"full_key: (\S+)|Could not (?:override|append to config\S*|find) ['\"]([\w.@/]+)", text):
        key = match[1] or match[2]
        if re.search(r"is not in struct|not in '|Could not (?:override|append|find)", text) and "already" not in text:
            return explain_removed(key) or f"there is no setting {key}: {_suggest_setting(key)}"
        own = next((one for one in causes if isinstance(one, OmegaConfBaseException)), error)
        return f"{key}: {extract_first_line(own)}"
    if "NoneType" in text:  # at a setting of a part that is null, OmegaConf fails by accident
        typed = [one for one in read_arguments() if one.strip("+").startswith(tuple(f"{p}." for p in OPTIONAL_PARTS))]
        return ": ".join([*typed, "the part that it belongs to is null" if typed else extract_first_line(error)])
    return extract_first_line(error)


def _suggest_setting(key: str) -> str:
    """Say which settings of its section may be meant by ``key``, a dotted name that there is not.

    A section without a type, such as calibration, has the settings that stand in its group's YAML files.
    """
    *parents, name = key.split(".")
    section: Any = Config
    for parent in parents:
        section = section and find_section(read_hints(section).get(parent))
    choices = set(read_hints(section)) if section else set()
    if not parents:
        choices |= set(list_config_groups())
    elif not section:
        folders = [*find_config_folders(), *map(Path, split_config_dirs(read_arguments())[0])]
        files = (file for folder in folders for file in (folder / parents[0]).glob("*.yaml"))
        choices = {setting for file in files for setting in read_config_file(file) if setting[0] != "_"}
    return suggest_nearest(name, choices) if choices else "isobench --cfg job lists all settings"
