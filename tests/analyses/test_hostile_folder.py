"""An analysis's folder that somebody else wrote: nothing outside it is removed, and what can't be read is said."""

import os

import pytest

from isobench.analyses.rows import read_claimed_rows
from isobench.analyses.runner import _list_earlier_files
from isobench.common.files import write_json
from isobench.common.tidy import make_table, write_table
from isobench.report.claims import NOT_RUN, UNKNOWN, judge_claim, load_claims


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["a.csv", "../../victim", "/etc/passwd", "sub/a.csv", "..", ".", "", 7, None], {"a.csv"}), ("a.csv", set()),
        ({"a.csv": 1}, set()), (7, set()),
    ],
)  # fmt: skip
def test_only_files_in_the_folder_are_an_earlier_analysis(tmp_path, files, expected):
    write_json(tmp_path / "about.json", {"files": files})
    assert _list_earlier_files(tmp_path) == expected


@pytest.mark.parametrize("about", ["", "[1]", '{"files": []', "[" * 5000, '{"scale": 7}', '{"scale": {}}'])
def test_an_odd_analysis_is_unknown_and_ends_no_report(tmp_path, about):
    claim = next(claim for claim in load_claims() if claim.rows_file)
    assert judge_claim(claim, None, lambda _, name: read_claimed_rows(tmp_path, name))[0].word == NOT_RUN
    (tmp_path / "about.json").write_text(about)
    write_table(tmp_path, claim.rows_file, make_table([{"x": "y"}]))
    assert judge_claim(claim, None, lambda _, name: read_claimed_rows(tmp_path, name))[0].word == UNKNOWN


def test_a_pipe_is_unknown_and_not_waited_for(tmp_path):
    claim = next(claim for claim in load_claims() if claim.rows_file)
    about = {"scale": {"differs": []}, "sha256": {f"{claim.rows_file}.parquet": ""}}
    write_json(tmp_path / "about.json", about)
    os.mkfifo(tmp_path / f"{claim.rows_file}.parquet")
    outcome, _ = judge_claim(claim, None, lambda _, name: read_claimed_rows(tmp_path, name))
    assert outcome.word == UNKNOWN
    assert "not a regular file" in outcome.numbers
