"""Run a command so that every error is one line and an exit code."""

import atexit
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from isobench.common import environment
from isobench.common.interruption import Interrupted, obey_ctrl_c
from isobench.common.terminal import outlive_readers
from isobench.config.explain import print_error


def run_guarded(function: Callable[[], Any]) -> None:
    """Call a command's function. An error is printed in one line and ends the process with an exit code.

    With HYDRA_FULL_ERROR=1 an error shows its traceback instead.

    Raises:
        SystemExit: 2 after an error, 128 + the signal's number after a signal.
    """
    hydra_full_error = os.environ.get("HYDRA_FULL_ERROR")
    environment.note_command(debugging=hydra_full_error == "1")
    environment.share_processor()
    environment.keep_freed_memory()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises errors instead of printing them itself
    try:
        with outlive_readers():
            call_guarded(function)
    finally:
        atexit.register(end_quietly)
        if hydra_full_error is None:
            del os.environ["HYDRA_FULL_ERROR"]


def end_quietly() -> None:
    """Let Ctrl-C end the process at once; otherwise libraries print tracebacks while Python shuts down."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def call_guarded(function: Callable[[], Any]) -> None:
    """Call a command's function, and turn an error or a signal into one line and SystemExit."""
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
