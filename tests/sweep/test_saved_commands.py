"""The sweeps that an output folder remembers: saved, read again, refused in one line where damaged."""

import json
from dataclasses import asdict

import pytest

from isobench.common.errors import UserError
from isobench.sweep.saved_commands import SweepCommand, read_commands, save_command

COMMAND = SweepCommand("glue_isobn", ["seed=1,2"], "/somewhere")


@pytest.mark.parametrize("command", [COMMAND, SweepCommand(None, [], "/")])
def test_a_command_is_saved_once_and_read_again(tmp_path, command):
    assert save_command(str(tmp_path), command)
    assert save_command(str(tmp_path), command) is None
    assert read_commands(str(tmp_path)) == [command]


@pytest.mark.parametrize(
    "damage",
    [{"arguments": [1]}, {"arguments": "seed=1"}, {"arguments": None}, {"folder": 7}, {"experiment": 7}, {"more": 1}],
)
def test_a_damaged_command_is_refused_in_one_line(tmp_path, damage):
    file = save_command(str(tmp_path), COMMAND)
    file.write_text(json.dumps(asdict(COMMAND) | damage))
    with pytest.raises(UserError, match=r"json is damaged; remove it if you no longer need that sweep$"):
        read_commands(str(tmp_path))


def test_a_changed_digit_is_no_other_sweep(tmp_path):
    """Change a digit: unnoticed, it would let prune remove runs of the sweep, or list other runs as missing."""
    file = save_command(str(tmp_path), COMMAND)
    file.write_text(file.read_text().replace("seed=1,2", "seed=1,3"))
    with pytest.raises(UserError, match=r"json is damaged; remove it if you no longer need that sweep$"):
        read_commands(str(tmp_path))


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "{}", '{"arguments": []}'])
def test_a_command_that_is_not_whole_is_refused_too(tmp_path, text):
    save_command(str(tmp_path), COMMAND).write_text(text)
    with pytest.raises(UserError, match=r"json is damaged; remove it if you no longer need that sweep$"):
        read_commands(str(tmp_path))
