"""Answer a shell that asks for completions: commands by isobench, choices and settings by Hydra."""

import contextlib
import io
import os
from collections.abc import Callable, Sequence


def is_query(arguments: Sequence[str]) -> bool:
    """Return True if a shell's completion script called isobench: ``-sc query=bash``."""
    has_flag = any(argument in ("-sc", "--shell-completion") for argument in arguments)
    return has_flag and any(argument.startswith("query=") for argument in arguments)


def answer_query(commands: Sequence[str], ask_hydra: Callable[[], object]) -> None:
    """Print what can complete the command line in COMP_LINE, and nothing else, since the user is still typing.

    Args:
        commands: the words that can follow ``isobench``, such as status; Hydra does not know them.
        ask_hydra: prints Hydra's completions of the rest of the line.
    """
    line = os.environ.get("COMP_LINE", "")
    program, *words = line.split() or ["isobench"]
    typed = "" if line.endswith(" ") or not words else words[-1]
    if len(words) - bool(typed) <= 0:
        print(*(command for command in commands if command.startswith(typed)))
    elif words[0] in commands:
        os.environ["COMP_LINE"] = " ".join([program, *words[1:]]) + " " * (not typed)
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(Exception, SystemExit):
        ask_hydra()
