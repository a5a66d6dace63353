"""Turn errors of Hydra and OmegaConf into one line that names the setting and the nearest valid names."""

import re
import traceback
from pathlib import Path
from typing import Any

import yaml
from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

from isobench.common.environment import read_arguments
from isobench.common.errors import UserError, extract_first_line, suggest_nearest
from isobench.common.terminal import print_note
from isobench.config.bounds import TYPE_NAMES, find_section, read_hints
from isobench.config.command_line import Override, split_config_dirs, write_setting
from isobench.config.removed import explain_removed
from isobench.config.schema import OPTIONAL_PARTS, Config
from isobench.papers.folders import find_config, find_config_folders, list_config_groups, read_config_file

OMEGACONF_TYPES = {"Integer": "int", "Float": "float", "bool": "bool"}  # as OmegaConf's errors name them
# What Hydra says of the commonest mistakes -> what to do.
RULES = (
    (r"To append to your default list use \+(\S+)", "{0} needs a + before it: write +{0}"),
    (r"Multiple values for (\w+)\.", "{0} is chosen twice: choose one option"),
    (
        r"(?:Ambiguous value for argument|Sweep parameters) '(.*)'",
        "{0} has several values: add -m to carry out a run for each; a list is written [A,B]",
    ),
    (r"Sweeping over Hydra's configuration is not supported : '(.*)'", "{0} can't be swept over: choose one value"),
    (r"An item is already at '([^']+)'", "{0} is set already: write {0}=..., without the +"),
    (r"Missing mandatory value: (\S+)", "{0} must be set: add {0}=..."),
    (r"Could not find '([^']+)/'", "{0} is empty: choose one of its options"),
    ("Config group override must be a string", "a group such as task or encoder can't be null: choose an option"),
)


def print_error(error: Exception) -> None:
    """Print an error as one line on stderr; of an unexpected one, say how to get its traceback."""
    text = str(error) if isinstance(error, UserError) else explain_config_error(error)
    known = isinstance(error, UserError | HydraException | OmegaConfBaseException) or text not in str(error)
    text += "" if known else f" ({type(error).__name__}; HYDRA_FULL_ERROR=1 shows where)"
    print_note(text)


def explain_config_error(error: BaseException) -> str:
    """Explain in one line why a config can't be composed, and what to do."""
    if isinstance(error.__cause__, UserError):  # raised while Hydra built a launcher
        return str(error.__cause__)
    if (yaml_message := _explain_yaml(error)) is not None:
        return yaml_message
    text = str(error)
    if isinstance(error, OverrideParseException):
        return _explain_unreadable_setting(error.override, text)
    if match := re.search(r"Could not find '([^']+)/([^'/]+)'", text):
        options = re.findall(r"^\t(\S+)$", text, re.MULTILINE)  # Hydra lists all, a user's own search path included
        return f"{match[1]}={match[2]} is not known: {suggest_nearest(match[2], options)}"
    if absent := explain_absent_part(error):
        return absent
    text = f"{error.__cause__ or error.__context__ or ''}\n{text}"
    if match := re.search(r"full_key: (\S+)", text):
        return _explain_key_error(match[1], text)
    for pattern, advice in RULES:
        if match := re.search(pattern, text):
            return advice.format(*match.groups())
    if match := re.search(r"Could not (?:override|append to config\S*|find) '?\"?([\w.@/]+)", text):
        return _explain_unknown_key(match[1])
    return extract_first_line(error)


def explain_absent_part(error: BaseException) -> str | None:
    """Explain an override of a part that is null, at which OmegaConf fails by accident; None for other errors."""
    if not re.search("Unexpected type|'NoneType' object has no attribute", str(error)):
        return None
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__)]
    for key in (names["override"].key_or_group for names in frames if "override" in names):  # the text may lack it
        if need := OPTIONAL_PARTS.get(".".join(key.split(".")[:2])):
            return f"{key} needs {need}"
    return None


def _explain_yaml(error: BaseException | None) -> str | None:
    """Explain which YAML file can't be read, and why; None if the error and its causes are of another kind."""
    while error is not None:
        if isinstance(error, yaml.MarkedYAMLError) and (mark := error.problem_mark or error.context_mark):
            return f"{mark.name}, line {mark.line + 1}: {error.problem or error.context}: correct this line"
        if isinstance(error, yaml.reader.ReaderError):
            return f"{error.name} has a character that YAML does not allow ({error.reason}): remove it"
        if isinstance(error, UnicodeDecodeError):
            files = (file for folder in _list_config_folders() for file in sorted(folder.rglob("*.yaml")))
            names = ", ".join(str(file) for file in files if error.object in file.read_bytes())
            return f"{names} can't be read as UTF-8 ({error.reason}): save it in this encoding"
        error = error.__cause__ or error.__context__
    return None


def _list_config_folders() -> list[Path]:
    """List the folders of configs, those after ``--config-dir`` included."""
    return [*find_config_folders(), *map(Path, split_config_dirs(read_arguments())[0])]


def _explain_unreadable_setting(setting: str, text: str) -> str:
    """Explain why Hydra's grammar can't read a setting; ``text``: Hydra's error."""
    key, equals, value = setting.partition("=")
    if not equals:
        return f"{setting or 'an empty word'} is no setting: settings are written key=value (isobench --help)"
    told = (line for line in text.splitlines() if not line.startswith(("Error parsing override", "LexerNoViable")))
    line = next(told, "").split(" expecting ")[0]
    reason = f" ({line})" if set(line) - set("^ ") and "See https" not in line else ""
    if value.endswith(":"):
        example = f"'{key}={{train: FILE, validation: 0.2}}'"
        return f"{setting} can't be read: the shell split it at a blank: quote the whole setting, such as {example}"
    if value.strip().startswith("{"):
        example = f"'{key}={{NAME: \"VALUE\"}}'"
        return f"{setting} can't be read{reason}: names need no quotes, values with special characters do, {example}"
    names = [name.strip(" '\"") for name in value.strip(" []").split(",")]
    example = write_setting(key, names if value.strip().startswith("[") else value.strip(" '\""))
    return f"{setting} can't be read{reason}: a text with special characters needs two quotes, {example}"


def _explain_key_error(key: str, text: str) -> str:
    if "is not in struct" in text or "not in '" in text:
        return _explain_unknown_key(key)
    if "missing mandatory value" in text.lower():
        return f"{key} must be set: add {key}=..."
    if match := re.search(r"Value '(.*?)'.* (?:could not be converted to|is not a valid) (Integer|Float|bool)", text):
        return f"{key}={match[1]} must be {TYPE_NAMES[OMEGACONF_TYPES[match[2]]]}"
    if "is not Optional" in text or "Incompatible value 'None'" in text:
        return f"{key} can't be null: give it a value"
    if "is not a ListConfig, list or tuple" in text:
        return f"{key} must be a list: {key}=[A,B,...]"
    return f"{key}: {text.strip().splitlines()[0]}"


def _explain_unknown_key(key: str) -> str:
    """Explain that a setting does not exist, and name the nearest that do."""
    if message := explain_removed(key):
        return message
    if key == "experiment.experiment":
        return "the YAML of an experiment must begin with the line # @package _global_"
    if key == "calibration.then":
        return "only a chain has calibration.then: calibration=[isobn_paper,cosine]"
    *parents, name = key.split(".")
    section: Any = Config
    for parent in parents:
        section = section and find_section(read_hints(section).get(parent))
    if parents[:1] in (["analysis"], ["monitors"]):
        choices = _list_experiment_settings(parents)
        if not choices:
            return f"there is no setting {key}: add it with +{key}=..."
    elif ".".join(parents) in OPTIONAL_PARTS and not section:  # its settings are those of a library's class
        return f"{key} is not in the YAML of the chosen option: write +{key}=... if the model or optimiser has it"
    elif section:
        choices = [*read_hints(section), *([] if parents else list_config_groups())]
    else:
        group = "/".join(parent for parent in parents if parent != "then")
        settings_by_option = _list_option_settings(group)
        if options := [f"{group}={option}" for option, settings in settings_by_option.items() if name in settings]:
            return f"only {', '.join(options)} has the setting {key}"
        choices = [setting for settings in settings_by_option.values() for setting in settings]
    if not choices:
        return f"there is no setting {key}: isobench --cfg job lists all settings"
    where = f" (in {'.'.join(parents)})" if parents else ""
    return f"there is no setting {key}: {suggest_nearest(name, set(choices))}{where}"


def _list_option_settings(group: str) -> dict[str, list[str]]:
    """List the options of a group such as calibration, the user's included, each with the settings in its YAML."""
    settings_by_option = {}
    for file in (file for folder in _list_config_folders() for file in sorted((folder / group).glob("*.yaml"))):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            settings_by_option[file.stem] = [name for name in map(str, content) if not name.startswith("_")]
    return settings_by_option


def _list_experiment_settings(parents: list[str]) -> list[str]:
    """List the settings that the typed experiment's YAML has below ``parents``, such as ``analysis``."""
    typed = map(Override.parse, read_arguments())
    names = [one.value for one in typed if one.name == "experiment" and one.value is not None]
    file = find_config("experiment", names[-1]) if names else None
    node: Any = read_config_file(file) if file else {}
    for parent in parents:
        node = node.get(parent) if isinstance(node, dict) else None
    return [key for key in node if key != "_target_"] if isinstance(node, dict) else []
