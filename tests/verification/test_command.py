"""The command isobench verify: what it prints, and its exit codes."""

import json
import re

from helpers import check_done
from tampering import tamper

from isobench.cli import verify


def test_the_command_prints_what_fails_and_exits_with_1(folder, command):
    out, _ = check_done(command(verify.main, str(folder)))
    computed, recorded = re.search(r"none .* ([\d.]+) .* ([\d.]+) ", out).groups()  # the mean scores' first row
    assert computed == recorded != "0.00"
    tamper("change_score", 4, folder, repair=True)
    code, out, _ = command(verify.main, str(folder))
    assert (code, "scores: accuracy on validation is" in out) == (1, True)
    code, out, _ = command(verify.main, "--json", str(folder))
    assert code == 1
    assert [(told["folder"], told["failed"]) for told in json.loads(out)] == [(str(folder), True)]


def test_several_folders_are_verified_by_one_command(places, folder, command):
    intact = str(places / "outputs")
    assert command(verify.main, intact, str(folder))[0] == 0
    tamper("change_score", 4, folder, repair=True)
    assert command(verify.main, str(folder), intact)[0] == 1
    assert command(verify.main, "/nowhere", intact)[0] == 2
    assert command(verify.main, "--json", "/nowhere", str(folder))[0] == 1  # a failure is not hidden
