"""Run ``isobench`` (``python -m isobench``): one run, a sweep, an analysis, or a command such as ``isobench status``.

Hydra composes the config. Importing this file is quick: what plans and carries out runs is imported when needed.
"""

import importlib
import itertools
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import hydra
from hydra._internal.utils import get_args_parser
from omegaconf import DictConfig

from isobench import __version__
from isobench.cli import choices
from isobench.cli.command import CommandParser, run_guarded
from isobench.common import environment
from isobench.common.errors import UserError, doing, refuse, suggest_nearest
from isobench.common.files import BUNDLE_FILE
from isobench.common.packages import conf_dir
from isobench.common.terminal import open_closed_streams
from isobench.config.command_line import CONFIG_DIR_FLAGS, Override, check_typed_settings, split_config_dirs
from isobench.config.explain import print_error
from isobench.config.schema import register_schema
from isobench.papers.description import read_paper
from isobench.papers.folders import take_paper_flags

# Words of the command line: each is a module of isobench/cli, or a list that isobench/cli/choices.py prints.
COMMANDS = (
    "status", "report", "diagnose", "fit", "apply", "export", "import", "verify", "dashboard", "prune", "work",
)  # fmt: skip
LISTS = (*choices.GROUPS, "papers")
FLAGS_WITH_VALUE = (
    *CONFIG_DIR_FLAGS, "--config-name", "-cn", "--config-path", "-cp", "--package", "-p", "--cfg", "-c",
)  # fmt: skip
INFO_FLAGS = ("--info", "-i")  # the word after them may be their value or a setting
SHOWING_FLAGS = (*INFO_FLAGS, "--shell-completion", "-sc", "--cfg", "-c")  # nothing is run with them


def main() -> None:
    """Run isobench, or the command that the first word names (``isobench status +experiment=NAME``).

    Exit codes: 0 done, 1 a run failed, 2 the user has to change something, 3 a run is at work or queued elsewhere.
    """
    open_closed_streams()
    _note_command_line()
    if split_config_dirs(sys.argv[1:])[0]:
        _find_own_modules()
    word = _take_word()
    if word in COMMANDS:
        find_command(word)()
    elif word in LISTS:
        choices.main(word)
    elif word == "--version":
        run_guarded(lambda: print(f"isobench {__version__}"))
    elif {"--help", "-h"} & set(sys.argv):
        run_guarded(choices.print_help)
    else:
        register_schema()
        run_guarded(run_hydra)


def _note_command_line() -> None:
    """Note the command as it was typed, and read the papers that it names, before anything else is done."""
    try:
        with doing("the current folder"):  # which may be gone
            Path.cwd()
        with doing("the command line"):  # which may have bytes that are no text
            " ".join(sys.argv).encode()
        sys.argv[1:] = take_paper_flags(sys.argv[1:])
        environment.note_command([Path(sys.argv[0]).name, *sys.argv[1:]])
        for folder in environment.read_papers():
            read_paper(Path(folder))
    except Exception as error:
        if os.environ.get("HYDRA_FULL_ERROR"):
            raise
        print_error(error)
        raise SystemExit(2) from None


def _take_word() -> str:
    """Return the first word of the command line, which ``--config-dir FOLDER`` may stand before; take a command's."""
    place = 1
    while place < len(sys.argv) and sys.argv[place].partition("=")[0] in CONFIG_DIR_FLAGS:
        place += 1 if "=" in sys.argv[place] else 2
    word = sys.argv[place] if place < len(sys.argv) else ""
    if word in (*COMMANDS, *LISTS):
        del sys.argv[place]
    return word


def _find_own_modules() -> None:
    """Let the user's own configs name modules in the current folder, as ``python -m isobench`` does.

    The folder is searched last, so that no file there takes the place of a library's. It is not searched where no
    configs of the user's own are named, in a bundle, which may be a stranger's, or under ``python -P``.
    """
    folder = Path.cwd()
    if not (sys.flags.safe_path or (folder / BUNDLE_FILE).exists() or str(folder) in sys.path):
        sys.path.append(str(folder))


def find_command(word: str) -> Callable[[], None]:
    """Import the module of isobench/cli that carries out a command, and return its function."""
    module = "import_" if word == "import" else word  # a keyword is no name of a module
    function: Callable[[], None] = importlib.import_module(f"isobench.cli.{module}").main
    return function


def run_hydra() -> None:
    """Hand the command line to Hydra, in an order and a form that Hydra accepts."""
    from isobench.sweep.grid import postpone_method_settings, rewrite_overrides  # late: a list or --help needs none

    call_hydra = hydra.main(version_base="1.3", config_path=conf_dir(), config_name="config")(_refuse_mode)
    arguments = sys.argv[1:]
    word = arguments[0] if arguments else ""
    hint = suggest_nearest(word, (*COMMANDS, *LISTS)) if word else "isobench --help shows both"
    is_no_setting = re.fullmatch(r"(\w[\w-]*)?", word)  # nor a flag
    refuse((is_no_setting, f"name a command or settings{word and f', not {word!r}'}: {hint}"))
    check_typed_settings(arguments)
    overrides = rewrite_overrides(list(map(Override.parse, arguments)))
    if not any(flag in arguments for flag in SHOWING_FLAGS):
        overrides = postpone_method_settings(overrides)
    sys.argv[1:] = _move_flags_first(list(map(str, overrides)))
    CommandParser("isobench", "", parents=[get_args_parser()], add_help=False).parse_args(sys.argv[1:])
    call_hydra()


def _move_flags_first(arguments: list[str]) -> list[str]:
    """Put Hydra's flags, with their values, before the settings: argparse refuses settings on both sides of a flag.

    A command line with ``--info`` stays as it is.
    """
    flags: list[str] = []
    settings: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        (flags if argument.startswith("-") else settings).append(argument)
        if argument in FLAGS_WITH_VALUE:
            flags += itertools.islice(remaining, 1)
        if argument in INFO_FLAGS:
            return arguments
    return flags + settings


def _refuse_mode(_: DictConfig) -> None:
    """Hydra calls this for ``hydra.mode=RUN`` alone; all else goes to isobench.sweep.sweeper."""
    print_error(UserError("hydra.mode=RUN: leave it out, since one run is a sweep of one"))
    raise SystemExit(2)


if __name__ == "__main__":
    main()
