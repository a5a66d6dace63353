"""A worker whose runs are made up: each does what a line of Python says, and has a record then.

Everything else is real: locks, heartbeats, signals, the command's flags. ``python made_up_worker.py FILE FLAGS``
carries out the runs in a file of ``MadeUpSweep``.
"""

import pickle
import sys
import time
from pathlib import Path

from isobench.cli import work as command
from isobench.common.files import write_text
from isobench.runs.folder import RunFolder
from isobench.runs.plan import Plan
from isobench.runs.record import format_record
from isobench.runs.run import Run
from isobench.runs.state import Heartbeat
from isobench.sweep import worker
from isobench.sweep.machine import Division
from isobench.sweep.workers import Workers


class MadeUpSweep:
    """Runs of which each does what its own line says; ``state.txt`` lists what their processes noted."""

    def __init__(self, folder: Path, *lines: str) -> None:
        from helpers import make_config, record_content  # which a worker needs not

        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.runs, contents = [], {}
        for number, line in enumerate(lines):
            cfg, key = make_config(f"seed={number}", f"output_dir={folder}"), f"{number:02d}" * 32
            self.runs.append(Run(cfg, RunFolder(str(folder), key), None))
            contents[key] = line, format_record(record_content(cfg, key=key)).decode()
        self.file = folder / "runs.pickle"
        self.file.write_bytes(pickle.dumps((self.runs, contents)))
        self.since = time.time()

    @property
    def command(self) -> list[str]:
        """The command of a worker."""
        return [sys.executable, __file__, str(self.file), f"--since={self.since}"]

    def carry_out(self, division: Division) -> list[int]:
        return Workers(self.command, division).carry_out(self.runs, self.since)

    def read_notes(self) -> list[str]:
        file = self.folder / "state.txt"
        return file.read_text().splitlines() if file.exists() else []

    def list_ended(self) -> list[int]:
        """List the numbers of the runs that have a record."""
        return [run.cfg.seed for run in self.runs if run.folder.read_record()]


def main() -> None:
    file = Path(sys.argv.pop(1))
    runs, contents = pickle.loads(file.read_bytes())

    def note(text: object) -> None:
        with (file.parent / "state.txt").open("a") as notes:
            notes.write(f"{text}\n")

    def execute(run: Run, label: str, since: float) -> int:
        line, record = contents[run.folder.key]
        with run.folder.lock() as is_ours:
            if not is_ours:
                return worker.EXIT_BUSY
            if run.folder.read_record():
                return worker.EXIT_DONE
            with Heartbeat(run.folder.path):
                note(run.cfg.seed)
                code = {"run": run, "note": note, "code": 0}
                exec(line, code)
                write_text(run.folder.result_file, record)
        print(f"{label}seed {run.cfg.seed}", file=sys.stderr, flush=True)
        return int(code["code"])

    worker.execute_run = execute
    command.read_plan = lambda *_: (Plan(None, ["isobench"], []), runs)
    sys.argv.insert(1, "plan.json")
    command.main()


if __name__ == "__main__":
    main()
