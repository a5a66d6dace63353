"""List the runs of an output folder, whatever commands they come from."""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from isobench.common.errors import UserError
from isobench.config.rebuild import NeedsOmegaConf, read_plain_hints, rebuild_value
from isobench.config.schema import Config, config_from_plain
from isobench.runs.identity import Identifier
from isobench.runs.layout import CONFIG_FILE, is_run_folder_name, run_folder_name, runs_folder
from isobench.runs.row import Row
from isobench.runs.validate import ConfigValidator

SECTION = re.compile(r"^[a-z].*\n(?:(?: .*)?\n)*", re.MULTILINE)  # a line with a name, then indented and empty lines


def list_run_folders(output_dir: str) -> list[Path]:
    """List the folders of all runs of an output folder, sorted by name; what has another kind of name is no run."""
    paths = runs_folder(output_dir).glob("*")
    return sorted(path for path in paths if is_run_folder_name(path.name) and path.is_dir())


def read_run_config(folder: Path, validator: ConfigValidator) -> Config | None:
    """Read the config that a run was started with; None if it can't be read, or is not valid any more."""
    try:
        cfg = parse_config((folder / CONFIG_FILE).read_text())
        validator.validate(cfg)
    except Exception:  # it may be damaged in many ways, or be of another version
        return None
    return cfg


def parse_config(text: str) -> Config:
    """Parse a run's config.yaml.

    The configs of many runs share most of their sections. A section with the text of an earlier one is not parsed
    again, and the configs then hold the same object: don't change it. A file that isobench did not write may be no
    list of sections; it is parsed as a whole.

    Raises:
        yaml.YAMLError, omegaconf.errors.OmegaConfBaseException: it is no YAML, or no config.
    """
    texts = SECTION.findall(text)
    try:
        sections = dict(map(parse_section, texts)) if "".join(texts) == text else {}
        if sections.keys() == read_plain_hints(Config).keys():
            return Config(**sections)
    except (yaml.YAMLError, NeedsOmegaConf):
        pass
    return config_from_plain(load_yaml(text))


@cache
def parse_section(text: str) -> tuple[str, Any]:
    """Parse one section of a config.yaml, and return its name and value.

    Raises:
        yaml.YAMLError: it is no YAML by itself.
        NeedsOmegaConf: it is no section, or OmegaConf has to convert or refuse a value.
    """
    section = load_yaml(text)
    if type(section) is not dict or len(section) != 1:
        raise NeedsOmegaConf
    ((name, value),) = section.items()
    hint = read_plain_hints(Config).get(name)
    if hint is None:
        raise NeedsOmegaConf
    return name, rebuild_value(value, hint)


def load_yaml(text: str) -> Any:
    """Parse YAML, with the library in C where there is one."""
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def read_run_rows(output_dir: str, excluded: set[str]) -> Iterator[Row]:
    """Read config and record of every run in an output folder, one Row each.

    Leave out the folders named in ``excluded``, configs that can't be read, and runs whose key, computed anew, no
    longer names their folder. Leave out runs whose data or weights are missing, with a line on standard error.
    """
    validator, identifier = ConfigValidator(), Identifier()
    for folder in list_run_folders(output_dir):
        if folder.name in excluded or (cfg := read_run_config(folder, validator)) is None:
            continue
        try:
            identity = identifier.identify(cfg)
        except UserError as error:
            print(f"isobench: left out: {folder}: {error}", file=sys.stderr)
            continue
        if run_folder_name(identity.key) == folder.name:
            yield Row.of(replace(cfg, output_dir=output_dir), identity.key, identity)
