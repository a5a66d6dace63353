"""Progress bars on terminals of any size, and none elsewhere."""

import sys
import time

import pytest
from pseudo_terminal import PseudoTerminal

from isobench.common.progress import ProgressBar, print_above_bars, track_progress

SIZES = [(0, 0), (24, 80), (10, 20), (1, 7)]


@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_a_bar_fits_a_terminal_of_any_size(rows, columns):
    with PseudoTerminal(rows, columns) as terminal:
        assert list(track_progress(iter("abcd"), "letters", total=4)) == list("abcd")
        bar = ProgressBar("letters", total=20, unit="letter", start=10)
        bar.loss = "0.693"
        time.sleep(0.12)
        bar.update(5)
        bar.close()
    assert max(map(len, terminal.lines)) < (columns or 80)
    assert "0.693" in terminal.lines[-1]
    assert terminal.output.endswith(b"\r")  # the closed bar is blanked


def test_messages_stand_in_lines_of_their_own():
    with PseudoTerminal(24, 80) as terminal, print_above_bars():
        bar = ProgressBar("letters", total=100)
        print("to stdout")
        print("to", "stderr", file=sys.stderr)
        bar.close()
    for message in ("to stdout", "to stderr"):
        assert f"\r{message}\r\n" in terminal.output.decode()
    assert sum(line.startswith("letters:") for line in terminal.lines) == 3  # drawn again below each message
