"""A run shows on a terminal how far it is, says where it goes on, and tells its heartbeat."""

import os
import re
import signal

import pytest
from helpers import train_run
from pseudo_terminal import PseudoTerminal

from isobench.common.interruption import Interrupted
from isobench.common.progress import ProgressBar
from isobench.kinds.classification.module import Classifier
from isobench.runs.state import Heartbeat

SPEED = r" +[\d.]+(?:step/s|s/step)"
WIDE = re.compile(rf"epoch (\d)/2: +\d+%\|[^|]+\| (\d+)/20, loss (\d\.\d{{3}}),{SPEED}, \d\d:\d\d left")
NARROW = re.compile(r"(\d\.\d{3}) +[\d.]+s?/s? \d\d:\d\d?")


@pytest.fixture
def every_step(monkeypatch):
    """Bars are drawn at every step, not at most ten times a second."""

    class EagerBar(ProgressBar):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.mininterval = 0

    monkeypatch.setattr("isobench.training.callbacks.ProgressBar", EagerBar)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (24, 80), (10, 20)])
def test_a_run_shows_loss_speed_and_time_left_on_any_terminal(small, every_step, monkeypatch, rows, columns):
    reported = []
    original = Heartbeat.report_training

    def report(self, step, steps, loss=None, speed=None):
        reported.append((step, loss))
        original(self, step, steps, loss, speed)

    monkeypatch.setattr(Heartbeat, "report_training", report)
    with PseudoTerminal(rows, columns) as terminal:
        record, _, _ = train_run(*small)
    assert record["status"] == "finished"
    assert max(map(len, terminal.lines)) < (columns or 80)
    assert terminal.output.endswith(b"\r")
    assert [step for step, _ in reported] == list(range(21))
    if columns == 20:
        shown = [match[1] for line in terminal.lines if (match := NARROW.match(line))]
        assert list(dict.fromkeys(shown)) == list(dict.fromkeys(f"{loss:.3f}" for _, loss in reported[1:]))
    else:
        shown = [match.groups() for line in terminal.lines if (match := WIDE.fullmatch(line))]
        assert list(dict.fromkeys((int(step), loss) for _, step, loss in shown)) == [
            (step, f"{loss:.3f}") for step, loss in reported[1:]
        ]
        assert list(dict.fromkeys(epoch for epoch, _, _ in shown)) == ["1", "2"]
        assert sum("evaluating 1/1" in line for line in terminal.lines) == 2


@pytest.mark.slow
def test_a_resumed_run_says_where_it_goes_on(small, every_step, capsys, monkeypatch):
    original = Classifier.training_step

    def stop(self, *rest):
        if self.global_step == 12:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Classifier, "training_step", stop)
        with pytest.raises(Interrupted):
            train_run(*small)
    assert capsys.readouterr().err == ""  # no terminal, no bar
    with PseudoTerminal(0, 0) as terminal:
        record, _, _ = train_run(*small)
    assert record["attempts"] == 2
    assert terminal.lines[0] == "sst2 local none seed 1: goes on from step 13 of 20, in epoch 2/2"
    assert terminal.lines[1].startswith("epoch 2/2:  65%|")
    assert "| 13/20, " in terminal.lines[1]
