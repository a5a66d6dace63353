"""Carry out the runs of a plan that have no record yet, one after another, as a sweep's own processes do.

Start it as often as you like, on any machines that share the output folder: each run is carried out once. A plan is a
file in OUTPUT_DIR/plans, or one of a bundle. Its settings are taken as they are.

Example: isobench work outputs/plans/0123456789abcdef.json
"""

import argparse
import os
import shlex
import signal
import threading
from pathlib import Path

from isobench.cli.command import CommandParser, read_output_dir, run_guarded, split_folders
from isobench.common import environment
from isobench.common.errors import StorageError, refuse
from isobench.common.interruption import Interrupted, raise_interrupted
from isobench.config.explain import print_error
from isobench.runs.plan import write_plan
from isobench.sweep.worker import EXIT_STORAGE, is_foreign, read_plan, work


def main() -> None:
    parser = CommandParser("isobench work", __doc__, "[output_dir=FOLDER]", page="sweeps")
    add = parser.add_argument
    add("arguments", metavar="PLAN", nargs="+", help="the plan's file")
    add("--trust", action="store_true", help="run the classes that the plan names, whoever wrote it")
    add("--config-dir", action="append", default=[], metavar="FOLDER", help="your own configs, whose classes are run")
    add("--since", type=float, metavar="SECONDS", help="retry_failed: failures before this time (now), since 1970")
    add("--killed-since", type=float, metavar="SECONDS", help="leave out runs that killed a process here later (now)")
    add("--attached", action="store_true", help="save and end when standard input ends, as a sweep's processes do")
    options = parser.parse_intermixed_args()
    run_guarded(lambda: carry_out(options))


def carry_out(options: argparse.Namespace) -> None:
    """Carry out a plan, and end the process with its exit code; after a signal with 128 + its number."""
    if options.attached:
        threading.Thread(target=_end_with_input, daemon=True).start()
    for signum in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(signum, raise_interrupted)
    try:
        code = _work(options)
    except Interrupted as stop:
        code = 128 + stop.signum
    except StorageError as error:
        print_error(error)
        code = EXIT_STORAGE
    finally:  # nothing is left to save: a later signal must not disturb the end of the process
        for signum in (signal.SIGTERM, signal.SIGUSR2):
            signal.signal(signum, signal.SIG_IGN)
    raise SystemExit(code)


def _work(options: argparse.Namespace) -> int:
    files, settings = split_folders(options.arguments)
    refuse((len(files) != 1, "name one plan: isobench work OUTPUT_DIR/plans/NAME.json"))
    output_dir = read_output_dir(settings, "isobench work") if settings else None
    plan, runs = read_plan(files[0], output_dir, list(map(Path, options.config_dir)), options.trust)
    if output_dir and is_foreign(files[0], Path(output_dir)):  # else report and prune would not know its runs
        write_plan(output_dir, plan, is_imported=True)
    environment.note_command(shlex.split(plan.commands[0]) if plan.commands else ["isobench"])
    since = environment.read_command_start() if options.since is None else options.since
    return work(runs, since, options.killed_since, is_numbered=len(runs) > 1)


def _end_with_input() -> None:
    """Send this process SIGTERM as soon as its parent is gone; it would go on, unseen, when the parent is killed."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
