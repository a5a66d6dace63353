"""Write the page of a sweep's report when the sweep ends, and print its path."""

import shlex

from isobench.common import environment
from isobench.common.errors import UserError, extract_first_line
from isobench.common.terminal import print_note
from isobench.config.schema import Config
from isobench.runs.row import Row
from isobench.sweep.saved_commands import drop_launch_arguments, read_commands


def write_page(rows: list[Row], arguments: list[str]) -> None:
    """Write the page of a sweep's runs and print its path, or print one line that says why there is no page.

    The results are already written, and the sweep's exit code does not depend on the page. So errors are printed, not
    raised. Without a finished run there is no page, and nothing is printed: the table has said so.

    Args:
        rows: the sweep's runs with their states.
        arguments: the arguments of the command line.
    """
    if not any(row.record is not None and row.record.status == "finished" for row in rows):
        return
    from isobench.report.files import write_report  # imports what pages are made with

    experiment = rows[0].cfg.experiment
    try:
        _, page = write_report(experiment, rows)
    except Exception as error:
        if environment.is_debugging():
            raise
        print_note(f"no page is written: {extract_first_line(error)}")
        return
    if experiment.name and has_other_sweeps(rows[0].cfg.output_dir, experiment.name, arguments):
        print(f"The page shows this command's runs; for all sweeps: isobench report +experiment={experiment.name}")
    print(f"Page: {page}")


def has_other_sweeps(output_dir: str, experiment: str, arguments: list[str]) -> bool:
    """Return True if the output folder remembers sweeps of an experiment with other arguments than these."""
    own = drop_launch_arguments(arguments)
    try:
        commands = read_commands(output_dir)
    except UserError:  # a damaged file, which status and report name
        return False
    return any(command.experiment == experiment and command.arguments != own for command in commands)


def format_report_command(cfg: Config, arguments: list[str]) -> str:
    """Write one line on how to get the results of a sweep whose runs were submitted.

    Args:
        cfg: the config of one of its runs.
        arguments: the arguments of the command line.
    """
    if cfg.analysis:
        return "When the runs have ended, repeat the command for the analysis"
    command = shlex.join(["isobench", "report", *drop_launch_arguments(arguments)])
    return f"When the runs have ended, get table and page by: {command}"
