"""Signals that ask a run to stop: noted, and obeyed at the next point where nothing is lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# Time limits and preemption (SLURM through submitit: USR2; others: TERM), and Ctrl-C.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT)


class Interrupted(BaseException):
    """A run stopped because it was asked to; it goes on from its last checkpoint.

    Not an Exception: nothing that records a run's failure may take it for one.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)  # its only argument, so that it can be pickled
        self.signum = signum

    def __str__(self) -> str:
        return f"interrupted by {signal.Signals(self.signum).name}"


def raise_interrupted(signum: int, frame: FrameType | None) -> None:
    """A handler for where there is nothing to save: stop at once."""
    raise Interrupted(signum)


@contextmanager
def handle_signals(handler: Any, *signals: signal.Signals) -> Iterator[None]:
    """A context in which the signals have this handler."""
    before = {signum: signal.signal(signum, handler) for signum in signals}
    try:
        yield
    finally:
        for signum, handler_before in before.items():
            signal.signal(signum, handler_before)


class SignalWatch:
    """Notes the first signal instead of obeying it at once; a second Ctrl-C is obeyed at once.

    A signal that the process was started to ignore stays ignored.

    ``start`` may be called again: Lightning puts its own handler for TERM in place when training begins, and
    would end the job as if it were complete.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self._previous: dict[int, Any] = {}

    def start(self) -> None:
        """Take the signals over; in a thread, where Python allows no handlers, do nothing."""
        if threading.current_thread() is threading.main_thread():
            for signum in STOP_SIGNALS:
                handler = signal.getsignal(signum)
                if handler not in (signal.SIG_IGN, self._note):
                    self._previous.setdefault(signum, handler)
                    signal.signal(signum, self._note)

    def stop(self) -> None:
        """Give the signals back to whoever had them."""
        while self._previous:
            signal.signal(*self._previous.popitem())

    def raise_if_signalled(self) -> None:
        """Raise Interrupted if a signal was noted."""
        if self.signum is not None:
            raise Interrupted(self.signum)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGINT and self.signum == signal.SIGINT:
            raise KeyboardInterrupt
        self.signum = self.signum or signum
