"""Write the section on reproducibility for a paper's appendix, in LaTeX, from the records of an experiment's runs.

Its headings are those of the ML Reproducibility Challenge's report template (model descriptions, datasets,
hyperparameters, experimental setup and code, computational requirements). Its last part goes through the Machine
Learning Reproducibility Checklist, version 2.0. What no record tells is said to be unknown.
"""

import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from isobench.common.files import make_storage_error, write_atomic
from isobench.common.terminal import format_count
from isobench.config.schema import split_chain
from isobench.data.sources import describe_source
from isobench.data.weights import describe_weights, format_encoder_name
from isobench.report.appendix_cost import describe_devices
from isobench.report.baseline_comparison import label_method
from isobench.report.document import Report
from isobench.report.files import write_text
from isobench.report.old_selection import group_by_configuration
from isobench.report.templating import make_latex_environment, render_paragraphs
from isobench.report.tidy_rows import shorten_fingerprint
from isobench.runs.grouping import VARYING_SECTIONS, find_varying_settings, flatten_settings, read_run_names
from isobench.runs.record import RunRecord
from isobench.runs.row import Row

APPENDIX_FILE = "appendix.tex"
UNKNOWN = "not recorded"
NOT_LISTED = re.compile(  # said elsewhere in the section, or no choice of an experimenter
    r"calibration\.|monitors\.|task\.(name|text|labels|metrics|primary|\w*splits?|hub|revision|files)\b|encoder\.(name|path|hub)"
)


def write_appendix(report: Report, rows: list[Row], folder: Path) -> Path:
    """Write ``appendix.tex`` into a report's folder, whole or not at all, and return its path.

    Raises:
        StorageError: the folder can't be written.
    """
    file = folder / APPENDIX_FILE
    try:
        write_atomic(file, partial(write_text, format_appendix(report, rows)))
    except OSError as error:
        raise make_storage_error(error, folder) from error
    return file


def format_appendix(report: Report, rows: list[Row]) -> str:
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
        label=re.sub("[^a-z0-9]+", "-", report.experiment.lower()).strip("-"),
        state=", ".join(f"{count} {name}" for name, count in report.state.items()),
        total=format_count(len(rows), "run"),
        ended=format_count(len(ended), "run"),
        failures=count_failures(records),
        encoders=describe_encoders(ended),
        methods=describe_methods(ended),
        tasks=describe_tasks(ended),
        settings=describe_settings(ended),
        chosen=[line for line in report.configurations if line.is_chosen],
        seeds=describe_seeds(ended),
        streams=", ".join(dict.fromkeys(name for record in records for name in record.seeds)) or UNKNOWN,
        code=describe_code(records),
        packages=describe_packages(records),
        devices=describe_devices(records),
        evaluations=sum(len(record.history) for record in records),
        label_method=label_method,
    )


def count_failures(records: list[RunRecord]) -> str:
    """Say how many runs failed of what; empty if none did."""
    names = Counter(record.failure.name for record in records if record.failure)
    return ", ".join(f"{count} of {name}" for name, count in names.items())


def describe_encoders(rows: list[Row]) -> list[tuple[str, str, str]]:
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


def describe_methods(rows: list[Row]) -> list[tuple[str, str]]:
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


def describe_tasks(rows: list[Row]) -> list[dict[str, str]]:
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


def describe_settings(rows: list[Row]) -> dict[str, list[tuple[str, str]]]:
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


def describe_seeds(rows: list[Row]) -> str:
    """Say which seeds were run, and how many each configuration has."""
    seeds = sorted({row.cfg.seed for row in rows})
    groups = group_by_configuration(rows, find_varying_settings(rows))
    counts = sorted({len(runs) for choices in groups.values() for runs in choices.values()})
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{', '.join(map(str, seeds))}; {number} for each configuration"


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
