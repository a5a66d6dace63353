"""Carry out an experiment's analysis: compute its rows, write them, and show them.

An analysis is a module with ``compute(subjects, **settings)``, which returns rows, and ``show(rows)``.
"""

import importlib
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from isobench.analyses.rows import (
    SubjectNames,
    make_tables,
    name_subjects,
    needs_training,
    read_about,
    read_stored_rows,
)
from isobench.analyses.shown import Rows, Shown, show_all
from isobench.common.errors import UserError, doing, refuse
from isobench.common.files import explain_output_errors, replace_non_finite, sha256_file, write_json, write_whole
from isobench.common.terminal import make_console, make_table, print_note
from isobench.config.bounds import check_value
from isobench.config.composing import compose_experiment
from isobench.config.schema import Experiment
from isobench.data.availability import ask_hub_early
from isobench.data.scale import find_scale_differences
from isobench.runs.folder import ABOUT_FILE, REPORT_TABLES, report_folder, require_report_folder
from isobench.runs.run import Run

if TYPE_CHECKING:  # importing them takes seconds
    import pyarrow

    from isobench.analyses.subject import Subject

RUNNER_SETTINGS = ("_target_", "trains", "unfinished")  # of an analysis; compute takes the other ones
OLD_ENDING = ".analyse"  # of the targets in the shipped plan of isobn_ev: an analysis was a function then


def run_analysis(experiment: Experiment, runs: Sequence[Run]) -> Shown:
    """Carry out the analysis in these runs' config: write its rows, print its tables and draw its figures.

    ``experiment`` names the folder. All runs have the same ``analysis`` settings.
    """
    first = runs[0].cfg
    ask_hub_early(run.cfg for run in runs)
    analysis = load_analysis(first.analysis)
    subjects = make_subjects(runs)
    folder = report_folder(first.output_dir, experiment.name)
    with require_report_folder(folder):
        start, started = time.perf_counter(), time.time()
        tables = make_tables(analysis.compute(subjects))
        rows = {name: table.to_pylist() for name, table in tables.items()}
        about = {
            "experiment": asdict(experiment),
            **list_analysis_inputs(runs),
            "seconds": round(time.perf_counter() - start, 1),
            "times": {"started": started, "ended": time.time()},  # since 1970
            "scale": {"name": first.scale, "differs": analysis.describe_differences(subjects, rows)},
            "runs": [] if needs_training(first.analysis) else [asdict(run.cfg) for run in runs],
            "ended": [run.folder.key for run in runs if run.record is not None],
        }
        shown = show_rows(about, rows)
        with explain_output_errors(folder):
            _write_files(folder, about, tables, shown)
    out = make_console()
    shown.print_to(out)
    stems = ", ".join(sorted({*rows, *shown.figures}))
    out.print(f"Written to {folder}/: {stems}", highlight=False, markup=False, soft_wrap=True)
    return shown


def analyse_trained_runs(experiment: Experiment, runs: Sequence[Run]) -> Shown | None:
    """Carry out the analysis on the runs that it is made of; print that there is nothing to analyse without any."""
    if chosen := choose_analysed_runs(runs):
        return run_analysis(experiment, chosen)
    print_note("no run has finished, so there is nothing to analyse")
    return None


def choose_analysed_runs(runs: Sequence[Run]) -> Sequence[Run]:
    """Choose what an analysis of trained runs is made of: the finished ones, with ``analysis.unfinished`` all."""
    finished = [run for run in runs if run.record is not None and run.record.status == "finished"]
    return runs if finished and runs[0].cfg.analysis.get("unfinished") else finished


def show_stored_analysis(source: Path, analysis: Mapping[str, Any], folder: Path) -> Shown:
    """Show an analysis by the rows that are stored, and draw its figures; compute nothing.

    Args:
        source: the folder with about.json and the rows.
        analysis: names the module that shows them; the one that a stored file names is not imported.
        folder: where the figures go.
    """
    about = read_about(source)
    if about is None:
        raise UserError(f"{source} has no rows of an analysis: run the experiment first")
    with doing(f"showing {source}"):
        ours = {**about["analysis"], "_target_": analysis["_target_"]}
        shown = show_rows({**about, "analysis": ours}, read_stored_rows(source))
    with require_report_folder(folder), explain_output_errors(folder):
        for name, content in shown.draw().items():
            with write_whole(folder / f"{name}.svg") as file:
                file.write_bytes(content)
    return shown


def show_rows(about: Mapping[str, Any], rows: Rows) -> Shown:
    """Show the rows of an analysis, with a note on how its setting differs from the paper's.

    ``about`` is the content of about.json. The module that its ``analysis`` names is imported.
    """
    from isobench.common.plots import add_scale_note, use_figure_style

    differs, paper = "; ".join(about["scale"]["differs"]), about["experiment"].get("paper")
    words = "Not the paper's setting" if paper else "Data"
    note = f"{words}: {differs}." if differs else ""
    with use_figure_style():
        shown = load_analysis(about["analysis"]).show(rows)
        for name, figure in shown.figures.items():
            refuse((Path(name).name != name, f"show named a figure {name}, which may overwrite other files"))
            if name not in shown.independent_figures:
                add_scale_note(figure, note)
    same = "Data and encoders are the paper's." if paper else ""
    setting = note.replace("Not", "NOT", 1) or same  # loud: it is the first of many notes
    shown.notes.insert(0, f"scale={about['scale']['name']}. {setting}".strip())
    return shown


def make_subjects(runs: Sequence[Run]) -> "list[Subject]":
    """Make the subjects of runs, each with its names in tables and figures."""
    from isobench.analyses.subject import Subject

    return [Subject(run, names) for run, names in zip(runs, name_subjects(runs), strict=True)]


def _write_files(folder: Path, about: dict[str, Any], tables: "dict[str, pyarrow.Table]", shown: Shown) -> None:
    """Write rows, about.json and figures, each file whole or not at all; remove what an earlier outcome left."""
    import pyarrow.parquet

    from isobench.common.environment import collect_provenance

    files: dict[str, Callable[[Path], Any]] = {
        f"{name}.parquet": partial(pyarrow.parquet.write_table, table) for name, table in tables.items()
    }
    for name, content in shown.draw().items():
        files[f"{name}.svg"] = partial(Path.write_bytes, data=content)
    stale = _list_earlier_files(folder) - files.keys()
    (folder / ABOUT_FILE).unlink(missing_ok=True)  # while files change, no about.json vouches for them
    for name, write in files.items():
        with write_whole(folder / name) as file:
            write(file)
    for name in stale:
        (folder / name).unlink(missing_ok=True)
    about = about | {
        "files": sorted(files),
        "sha256": {f"{name}.parquet": sha256_file(folder / f"{name}.parquet") for name in tables},
        "provenance": collect_provenance(),
    }
    write_json(folder / ABOUT_FILE, replace_non_finite(about))


def list_analysis_inputs(runs: Sequence[Run]) -> dict[str, Any]:
    """List what decides an outcome: the analysis with its settings, and the keys of the runs."""
    analysis = runs[0].cfg.analysis
    return {
        "analysis": analysis | {"_target_": _name_module(analysis)},
        "keys": [run.folder.key for run in runs],
    }


def _name_module(analysis: Mapping[str, Any]) -> str:
    """Name the module of an analysis, also where its target names the function that the module once was."""
    return str(analysis.get("_target_") or "").removesuffix(OLD_ENDING)


def _list_earlier_files(folder: Path) -> set[str]:
    """List the files that an earlier analysis wrote into a folder; a name with a folder in it is a stranger's."""
    names = (read_about(folder) or {}).get("files")
    plain = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    return {name for name in plain if name == Path(name).name and name not in ("", "..")}


def print_analysis_plan(title: str, runs: Sequence[Run]) -> None:
    """Print the subjects of an analysis without training, and whether its outcome exists; starts nothing."""
    table = make_table(f"{title}: nothing is started", SubjectNames._fields, ())
    for names in name_subjects(runs):
        table.add_row(*names)
    folder = report_folder(runs[0].cfg.output_dir, runs[0].cfg.experiment.name)
    about = read_about(folder)
    state = "not done yet"
    if about is not None:
        inputs = replace_non_finite(list_analysis_inputs(runs))
        same = all(about.get(key) == value for key, value in inputs.items())
        state = f"done: {folder}/" if same else f"not done yet ({folder}/ has it with other settings)"
    out = make_console()
    out.print(table)
    out.print(f"An analysis of these, without training; {state}", highlight=False, markup=False)


def find_analysis(experiment: str) -> dict[str, Any]:
    """Return the settings of the analysis that isobench has for an experiment of this name, or raise UserError."""
    composed = compose_experiment(experiment)
    if not composed or not composed.analysis:
        raise UserError(f"isobench has no analysis of an experiment {experiment}")
    return composed.analysis


class Analysis(NamedTuple):
    """An analysis with its settings."""

    module: Any  # has ``compute``, and may have ``show`` and ``describe_differences``
    settings: dict[str, Any]  # those of ``compute``

    def compute(self, subjects: Sequence["Subject"]) -> Rows:
        """Compute the rows of subjects."""
        rows = self.module.compute(list(subjects), **self.settings)
        for name in rows:
            overwrites = name in REPORT_TABLES or Path(name).name != name
            refuse((overwrites, f"compute named its rows {name}, which would overwrite other files"))
        return {name: list(map(dict, observations)) for name, observations in rows.items()}

    def show(self, rows: Rows) -> Shown:
        """Show rows; ``show`` takes the settings that it has parameters for."""
        function = getattr(self.module, "show", None)
        return show_all(rows) if function is None else function(rows, **self._pick_settings(function))

    def describe_differences(self, subjects: Sequence["Subject"], rows: Rows) -> list[str]:
        """Describe how the setting differs from the paper's; if the module does not, how encoders and tasks do."""
        function = getattr(self.module, "describe_differences", None)
        if function is None:
            notes = [phrase for subject in subjects for phrase in find_scale_differences(subject.cfg)]
        else:
            notes = function(subjects, rows, **self._pick_settings(function))
        warnings = [f"{subject.encoder}: {warning}" for subject in subjects for warning in subject.warnings]
        return list(dict.fromkeys([*notes, *warnings]))

    def _pick_settings(self, function: Callable[..., Any]) -> dict[str, Any]:
        wanted = inspect.signature(function).parameters
        return {name: value for name, value in self.settings.items() if name in wanted}


def load_analysis(analysis: Mapping[str, Any]) -> Analysis:
    """Import the module that ``analysis._target_`` names, and check the settings beside it, or raise UserError."""
    target = _name_module(analysis)
    settings = {name: value for name, value in analysis.items() if name not in RUNNER_SETTINGS}
    with doing(f"analysis._target_={target}"):
        module = importlib.import_module(target)
        check_settings(module.compute, settings)
    return Analysis(module, settings)


def check_settings(compute: Callable[..., Any], settings: Mapping[str, Any]) -> None:
    """Raise an error unless ``compute`` takes the settings; its parameters' annotations carry types and bounds."""
    signature = inspect.signature(compute)
    signature.bind([], **settings)
    for name, value in settings.items():
        if (hint := signature.parameters[name].annotation) is not inspect.Parameter.empty:
            check_value(f"analysis.{name}", value, hint)
