"""Plan again the sweeps that an output folder remembers, without trusting their commands.

An output folder may be a copy that somebody else made. So only settings are taken from its commands: no flags and no
settings of Hydra, which can name code to import; no folder of configs, unless the user names it too; no values of
environment variables.
"""

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser

from isobench.common.errors import UserError
from isobench.config.command_line import quote_for_hydra, split_config_dirs
from isobench.config.explain import explain_config_error
from isobench.config.schema import Config
from isobench.sweep.plan import PlannedRun, compose_sweep, plan_runs
from isobench.sweep.saved_commands import SweepCommand, drop_launch_arguments

MAX_REFERENCES = 20  # in a saved command: a chain of many can stand for more text than fits into memory
SETTINGS = {setting.name for setting in fields(Config)}
OUTSIDE_OF_GROUP = re.compile(
    r"\.\.|\\|:/|(?:^|[^\w])/"
)  # in an option's name: a path that leaves the group's folder


def plan_saved_command(
    command: SweepCommand, output_dir: str, config_dirs: Sequence[str] = ()
) -> dict[str, PlannedRun]:
    """Plan the runs that a saved sweep has today.

    Args:
        command: the sweep.
        output_dir: the output folder that it was saved in, which may have been moved since.
        config_dirs: the folders that the user gave with ``--config-dir``.

    Raises:
        UserError: its working folder, its data or a setting are not there any more, or it holds more than settings.
    """
    current_output_dir = f"output_dir={quote_for_hydra(str(Path(output_dir).absolute()))}"
    try:
        arguments = [*select_settings(command, config_dirs), current_output_dir]
        with work_in(command.folder), compose_sweep(arguments) as parts:
            return plan_runs(*parts)
    except Exception as error:  # foreign text may fail anywhere in Hydra
        reason = error if isinstance(error, UserError) else explain_config_error(error)
        raise UserError(f"a sweep can't be planned any more: {' '.join(command.arguments)}: {reason}") from error


def select_settings(command: SweepCommand, config_dirs: Sequence[str]) -> list[str]:
    """Select from a saved command its settings of isobench, and its folder of configs if the user gave that too.

    Raises:
        UserError: there is something else among its arguments.
        hydra.errors.HydraException: an argument is no setting.
    """
    own_config_dirs, arguments = split_config_dirs(drop_launch_arguments(command.arguments))
    given = {Path(folder).expanduser().resolve() for folder in config_dirs}
    selected = []
    for name in own_config_dirs:
        folder = Path(command.folder, name).expanduser().resolve()
        if folder not in given:
            raise UserError(f"it takes configs from {folder}: add --config-dir={folder} if you trust that folder")
        selected = [f"--config-dir={folder}"]
    if sum(argument.count("${") for argument in arguments) > MAX_REFERENCES:
        raise UserError(f"its settings refer to others, as in ${{seed}}, more than {MAX_REFERENCES} times")
    for argument in arguments:
        if not argument.startswith("output_dir="):
            check_setting(argument)
            selected.append(argument)
    return selected


def check_setting(argument: str) -> None:
    """Raise UserError unless an argument only sets a setting of isobench, to a value that stands in the argument.

    Raises:
        UserError: it is a flag, a setting of Hydra, a value from elsewhere, or an option outside of its group.
        hydra.errors.HydraException: it is no setting at all.
    """
    if argument.startswith("-"):
        raise UserError(f"the flag {argument} is not taken from a file")
    if has_resolver(argument):
        raise UserError(
            f"{argument} is not taken from a file: only other settings can be referred to, as in ${{seed}}"
        )
    override = OverridesParser.create().parse_override(argument)
    key, package = override.key_or_group, override.package or override.key_or_group
    if any(re.split("[./]", name)[0] not in SETTINGS for name in (key, package)):
        raise UserError(f"{argument} is not taken from a file: {key} is no setting of isobench")
    is_group = "." not in key or "/" in key
    if ".." in key or (is_group and OUTSIDE_OF_GROUP.search(argument.partition("=")[2])):
        raise UserError(f"{argument} is not taken from a file: it names no option of {key}")


def has_resolver(text: str) -> bool:
    """Return True if a text holds more of OmegaConf's language than references to settings.

    ``${oc.env:HOME}`` would show an environment variable. Files of others must not ask for one.
    """
    return "${" in re.sub(r"\$\{(?!hydra\b)[\w.]+\}", "", text)


@contextmanager
def work_in(folder: str) -> Iterator[None]:
    """A context that works in another folder, from which nothing is imported.

    Relative entries of Python's search path, such as the empty one in a notebook, go on meaning the folder before.
    """
    before = sys.path[:]
    sys.path[:] = map(os.path.abspath, before)
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        sys.path[:] = before
