"""Run ``isobench papers``: list the papers, or write the map of their tables and figures in Markdown."""

from isobench.cli.arguments import FlagParser
from isobench.cli.guard import run_guarded
from isobench.papers.description import read_paper, write_map
from isobench.papers.folders import find_papers


def main() -> None:
    """Parse the command line and run the command."""
    parser = FlagParser(
        prog="isobench papers",
        usage="%(prog)s [-h] [--map] [--paper FOLDER]",
        description="Lists the papers, those of --paper FOLDER too, one line each.",
        allow_abbrev=False,
    )
    parser.add_argument("--map", action="store_true", help="write every table and figure with its command")
    options = parser.parse_args()
    run_guarded(lambda: print(write_map()) if options.map else print_papers())


def print_papers() -> None:
    """Print the name and the title of each paper."""
    papers = {name: read_paper(folder) for name, folder in find_papers().items()}
    for name, paper in papers.items():
        print(f"{name:{max(map(len, papers)) + 2}}{paper.title}{f' ({paper.venue})' if paper.venue else ''}")
