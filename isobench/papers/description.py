"""What a paper.yaml says: a paper's authors, its tables and figures with their commands, what scale=paper means."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from isobench.common import environment
from isobench.common.errors import refuse
from isobench.papers.folders import (
    PAPER_FILE,
    PAPER_FLAG,
    StrictEntries,
    find_config,
    find_papers,
    read_checked_yaml,
    read_config_file,
)

PROGRAM = "python -m isobench"
MAP_HEADING = "| paper | | at the paper's scale | laptop | embedded | status | printed cells held by |"


class TableOrFigure(StrictEntries):
    """A table or figure of the paper, and the command that makes it."""

    command: str = Field(default="", description="arguments that make it, without scale=paper; empty for a drawing")
    at_paper_scale: str = Field(default="", description="arguments at the paper's scale, where others differ too")
    laptop: bool = Field(default=True, description="whether scale=laptop makes a part of it, where it has a grid")
    status: str = Field(default="same setting", description="whether the command runs what the paper states")
    held_by: str = Field(default="no numbers are printed", description="the test of our copy of the printed numbers")
    time: str = Field(default="", description="how long the command takes")

    def format_paper_command(self) -> str:
        """Write the arguments that make it at the paper's scale; empty for a drawing."""
        experiment, *rest = self.command.split(" ") if self.command else [""]
        return self.at_paper_scale or " ".join([experiment, "scale=paper", *rest]) * bool(experiment)

    def format_laptop_command(self) -> str:
        """Write the arguments that make a part of it at laptop scale; empty if its experiment has no such grid."""
        experiment, *_ = self.command.split(" ")
        file = find_config("experiment", experiment.removeprefix("+experiment=")) if self.laptop else None
        grids = read_config_file(file)["experiment"].get("grid") if file else None
        return f"{experiment} scale=laptop data.root=FOLDER" if "laptop" in (grids or {}) else ""


class Paper(StrictEntries):
    """A paper's paper.yaml. Only the title is required."""

    title: str
    authors: list[str] = Field(default_factory=list)
    venue: str = ""
    links: dict[str, str] = Field(default_factory=dict, description="name -> address")
    scale: str = Field(default="", description="what scale=paper means: encoders, data, seeds")
    tasks: dict[str, dict[str, int]] = Field(
        default_factory=dict, description="task -> its settings in the paper, such as reduced, where they differ"
    )
    shows: dict[str, TableOrFigure] = Field(
        default_factory=dict, description="Table 1, Figure 2 (appendix), ... -> command"
    )
    differs: list[str] = Field(default_factory=list, description="what differs from the paper or is left open")


def read_paper(folder: Path) -> Paper:
    """Read a folder's paper.yaml; raise UserError if it is no YAML, or has an entry that it can't have."""
    paper: Paper = read_checked_yaml(folder / PAPER_FILE, Paper)
    return paper


def find_task(name: str) -> dict[str, int] | None:
    """Find a task's settings in the papers that describe it; None if none does."""
    found = (read_paper(folder).tasks.get(name) for folder in find_papers().values())
    return next((task for task in found if task is not None), None)


def write_map(chosen: str | None = None) -> str:
    """Write the map in Markdown: a row for every table and figure of every paper, or of one, with its commands."""
    folders = find_papers()
    refuse((chosen not in (None, *folders), f"{chosen} is no paper: choose one of {', '.join(folders)}"))
    papers = {name: read_paper(folder) for name, folder in folders.items() if chosen in (None, name)}
    rows: list[str] = []
    for name, paper in papers.items():
        is_named = str(folders[name]) in environment.read_papers()  # its commands need to name it too
        rows += _write_rows(name, paper, f"{PAPER_FLAG} {shlex.quote(str(folders[name]))} " if is_named else "")
    others = [f"- [{name}]({name}/README.md): {paper.title}." for name, paper in papers.items() if not paper.shows]
    return "\n".join([MAP_HEADING, "|---|---|---|---|---|---|---|", *rows, "", *others])


def _write_rows(name: str, paper: Paper, flag: str) -> Iterator[str]:
    for title, shown in paper.shows.items():
        texts = shown.format_paper_command(), shown.format_laptop_command(), shown.command
        commands = [f"`{PROGRAM} {flag}{text}`" if text else "" for text in texts]
        commands[-1] += f" ({shown.time})" if shown.time else ""
        cells = [f"[{name}]({name}/README.md)", title, *commands, shown.status, shown.held_by]
        yield f"| {' | '.join(cells)} |"
