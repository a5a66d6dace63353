"""The runs that a command's arguments mean."""

import sys
from collections.abc import Sequence

from isobench.common.errors import UserError
from isobench.runs.layout import run_folder_name
from isobench.runs.listing import read_rows
from isobench.runs.row import Row
from isobench.sweep.plan import compose_sweep, plan_runs, plan_saved_command
from isobench.sweep.saved_commands import MULTIRUN_FLAGS, read_commands


def find_sweep_rows(arguments: Sequence[str]) -> tuple[str, list[Row]]:
    """Title and rows: of these arguments, or of all commands the output folder remembers for the experiment."""
    wanted = [argument for argument in arguments if argument not in MULTIRUN_FLAGS]
    with compose_sweep(wanted) as (loader, base, task):
        name, output_dir = base.experiment.name, base.output_dir
        general = all(argument.startswith(("+experiment=", "output_dir=", "data.")) for argument in wanted)
        sweeps = (
            [command for command in read_commands(output_dir) if name in (None, command.experiment)]
            if general
            else []
        )
        if not sweeps and (name or not general):
            planned = plan_runs(loader, base, task)
            return name or "runs", [run.row for run in planned.values()]
    rows: dict[str, Row] = {}
    for command in sweeps:
        try:
            rows.update({key: run.row for key, run in plan_saved_command(command, output_dir).items()})
        except UserError as error:
            print(f"isobench: left out: {error}", file=sys.stderr)
    if name is None:
        rows.update({row.folder.key: row for row in read_rows(output_dir, {run_folder_name(key) for key in rows})})
    if not rows:
        raise UserError(f"nothing was run in {output_dir} yet; name a sweep, e.g. +experiment=glue_isobn")
    return name or f"runs in {output_dir}", list(rows.values())
