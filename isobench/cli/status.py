"""python -m isobench.status +experiment=NAME: what is done, running, queued, failed, missing, and what it costs."""

import argparse
import time
from collections.abc import Sequence

from isobench.analyses.names import needs_training
from isobench.analyses.runner import print_analysis_plan
from isobench.cli.guard import run_guarded
from isobench.common.errors import UserError
from isobench.common.terminal import make_console
from isobench.runs.state import find_run_states
from isobench.sweep.rows import find_sweep_rows
from isobench.sweep.state_table import print_details, print_overview


def main() -> None:
    """The command line; exit codes as for ``python -m isobench``."""
    parser = argparse.ArgumentParser(
        prog="python -m isobench.status",
        description="The state of a sweep's runs. Give it the sweep's own arguments; with +experiment=NAME alone "
        "(and output_dir=...) every run that commands with this experiment asked for, with neither every run.",
        allow_abbrev=False,
    )
    parser.add_argument("--watch", nargs="?", const=10.0, type=float, metavar="SECONDS", help="renew (every 10 s)")
    options, arguments = parser.parse_known_args()
    run_guarded(lambda: print_status(arguments, options.watch))


def print_status(arguments: Sequence[str], watch: float | None = None) -> None:
    """Print the state once, or again and again until Ctrl-C or until nothing is left to wait for."""
    if watch is not None and not watch > 0:
        raise UserError(f"--watch {watch:g} must be a number of seconds above 0")
    while True:
        title, rows = find_sweep_rows(arguments)
        if rows[0].cfg.analysis and not needs_training(rows[0].cfg.analysis):
            print_analysis_plan(title, rows)
            return
        states = find_run_states(rows)
        if watch is not None:
            make_console().clear()
        print_overview(title, rows, states)
        print_details(rows, states)
        if watch is None or all(state.name in ("done", "failed") for state in states):
            return
        print(time.strftime("%H:%M:%S"), f"renewed every {watch:g} s, Ctrl-C ends", flush=True)
        time.sleep(watch)


if __name__ == "__main__":
    main()
