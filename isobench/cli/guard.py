"""Run a command so that errors become one line and an exit code."""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from isobench.common.interruption import Interrupted
from isobench.config.explain import DEBUG_VARIABLE, is_debugging, print_error
from isobench.training.execute import START_TIME_VARIABLE


def run_guarded(function: Callable[[], Any]) -> None:
    """Call a command's main function; errors become one line and an exit code."""
    wanted = os.environ.get("HYDRA_FULL_ERROR")
    os.environ[DEBUG_VARIABLE] = "1" if wanted == "1" else "0"
    os.environ[START_TIME_VARIABLE] = str(time.time())
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us, not to Hydra's own printing
    try:
        function()
    except (KeyboardInterrupt, Interrupted) as stop:
        print("isobench: interrupted; finished runs are kept, the same command goes on", file=sys.stderr)
        raise SystemExit(128 + getattr(stop, "signum", 2)) from None
    except Exception as error:
        if is_debugging():
            raise
        print_error(error)
        raise SystemExit(2) from None
    finally:
        if wanted is None:
            del os.environ["HYDRA_FULL_ERROR"]
