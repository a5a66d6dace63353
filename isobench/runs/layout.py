"""The layout of an output folder: the names of its folders and files, which no other module spells.

OUTPUT_DIR/runs/KEY/          one run, under the first digits of its key (isobench.runs.folder.RunFolder)
OUTPUT_DIR/reports/NAME/      the report or the analysis of an experiment
OUTPUT_DIR/jobs/              submitted jobs and their logs
OUTPUT_DIR/plans/             the runs of the sweeps that were started in this folder, and of imported bundles
OUTPUT_DIR/isobench-outputs   marks the folder as isobench's: only in such folders does prune remove anything
"""

import re
from pathlib import Path

from isobench.common.files import shorten_digest

MARKER_FILE = "isobench-outputs"  # in an output folder
RECORD_FILE = "result.json"  # in a run's folder, once the run has ended
CONFIG_FILE = "config.yaml"  # in a run's folder, from its start
PROGRESS_FILE = "progress.json"  # in a run's folder, while it runs
PREDICTIONS_FILE = "predictions.parquet"  # in a run's folder, beside the record
LOCK_FILE = "lock"  # in a run's folder
EXPORT_FILE = "isobench.json"  # in an exported model's folder: what it is, and what transformers can't load of it
CHECKPOINTS_FOLDER = "checkpoints"  # in a run's folder, until the run has ended
ABOUT_FILE = "about.json"  # in an analysis's folder: what its files come from
EARLIER_FOLDERS = ("commands", "imports")  # in an output folder of an earlier version, which wrote no plans


def marker_file(output_dir: str | Path) -> Path:
    """Return the file that marks an output folder as isobench's."""
    return Path(output_dir) / MARKER_FILE


def runs_folder(output_dir: str | Path) -> Path:
    """Return the folder with one folder a run."""
    return Path(output_dir) / "runs"


def run_folder_name(key: str) -> str:
    """Return the name of a run's folder, from the run's key."""
    return shorten_digest(key)


def find_export_folder(export: str, key: str) -> Path:
    """Return the folder of a run's exported model; ``export``: the setting ``checkpoint.export``."""
    return Path(export).expanduser() / run_folder_name(key)


def is_run_folder_name(name: str) -> bool:
    """Return True if a folder's name can be a run's: 16 hex digits."""
    return re.fullmatch("[0-9a-f]{16}", name) is not None


def reports_folder(output_dir: str | Path) -> Path:
    """Return the folder with the reports and analyses, and with the papers' claims."""
    return Path(output_dir) / "reports"


def report_folder(output_dir: str | Path, experiment: str | None) -> Path:
    """Return the folder with the report or the analysis of an experiment; ``runs`` for runs of none."""
    return reports_folder(output_dir) / (experiment or "runs")


def jobs_folder(output_dir: str | Path) -> Path:
    """Return the folder with the submissions, and with the logs of their jobs."""
    return Path(output_dir) / "jobs"


def plans_folder(output_dir: str | Path) -> Path:
    """Return the folder with the plans of sweeps and imported bundles."""
    return Path(output_dir) / "plans"
