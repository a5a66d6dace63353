"""Carry out an experiment's analysis and write its outcome."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hydra.utils
from rich.table import Table

from isobench.analyses.names import SubjectNames, name_subjects, needs_training
from isobench.analyses.setting_checks import check_settings
from isobench.common.checksums import add_json_checksum, read_json
from isobench.common.errors import UserError
from isobench.common.files import make_storage_error, replace_non_finite, require_writable, sha256_file, write_json
from isobench.common.reading import RECORD_LIMIT
from isobench.common.terminal import make_console, print_note
from isobench.config.schema import Experiment
from isobench.runs.layout import ABOUT_FILE, report_folder
from isobench.runs.row import Row
from isobench.training.execute import probe_hub_if_needed

RUNNER_SETTINGS = ("_target_", "trains", "unfinished")  # of an analysis; its function takes the other ones


def run_analysis(experiment: Experiment, rows: Sequence[Row]) -> None:
    """Carry out the analysis in these runs' config, write its files and print its tables.

    Args:
        experiment: the experiment; it names the folder.
        rows: the runs of its grid; all have the same ``analysis`` settings.

    Raises:
        UserError: the analysis has no such setting, data or weights are missing, or the folder can't be written.
    """
    first = rows[0].cfg
    probe_hub_if_needed(row.cfg for row in rows)
    function, settings = load_analysis_function(first.analysis)
    names = name_subjects(rows)
    folder = report_folder(first.output_dir, experiment.name)
    with require_writable(folder):
        findings, seconds = compute_findings(experiment, function, settings, rows, names)
        try:
            stale = list_earlier_files(folder)
            (folder / ABOUT_FILE).unlink(missing_ok=True)  # while files change, no about.json vouches for them
            files = findings.write(folder)
            for name in stale - {file.name for file in files}:
                (folder / name).unlink(missing_ok=True)
            write_json(
                folder / ABOUT_FILE,
                add_json_checksum(replace_non_finite(describe_analysis(experiment, rows, findings, files, seconds))),
            )
        except OSError as error:
            raise make_storage_error(error, folder) from error
    out = make_console()
    findings.print_to(out)
    stems = ", ".join(sorted({file.stem for file in files}))
    out.print(f"Written to {folder}/: {stems}", highlight=False, markup=False, soft_wrap=True)


def analyse_trained_runs(experiment: Experiment, rows: Sequence[Row]) -> None:
    """Carry out the analysis of trained runs on those that finished; with ``analysis.unfinished`` on all of them.

    Without a finished run, print a line that says so.

    Args:
        experiment: the experiment; it names the folder.
        rows: the planned runs, with the records of those that have ended.

    Raises:
        UserError: as ``run_analysis``.
    """
    finished = [row for row in rows if row.record is not None and row.record.status == "finished"]
    if finished:
        run_analysis(experiment, rows if rows[0].cfg.analysis.get("unfinished") else finished)
    else:
        print_note("no run has finished, so there is nothing to analyse")


def compute_findings(
    experiment: Experiment, function: Any, settings: dict[str, Any], rows: Sequence[Row], names: list[SubjectNames]
) -> tuple[Any, float]:
    """Call the analysis and add to its notes and figures how the setting differs from the paper's.

    Args:
        experiment: the experiment.
        function: the analysis; takes subjects and settings, returns Findings.
        settings: its settings.
        rows: the runs of the experiment's grid.
        names: each run's names in tables and figures.

    Returns:
        The findings, and the seconds that they took.

    Raises:
        UserError: the analysis returns something else, or numbers that are no rows.
    """
    from isobench.analyses.subject import Subject, collect_scale_notes
    from isobench.common.plots import add_scale_note, use_figure_style

    start = time.perf_counter()
    subjects = [Subject(row, row_names) for row, row_names in zip(rows, names, strict=True)]
    with use_figure_style():
        findings = function(subjects, **settings)
        check_findings(findings)
        if findings.differs is None:
            findings.differs = collect_scale_notes(subjects, "encoder", "task")
        warnings = [f"{subject.encoder}: {warning}" for subject in subjects for warning in subject.warnings]
        findings.differs = list(dict.fromkeys([*findings.differs, *warnings]))
        for name, figure in findings.figures.items():
            if name not in findings.independent_figures:
                add_scale_note(figure, findings.differs)
    setting = "" if experiment.paper is None else " Data and encoders are the paper's."
    if findings.differs:
        setting = f" NOT the paper's setting: {'; '.join(findings.differs)}."
    findings.notes.insert(0, f"scale={rows[0].cfg.scale}.{setting}")
    return findings, time.perf_counter() - start


def check_findings(findings: Any) -> None:
    """Raise UserError unless an analysis returned Findings whose numbers are rows, under names of files."""
    from isobench.analyses.findings import Findings  # imports pyarrow

    if not isinstance(findings, Findings):
        raise UserError(
            f"the analysis returned {type(findings).__name__}: return isobench.analyses.findings.Findings"
        )
    for name, rows in findings.numbers.items():
        if Path(name).name != name:
            raise UserError(f"the analysis named its numbers {name}: use a file name without folders")
        if not isinstance(rows, Sequence) or not all(isinstance(row, Mapping) for row in rows):
            raise UserError(f"the analysis must return its numbers {name} as a list of mappings, one for each row")
    for name in findings.figures:
        if Path(name).name != name:
            raise UserError(f"the analysis named a figure {name}: use a file name without folders")


def describe_analysis(
    experiment: Experiment, rows: Sequence[Row], findings: Any, files: list[Path], seconds: float
) -> dict[str, Any]:
    """Build the content of about.json: the analysis with its settings, the grid's keys, provenance.

    It has the configs too if nothing was trained: trained runs have theirs in their own folders.
    """
    from isobench.common.provenance import collect_provenance

    trained = needs_training(rows[0].cfg.analysis)
    return {
        "experiment": asdict(experiment),
        **list_analysis_inputs(rows),
        "seconds": round(seconds, 1),
        "scale": {"name": rows[0].cfg.scale, "differs": findings.differs},
        "files": sorted(file.name for file in files),
        "sha256": {file.name: sha256_file(file) for file in sorted(files)},
        "runs": [] if trained else [asdict(row.cfg) for row in rows],
        "ended": [row.folder.key for row in rows if row.record is not None],
        "provenance": collect_provenance(),
    }


def list_analysis_inputs(rows: Sequence[Row]) -> dict[str, Any]:
    """List what decides an outcome: the analysis with its settings, and the keys of the runs."""
    return {"analysis": rows[0].cfg.analysis, "keys": [row.folder.key for row in rows]}


def list_earlier_files(folder: Path) -> set[str]:
    """List the files that an earlier analysis wrote into a folder; empty without one.

    A name with a folder in it is left out: no analysis writes one, and these files may be removed.
    """
    names = (read_about(folder) or {}).get("files")
    plain = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    return {name for name in plain if name == Path(name).name and name not in ("", "..")}


def read_about(folder: Path) -> dict[str, Any] | None:
    """Read a folder's about.json; None if it is absent, damaged or changed."""
    try:
        about = read_json(folder / ABOUT_FILE, RECORD_LIMIT)
    except (OSError, ValueError):
        return None
    return about if isinstance(about, dict) else None


def load_analysis_function(analysis: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Import the function that ``analysis._target_`` names; returns it and its settings.

    Raises:
        UserError: there is no such function, or it can't take these settings.
    """
    settings = {key: value for key, value in analysis.items() if key not in RUNNER_SETTINGS}
    target = analysis.get("_target_")
    if not target:
        raise UserError("analysis._target_ must name a function, such as isobench_papers.isobn.ev.analyse")
    try:
        logging.getLogger("hydra.utils").setLevel(logging.CRITICAL)  # it would log the same error at length
        function = hydra.utils.get_method(target)
    except Exception as error:  # Hydra raises several kinds of errors here
        raise UserError(f"analysis._target_={target} can't be imported: {error}") from error
    check_settings(function, settings)
    return function, settings


def print_analysis_plan(title: str, rows: Sequence[Row]) -> None:
    """Print the subjects of an analysis without training, and whether its outcome exists; starts nothing."""
    table = Table(title=f"{title}: nothing is started", title_justify="left", header_style="bold")
    for name in SubjectNames._fields:
        table.add_column(name, overflow="fold")
    for names in name_subjects(rows):
        table.add_row(*names)
    folder = report_folder(rows[0].cfg.output_dir, rows[0].cfg.experiment.name)
    about = read_about(folder)
    state = "not done yet"
    if about is not None:
        inputs = replace_non_finite(list_analysis_inputs(rows))
        same = all(about.get(key) == value for key, value in inputs.items())
        state = f"done: {folder}/" if same else f"not done yet ({folder}/ has it with other settings)"
    out = make_console()
    out.print(table)
    out.print(f"An analysis of these, without training; {state}", highlight=False, markup=False)
