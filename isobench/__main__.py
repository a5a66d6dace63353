"""Run ``isobench`` (``python -m isobench``): one run, a sweep, an analysis, or a command such as ``isobench status``.

Hydra composes the config. Importing this file is quick: torch and its like are imported once a config is valid.
"""

import importlib
import itertools
import keyword
import re
import sys
from pathlib import Path
from types import ModuleType

import hydra
from hydra._internal.utils import get_args_parser
from hydra.types import RunMode
from omegaconf import DictConfig

from isobench.cli import choices
from isobench.cli.arguments import FlagParser
from isobench.cli.completion import answer_query, is_query
from isobench.cli.guard import run_guarded
from isobench.common import environment
from isobench.common.errors import UserError, suggest_nearest
from isobench.common.packages import conf_dir
from isobench.config.command_line import CONFIG_DIR_FLAGS, MULTIRUN_FLAGS, check_typed_settings
from isobench.config.explain import print_error
from isobench.config.schema import register_schema, to_config
from isobench.papers.description import read_paper
from isobench.papers.folders import find_papers, take_paper_flags
from isobench.sweep.grid import postpone_method_settings, rewrite_overrides
from isobench.sweep.planning import compose_sweep
from isobench.sweep.sweeper import run_alone

# Words of the command line, each a module of isobench/cli; one that is a keyword of Python has an underscore there.
COMMANDS = ("status", "report", "export", "import", "verify", "dashboard", "prune", "papers")
MOVED = {"wordsim": "convert_wordsim"}  # former command -> the script in a paper's folder
FLAGS_WITH_VALUE = (
    *CONFIG_DIR_FLAGS, "--config-name", "-cn", "--config-path", "-cp", "--package", "-p", "--cfg", "-c",
)  # fmt: skip
INFO_FLAGS = ("--info", "-i")  # the word after them may be their value or a setting
SHOWING_FLAGS = (*INFO_FLAGS, "--cfg", "-c", "--shell-completion", "-sc")  # nothing is run with them


def main() -> None:
    """Run isobench, or the command that the first word names (``isobench status +experiment=NAME``).

    Exit codes: 0 done, 1 a run failed, 2 the user has to change something, 3 a run is at work or queued elsewhere.
    """
    try:
        sys.argv[1:] = take_paper_flags(sys.argv[1:])
        for folder in environment.read_papers():
            read_paper(Path(folder))  # so that a mistake in it is said before anything is done
    except UserError as error:
        print_error(error)
        raise SystemExit(2) from None
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        import_command(sys.argv.pop(1)).main()
        return
    if sys.argv[1:2] and sys.argv[1] in choices.GROUPS:
        choices.main(sys.argv.pop(1))
        return
    register_schema()
    run_guarded(run_hydra)


def import_command(word: str) -> ModuleType:
    """Import the module of isobench/cli that carries out a word of the command line."""
    return importlib.import_module(f"isobench.cli.{word}{'_' if keyword.iskeyword(word) else ''}")


def run_hydra() -> None:
    """Hand the command line to Hydra, in an order and a form that Hydra accepts.

    Raises:
        UserError: the first word is no command, or an argument can't be meant.
        SystemExit: there is no such flag.
    """
    call_hydra = hydra.main(version_base="1.3", config_path=conf_dir(), config_name="config")(run_job)
    words = (*COMMANDS, *choices.GROUPS)
    if is_query(sys.argv[1:]):
        answer_query(words, call_hydra)
        return
    if sys.argv[1:2] and re.fullmatch(r"\w[\w-]*", word := sys.argv[1]):
        if word in MOVED:
            folders = (name for name, folder in find_papers().items() if (folder / f"{MOVED[word]}.py").is_file())
            paper = next(folders, "PAPER")
            script = f"python -m isobench_papers.{paper}.{MOVED[word]} --help"
            raise UserError(f"isobench {word} is a script of its paper now: {script}")
        raise UserError(f"there is no command {word}: {suggest_nearest(word, words)}; settings are written key=value")
    check_typed_settings(sys.argv[1:])
    arguments = rewrite_overrides(sys.argv[1:])
    if any(text.startswith("calibration.") for text in arguments) and is_sweep(arguments):
        arguments = postpone_method_settings(arguments)
    sys.argv[1:] = move_flags_first(arguments)
    FlagParser("isobench", parents=[get_args_parser()], add_help=False).parse_args(sys.argv[1:])
    call_hydra()


def is_sweep(arguments: list[str]) -> bool:
    """True if a command line is a sweep's: by its flag, or because its experiment is one."""
    if any(flag in arguments for flag in MULTIRUN_FLAGS):
        return True
    has_experiment = any(text.startswith("+experiment=") for text in arguments)
    if not has_experiment or any(flag in arguments for flag in SHOWING_FLAGS):
        return False
    with compose_sweep([text for text in arguments if not text.startswith("calibration.")]) as (_, base, _):
        return bool(base.hydra.mode == RunMode.MULTIRUN)


def move_flags_first(arguments: list[str]) -> list[str]:
    """Put Hydra's flags, with their values, before the settings: argparse refuses settings on both sides of a flag.

    A command line with ``--info`` stays as it is.

    Raises:
        UserError: a flag lacks its value.
    """
    flags: list[str] = []
    settings: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        (flags if argument.startswith("-") else settings).append(argument)
        if argument in FLAGS_WITH_VALUE:
            if not (value := list(itertools.islice(rest, 1))):
                raise UserError(f"{argument} needs a value after it")
            flags += value
        if argument in INFO_FLAGS:
            return arguments
    return flags + settings


def run_job(config: DictConfig) -> None:
    """Carry out a run that belongs to no sweep, as Hydra asks for it; its exit code ends the process."""
    try:
        run_alone(to_config(config))
    except Exception as error:  # printed here, since Hydra would print more than one line
        if environment.is_debugging():
            raise
        print_error(error)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
