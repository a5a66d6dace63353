"""Plain fine-tuning that can be made slow, or made to fail, from outside: for jobs that are to be interrupted."""

import os
import signal
import time

from isobench.calibration import Calibration


class Slow(Calibration):
    def forward(self, h):
        if self.training:
            time.sleep(float(os.environ.get("ISOBENCH_TEST_SLEEP", "0")))
        return h * 1.5


class Failing(Calibration):
    def forward(self, h):
        raise RuntimeError("as meant")


class Killing(Calibration):
    def forward(self, h):
        os.kill(os.getpid(), signal.SIGKILL)
