"""Parse the flags of a command line so that a mistake is one line and exit code 2, as every other mistake is."""

import argparse
import re
from pathlib import Path
from typing import NoReturn

from isobench.common.errors import UserError, suggest_nearest
from isobench.config.command_line import CONFIG_DIR_FLAGS, MULTIRUN_FLAGS
from isobench.config.explain import print_error

SWEEP_FLAGS = (*MULTIRUN_FLAGS, *CONFIG_DIR_FLAGS)  # flags of a sweep, which go with its settings


class FlagParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line that names the nearest flag, without argparse's usage."""

    extra_flags: tuple[str, ...] = ()  # flags that are valid beside the parser's own

    def error(self, message: str) -> NoReturn:
        """Print a mistake in the arguments as one line and end the process.

        Raises:
            SystemExit: always, with exit code 2.
        """
        if flag := re.match(r"unrecognized arguments: (-\S*?)(?:[= ]|$)", message):
            known = {*self._option_string_actions, *self.extra_flags}
            message = f"there is no flag {flag[1]}: {suggest_nearest(flag[1], known)}"
        print_error(UserError(f"{message} ({self.prog} --help shows the usage)"))
        raise SystemExit(2)

    def parse_sweep_arguments(self) -> tuple[argparse.Namespace, list[str]]:
        """Parse the command line of a command that takes a sweep's arguments.

        Returns:
            The command's own flags, and the sweep's arguments in the order in which they were typed: its settings
            and ``SWEEP_FLAGS``.

        Raises:
            SystemExit: there is a flag that is neither.
        """
        self.extra_flags = SWEEP_FLAGS
        options, arguments = self.parse_known_args()
        for argument in arguments:
            if argument.startswith("-") and argument.partition("=")[0] not in SWEEP_FLAGS:
                self.error(f"unrecognized arguments: {argument}")
        return options, arguments


def split_folders(arguments: list[str]) -> tuple[list[Path], list[str]]:
    """Split a command's arguments into folders, each once, and settings; ``a=b`` is a setting, ``./a=b`` a folder."""
    settings = [text for text in arguments if re.match(r"[^/=]+=", text)]
    folders = dict.fromkeys(Path(text).expanduser() for text in arguments if text not in settings)
    return list(folders), settings
