"""Run a command so that errors become one line and an exit code."""

import os
import sys
from collections.abc import Callable
from typing import Any

from isobench.common import environment
from isobench.common.interruption import Interrupted
from isobench.config.explain import print_error


def run_guarded(function: Callable[[], Any]) -> None:
    """Call a command's main function; errors become one line and an exit code."""
    wanted = os.environ.get("HYDRA_FULL_ERROR")
    environment.note_command(debugging=wanted == "1")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us, not to Hydra's own printing
    try:
        function()
    except (KeyboardInterrupt, Interrupted) as stop:
        print("isobench: interrupted; finished runs are kept, the same command goes on", file=sys.stderr)
        raise SystemExit(128 + getattr(stop, "signum", 2)) from None
    except Exception as error:
        if environment.is_debugging():
            raise
        print_error(error)
        raise SystemExit(2) from None
    finally:
        if wanted is None:
            del os.environ["HYDRA_FULL_ERROR"]
