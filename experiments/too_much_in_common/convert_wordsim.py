"""Convert the five sets of word pairs from the text files that their authors publish to the Parquet files we read.

python -m isobench_papers.too_much_in_common.convert_wordsim SOURCE FOLDER
"""

import csv
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from isobench.cli.command import CommandParser, run_guarded
from isobench.common.errors import UserError, extract_first_line, refuse
from isobench.common.files import explain_output_errors, make_temporary_folder
from isobench_papers.too_much_in_common.word_pairs import PAPER_SETS, PARQUET_COLUMNS, PART_OF_SPEECH


class PublicFile(NamedTuple):
    """The form in which a set's authors publish it."""

    name: str  # of the file
    paper: str  # that publishes the set
    pairs: int  # how many it has
    highest: float  # possible score; the lowest is 0
    separator: str = "\t"  # between columns
    score_column: int = 2  # from 0; the words are in the first two
    header: tuple[str, ...] = ()  # these three columns' names in the file's first line; empty if there is none
    tagged: bool = False  # whether each word ends with its part of speech, as in "sun-n"


AGIRRE = "Agirre et al. 2009, A Study on Similarity and Relatedness Using Distributional and WordNet-based Approaches"
PUBLIC_FILES = {
    "men": PublicFile(
        "MEN_dataset_lemma_form_full", "Bruni et al. 2014, Multimodal Distributional Semantics", 3000, 50, r"\s+",
        tagged=True,
    ),
    "rw": PublicFile(
        "rw.txt", "Luong et al. 2013, Better Word Representations with Recursive Neural Networks for Morphology",
        2034, 10,
    ),
    "simlex999": PublicFile(
        "SimLex-999.txt",
        "Hill et al. 2015, SimLex-999: Evaluating Semantic Models with (Genuine) Similarity Estimation",
        999, 10, score_column=3, header=("word1", "word2", "SimLex999"),
    ),
    "ws353_sim": PublicFile("wordsim_similarity_goldstandard.txt", AGIRRE, 203, 10),
    "ws353_rel": PublicFile("wordsim_relatedness_goldstandard.txt", AGIRRE, 252, 10),
}  # fmt: skip


def convert_word_pairs(source: Path, folder: Path) -> dict[str, tuple[Path, int]]:
    """Read the five public files and write them to ``<folder>/wordsim/<set>.parquet``: all five, or nothing.

    Args:
        source: a folder that has the public files somewhere in it, such as the unpacked archives.
        folder: the folder for ``data.root``; it must not have a folder ``wordsim`` yet.

    Returns:
        Set -> the file that was read, and its number of pairs.

    Raises:
        UserError: a file is missing, is there more than once, or is not of the published form and size; ``wordsim``
            is there already; or the folder can't be written.
    """
    target = folder / "wordsim"
    refuse((target.exists(), f"{target} is there already: remove it, or choose another folder"))
    files = {name: find_public_file(source, name) for name in PAPER_SETS}
    sets = {name: read_public_file(file, PUBLIC_FILES[name]) for name, file in files.items()}
    with explain_output_errors(target, "FOLDER"):
        folder.mkdir(parents=True, exist_ok=True)
        with make_temporary_folder(target) as work:
            for name, pairs in sets.items():
                pairs.to_parquet(work / f"{name}.parquet", index=False)
            work.rename(target)
    return {name: (files[name], len(pairs)) for name, pairs in sets.items()}


def find_public_file(source: Path, name: str) -> Path:
    """Find a set's public file in a folder or below it; raise UserError unless there is exactly one."""
    wanted, paper, *_ = PUBLIC_FILES[name]
    found = sorted(file for file in source.rglob(wanted) if file.is_file())
    refuse(
        (not found, f"{source} has no {wanted} ({name}): download it from the authors of {paper}"),
        (len(found) > 1, f"{source} has {wanted} more than once: {', '.join(map(str, found))}; remove all but one"),
    )
    return found[0]


def read_public_file(file: Path, public: PublicFile) -> pd.DataFrame:
    """Read a public file's pairs; raise UserError unless they are as published."""
    is_other = f"it is not the published {public.name}; download that"
    try:
        pairs = pd.read_csv(
            file, sep=public.separator, header=0 if public.header else None, quoting=csv.QUOTE_NONE,
            usecols=[0, 1, public.score_column], dtype=str, keep_default_na=False,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise UserError(f"{file} can't be read ({extract_first_line(error)}): {is_other}") from error
    names = tuple(pairs.columns)
    pairs.columns = list(PARQUET_COLUMNS)
    words = pairs[["word1", "word2"]].apply(lambda column: column.str.strip())
    are_tagged = words.apply(lambda column: column.str.contains(PART_OF_SPEECH)).all(axis=None)
    if public.tagged:
        words = words.replace(PART_OF_SPEECH, "", regex=True)
    pairs = words.assign(score=pd.to_numeric(pairs["score"], errors="coerce"))
    refuse(
        (
            public.header and names != public.header,
            f"{file} has the columns {', '.join(map(str, names))}: {is_other}",
        ),
        (len(pairs) != public.pairs, f"{file} has {len(pairs)} pairs, not {public.pairs}: {is_other}"),
        (not words.all(axis=None), f"{file} has a line without two words: {is_other}"),
        (public.tagged and not are_tagged, f"{file} has words without -n, -v or -j, as in no lemma form: {is_other}"),
        (
            not pairs["score"].between(0, public.highest).all(),
            f"{file} has scores that are no numbers from 0 to {public.highest}",
        ),
        # The published files have no pair twice in one order; three of them have one pair in both orders.
        (words.duplicated().any(), f"{file} has a pair twice: {is_other}"),
    )
    return pairs


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
