"""Convert the five sets of word pairs from the text files that their authors publish to the Parquet files we read.

python -m isobench_papers.too_much_in_common.convert_wordsim SOURCE FOLDER
"""

import math
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from isobench.cli.command import CommandParser, run_guarded
from isobench.common.errors import UserError
from isobench.common.files import make_temporary_folder
from isobench_papers.too_much_in_common.word_pairs import PAPER_SETS, PARQUET_COLUMNS, PART_OF_SPEECH

Pair = tuple[str, str, float]  # the two words and the human score


class PublicFile(NamedTuple):
    """The form in which a set's authors publish it."""

    name: str  # of the file
    paper: str  # that publishes the set
    pairs: int  # how many it has
    highest: float  # possible score; the lowest is 0
    columns: int = 3  # how many a line has at least
    separator: str = "\t"  # between columns
    score_column: int = 2  # from 0; the words are in the first two
    header: tuple[str, ...] = ()  # the first columns' names in the file's first line; empty if there is no such line
    tagged: bool = False  # whether each word ends with its part of speech, as in "sun-n"


AGIRRE = "Agirre et al. 2009, A Study on Similarity and Relatedness Using Distributional and WordNet-based Approaches"
PUBLIC_FILES = {
    "men": PublicFile(
        "MEN_dataset_lemma_form_full",
        "Bruni et al. 2014, Multimodal Distributional Semantics",
        3000,
        50,
        separator=" ",
        tagged=True,
    ),
    "rw": PublicFile(
        "rw.txt",
        "Luong et al. 2013, Better Word Representations with Recursive Neural Networks for Morphology",
        2034,
        10,
    ),
    "simlex999": PublicFile(
        "SimLex-999.txt",
        "Hill et al. 2015, SimLex-999: Evaluating Semantic Models with (Genuine) Similarity Estimation",
        999,
        10,
        columns=4,
        score_column=3,
        header=("word1", "word2", "POS", "SimLex999"),
    ),
    "ws353_sim": PublicFile("wordsim_similarity_goldstandard.txt", AGIRRE, 203, 10),
    "ws353_rel": PublicFile("wordsim_relatedness_goldstandard.txt", AGIRRE, 252, 10),
}


def convert_word_pairs(source: Path, folder: Path) -> dict[str, tuple[Path, int]]:
    """Read the five public files and write them to ``<folder>/wordsim/<set>.parquet``: all five, or nothing.

    The columns are word1, word2 and score.

    Args:
        source: a folder that has the public files somewhere in it, such as the unpacked archives.
        folder: the folder for ``data.root``; it must not have a folder ``wordsim`` yet.

    Returns:
        Set -> the file that was read, and its number of pairs.

    Raises:
        UserError: a file is missing, is there more than once, or is not of the published form and size; ``wordsim``
            is there already; or the folder can't be written.
    """
    import pyarrow
    import pyarrow.parquet

    target = folder / "wordsim"
    if target.exists():
        raise UserError(f"{target} is there already: remove it, or choose another folder")
    files = {name: find_public_file(source, name) for name in PAPER_SETS}
    sets = {name: read_public_file(file, PUBLIC_FILES[name]) for name, file in files.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with make_temporary_folder(target) as work:
            for name, pairs in sets.items():
                columns = dict(zip(PARQUET_COLUMNS, map(list, zip(*pairs, strict=True)), strict=True))
                pyarrow.parquet.write_table(pyarrow.table(columns), work / f"{name}.parquet")
            work.rename(target)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"{target} can't be written: {reason}; choose another folder") from error
    return {name: (files[name], len(pairs)) for name, pairs in sets.items()}


def find_public_file(source: Path, name: str) -> Path:
    """Find a set's public file in a folder or below it; raise UserError unless there is exactly one."""
    if not source.is_dir():
        names = ", ".join(public.name for public in PUBLIC_FILES.values())
        raise UserError(f"{source} is no folder: name the one with the files {names}")
    wanted = PUBLIC_FILES[name].name
    found = sorted(file for file in source.rglob(wanted) if file.is_file())
    if not found:
        raise UserError(
            f"{source} has no {wanted} ({name}): download it from the authors of {PUBLIC_FILES[name].paper}"
        )
    if len(found) > 1:
        raise UserError(f"{source} has {wanted} more than once: {', '.join(map(str, found))}; remove all but one")
    return found[0]


def read_public_file(file: Path, public: PublicFile) -> list[Pair]:
    """Read a public file's pairs; raise UserError unless they are as published."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} can't be read as text in UTF-8: {error}; download it again") from error
    if public.header:
        names = lines.pop(0).split(public.separator) if lines else []
        if tuple(names[: len(public.header)]) != public.header:
            raise UserError(f"{file}, line 1: the columns must begin with {', '.join(public.header)}")
    numbered = enumerate(lines, 2 if public.header else 1)
    pairs = [parse_line(f"{file}, line {number}", line, public) for number, line in numbered if line.strip()]
    is_other = f"it is not the published {public.name}; download that"
    if len(pairs) != public.pairs:
        raise UserError(f"{file} has {len(pairs)} pairs, not {public.pairs}: {is_other}")
    # The published files have no pair twice in one order; three of them have one pair in both orders.
    (words, count), *_ = Counter((first, second) for first, second, _ in pairs).most_common(1)
    if count > 1:
        raise UserError(f"{file} has the pair {' '.join(words)} {count} times: {is_other}")
    return pairs


def parse_line(where: str, line: str, public: PublicFile) -> Pair:
    """Read two words and their score from one line; ``where`` names file and line in the error message."""
    fields = line.rstrip().split(public.separator)
    if len(fields) < public.columns or not all(field.strip() for field in fields[:2]):
        separator = "spaces" if public.separator == " " else "tabs"
        raise UserError(f"{where}: there must be {public.columns} columns or more between {separator}, words first")
    first, second = (word.strip() for word in fields[:2])
    if public.tagged:
        if not all(map(PART_OF_SPEECH.search, (first, second))):
            raise UserError(f"{where}: {first} and {second} must end with -n, -v or -j: it is not the lemma form")
        first, second = (PART_OF_SPEECH.sub("", word) for word in (first, second))
    try:
        score = float(fields[public.score_column])
    except ValueError:
        score = math.nan
    if not 0 <= score <= public.highest:
        raise UserError(
            f"{where}: the score {fields[public.score_column]} must be a number from 0 to {public.highest}"
        )
    return first, second, score


def main() -> None:
    """Parse the command line, convert the five sets and print what was read and written."""
    parser = CommandParser("convert_wordsim", description=__doc__)
    parser.add_argument("source", metavar="SOURCE", type=Path, help="folder with the published files")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="folder to make wordsim/ in")
    options = parser.parse_args()
    source, folder = options.source.expanduser(), options.folder.expanduser()

    def convert() -> None:
        for name, (file, pairs) in convert_word_pairs(source, folder).items():
            print(f"{name}: {pairs:,} pairs from {file}")
        print(f"Written to {folder / 'wordsim'}. To use them: data.root={folder}")

    run_guarded(convert)


if __name__ == "__main__":
    main()
