"""Show the state of a sweep's runs and their device time.

Give it the sweep's own arguments. +experiment=NAME alone shows every run of this experiment that was asked for in the
output folder, and no arguments show every run there.

Example: isobench status +experiment=glue_isobn
"""

import time
from collections.abc import Sequence

from isobench.analyses.rows import needs_training
from isobench.analyses.runner import print_analysis_plan
from isobench.cli.command import CommandParser, run_guarded
from isobench.common.terminal import is_output_read, make_console
from isobench.runs.state import add_states
from isobench.sweep.find_runs import find_runs
from isobench.sweep.overview import print_details, print_overview

PAUSE = 10  # seconds


def main() -> None:
    parser = CommandParser("isobench status", __doc__, "[+experiment=NAME] [SETTING=VALUE ...]", page="usage")
    parser.add_argument("--watch", action="store_true", help="show it again every 10 s until all runs have ended")
    options, arguments = parser.parse_sweep_arguments()
    run_guarded(lambda: print_status(arguments, options.watch))


def print_status(arguments: Sequence[str], watch: bool = False) -> None:
    """Print the states of a sweep's runs, once or with ``watch`` every 10 seconds until all have ended."""
    while True:
        title, runs = find_runs(arguments)
        if runs[0].cfg.analysis and not needs_training(runs[0].cfg.analysis):
            print_analysis_plan(title, runs)
            return
        runs = add_states(runs)
        if watch:
            make_console().clear()
        print_overview(title, runs)
        print_details(runs)
        if not watch or not is_output_read() or all(run.state in ("done", "failed") for run in runs):
            return
        print(time.strftime("%H:%M:%S"), f"renewed every {PAUSE} s, Ctrl-C ends", flush=True)
        time.sleep(PAUSE)
