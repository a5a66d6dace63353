"""Show the state of a sweep's runs and their device time.

Give it the sweep's own arguments. +experiment=NAME alone shows every run of this experiment that was asked for in the
output folder, and no arguments show every run there.

Example: isobench status +experiment=glue_isobn
"""

import math
import time
from collections.abc import Sequence

from isobench.analyses.rows import needs_training
from isobench.analyses.runner import print_analysis_plan
from isobench.cli.command import CommandParser, run_guarded
from isobench.common.terminal import is_output_read, make_console
from isobench.runs.state import add_states
from isobench.sweep.find_runs import find_runs
from isobench.sweep.overview import print_details, print_overview


def main() -> None:
    parser = CommandParser("isobench status", __doc__, "[+experiment=NAME] [SETTING=VALUE ...]", page="usage")
    text = "show it again every SECONDS (10)"
    parser.add_argument("--watch", nargs="?", const=10.0, type=read_seconds, metavar="SECONDS", help=text)
    options, arguments = parser.parse_sweep_arguments()
    run_guarded(lambda: print_status(arguments, options.watch))


def read_seconds(text: str) -> float:
    """Read the value of ``--watch``; raise argparse's error unless it is a number above 0."""
    if not 0 < (seconds := float(text)) < math.inf:
        raise ValueError(text)
    return seconds


def print_status(arguments: Sequence[str], watch: float | None = None) -> None:
    """Print the states of a sweep's runs, every ``watch`` seconds until all have ended; None prints them once."""
    while True:
        title, runs = find_runs(arguments)
        if runs[0].cfg.analysis and not needs_training(runs[0].cfg.analysis):
            print_analysis_plan(title, runs)
            return
        runs = add_states(runs)
        if watch is not None:
            make_console().clear()
        print_overview(title, runs)
        print_details(runs)
        if watch is None or not is_output_read() or all(run.state in ("done", "failed") for run in runs):
            return
        print(time.strftime("%H:%M:%S"), f"renewed every {watch:g} s, Ctrl-C ends", flush=True)
        time.sleep(watch)
