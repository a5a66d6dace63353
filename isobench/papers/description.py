"""What a paper.yaml says: a paper's authors, its tables and figures with their commands, what scale=paper means."""

import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

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
MAP_HEADING = "| paper | | command | status |"


class TableOrFigure(StrictEntries):
    """A table or figure of the paper, and the command that makes it."""

    command: str = Field(default="", description="arguments that make it, without scale=paper; empty for a drawing")
    at_paper_scale: str = Field(default="", description="arguments at the paper's scale, where others differ too")
    laptop: bool = Field(default=True, description="whether scale=laptop makes a part of it, where it has a grid")
    status: str = Field(default="status not stated", description="whether it runs what the paper states")
    time: str = Field(default="", description="how long the command takes")

    @property
    def experiment(self) -> str:
        """Return the name of the command's experiment; empty for a drawing."""
        return self.command.partition(" ")[0].removeprefix("+experiment=")

    def list_commands(self) -> dict[str, str]:
        """List the arguments that make it at each scale that it has; none for a drawing."""
        experiment, *rest = self.command.split(" ")
        file = find_config("experiment", self.experiment)
        grid = (read_config_file(file).get("experiment", {}).get("grid") if file else None) or {"paper": []}
        commands = {
            "embedded": self.command,
            "laptop": f"{experiment} scale=laptop data.root=FOLDER" if self.laptop and "laptop" in grid else "",
            "paper": " ".join([experiment, "scale=paper", *rest]) if self.command and "paper" in grid else "",
        }
        if self.at_paper_scale:
            commands["paper"] = self.at_paper_scale
        return {scale: arguments for scale, arguments in commands.items() if arguments}


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
        commands = shown.list_commands().items()
        lines += ["", what, *(f"  {scale:10}{program} {text}" for scale, text in commands)]
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
    return "\n".join([MAP_HEADING, "|---|---|---|---|", *rows, "", "## Studies and other experiments", "", *others])


def _write_rows(name: str, paper: Paper, program: str) -> Iterator[str]:
    for title, shown in paper.shows.items():
        times = {"embedded": f" ({shown.time})"} if shown.time else {}
        commands = [
            f"{scale}{times.get(scale, '')}: `{program} {text}`" for scale, text in shown.list_commands().items()
        ]
        cells = [f"[{name}]({name}/README.md)", title, "<br>".join(commands), shown.status]
        yield f"| {' | '.join(cells)} |"
