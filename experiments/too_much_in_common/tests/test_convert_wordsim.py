"""The five sets of word pairs, from files in their published form to the Parquet files that are read."""

import numpy as np
import pytest
from helpers import fails

from isobench.config.schema import Data
from isobench_papers.too_much_in_common import word_pairs
from isobench_papers.too_much_in_common.convert_wordsim import PUBLIC_FILES, convert_word_pairs, main

COUNTS = {"men": 3000, "rw": 2034, "simlex999": 999, "ws353_sim": 203, "ws353_rel": 252}
SIMLEX_HEADER = "word1\tword2\tPOS\tSimLex999\tconc(w1)\tconc(w2)\tconcQ\tAssoc(USF)\tSimAssoc333\tSD(SimLex)"


def format_line(name, first, second, score):
    if name == "men":
        return f"{first}-n {second}-j {score:.6f}"
    if name == "rw":
        return "\t".join([first, second, f"{score:g}", *["5"] * 10])
    if name == "simlex999":
        return f"{first}\t{second}\tA\t{score:g}\t2.72\t2.81\t2\t7.25\t1\t0.41"
    return f"{first}\t{second}\t{score:g}"


def made_up_pairs():
    rng = np.random.default_rng(0)
    pairs = {}
    for name, count in COUNTS.items():
        scores = (rng.uniform(0, PUBLIC_FILES[name].highest, count)).round(2)
        scores[:2] = 0, PUBLIC_FILES[name].highest
        pairs[name] = ([f"t-shirt{i}" for i in range(count)], [f"re-n{i}" for i in range(count)], scores.tolist())
    return pairs


@pytest.fixture
def published(tmp_path):
    for name, columns in made_up_pairs().items():
        lines = [format_line(name, *row) for row in zip(*columns, strict=True)]
        file = tmp_path / "downloads" / f"archive of {name}" / PUBLIC_FILES[name].name
        file.parent.mkdir(parents=True)
        file.write_text("\n".join([SIMLEX_HEADER] * (name == "simlex999") + lines) + "\n", encoding="utf-8")
    return tmp_path / "downloads"


def test_the_analysis_reads_what_the_command_writes_and_nothing_is_replaced(command, published, tmp_path):
    root = tmp_path / "new" / "data"
    assert command(main, str(published), str(root))[0] == 0
    sets = word_pairs.load_word_pairs(Data(root=str(root)))
    for name, (first, second, scores) in made_up_pairs().items():
        assert (sets[name].first, sets[name].second) == (first, second)
        np.testing.assert_array_equal(sets[name].scores, scores)
    with fails():
        convert_word_pairs(published, root)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("rw", lambda lines: lines[:-1]), ("men", lambda lines: [*lines, lines[0]]),
        ("men", lambda lines: [*lines[:-1], lines[7]]), ("simlex999", lambda lines: lines[1:]),
        ("men", lambda lines: [line.replace("-n ", " ") for line in lines]),
        ("men", lambda lines: [*lines[:7], "sun-n sunlight-n"]), ("men", lambda lines: ["sun-n day-n 50.5", *lines]),
        ("ws353_sim", lambda lines: ["Word 1\tWord 2\tHuman (mean)", *lines]),
        ("ws353_rel", lambda lines: [line.replace("\t", ",") for line in lines]),
        ("ws353_rel", lambda lines: ["a\tb\tnan", *lines[1:]]), ("ws353_rel", lambda lines: ["\tb\t1", *lines[1:]]),
        ("ws353_rel", lambda lines: ["caf\udce9\tbar\t3.0"]),
    ],
)  # fmt: skip
def test_a_file_that_is_not_the_published_one_writes_nothing(published, tmp_path, name, change):
    (file,) = published.rglob(PUBLIC_FILES[name].name)
    file.write_text("\n".join(change(file.read_text().splitlines())), errors="surrogateescape")
    with fails():
        convert_word_pairs(published, tmp_path / "data")
    assert not (tmp_path / "data").exists()
