"""The lines of running runs in a terminal."""

import io
import time

import pytest
from helpers import make_config
from rich.console import Console

from isobench.runs.record import Beat
from isobench.sweep.board import Board, describe_progress, fit_cells


def make_beat(**parts) -> Beat:
    values = {
        "host": "a", "machine": "a", "job": None, "log": None, "share": 1, "state": "training", "step": 0,
        "steps": 100, "pid": 7, "since": 0.0, "updated": 100.0, "attempt": 1,
    }  # fmt: skip
    return Beat(**values | parts)


def test_progress_has_epoch_step_loss_speed_and_time_left():
    assert describe_progress(make_beat(step=10), 2) == ["epoch 1 of 2", "step 10 of 100", ""]
    later = make_beat(step=50, loss=0.6931, speed=2.0)
    expected = ["epoch 2 of 2", "step 50 of 100", "loss 0.693", "2 steps/s", "25 s left"]
    assert describe_progress(later, 2) == expected
    end = make_beat(step=100, loss=0.5, speed=2.0, state="evaluating")
    assert describe_progress(end, 2)[-2:] == ["0 s left", "evaluating"]
    assert describe_progress(make_beat(state="starting", step=40), 2) == ["starting from step 40"]
    assert describe_progress(make_beat(state="starting", step=None, steps=None), 2) == ["starting"]


def make_board(width: int) -> Board:
    return Board(
        3, Console(file=io.StringIO(), force_terminal=True, width=width, height=20, _environ={"TERM": "xterm"})
    )


@pytest.mark.parametrize("width", [120, 40])
def test_every_running_run_has_one_line(tmp_path, width):
    cfg = make_config("optimization.epochs=2")
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        (folder / "progress.json").write_text(make_beat(updated=time.time(), step=50).model_dump_json())
    board = make_board(width)
    with board:
        board.show([(cfg, folders[0], 7), (cfg, folders[1], 8)])  # the second file is of another process
        lines = board.console.file.getvalue().splitlines()
        assert len(lines) == 3
        assert all(line.count("rotten_tomatoes") == 1 for line in lines[:2])
        assert "star" in lines[1]
        assert "0 of 3 runs have ended" in lines[2]
        if width == 120:
            assert "epoch 2 of 2" in lines[0]
            assert "step 50 of 100" in lines[0]
        (folders[0] / "progress.json").unlink()
        board.show([(cfg, folders[0], 7)])
        assert "ending" in board.console.file.getvalue() or width == 40


def test_narrow_terminals_show_the_whole_name_and_fewer_cells():
    name = "sst2 minilm isobn_paper seed 1 beta=0.25 lr=1e-05"
    running = [name, "epoch 2 of 2", "step 50 of 100", "loss 0.693", "2 steps/s", "25 s left"]
    waiting = [name, "starting"]
    assert fit_cells([running, waiting], 130) == [running, waiting]
    for width, left in ((110, [0, 1, 2, 3, 5]), (95, [0, 1, 2, 5]), (80, [0, 2, 5])):
        cells, others = fit_cells([running, waiting], width)
        assert cells == [running[index] for index in left], width
        assert others == waiting
        assert sum(map(len, cells)) + 2 * (len(cells) - 1) <= width


def test_where_there_is_no_terminal_only_whole_lines_are_printed(capsys, tmp_path):
    with Board(3) as board:
        assert not board.is_moving
        board.show([(make_config(), tmp_path, 7)])
        board.print("[1/3] done")
    assert capsys.readouterr().err == "[1/3] done\n"
