"""Run ``isobench wordsim``: convert the five sets of word pairs from their published text files to Parquet."""

from pathlib import Path

from isobench.cli.arguments import FlagParser
from isobench.cli.guard import run_guarded
from isobench.common.terminal import format_count
from isobench.data.convert_wordsim import convert_word_pairs, list_public_names


def main() -> None:
    """Parse the command line and run the command."""
    parser = FlagParser(
        prog="isobench wordsim",
        usage="%(prog)s [-h] SOURCE FOLDER",
        description="Converts the word pairs of Too Much in Common, Tables 2 and 3, from the text files that their "
        "authors publish to FOLDER/wordsim/*.parquet, which data.root=FOLDER reads. SOURCE is a folder that has, "
        f"itself or in its subfolders: {', '.join(list_public_names())}. Either all five are written or none.",
        allow_abbrev=False,
    )
    parser.add_argument("source", metavar="SOURCE", type=Path, help="folder with the published files")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="folder to make wordsim/ in")
    options = parser.parse_args()
    run_guarded(lambda: convert(options.source.expanduser(), options.folder.expanduser()))


def convert(source: Path, folder: Path) -> None:
    """Convert the five sets and print what was read and written.

    Raises:
        UserError: as `convert_word_pairs` does.
    """
    for name, (file, pairs) in convert_word_pairs(source, folder).items():
        print(f"{name}: {format_count(pairs, 'pair')} from {file}")
    print(f"Written to {folder / 'wordsim'}. To use them: data.root={folder}")
