"""The lines of running runs in a terminal."""

import errno
import io
import re
import time
from unittest.mock import Mock

import pytest
from helpers import make_config
from rich.console import Console

from isobench.runs.record import Beat
from isobench.sweep.board import Board, describe_progress, format_briefly


def make_beat(**parts) -> Beat:
    values = {
        "host": "a", "machine": "a", "job": None, "log": None, "share": 1, "state": "training", "step": 0,
        "steps": 100, "pid": 7, "since": 0.0, "updated": 100.0, "attempt": 1,
    }  # fmt: skip
    return Beat(**values | parts)


def test_progress_has_epoch_step_loss_speed_and_time_left():
    assert describe_progress(make_beat(step=10), 2) == ("1/2", "10/100", "", "", "")
    later = make_beat(step=50, loss=0.6931, speed=2.0)
    assert describe_progress(later, 2) == ("2/2", "50/100", "0.693", "2/s", "25 s")
    end = make_beat(step=100, loss=0.5, speed=2.0, state="evaluating")
    assert describe_progress(end, 2) == ("2/2", "100/100", "0.5", "2/s", "evaluating")
    assert describe_progress(make_beat(state="starting", step=40), 2) == ("1/2", "40/100", "", "", "starting")
    assert describe_progress(make_beat(state="starting", step=None, steps=None), 2) == ("", "", "", "", "starting")


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (99.4, 2, "99"), (99.5, 2, "100"), (123.4, 2, "123"), (2.31, 2, "2.3"), (0.0123, 2, "0.012"),
        (999.4, 3, "999"), (999.6, 3, "1000"), (12345.6, 3, "12346"), (-1234.5, 3, "-1234"), (3e7, 3, "3e+07"),
        (float("nan"), 3, "nan"), (float("inf"), 3, "inf"),
    ],
)  # fmt: skip
def test_numbers_have_no_exponent_where_they_need_none(value, digits, text):
    assert format_briefly(value, digits) == text


def make_board(configs, width: int = 80) -> Board:
    return Board(
        configs, Console(file=io.StringIO(), force_terminal=True, width=width, height=20, _environ={"TERM": "xterm"})
    )


def show(board, running) -> list[str]:
    """Show running runs; returns the lines that are drawn, without what moves the cursor."""
    board.console.file.truncate(board.console.file.seek(0))
    board.show(running)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", board.console.file.getvalue()).splitlines()
    return [line.rstrip() for line in lines if line.strip()]


@pytest.fixture
def running(tmp_path):
    """Three runs: one that trains, one whose file is of another process, and one that evaluates."""
    configs = [
        make_config("optimization.epochs=2", f"calibration={method}", f"seed={seed}")
        for method, seed in (("isobn_released", 3), ("none", 1), ("isobn_released", 4))
    ]
    known = {"step": 1234, "steps": 2670, "loss": 0.4321, "speed": 2.31}
    for name, parts in (("a", known), ("b", known), ("c", known | {"step": 2670, "state": "evaluating"})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "progress.json").write_text(make_beat(updated=time.time(), **parts).model_dump_json())
    return [(cfg, tmp_path / name, pid) for cfg, name, pid in zip(configs, "abc", (7, 8, 7), strict=True)]


def test_every_running_run_has_one_line_that_fits(running):
    with make_board([cfg for cfg, *_ in running]) as board:
        assert show(board, running) == [
            "run                    epoch  step       loss   speed  time left",
            "isobn_released seed=3  1/2    1234/2670  0.432  2.3/s  10.4 min",
            "none seed=1                                            starting",
            "isobn_released seed=4  2/2    2670/2670  0.432  2.3/s  evaluating",
            "0 of 3 runs have ended",
        ]
        (running[0][1] / "progress.json").unlink()
        board.ended = 1
        assert show(board, running[:1]) == [
            "run                    epoch  step  loss  speed  time left",
            "isobn_released seed=3                            ending",
            "1 of 3 runs have ended",
        ]


def test_runs_of_one_name_keep_it(running):
    with make_board([running[0][0]]) as board:
        assert show(board, running[:1])[1].startswith("rotten_tomatoes minilm isobn_re")


@pytest.mark.parametrize("width", [30, 45, 60])
def test_narrow_terminals_show_names_and_the_time_left(running, width):
    with make_board([cfg for cfg, *_ in running], width) as board:
        lines = show(board, running)
        assert lines[1].split()[-2:] == ["10.4", "min"]
        assert lines[1].startswith("isobn_rel")
        assert all(len(line) <= width for line in lines)


def test_a_terminal_that_was_closed_stops_nothing(running, monkeypatch):
    with make_board([cfg for cfg, *_ in running]) as board:
        monkeypatch.setattr(board.console.file, "write", Mock(side_effect=OSError(errno.EIO, "closed")))
        board.show(running)
        board.print("one line")
        board.show(running)
    assert board.console.quiet


def test_where_there_is_no_terminal_only_whole_lines_are_printed(capsys, tmp_path):
    with Board([make_config()]) as board:
        assert not board.is_moving
        board.show([(make_config(), tmp_path, 7)])
        board.print("[1/3] done")
    assert capsys.readouterr().err == "[1/3] done\n"


def test_standard_output_is_left_alone(running, capsys):
    with make_board([cfg for cfg, *_ in running]) as board:
        print("a table")
        assert "a table" not in board.console.file.getvalue()
    assert capsys.readouterr().out == "a table\n"
