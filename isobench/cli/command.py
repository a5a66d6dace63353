"""What every command shares: flags that are parsed the same way, and errors that are one line and an exit code."""

import argparse
import atexit
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from isobench.common import environment
from isobench.common.errors import UserError, refuse
from isobench.common.interruption import Interrupted, obey_ctrl_c
from isobench.common.terminal import outlive_readers
from isobench.config.bounds import check_value, read_hints
from isobench.config.command_line import (
    CONFIG_DIR_FLAGS,
    MULTIRUN_FLAGS,
    Override,
    expand_home_folders,
    split_config_dirs,
)
from isobench.config.explain import print_error
from isobench.config.schema import Config

SWEEP_FLAGS = (*MULTIRUN_FLAGS, *CONFIG_DIR_FLAGS)  # flags of a sweep, which go with its settings


class CommandParser(argparse.ArgumentParser):
    """A parser of flags whose errors are one line, without argparse's usage.

    Args:
        program: the command as it is typed, such as ``isobench report``.
        description: what it does. It may end with a line ``Example: ...``, which the help shows behind the flags.
        settings: what follows the flags in the usage, such as ``[SETTING=VALUE ...]``.
        page: the page of the documentation's how-to that the help names.
        options: further arguments of argparse.
    """

    def __init__(
        self, program: str, description: str | None, settings: str = "", page: str = "", **options: Any
    ) -> None:
        text, _, example = (description or "").partition("\nExample: ")
        super().__init__(program, description=text, allow_abbrev=False, **options)
        self.settings = settings
        self.ending = (
            f"\nexample: {example.strip()}\npage:    how-to/{page} in isobench's documentation\n" if example else ""
        )

    def format_help(self) -> str:
        """Return what ``--help`` prints."""
        flags = " ".join(self.format_usage().split()).removeprefix("usage: ")
        self.usage = f"{flags} {self.settings}".rstrip()
        return super().format_help() + self.ending

    def error(self, message: str) -> NoReturn:
        """Print a mistake in the arguments as one line and end the process with exit code 2."""
        print_error(UserError(f"{message} ({self.prog} --help shows the usage)"))
        raise SystemExit(2)

    def parse_sweep_arguments(self) -> tuple[argparse.Namespace, list[str]]:
        """Parse a command line into the command's own flags and a sweep's arguments: settings and ``SWEEP_FLAGS``."""
        options, arguments = self.parse_known_args()
        for argument in arguments:
            if argument.startswith("-") and argument.partition("=")[0] not in SWEEP_FLAGS:
                self.error(f"unrecognized arguments: {argument}")
        return options, arguments


def split_folders(arguments: list[str]) -> tuple[list[Path], list[str]]:
    """Split a command's arguments into folders, each once, and settings, which have a = or begin with + or ~.

    A folder with a = in its name is written ``./a=b``; Hydra's ``hydra/launcher=slurm`` is a setting.
    """
    is_folder = re.compile(r"\.{0,2}/|~/|[^+~=][^=]*$")
    settings = [text for text in arguments if not is_folder.match(text)]
    folders = dict.fromkeys(Path(text).expanduser() for text in arguments if text not in settings)
    return list(folders), settings


def split_files(arguments: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Split a command's arguments into files and the others, which may have the folders of ``--config-dir``."""
    files, _ = split_folders(split_config_dirs(arguments)[1])
    return files, [text for text in arguments if text.startswith("-") or Path(text).expanduser() not in files]


def read_output_dir(settings: Sequence[str], command: str) -> str:
    """Read the output folder from the settings of a command that takes no other setting; without one, the default."""
    folder = Config.output_dir
    for override in map(Override.parse, settings):
        is_other = override.key != "output_dir"
        refuse((is_other, f"{override} is no setting of {command}, which takes output_dir=FOLDER alone"))
        folder = (expand_home_folders(override).value or "").strip("'\"")
    refuse((len(set(settings)) > 1, "output_dir is given twice: name one folder"))
    check_value("output_dir", folder, read_hints(Config)["output_dir"])
    return folder


def run_guarded(function: Callable[[], Any]) -> None:
    """Set up the process of a command, and call the command's function.

    An error is printed in one line, or with HYDRA_FULL_ERROR=1 with its traceback. The exit code is 2 after an error,
    and 128 + the signal's number after a signal.
    """
    hydra_full_error = os.environ.get("HYDRA_FULL_ERROR")
    # What the user wants is kept under a name of our own, because HYDRA_FULL_ERROR is set below. A worker has its
    # sweep's.
    os.environ.setdefault(environment.DEBUG, hydra_full_error or "")
    os.environ[environment.COMMAND_START] = str(time.time())
    environment.share_processor()
    environment.keep_freed_memory()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises errors instead of printing them itself
    try:
        with outlive_readers():
            _turn_errors_into_exits(function)
    finally:
        atexit.register(_end_quietly)
        del os.environ[environment.DEBUG]
        if hydra_full_error is None:
            del os.environ["HYDRA_FULL_ERROR"]


def _turn_errors_into_exits(function: Callable[[], Any]) -> None:
    try:
        with obey_ctrl_c():
            function()
    except (KeyboardInterrupt, Interrupted) as stop:
        print("isobench: interrupted; finished runs are kept, the same command goes on", file=sys.stderr)
        raise SystemExit(128 + getattr(stop, "signum", 2)) from None
    except Exception as error:
        if environment.is_debugging():
            raise
        print_error(error)
        raise SystemExit(2) from None


def _end_quietly() -> None:
    """Let Ctrl-C end the process at once; otherwise libraries print tracebacks while Python shuts down."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
