"""A pseudo-terminal of any size in place of standard error, and what was drawn on it."""

import os
import pty
import sys
import termios
import threading


class PseudoTerminal:
    """A context in which ``sys.stderr`` is a pseudo-terminal with so many rows and columns; 0 and 0: no size."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns, self.output = rows, columns, b""

    def __enter__(self):
        self._reading, self._writing = pty.openpty()
        self.resize(self.rows, self.columns)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._before, sys.stderr = sys.stderr, os.fdopen(self._writing, "w", buffering=1)
        return self

    def __exit__(self, *_):
        sys.stderr.close()  # the reader ends then
        sys.stderr = self._before
        self._reader.join()
        os.close(self._reading)

    def resize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self._writing, (rows, columns))

    def _read(self) -> None:
        while True:
            try:
                self.output += os.read(self._reading, 65536)
            except OSError:  # nobody writes any more
                return

    @property
    def lines(self) -> list[str]:
        """Everything that was drawn from a line's start, the texts that replaced another one included."""
        texts = self.output.decode().replace("\r", "\n").split("\n")
        return [text for text in texts if text.strip()]
