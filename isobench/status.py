"""python -m isobench.status +experiment=NAME: what is done, running, queued, failed, missing, and what it costs."""

import argparse
import sys
import time
from collections.abc import Sequence

from isobench.__main__ import run_guarded
from isobench.analyses.analyse import show_plan, trains
from isobench.errors import UserError
from isobench.report.row import Row
from isobench.report.table import console
from isobench.sweep.commands import FLAGS, recall
from isobench.sweep.folders import rows_in
from isobench.sweep.overview import print_details, print_overview
from isobench.sweep.plan import composed, plan, replay
from isobench.sweep.state import states_of


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
    run_guarded(lambda: status(arguments, options.watch))


def status(arguments: Sequence[str], watch: float | None = None) -> None:
    """Print the state once, or again and again until Ctrl-C or until nothing is left to wait for."""
    if watch is not None and not watch > 0:
        raise UserError(f"--watch {watch:g} must be a number of seconds above 0")
    while True:
        title, rows = rows_of(arguments)
        if rows[0].cfg.analysis and not trains(rows[0].cfg.analysis):
            show_plan(title, rows)
            return
        states = states_of(rows)
        if watch is not None:
            console().clear()
        print_overview(title, rows, states)
        print_details(rows, states)
        if watch is None or all(state.name in ("done", "failed") for state in states):
            return
        print(time.strftime("%H:%M:%S"), f"renewed every {watch:g} s, Ctrl-C ends", flush=True)
        time.sleep(watch)


def rows_of(arguments: Sequence[str]) -> tuple[str, list[Row]]:
    """Title and rows: of these arguments, or of all commands the output folder remembers for the experiment."""
    wanted = [argument for argument in arguments if argument not in FLAGS]
    with composed(wanted) as (loader, base, task):
        name, output_dir = base.experiment.name, base.output_dir
        general = all(argument.startswith(("+experiment=", "output_dir=", "data.")) for argument in wanted)
        sweeps = [command for command in recall(output_dir) if name in (None, command.experiment)] if general else []
        if not sweeps and (name or not general):
            planned = plan(loader, base, task)
            return name or "runs", [run.row for run in planned.values()]
    rows: dict[str, Row] = {}
    for command in sweeps:
        try:
            rows.update({key: run.row for key, run in replay(command, output_dir).items()})
        except UserError as error:
            print(f"isobench: left out: {error}", file=sys.stderr)
    if name is None:
        rows.update({row.folder.key: row for row in rows_in(output_dir, {key[:16] for key in rows})})
    if not rows:
        raise UserError(f"nothing was run in {output_dir} yet; name a sweep, e.g. +experiment=glue_isobn")
    return name or f"runs in {output_dir}", list(rows.values())


if __name__ == "__main__":
    main()
