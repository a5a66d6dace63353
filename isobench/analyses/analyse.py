"""Carry out an experiment's analysis and keep what it finds."""

import inspect
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hydra.utils
from rich.table import Table

from isobench import hub, weights
from isobench.data import sources
from isobench.errors import UserError
from isobench.files import is_storage_error, storage_error, write_json
from isobench.report.row import Row
from isobench.report.table import console, varying_settings
from isobench.run import finite
from isobench.schema import Experiment, method_name


def trains(analysis: dict[str, Any]) -> bool:
    """Whether an analysis is of trained runs."""
    return bool(analysis.get("trains", False))


def folder_of(output_dir: str, experiment: Experiment) -> Path:
    """Where an analysis's outcome lies."""
    return Path(output_dir) / "reports" / (experiment.name or "analysis")


def analyse(experiment: Experiment, rows: Sequence[Row]) -> None:
    """Carry out the analysis of these runs' config, show its tables, write its files, say where they are.

    Raises:
        UserError: a setting that it doesn't have, data or weights that are not there, a disk that is full.
    """
    configs = [row.cfg for row in rows]
    first = configs[0]
    origins = [(sources.source_name(cfg.task, cfg.data), weights.source_name(cfg.encoder)) for cfg in configs]
    if any("hub" in names for names in origins):
        hub.reachable()  # before the libraries that read its answer are imported
    function, settings = function_of(first.analysis)
    from isobench.analyses.figures import say_scale, style
    from isobench.analyses.subject import Subject
    from isobench.provenance import provenance

    start = time.time()
    with style():
        varying = varying_settings(list(rows))
        findings = function([Subject(row, varying) for row in rows], **settings)
        for figure in findings.figures.values():
            say_scale(figure, findings.differs)
        if findings.differs:
            findings.notes.insert(0, f"scale={first.scale}. NOT the paper's setting: {'; '.join(findings.differs)}.")
        else:
            findings.notes.insert(0, f"scale={first.scale}. Data and encoders are the paper's.")
        folder = folder_of(first.output_dir, experiment)
        try:
            files = findings.write(folder)
            about = {
                "experiment": asdict(experiment),
                "analysis": first.analysis,
                "seconds": round(time.time() - start, 1),
                "scale": {"name": first.scale, "differs": findings.differs},
                "files": sorted(file.name for file in files),
                "runs": [asdict(cfg) for cfg in configs],
                "provenance": provenance(),
            }
            write_json(folder / "about.json", finite(about))
        except OSError as error:
            raise storage_error(error, folder) if is_storage_error(error) else error from None
    out = console()
    findings.show(out)
    names = ", ".join(sorted({file.stem for file in files}))
    out.print(f"Written to {folder}/: {names}", highlight=False, markup=False)


def function_of(analysis: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The function that ``analysis._target_`` names, and its settings.

    Raises:
        UserError: no such function, or it takes no such setting.
    """
    settings = {key: value for key, value in analysis.items() if key not in ("_target_", "trains")}
    target = analysis.get("_target_")
    if not target:
        raise UserError("analysis._target_ must name a function, such as isobench.analyses.isobn_ev.analyse")
    try:
        function = hydra.utils.get_method(target)
    except Exception as error:  # Hydra raises several kinds for what can't be imported or called
        raise UserError(f"analysis._target_={target} can't be imported: {error}") from error
    known = list(inspect.signature(function).parameters)[1:]
    for key in settings:
        if key not in known:
            raise UserError(f"analysis.{key} is no setting of {target}; it has: {', '.join(known) or 'none'}")
    return function, settings


def show_plan(title: str, rows: Sequence[Row]) -> None:
    """What a dry run of an analysis without training prints."""
    table = Table(title=f"{title}: nothing is started", title_justify="left", header_style="bold")
    for name in ("encoder", "task", "method"):
        table.add_column(name)
    for row in rows:
        table.add_row(row.cfg.encoder.name, row.cfg.task.name, method_name(row.cfg.calibration))
    out = console()
    out.print(table)
    outcome = folder_of(rows[0].cfg.output_dir, Experiment(name=title)) / "about.json"
    state = f"done before: {outcome.parent}/" if outcome.is_file() else "not done yet"
    out.print(f"An analysis of these, without training; {state}", highlight=False, markup=False)
