"""What a paper.yaml says: a paper's authors, its tables and figures with their commands, what scale=paper means."""

import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from isobench.common import environment
from isobench.papers.folders import (
    PAPER_FILE,
    PAPER_FLAG,
    StrictEntries,
    find_config,
    find_paper,
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
    status: str = Field(default="status not stated", description="whether it runs what the paper states")
    held_by: str = Field(default="no numbers are printed", description="the test of our copy of the printed numbers")
    time: str = Field(default="", description="how long the command takes")

    def format_paper_command(self) -> str:
        """Write the arguments that make it at the paper's scale; empty for a drawing, or without a grid for it."""
        if self.at_paper_scale or not self.command or "paper" not in (self._read_grids() or ["paper"]):
            return self.at_paper_scale
        experiment, *rest = self.command.split(" ")
        return " ".join([experiment, "scale=paper", *rest])

    def format_laptop_command(self) -> str:
        """Write the arguments that make a part of it at laptop scale; empty if its experiment has no such grid."""
        is_there = self.laptop and "laptop" in self._read_grids()
        return f"+experiment={self.experiment} scale=laptop data.root=FOLDER" if is_there else ""

    @property
    def experiment(self) -> str:
        """Return the name of the command's experiment; empty for a drawing."""
        return self.command.partition(" ")[0].removeprefix("+experiment=")

    def _read_grids(self) -> dict[str, Any]:
        file = find_config("experiment", self.experiment)
        return (read_config_file(file).get("experiment", {}).get("grid") if file else None) or {}


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

    def format_title(self) -> str:
        """Return the title, with the venue if there is one."""
        return f"{self.title}{f' ({self.venue})' if self.venue else ''}"


def read_paper(folder: Path) -> Paper:
    """Read a folder's paper.yaml; raise UserError if it is no YAML, or has an entry that it can't have."""
    return read_checked_yaml(folder / PAPER_FILE, Paper)


def find_task(name: str) -> dict[str, int] | None:
    """Find a task's settings in the papers that describe it; None if none does."""
    found = (read_paper(folder).tasks.get(name) for folder in find_papers().values())
    return next((task for task in found if task is not None), None)


def describe_paper(name: str, width: int) -> str:
    """Describe a paper: every table and figure with its commands. Texts are wrapped at ``width``, commands are not.

    Raises:
        UserError: there is no such paper.
    """
    folder = find_paper(name)
    paper, program = read_paper(folder), _write_program(folder)
    by = [f"By {', '.join(paper.authors)}."] if paper.authors else []
    links = [f"{title}: {address}" for title, address in paper.links.items()]
    needs = [f"At the paper's scale: {paper.scale}."] if paper.scale else []
    head = [f"{name}: {paper.format_title()}", *by, *links, *needs]
    lines = [textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False) for text in head]
    for title, shown in paper.shows.items():
        time = f" (embedded: {shown.time})" if shown.time else ""
        what = textwrap.fill(f"{title}{time}: {shown.status}.", width, subsequent_indent="  ", break_on_hyphens=False)
        commands = {"embedded": shown.command, "laptop": shown.format_laptop_command()}
        commands["paper"] = shown.format_paper_command()
        lines += ["", what, *(f"  {scale:10}{program} {text}" for scale, text in commands.items() if text)]
    return "\n".join(lines)


def _write_program(folder: Path) -> str:
    """Write how isobench is called for a paper's commands, which must name the paper if this command did."""
    is_named = str(folder) in environment.read_papers()
    return f"{PROGRAM} {PAPER_FLAG} {shlex.quote(str(folder))}" if is_named else PROGRAM


def write_map() -> str:
    """Write the map in Markdown: a row for every table and figure of every paper, with its commands."""
    folders = find_papers()
    papers = {name: read_paper(folder) for name, folder in folders.items()}
    rows: list[str] = []
    for name, paper in papers.items():
        rows += _write_rows(name, paper, _write_program(folders[name]))
    others = [f"- [{name}]({name}/README.md): {paper.title}." for name, paper in papers.items() if not paper.shows]
    rule = "|---|---|---|---|---|---|---|"
    return "\n".join([MAP_HEADING, rule, *rows, "", "## Studies and other experiments", "", *others])


def _write_rows(name: str, paper: Paper, program: str) -> Iterator[str]:
    for title, shown in paper.shows.items():
        texts = shown.format_paper_command(), shown.format_laptop_command(), shown.command
        commands = [f"`{program} {text}`" if text else "" for text in texts]
        commands[-1] += f" ({shown.time})" if shown.time else ""
        cells = [f"[{name}]({name}/README.md)", title, *commands, shown.status, shown.held_by]
        yield f"| {' | '.join(cells)} |"
