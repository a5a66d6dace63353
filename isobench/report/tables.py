"""The three tables that everything a report shows is made of: ``runs``, ``epochs``, ``cells``.

docs/reference/tables.md says what each column holds. ``build_runs`` and ``build_epochs`` make the first two from the
runs' records, and `isobench.report.cells` makes the third from the first.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from isobench.common.files import sha256_json, shorten_digest
from isobench.config.schema import SPEED_SETTINGS
from isobench.data.scale import find_scale_differences
from isobench.runs.grouping import PROTOCOL_SETTINGS, SOURCE_SETTINGS, format_value, read_run_names, read_settings
from isobench.runs.run import Run, find_failure

BASE_METHOD = "none"  # plain fine-tuning: what every method is compared with
BASE_LABEL = "plain"  # what tables call it, because "none remains" would be ambiguous beside a method called none
BASELINE = "plain fine-tuning"  # what sentences call it
CONSTANT_PREDICTOR = "constant_predictor"  # the failure of a run that predicts the same for every example
NON_FRACTION_METRICS = ("loss",)  # metrics that are not fractions, so that they are not printed as percentages
NO_SETTING = "-"  # in the place of a setting that a run's method does not have
NUMBERS = ("score", "selection_score", "tokens_per_second", "peak_gpu_memory_mib")  # also if no run has one
COSTS = ("seconds", "training_seconds", "evaluation_seconds", "examples", "tokens_per_second")
NAMES = ["key", "task", "encoder", "method", "seed"]


def build_runs(runs: Sequence[Run], varying: Sequence[str]) -> pd.DataFrame:
    """Build ``runs`` from runs, ended or not, which differ in the settings ``varying``; selection adds columns."""
    settings = dict.fromkeys([*PROTOCOL_SETTINGS, *varying, *SOURCE_SETTINGS, *SPEED_SETTINGS, "task.held_out"])
    by_run = zip(runs, read_settings(runs, settings), _list_origins(runs), strict=True)
    records = [
        {
            **dict(zip(NAMES, (run.folder.path.name, *read_run_names(run.cfg), run.cfg.seed), strict=True)),
            **{name: str(value) if isinstance(value, list) else value for name, value in values.items()},
            **read_outcome(run),
            **origin,
        }
        for run, values, origin in by_run
    ]
    names = list(dict.fromkeys(chain.from_iterable(records)))
    table = pd.DataFrame(records, columns=names, dtype=object)  # pandas would make 2 to 2.0 beside a missing value
    return table.where(table.notna(), None)


def build_epochs(runs: Sequence[Run], run_table: pd.DataFrame, varying: Sequence[str]) -> pd.DataFrame:
    """Build ``epochs``: names and settings as in ``run_table``, number, score (x 100) and measures of each epoch.

    Epoch 0 is before the first step: it has isotropy and no score.
    """
    epochs: list[tuple[str, int, int, float]] = []
    noted: list[Mapping[str, float | None]] = []
    for run in runs:
        if run.record and run.record.isotropy_before:
            epochs.append((run.folder.path.name, 0, 0, math.nan))
            noted.append(run.record.isotropy_before)
        for epoch in run.record.history if run.record else ():
            epochs.append((run.folder.path.name, epoch.epoch, epoch.step, 100 * epoch.score))
            noted.append(epoch.list_monitored(vars(run.cfg.task)) | epoch.isotropy)
    table = pd.DataFrame(epochs, columns=["key", "epoch", "step", "score"])
    measures = list(dict.fromkeys(chain.from_iterable(noted)))
    numbers = np.array([[own.get(name) for name in measures] for own in noted], dtype=np.float64)
    table[measures] = numbers.reshape(len(epochs), len(measures))
    names = [*NAMES, *dict.fromkeys([*PROTOCOL_SETTINGS, *varying, *SOURCE_SETTINGS])]
    return run_table[names].merge(table, on="key")


def read_outcome(run: Run) -> dict[str, Any]:
    """Return status, cost, and the reported epoch's score, metrics and measures; None for what a run lacks."""
    record, task = run.record, run.cfg.task
    best = record.best if record else None
    message = record.failure.message if record and record.failure else run.trouble
    outcome: dict[str, Any] = {
        "status": record.status if record else run.state, "failure": find_failure(run), "message": message,
        "metric": task.primary, "split": task.dev_splits[0], "score": _to_percent(best.score) if best else None,
    }  # fmt: skip
    if record is None:
        return outcome
    if best:
        outcome["epoch"] = best.epoch
        outcome |= best.list_monitored(vars(task))
        outcome |= {
            f"{split}/{metric}": value if metric in NON_FRACTION_METRICS else _to_percent(value)
            for split in task.evaluated
            for metric, value in best.metrics(split).items()
            if not isinstance(value, bool)  # as constant_predictor
        }
        outcome |= best.isotropy
        outcome["selection_score"] = None if record.failure else best.selection
    cost = record.cost
    return {
        **outcome,
        "epochs": record.history[-1].epoch if record.history else 0,
        **{name: getattr(cost, name) for name in COSTS},
        "peak_memory_mib": cost.peak_memory_mib.resident,
        "peak_gpu_memory_mib": cost.peak_memory_mib.gpu,
        "attempts": record.attempts,
        "share": record.where.share,
    }


def _list_origins(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """List where runs come from: scale, data, weights, code, machine; None for what is not recorded."""
    scales: dict[tuple[Any, ...], str] = {}  # thousands of runs share a few sections of settings as the same objects
    origins = []
    for run in runs:
        record = run.record
        provenance = record.provenance if record else None
        git = provenance.git if provenance else None
        differs = record.scale.differs if record else None
        key = *(id(part) for name, part in vars(run.cfg).items() if name not in ("seed", "tracking")), str(differs)
        if key not in scales:
            scales[key] = "; ".join(find_scale_differences(run.cfg, differs))
        data, weights = run.identity.fingerprints
        origins.append({
            "scale": scales[key],
            "data": shorten_fingerprint(data or (record.data.fingerprint if record else {})),
            "weights": shorten_fingerprint(weights or (record.encoder.fingerprint if record else {})),
            "commit": git.commit if git else None,
            "code_changed": git.dirty if git else None,
            "python": provenance.python if provenance else None,
            "torch": provenance.versions.get("torch") if provenance else None,
            "machine": (", ".join(provenance.gpus) or provenance.cpu) if provenance else None,
            "threads": provenance.threads if provenance else None,
        })  # fmt: skip
    return origins


def shorten_fingerprint(hashes: dict[str, str]) -> str | None:
    """Shorten a set of hashes to one digest of sixteen digits; None if there are none."""
    return shorten_digest(sha256_json(hashes)) if hashes else None


def _to_percent(value: Any) -> float | None:
    return None if value is None else 100 * float(value)


def label_method(method: str) -> str:
    """Return what a report calls a method: its name, and ``plain`` for plain fine-tuning."""
    return BASE_LABEL if method == BASE_METHOD else method


def name_group(encoder: str, part: str) -> str:
    """Name runs that are compared with each other: by their encoder, and their part if there are several."""
    return f"{encoder}; {part}" if part else encoder


def list_outcomes(runs: pd.DataFrame) -> list[str | None]:
    """List what went wrong in each run: its failure, or its state if it has not ended; None if nothing did."""
    pairs = zip(runs["failure"], runs["status"], strict=True)
    return [failure or (None if status in ("finished", "failed") else status) for failure, status in pairs]


def find_troubles(runs: pd.DataFrame) -> list[str]:
    return [trouble for trouble in list_outcomes(runs) if trouble]


def is_scored(runs: pd.DataFrame) -> pd.Series:
    return (runs["status"] == "finished") & runs["score"].notna()


def read_numbers(runs: pd.DataFrame, name: str) -> np.ndarray:
    """Return a column as numbers, NaN where it is missing. [runs]"""
    if name not in runs:
        return np.full(len(runs), math.nan)
    return runs[name].to_numpy(dtype=np.float64, na_value=math.nan)


def compute_epoch_seconds(runs: pd.DataFrame) -> np.ndarray:
    """Return each run's training seconds per epoch up to the last evaluated one; NaN if no epoch was trained."""
    epochs = read_numbers(runs, "epochs")
    return read_numbers(runs, "training_seconds") / np.where(epochs > 0, epochs, np.nan)


def find_fastest(seconds: np.ndarray) -> float | None:
    """Return the least of runs' seconds per epoch, of the run which the machine's other work slowed least."""
    return float(np.nanmin(seconds)) if np.isfinite(seconds).any() else None


def list_scale_differences(runs: pd.DataFrame) -> list[str]:
    """List how the runs' data and encoders differ from the paper's, each difference once; empty if they don't."""
    differences = chain.from_iterable(text.split("; ") for text in runs["scale"].unique())
    return list(dict.fromkeys(filter(None, differences)))


def describe_settings(runs: pd.DataFrame, varying: Sequence[str]) -> str:
    """Write the configuration of a line's runs, for each task if tasks differ; empty if no setting varies."""
    if not varying:
        return ""
    tasks = {}
    for task, of_task in runs.groupby("task", sort=False):
        tasks[task] = describe_choice(varying, of_task[list(varying)].iloc[-1])
    if len(set(tasks.values())) == 1:
        return next(iter(tasks.values()))
    return "; ".join(f"{task}: {settings}" for task, settings in tasks.items())


def describe_choice(names: Sequence[str], values: Iterable[Any]) -> str:
    """Write the values of some settings, without those that a method lacks, and without nulls beside others."""
    held = {name: value for name, value in zip(names, values, strict=True) if value != NO_SETTING}
    told = {name: value for name, value in held.items() if not pd.isna(value) and value != "None"}
    return ", ".join(f"{name.partition('.')[2]}={told.get(name, 'null')}" for name in told or held)


def set_types(table: pd.DataFrame) -> pd.DataFrame:
    """Give each column pandas' own type that allows missing values: Int64, Float64, boolean, string; lists stay."""
    return pd.DataFrame({name: _set_type(table[name]) for name in table}, index=table.index)


def _set_type(column: pd.Series) -> pd.Series:
    """Convert a column: missing values, and a setting that a method lacks, become pandas' missing value."""
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        return column.convert_dtypes(convert_integer=pd.api.types.is_integer_dtype(column))
    # A NaN differs from itself: `pd.isna` would take longer for the thousands of values of a large report.
    values = [None if value != value or value == NO_SETTING else value for value in column]
    types = {type(value) for value in values if value is not None}
    if list in types:
        return column
    if types and types <= {bool}:
        return pd.Series(values, column.index, "boolean")
    if types <= {int, float} and (types or column.name in NUMBERS):
        return pd.Series(values, column.index, "Int64" if types == {int} else "Float64")
    texts = [value if value is None or isinstance(value, str) else format_value(value) for value in values]
    return pd.Series(texts, column.index, "string")
