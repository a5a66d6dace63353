"""List the runs of an output folder, whatever commands they come from."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import yaml

from isobench.common.errors import UserError
from isobench.config.schema import Config, config_from_plain
from isobench.runs.identity import identify
from isobench.runs.layout import CONFIG_FILE, is_run_folder_name, run_folder_name, runs_folder
from isobench.runs.row import Row
from isobench.runs.validate import validate_config


def list_run_folders(output_dir: str) -> list[Path]:
    """List the folders of all runs of an output folder, sorted by name; what has another kind of name is no run."""
    paths = runs_folder(output_dir).glob("*")
    return sorted(path for path in paths if is_run_folder_name(path.name) and path.is_dir())


def read_run_config(folder: Path) -> Config | None:
    """Read the config that a run was started with; None if it can't be read, or is not valid any more."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        cfg = config_from_plain(yaml.load((folder / CONFIG_FILE).read_text(), loader))
        validate_config(cfg)
    except Exception:  # it may be damaged in many ways, or be of another version
        return None
    return cfg


def read_run_rows(output_dir: str, excluded: set[str]) -> Iterator[Row]:
    """Read config and record of every run in an output folder, one Row each.

    Leave out the folders named in ``excluded``, configs that can't be read, and runs whose key, computed anew, no
    longer names their folder. Leave out runs whose data or weights are missing, with a line on standard error.
    """
    for folder in list_run_folders(output_dir):
        if folder.name in excluded or (cfg := read_run_config(folder)) is None:
            continue
        try:
            key = identify(cfg).key
        except UserError as error:
            print(f"isobench: left out: {folder}: {error}", file=sys.stderr)
            continue
        if run_folder_name(key) == folder.name:
            yield Row.of(replace(cfg, output_dir=output_dir), key)
