"""Plain fine-tuning that can be made slow, or made to fail, from outside: for jobs that are to be interrupted."""

import os
import time
from pathlib import Path

import torch

from isobench.calibration import Calibration


class Slow(Calibration):
    """Sleeps at each training step for ISOBENCH_TEST_SLEEP seconds, or for as many as the file of this name says.

    While it says ``hold``, the step does not end; a file ``NAME.PID`` tells that the process is in such a step.
    """

    def forward(self, h):
        if self.training:
            file = Path(os.environ.get("ISOBENCH_TEST_SLEEP", "0"))
            while (seconds := file.read_text() if file.is_file() else str(file)) == "hold":
                Path(f"{file}.{os.getpid()}").touch()
                time.sleep(0.05)
            time.sleep(float(seconds or 0))  # empty while it is being written
        return h * 1.5


class Failing(Calibration):
    def forward(self, h):
        raise RuntimeError("as meant")


class Either(Calibration):
    """One of the two, by ``kind``: classes are not in the run's key, settings are."""

    def __new__(cls, dim, kind):
        return {"slow": Slow, "failing": Failing}[kind](dim)


class Mended(Calibration):
    """Crashes at its sixth step as long as ISOBENCH_TEST_CRASH is 1; mended, it has a buffer more."""

    def __init__(self, dim):
        super().__init__(dim)
        self.broken, self.steps = os.environ["ISOBENCH_TEST_CRASH"] == "1", 0
        if not self.broken:
            self.register_buffer("more", torch.zeros(3))

    def forward(self, h):
        self.steps += self.training
        if self.broken and self.steps == 6:
            raise RuntimeError("as meant")
        return h
