"""Lists of what can be chosen, and completions in a shell."""

import pytest

from isobench.__main__ import COMMANDS
from isobench.cli.choices import GROUPS
from isobench.papers.folders import find_config_folders


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("tasks", ["rotten_tomatoes", "cola", "captions"]),
        ("encoders", ["minilm", "roberta-large", "local"]),
        ("methods", ["none", "isobn_paper", "flow"]),
        ("experiments", ["glue_isobn", "isobn_ev"]),
    ],
)
def test_every_choice_is_listed_with_a_description_on_one_line(cli, word, names):
    code, out, err = cli(word)
    assert (code, err) == (0, "")
    lines = dict(line.split(None, 1) for line in out.splitlines())
    assert set(lines) == {
        file.stem for folder in find_config_folders() for file in folder.glob(f"{GROUPS[word]}/*.yaml")
    }
    assert set(names) <= set(lines)
    assert all(len(text) > 10 and not text.startswith(("python", "isobench", "Files")) for text in lines.values())
    assert len(set(lines.values())) == len(lines)


@pytest.mark.parametrize(
    ("line", "expected", "absent"),
    [
        ("isobench st", ["status"], "report"),
        ("isobench ", [*COMMANDS, *GROUPS, "task=", "calibration="], "rte"),
        ("isobench task=r", ["task=rte", "task=rotten_tomatoes"], "task=cola"),
        ("isobench status +experiment=isobn_", ["+experiment=isobn_ev", "+experiment=isobn_drift"], "status"),
        ("isobench task=rte optimization.l", ["optimization.lr="], "optimization.eps="),
        ("isobench -m calibration=isobn_p", ["calibration=isobn_paper"], "calibration=none"),
        ("isobench seed=1,2 task=nope x", [], "task"),
    ],
)
def test_a_shells_query_is_answered_without_an_error(cli, monkeypatch, line, expected, absent):
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    code, out, err = cli("-sc", "query=bash")
    assert (code, err) == (0, "")
    assert set(expected) <= set(out.split())
    assert absent not in out.split()
