"""Write the section on reproducibility for a paper's appendix, in LaTeX, from the records of an experiment's runs.

Its headings are those of the ML Reproducibility Challenge's report template. What no record tells is named.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from isobench.common.terminal import format_count
from isobench.config.schema import split_chain
from isobench.data.sources import describe_source
from isobench.data.weights import describe_weights, format_encoder_name
from isobench.report.build import Report
from isobench.report.output.templating import make_latex_environment, render_paragraphs
from isobench.report.tables import label_method, read_numbers, shorten_fingerprint
from isobench.runs.grouping import find_varying_settings, flatten_settings, read_run_names
from isobench.runs.record import RunRecord
from isobench.runs.run import Run

UNKNOWN = "not recorded"
NOT_LISTED = re.compile(  # said elsewhere in the section, or no choice of an experimenter
    r"calibration\.|monitors\.|task\.(name|text|labels|metrics|primary|\w*splits?|hub|revision|files)\b|encoder\.(name|path|hub)"
)


def format_appendix(report: Report, runs: Sequence[Run]) -> str:
    r"""Write the section on all runs; it needs the LaTeX package booktabs, and is read by ``\input``."""
    ended = [(run, run.record) for run in runs if run.record]
    settings = _collect_values(pair for run, _ in ended for pair in flatten_settings(run.cfg).items())
    listed = {name: values for name, values in settings.items() if not NOT_LISTED.match(name)}
    table = report.runs[report.runs["status"].isin(["finished", "failed"])]
    return render_paragraphs(
        make_latex_environment(),
        "appendix.tex.j2",
        report=report,
        label=re.sub("[^a-z0-9]+", "-", report.name.lower()).strip("-"),
        state=", ".join(f"{count} {name}" for name, count in report.states.items()),
        total=format_count(len(runs), "run"),
        ended=format_count(len(ended), "run"),
        encoders=_collect_values(_describe_encoder(run, record) for run, record in ended),
        methods=_collect_values(pair for run, _ in ended for pair in list_method_settings(run)),
        tasks=_collect_values(_describe_task(run, record) for run, record in ended),
        grid={name: values for name, values in listed.items() if len(values) > 1},
        varying=find_varying_settings([run for run, _ in ended]),
        fixed={name: values[0] for name, values in listed.items() if len(values) == 1 and values != ["None"]},
        chosen=[line for line in report.configurations.itertuples() if report.has_choices and line.is_chosen],
        label_method=label_method,
        seeds=sorted(set(table["seed"])),
        software=_collect_values(pair for _, record in ended for pair in _list_software(record)),
        devices=[
            _summarize_device(f"{machine}, {format_count(threads, 'thread')} a run", on_device)
            for (machine, threads), on_device in table.groupby(["machine", "threads"], sort=False)
        ],
    )


def _collect_values(pairs: Iterable[tuple[str, Any]]) -> dict[str, list[str]]:
    """Collect pairs of name and value: name -> its different values, both in order of appearance."""
    values: dict[str, dict[str, None]] = {}
    for name, value in pairs:
        values.setdefault(name, {})[str(value)] = None
    return {name: list(found) for name, found in values.items()}


def _describe_encoder(run: Run, record: RunRecord) -> tuple[str, str]:
    fingerprint = shorten_fingerprint(record.encoder.fingerprint) or UNKNOWN
    name = format_encoder_name(run.cfg.encoder)
    return name, f"weights from {hide_folder(describe_weights(run.cfg.encoder))}, fingerprint {fingerprint}"


def hide_folder(source: str) -> str:
    """Shorten the path of a folder to its last part: names of users and machines don't belong into a paper."""
    return f"folder {Path(source).name}" if source.startswith(("/", "~", ".")) else source


def list_method_settings(run: Run) -> Iterator[tuple[str, str]]:
    """Yield a run's method with each of its settings; those of the later methods of a chain are called ``then.``."""
    label = label_method(read_run_names(run.cfg)[2])
    for depth, method in enumerate(split_chain(run.cfg.calibration)):
        for name, value in method.items():
            if name not in ("_target_", "then") and value is not None:
                yield label, f"{'then.' * depth}{name}={value}"


def _describe_task(run: Run, record: RunRecord) -> tuple[str, str]:
    """Return a run's task, and in words its source, fingerprint, sizes, cut texts and metrics."""
    task, data = run.cfg.task, record.data
    sizes = ", ".join(f"{split} {count:,}" for split, count in data.examples.items())
    cut = ", ".join(f"{split} {count:,}" for split, count in data.at_limit.items() if count)
    return task.name, (
        f"from {hide_folder(describe_source(task, run.cfg.data))}, fingerprint "
        f"{shorten_fingerprint(data.fingerprint) or UNKNOWN}. Examples: {sizes or UNKNOWN}. Longest text kept: "
        f"{f'{data.max_length:,} tokens' if data.max_length else UNKNOWN}. Texts as long as the limit or cut: "
        f"{cut or ('none' if data.at_limit else UNKNOWN)}. Measures: {', '.join(task.metrics)}; the score is "
        f"{task.primary}"
    )


def _list_software(record: RunRecord) -> Iterator[tuple[str, str]]:
    origin = record.provenance
    changed = " with changes that are not committed" if origin.git and origin.git.dirty else ""
    yield "isobench", f"commit {origin.git.commit}{changed}" if origin.git else "an installed package"
    yield "Python", origin.python
    yield "platform", origin.platform
    for name, version in origin.versions.items():
        yield name, version or "not installed"


def _summarize_device(name: str, runs: pd.DataFrame) -> dict[str, str | int]:
    """Add up what the runs on one kind of device took: number, hours, minutes a run, peak memory in GiB."""
    seconds, training = read_numbers(runs, "seconds"), read_numbers(runs, "training_seconds")
    peaks = {"": "peak_memory_mib", " on the GPU": "peak_gpu_memory_mib"}
    memory = {where: read_numbers(runs, column) for where, column in peaks.items()}
    return {
        "name": name, "runs": len(runs), "failed": int((runs["status"] == "failed").sum()),
        "hours": f"{np.nansum(seconds) / 3600:.2f}", "training": f"{np.nansum(training) / 3600:.2f}",
        "minutes": f"{np.nanmean(seconds) / 60:.2f}", "shared": int((read_numbers(runs, "share") > 1).sum()),
        "memory": "; ".join(
            f"{np.nanmax(values) / 1024:.1f}{where}" for where, values in memory.items() if np.isfinite(values).any()
        ),
    }  # fmt: skip
