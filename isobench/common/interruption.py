"""Signals that ask a run to stop: they are noted, and the run stops at the next point where no work is lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# USR2: time limits and preemption of SLURM, through submitit. TERM: those of other schedulers. INT: Ctrl-C.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT)


class Interrupted(BaseException):
    """Raised to stop a run that a signal asked to stop; the next attempt continues from its last checkpoint.

    Not an Exception, so that code which records failures does not catch it.

    Args:
        signum: the signal's number.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)  # with the constructor's argument, so that it can be pickled
        self.signum = signum

    def __str__(self) -> str:
        return f"interrupted by {signal.Signals(self.signum).name}"


def raise_interrupted(signum: int, frame: FrameType | None) -> None:
    """Stop at once: a signal handler for times when there is nothing to save."""
    raise Interrupted(signum)


@contextmanager
def handle_signals(handler: Any, *signals: signal.Signals) -> Iterator[None]:
    """A context in which ``signals`` have this handler; afterwards they have their old ones."""
    old_handlers = {signum: signal.signal(signum, handler) for signum in signals}
    try:
        yield
    finally:
        for signum, old_handler in old_handlers.items():
            signal.signal(signum, old_handler)


class SignalWatch:
    """Notes the first signal, for ``raise_if_signalled`` to act on; a second Ctrl-C stops the process at once.

    A signal that the process was started to ignore stays ignored. ``start`` may be called again, to replace a handler
    that was set in between: Lightning sets its own for TERM when training begins, and that would end the job as if it
    were complete.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self._previous: dict[int, Any] = {}

    def start(self) -> None:
        """Set this watch as the signals' handler; do nothing in a thread, where Python allows no handlers."""
        if threading.current_thread() is threading.main_thread():
            for signum in STOP_SIGNALS:
                handler = signal.getsignal(signum)
                if handler not in (signal.SIG_IGN, self._note):
                    self._previous.setdefault(signum, handler)
                    signal.signal(signum, self._note)

    def stop(self) -> None:
        """Restore the handlers that the signals had before ``start``."""
        while self._previous:
            signal.signal(*self._previous.popitem())

    def raise_if_signalled(self) -> None:
        """Raise Interrupted if a signal has been noted."""
        if self.signum is not None:
            raise Interrupted(self.signum)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGINT and self.signum == signal.SIGINT:
            raise KeyboardInterrupt
        self.signum = self.signum or signum
