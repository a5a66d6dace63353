"""The five sets of word pairs, from files in their published form to the Parquet files that are read."""

from pathlib import Path

import numpy as np
import pytest
from helpers import fails

from isobench.config.schema import Data
from isobench_papers.too_much_in_common import word_pairs
from isobench_papers.too_much_in_common.convert_wordsim import PUBLIC_FILES, convert_word_pairs, main

COUNTS = {"men": 3000, "rw": 2034, "simlex999": 999, "ws353_sim": 203, "ws353_rel": 252}
SIMLEX_HEADER = "word1\tword2\tPOS\tSimLex999\tconc(w1)\tconc(w2)\tconcQ\tAssoc(USF)\tSimAssoc333\tSD(SimLex)"


def format_line(name, first, second, score):
    """Write one line in the published form."""
    if name == "men":
        return f"{first}-n {second}-j {score:.6f}"
    if name == "rw":
        return "\t".join([first, second, f"{score:g}", *["5"] * 10])
    if name == "simlex999":
        return f"{first}\t{second}\tA\t{score:g}\t2.72\t2.81\t2\t7.25\t1\t0.41"
    return f"{first}\t{second}\t{score:g}"


def made_up_pairs():
    """Set -> (words, words, scores) in the published numbers; words that are easily mistaken for tagged ones too."""
    rng = np.random.default_rng(0)
    pairs = {}
    for name, count in COUNTS.items():
        scores = (rng.uniform(0, PUBLIC_FILES[name].highest, count)).round(2)
        scores[:2] = 0, PUBLIC_FILES[name].highest
        pairs[name] = ([f"t-shirt{i}" for i in range(count)], [f"re-n{i}" for i in range(count)], scores.tolist())
    return pairs


def write_public(source, pairs):
    """The published files, in folders as the archives have them."""
    for name, columns in pairs.items():
        lines = [format_line(name, *row) for row in zip(*columns, strict=True)]
        file = source / f"archive of {name}" / PUBLIC_FILES[name].name
        file.parent.mkdir(parents=True)
        file.write_text("\n".join([SIMLEX_HEADER] * (name == "simlex999") + lines) + "\n", encoding="utf-8")
    return source


@pytest.fixture
def published(tmp_path):
    return write_public(tmp_path / "downloads", made_up_pairs())


def find(source, name) -> Path:
    (file,) = source.rglob(PUBLIC_FILES[name].name)
    return file


def test_the_command_says_the_counts_and_the_analysis_reads_what_it_writes(command, published, tmp_path):
    root = tmp_path / "new" / "data"
    code, out, err = command(main, str(published), str(root))
    assert (code, err) == (0, "")
    for name, count in COUNTS.items():
        assert f"{name}: {count:,} pairs from {find(published, name)}" in out
    assert f"data.root={root}" in out
    sets = word_pairs.load_word_pairs(Data(root=str(root)))
    for name, (first, second, scores) in made_up_pairs().items():
        assert (sets[name].first, sets[name].second) == (first, second)
        np.testing.assert_array_equal(sets[name].scores, scores)
    assert [path.name for path in root.iterdir()] == ["wordsim"]


@pytest.mark.parametrize(
    ("name", "change", "named"),
    [
        ("rw", lambda lines: lines[:-1], "2033 pairs, not 2034"),
        ("men", lambda lines: [*lines, lines[0]], "3001 pairs, not 3000"),
        ("men", lambda lines: [*lines[:-1], lines[7]], "t-shirt7 re-n7 2 times"),
        ("men", lambda lines: [line.replace("-n ", " ") for line in lines], "line 1: .*lemma form"),
        ("men", lambda lines: [*lines[:7], "sun-n sunlight-n"], "line 8: .*3 columns"),
        ("men", lambda lines: ["sun-n day-n 50.5", *lines], "line 1: the score 50.5"),
        ("simlex999", lambda lines: lines[1:], "line 1: the columns"),
        ("simlex999", lambda lines: [], "line 1: the columns"),
        ("ws353_sim", lambda lines: ["Word 1\tWord 2\tHuman (mean)", *lines], "line 1: the score Human"),
        ("ws353_rel", lambda lines: [line.replace("\t", ",") for line in lines], "line 1: .*3 columns"),
        ("ws353_rel", lambda lines: ["a\tb\tnan", *lines[1:]], "line 1: the score nan"),
        ("ws353_rel", lambda lines: ["\tb\t1", *lines[1:]], "line 1: .*3 columns"),
        ("ws353_rel", lambda lines: ["caf\udce9\tbar\t3.0"], "UTF-8"),
    ],
)
def test_a_file_that_is_not_the_published_one_writes_nothing(published, tmp_path, name, change, named):
    file = find(published, name)
    file.write_text("\n".join(change(file.read_text().splitlines())), errors="surrogateescape")
    with fails():
        convert_word_pairs(published, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_missing_or_doubled_file_and_a_folder_that_is_there_are_mistakes(command, published, tmp_path):
    code, out, err = command(main, "nowhere", "data")
    assert (code, out, err.count("\n")) == (2, "", 1)
    convert_word_pairs(published, tmp_path / "data")
    with fails():
        convert_word_pairs(published, tmp_path / "data")
    (published / "copy").mkdir()
    (published / "copy" / "rw.txt").write_text("")
    with fails():
        convert_word_pairs(published, tmp_path / "other")
    (published / "copy" / "rw.txt").unlink()
    find(published, "ws353_rel").unlink()
    with fails():
        convert_word_pairs(published, tmp_path / "other")
    assert not (tmp_path / "other").exists()
