"""Write the page of a sweep's report when the sweep ends, and print its path."""

import shlex

from isobench.common import environment
from isobench.common.errors import UserError, extract_first_line
from isobench.common.terminal import print_note
from isobench.config.schema import Config
from isobench.runs.row import Row
from isobench.sweep.saved_commands import drop_launch_arguments, read_commands


def write_page(rows: list[Row], arguments: list[str]) -> None:
    """Write the page of a sweep's runs and print its path; say in one line why there is none.

    The results are safe before this, and the sweep's exit code does not depend on it. So errors are printed, not
    raised.

    Args:
        rows: the sweep's runs with their states.
        arguments: the command line's.
    """
    if not any(row.record is not None and row.record.status == "finished" for row in rows):
        print_note("no page is written, because no run has finished")
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
        print(f"The page has this command's runs. Of all sweeps: isobench report +experiment={experiment.name}")
    print(f"Page: {page}")


def has_other_sweeps(output_dir: str, experiment: str, arguments: list[str]) -> bool:
    """Return True if the output folder remembers other sweeps of an experiment; ``arguments``: this one's."""
    own = drop_launch_arguments(arguments)
    try:
        commands = read_commands(output_dir)
    except UserError:  # a damaged file, which status and report name
        return False
    return any(command.experiment == experiment and command.arguments != own for command in commands)


def format_report_command(cfg: Config, arguments: list[str]) -> str:
    """Say in one line how to get the results of a sweep whose runs were submitted.

    Args:
        cfg: the config of one of its runs.
        arguments: the command line's.
    """
    if cfg.analysis:
        return "Its analysis, when the runs have ended: repeat the command"
    command = shlex.join(["python", "-m", "isobench.report", *drop_launch_arguments(arguments)])
    return f"Table and page, when runs have ended: {command}"
