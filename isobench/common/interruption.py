"""Signals that ask a run to stop: they are noted, and the run stops at the next point where no work is lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# USR2: time limits and preemption of SLURM. TERM: those of other schedulers. INT: Ctrl-C. HUP: the
# terminal was closed, or its connection was lost.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT, signal.SIGHUP)


class Interrupted(BaseException):
    """Raised to stop a run that a signal asked to stop; the next attempt continues from its last checkpoint.

    Not an Exception, so that code which records failures does not catch it.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)  # with the constructor's argument, so that it can be pickled
        self.signum = signum

    def __str__(self) -> str:
        return f"interrupted by {signal.Signals(self.signum).name}"


_noted: list[int] = []  # the signals that ``raise_interrupted`` has handled, in the order of their arrival


def raise_interrupted(signum: int, frame: FrameType | None) -> None:
    """Note a signal and stop at once: a handler for times when there is nothing to save.

    Python drops an exception that is raised while an object is destroyed, in its ``__del__``. There the first signal
    is noted only. ``raise_if_noted`` stops the process later, also where a library has dropped the exception.
    """
    _noted.append(signum)
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    if frame is not None and len(_noted) == 1:
        return
    raise KeyboardInterrupt if signum == signal.SIGINT else Interrupted(signum)


def raise_if_noted() -> None:
    """Raise Interrupted, between two pieces of work, if a signal was handled and the process goes on nevertheless."""
    if _noted:
        raise Interrupted(_noted[0])


@contextmanager
def obey_ctrl_c() -> Iterator[None]:
    """A context in which Ctrl-C stops the process, and is never lost; what was noted before it no longer counts.

    Ctrl-C stays ignored if the process was started to ignore it. In a thread, where Python allows no handlers, this
    changes nothing.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    _noted.clear()
    try:
        with handle_signals(raise_interrupted, *([signal.SIGINT] if is_main_thread and not is_ignored else [])):
            yield
    finally:
        _noted.clear()


@contextmanager
def hold_signals(*signals: signal.Signals) -> Iterator[None]:
    """A context in which these signals wait until it ends; the processes that are started in it never get them."""
    old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)


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
        """Set this watch as the signals' handler, and take over a signal that was noted before."""
        if threading.current_thread() is threading.main_thread():  # Python allows no handlers elsewhere
            for signum in STOP_SIGNALS:
                handler = signal.getsignal(signum)
                if handler not in (signal.SIG_IGN, self._note):
                    self._previous.setdefault(signum, handler)
                    signal.signal(signum, self._note)
        if self.signum is None and _noted:
            self.signum = _noted[0]

    def stop(self) -> None:
        while self._previous:
            signal.signal(*self._previous.popitem())

    def raise_if_signalled(self) -> None:
        if self.signum is not None:
            raise Interrupted(self.signum)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGINT and self.signum == signal.SIGINT:
            raise KeyboardInterrupt
        self.signum = self.signum or signum
