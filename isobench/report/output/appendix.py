"""Write the section on reproducibility for a paper's appendix, in LaTeX, from the records of an experiment's runs.

Its headings are those of the ML Reproducibility Challenge's report template (model descriptions, datasets,
hyperparameters, experimental setup and code, computational requirements). Its last part goes through the Machine
Learning Reproducibility Checklist, version 2.0. What no record tells is said to be unknown.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from isobench.common.terminal import format_count
from isobench.config.schema import split_chain
from isobench.data.sources import describe_source
from isobench.data.weights import describe_weights, format_encoder_name
from isobench.report.build import Report
from isobench.report.output.templating import make_latex_environment, render_paragraphs
from isobench.report.selection import group_by_configuration
from isobench.report.tables import label_method, shorten_fingerprint
from isobench.runs.grouping import VARYING_SECTIONS, find_varying_settings, flatten_settings, read_run_names
from isobench.runs.record import RunRecord
from isobench.runs.run import Run

UNKNOWN = "not recorded"
NOT_LISTED = re.compile(  # said elsewhere in the section, or no choice of an experimenter
    r"calibration\.|monitors\.|task\.(name|text|labels|metrics|primary|\w*splits?|hub|revision|files)\b|encoder\.(name|path|hub)"
)


def format_appendix(report: Report, rows: Sequence[Run]) -> str:
    r"""Write the section; it needs the LaTeX package booktabs, and is read by ``\input``.

    Args:
        report: what was built from the runs.
        rows: all runs of the experiment, ended or not.
    """
    ended = [row for row in rows if row.record]
    records = [row.record for row in ended if row.record]
    return render_paragraphs(
        make_latex_environment(),
        "appendix.tex.j2",
        report=report,
        label=re.sub("[^a-z0-9]+", "-", report.name.lower()).strip("-"),
        state=", ".join(f"{count} {name}" for name, count in report.states.items()),
        total=format_count(len(rows), "run"),
        ended=format_count(len(ended), "run"),
        failures=count_failures(records),
        encoders=describe_encoders(ended),
        methods=describe_methods(ended),
        tasks=describe_tasks(ended),
        settings=describe_settings(ended),
        chosen=[line for line in report.configurations.itertuples() if line.is_chosen],
        seeds=describe_seeds(report.runs[report.runs["status"].isin(["finished", "failed"])], report.varying),
        streams=", ".join(dict.fromkeys(name for record in records for name in record.seeds)) or UNKNOWN,
        code=describe_code(records),
        packages=describe_packages(records),
        devices=describe_devices(records),
        evaluations=len(report.epochs),
        label_method=label_method,
    )


def count_failures(records: list[RunRecord]) -> str:
    """Say how many runs failed of what; empty if none did."""
    names = Counter(record.failure.name for record in records if record.failure)
    return ", ".join(f"{count} of {name}" for name, count in names.items())


def describe_encoders(rows: list[Run]) -> list[tuple[str, str, str]]:
    """List the encoders: name, where the weights come from, digest of their fingerprint."""
    return list(
        dict.fromkeys(
            (
                format_encoder_name(row.cfg.encoder),
                hide_folder(describe_weights(row.cfg.encoder)),
                shorten_fingerprint(row.record.encoder.fingerprint if row.record else {}) or UNKNOWN,
            )
            for row in rows
            if row.record
        )
    )


def hide_folder(place: str) -> str:
    """Shorten the path of a folder to its last part: names of users and machines don't belong into a paper."""
    return f"folder {Path(place).name}" if place.startswith(("/", "~", ".")) else place


def describe_methods(rows: list[Run]) -> list[tuple[str, str]]:
    """List the methods with the values of their settings in these runs."""
    values: dict[str, dict[str, dict[str, None]]] = {}
    for row in rows:
        own = values.setdefault(read_run_names(row.cfg)[2], {})
        for depth, method in enumerate(split_chain(row.cfg.calibration)):
            for name, value in method.items():
                if name not in ("_target_", "then") and value is not None:
                    own.setdefault(f"{'then.' * depth}{name}", {})[str(value)] = None
    return [
        (label_method(method), "; ".join(f"{name}={' or '.join(found)}" for name, found in own.items()))
        for method, own in values.items()
    ]


def describe_tasks(rows: list[Run]) -> list[dict[str, str]]:
    """Describe the tasks: name, source, sizes of the splits, digest of the data's fingerprint, cut texts, metrics.

    Args:
        rows: runs that have ended.
    """
    tasks: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        assert row.record is not None
        task, data = row.cfg.task, row.record.data
        sizes = ", ".join(f"{split} {count:,}" for split, count in data.examples.items())
        cut = ", ".join(f"{split} {count:,}" for split, count in data.at_limit.items() if count)
        described = {
            "name": task.name,
            "source": hide_folder(describe_source(task, row.cfg.data)),
            "sizes": sizes or UNKNOWN,
            "fingerprint": shorten_fingerprint(data.fingerprint) or UNKNOWN,
            "length": f"{data.max_length:,} tokens" if data.max_length else UNKNOWN,
            "cut": cut or ("none" if data.at_limit else UNKNOWN),
            "metrics": ", ".join(task.metrics),
            "primary": str(task.primary),
        }
        tasks.setdefault(tuple(described.values()), described)
    complete = [task for task in tasks.values() if task["sizes"] != UNKNOWN]
    known = {(task["name"], task["fingerprint"]) for task in complete}
    # A run that failed before its data were ready tells nothing more of a task that other runs describe.
    return [t for t in tasks.values() if t in complete or (t["name"], t["fingerprint"]) not in known]


def describe_settings(rows: list[Run]) -> dict[str, list[tuple[str, str]]]:
    """List settings and their values: ``grid`` has those with several values, ``fixed`` those with one."""
    by_sections = {tuple(id(getattr(row.cfg, name)) for name in VARYING_SECTIONS): row for row in rows}
    values: dict[str, dict[str, None]] = {}
    for row in by_sections.values():
        for name, value in flatten_settings(row.cfg).items():
            if not NOT_LISTED.match(name):
                values.setdefault(name, {})[str(value)] = None
    varying = find_varying_settings(rows)
    listed: dict[str, list[tuple[str, str]]] = {"grid": [], "fixed": []}
    for name, found in values.items():
        if len(found) > 1:
            listed["grid"].append(
                (name, ", ".join(found) + ("" if name in varying else " (one for each task, encoder and method)"))
            )
        elif "None" not in found:
            listed["fixed"].append((name, next(iter(found))))
    return listed


def describe_seeds(runs: pd.DataFrame, varying: Sequence[str]) -> str:
    """Say which seeds were run, and how many each configuration has."""
    groups = group_by_configuration(runs, varying)
    counts = sorted({len(own) for choices in groups.values() for own in choices.values()})
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{', '.join(map(str, sorted(set(runs['seed']))))}; {number} for each configuration"


def describe_code(records: list[RunRecord]) -> list[str]:
    """List the code's states: commit, and whether tracked files differed from it; with the number of runs."""
    states: Counter[str] = Counter()
    for record in records:
        git = record.provenance.git
        changed = ", with changes that are not committed" if git and git.dirty else ""
        states[f"commit {git.commit}{changed}" if git else "an installed package, commit not recorded"] += 1
    return [f"{state} ({format_count(count, 'run')})" for state, count in states.items()]


def describe_packages(records: list[RunRecord]) -> list[tuple[str, str]]:
    """List Python, the platforms and the recorded packages with their versions; several where runs differ."""
    found: dict[str, dict[str, None]] = {"Python": {}, "platform": {}}
    for record in records:
        provenance: Any = record.provenance
        found["Python"][provenance.python] = None
        found["platform"][provenance.platform] = None
        for name, version in provenance.versions.items():
            found.setdefault(name, {})[version or "not installed"] = None
    if len(found) == 2:
        found["packages"] = {UNKNOWN: None}
    return [(name, " or ".join(versions)) for name, versions in found.items()]


@dataclass
class DeviceCost:
    """Hold what the runs on one kind of device cost.

    Attributes:
        name: the GPUs, or the processor if there is none, with the number of threads.
        runs: number of runs that ended there.
        failed: number of those that failed.
        seconds: wall-clock seconds of every run, with evaluation and checkpoints.
        training_seconds: of every run.
        peak_memory: largest resident memory of a process, in MiB.
        peak_gpu_memory: largest memory allocated on a GPU, in MiB; None if none is recorded.
        shared: number of runs that shared their device with others.
        retried: number of runs that more than one process worked on.
    """

    name: str
    runs: int = 0
    failed: int = 0
    seconds: list[float] = field(default_factory=list)
    training_seconds: list[float] = field(default_factory=list)
    peak_memory: float = 0.0
    peak_gpu_memory: float | None = None
    shared: int = 0
    retried: int = 0

    @property
    def hours(self) -> str:
        """The sum of the wall-clock times, in hours."""
        return f"{sum(self.seconds) / 3600:.2f}"

    @property
    def training_hours(self) -> str:
        """The sum of the training times, in hours."""
        return f"{sum(self.training_seconds) / 3600:.2f}"

    @property
    def minutes_per_run(self) -> str:
        """The mean wall-clock time of a run, in minutes."""
        return f"{sum(self.seconds) / 60 / self.runs:.2f}"

    @property
    def memory(self) -> str:
        """The largest memory of a run, in GiB: of the process, and of the GPU if there is one."""
        gpu = "" if self.peak_gpu_memory is None else f"; {self.peak_gpu_memory / 1024:.1f} on the GPU"
        return f"{self.peak_memory / 1024:.1f}{gpu}"


def describe_devices(records: list[RunRecord]) -> list[DeviceCost]:
    """Add up the costs of runs for each kind of device, in order of appearance."""
    devices: dict[str, DeviceCost] = {}
    for record in records:
        name = name_device(record)
        own = devices.setdefault(name, DeviceCost(name))
        own.runs += 1
        own.failed += record.status == "failed"
        own.seconds.append(record.cost.seconds)
        own.training_seconds.append(record.cost.training_seconds)
        memory = record.cost.peak_memory_mib
        own.peak_memory = max(own.peak_memory, memory.resident)
        if memory.gpu is not None:
            own.peak_gpu_memory = max(own.peak_gpu_memory or 0.0, memory.gpu)
        own.shared += record.where.share > 1
        own.retried += record.attempts > 1
    return list(devices.values())


def name_device(record: RunRecord) -> str:
    """Name the device of a run: its GPUs if it sees any, else processor, cores and threads."""
    origin = record.provenance
    cores = "an unknown number of cores" if origin.cores is None else format_count(origin.cores, "core")
    processor = f"{origin.cpu or 'unknown processor'}, {cores}, {format_count(origin.threads, 'thread')} a run"
    return f"{' + '.join(origin.gpus)} ({processor})" if origin.gpus else processor
