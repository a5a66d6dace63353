"""The command isobench verify: what it prints, and its exit codes."""

import json
import re

import pytest
from helpers import check_refused
from tampering import tamper

from isobench.cli import verify


def test_the_command_prints_what_fails_and_exits_with_1(folder, command):
    code, out, err = command(verify.main, str(folder))
    assert (code, err) == (0, "")
    assert "Nothing that was checked fails." in out
    computed, recorded = re.search(r"none .* ([\d.]+) .* ([\d.]+) ", out).groups()  # the mean scores' first row
    assert computed == recorded != "0.00"
    tamper("change_score", 4, folder, repair=True)
    code, out, _ = command(verify.main, str(folder))
    assert code == 1
    assert "scores: accuracy on validation is" in out
    code, out, _ = command(verify.main, "--json", str(folder))
    assert code == 1
    assert [(told["folder"], told["failed"]) for told in json.loads(out)] == [(str(folder), True)]


def test_several_folders_are_verified_by_one_command(places, folder, command):
    intact = places / "outputs"
    code, out, _ = command(verify.main, str(intact), str(folder))
    assert code == 0
    assert "2 of 2 folders verified. Nothing that was checked fails." in out
    tamper("change_score", 4, folder, repair=True)
    code, out, _ = command(verify.main, str(folder), str(intact))
    assert (code, out.count("Verified: ")) == (1, 2)
    assert f"2 of 2 folders verified. These fail: {folder}\n" in out
    code, out, err = command(verify.main, "/nowhere", str(intact), str(intact))
    assert (code, "1 of 2 folders verified. Nothing that was checked fails." in out) == (2, True)
    assert "/nowhere is no folder" in err
    code, out, _ = command(verify.main, "--json", "/nowhere", str(folder))
    assert code == 1  # a failure is not hidden by a folder that can't be verified
    assert [told.get("error", "")[:20] for told in json.loads(out)] == ["", "/nowhere is no folde"]


@pytest.mark.parametrize(
    "mistake", [["data.root=/nowhere"], ["data.rot=x"], ["a=b"], ["--level", "3"], ["--retrain", "0"]]
)
def test_mistakes_are_one_line(places, command, mistake):
    check_refused(command(verify.main, str(places / "outputs"), *mistake))
