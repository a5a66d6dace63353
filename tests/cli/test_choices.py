"""Lists of what can be chosen, and completions in a shell."""

import pytest
from helpers import check_done

from isobench.__main__ import COMMANDS
from isobench.cli.choices import GROUPS
from isobench.papers.folders import find_config_folders


@pytest.mark.parametrize("word", ["tasks", "encoders", "methods", "experiments"])
def test_every_choice_is_listed_with_a_description_on_one_line(cli, word):
    lines = dict(line.split(None, 1) for line in check_done(cli(word))[0].splitlines())
    files = (file for folder in find_config_folders() for file in folder.glob(f"{GROUPS[word]}/*.yaml"))
    assert set(lines) == {file.stem for file in files}


@pytest.mark.parametrize(
    ("line", "expected", "absent"),
    [
        ("isobench ", [*COMMANDS, *GROUPS, "task=", "calibration="], "rte"),
        ("isobench task=r", ["task=rte", "task=rotten_tomatoes"], "task=cola"),
        ("isobench status +experiment=isobn_", ["+experiment=isobn_ev", "+experiment=isobn_drift"], "status"),
        ("isobench seed=1,2 task=nope x", [], "task"),
    ],
)
def test_a_shells_query_is_answered_without_an_error(cli, monkeypatch, line, expected, absent):
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    out, _ = check_done(cli("-sc", "query=bash"))
    assert set(expected) <= set(out.split())
    assert absent not in out.split()
