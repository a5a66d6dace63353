"""Functions for Python programs and notebooks: carry out a run, and load ended runs into pandas tables.

``import isobench`` gives them as ``isobench.run``, ``isobench.load_runs``, ``isobench.load_epochs``,
``isobench.report_table`` and ``isobench.diagnose``.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas

from isobench.common.errors import UserError, refuse
from isobench.common.terminal import print_note
from isobench.config.bounds import check_value
from isobench.config.command_line import check_typed_settings
from isobench.config.composing import compose_experiment, keep_global_hydra
from isobench.config.schema import Config, Experiment
from isobench.data.own_task import check_files
from isobench.frozen.diagnosis import Diagnosis
from isobench.papers.folders import PAPER_FLAG, find_papers, take_paper_flags
from isobench.report.build import build_report
from isobench.report.tables import build_epochs, build_runs, set_types
from isobench.runs.folder import runs_folder
from isobench.runs.grouping import find_varying_settings, read_run_names
from isobench.runs.plan import read_runs
from isobench.runs.record import RunRecord
from isobench.runs.run import Run, check_predictions, print_troubles
from isobench.runs.trust import describe_changed_sources
from isobench.sweep.planning import compose_methods, compose_sweep, keep_plan, make_plan, plan_runs
from isobench.training.execute import check_export_folder, train_if_needed

if TYPE_CHECKING:
    from isobench.frozen.retrieval import Search  # which imports scipy

__all__ = ["diagnose", "load_epochs", "load_runs", "report_table", "run"]


def run(overrides: Sequence[str] = ()) -> RunRecord:
    """Carry out one run, unless it is finished, and return its record.

    The result is kept in ``output_dir`` as that of a command is: the same run is never carried out twice.

    Args:
        overrides: settings as on the command line, such as ``["calibration=isobn_paper", "seed=2"]``; also
            ``["--config-dir", FOLDER]`` for YAML of your own, and ``["--paper", FOLDER]`` for a paper.

    Returns:
        The record. Its ``status`` is ``failed`` if the run failed, and ``failure`` then says why.

    Raises:
        UserError: a setting, file or package is wrong or missing, or another process is carrying out the run. Nothing
            is recorded then. Other errors are those of the library that found a mistake.
    """
    overrides = list(overrides)  # which are read more than once
    check_typed_settings(overrides)
    overrides = take_paper_flags(overrides)  # a plan adds them by itself
    with keep_global_hydra(), compose_sweep(overrides) as composed:
        first, *others = plan_runs(*composed)
    is_more = others or first.cfg.dry_run or first.cfg.analysis
    refuse((is_more, "isobench.run carries out one run, no sweep, dry_run or analysis: use the command line"))
    check_files([first.cfg])
    check_export_folder(first.cfg)
    with keep_plan(first.cfg.output_dir, make_plan([first], overrides)):
        record = train_if_needed(first, time.time())
    if record is None:
        raise UserError(f"another process is carrying out this run: {first.folder.path}")
    for sentence in describe_changed_sources([replace(first, record=record)]):
        print_note(sentence)
    return record


def diagnose(
    X: Any,
    labels: Any = None,
    pairs: Any = None,
    *,
    queries: Any = None,
    relevant: Any = None,
    key: str | None = None,
    methods: Sequence[str] = (),
    seed: int = 0,
) -> Diagnosis:
    """Diagnose vectors, as ``isobench diagnose`` does, and return what a notebook shows as tables.

    Args:
        X: vectors [N, d]: an array or tensor, a data frame, or a file: .npy, .npz, .parquet, .safetensors or .pt. Of
            a data frame and a .parquet the same columns are coordinates (`isobench diagnose` says which).
        labels: of the rows, [N]: classes; or a file or column, as for ``--labels``.
        pairs: scored pairs: row numbers [P], row numbers [P] and scores [P]; or a file, as for ``--pairs``.
        queries: vectors [Q, d] that search X, or their file.
        relevant: what they should find: row of a query, row of X (or their ids, as texts) and grade; or a file, as
            for ``--relevant``.
        key: which array of a file with several, or which list column of a table.
        methods: settings that choose further methods, such as ``["calibration=mine", "--config-dir", FOLDER]``, or
            say how labels and pairs are read: ``["data.encoding=shift_jis"]``.
        seed: of samples and halves.

    Raises:
        UserError: a file or its content is wrong.
    """
    from isobench.data import own_values
    from isobench.frozen.diagnose import diagnose as diagnose_vectors

    cfg, own = Config(), dict[str, Any]()
    if methods:
        with keep_global_hydra():
            cfg, own = compose_methods(methods)
    leave_out = [x for x in (labels, getattr(labels, "name", None)) if isinstance(x, str)]
    vectors, source, notes = _read_given(X, "X", key, leave_out)
    refuse((key and source is None, f"key={key!r} chooses an array of a file or a column, and X has none"))
    values = labels
    if isinstance(labels, str | Path):
        values = own_values.read_labels(str(labels), source, cfg.data.encoding)
    if isinstance(pairs, str | Path):
        pairs = own_values.read_pairs(Path(pairs).expanduser(), cfg.data.encoding)
    refuse(((queries is None) != (relevant is None), "queries and relevant go together"))
    search = None
    if queries is not None:
        search, said = _read_search(queries, relevant, vectors, source, key, cfg.data.encoding)
        notes = [*notes, *said]
    return diagnose_vectors(
        vectors,
        None if values is None else own_values.make_classes(values, len(vectors)),
        None if pairs is None else own_values.number_pairs(pairs, len(vectors)),
        source=source.name if isinstance(source, Path) else "X",
        methods=own,
        notes=notes,
        seed=seed,
        search=search,
    )


def _read_given(given: Any, name: str, key: str | None, leave_out: Sequence[str] = ()) -> tuple[Any, Any, list[str]]:
    """Return vectors, the path or table that they come from (None: an array), and notes on the reading."""
    from isobench.frozen import matrix

    if isinstance(given, str | Path):
        path = Path(given).expanduser()
        found, notes = matrix.read_vectors(path, key, leave_out)
        return found, path, notes
    table = matrix.as_table(given)
    found, notes = (given, []) if table is None else matrix.read_table(table, name, key, leave_out)
    return matrix.check_vectors(found, name), table, notes


def _read_search(
    queries: Any, relevant: Any, vectors: Any, source: Any, key: str | None, encoding: str | None
) -> tuple["Search", list[str]]:
    """Return what `diagnose` is given of a search in ``vectors``, which come from ``source``, and notes on it."""
    from isobench.data.relevance import read_ids, read_relevance
    from isobench.frozen.retrieval import make_search

    queries, asked, _ = _read_given(queries, "queries", key)
    if is_file := isinstance(relevant, str | Path):
        relevant = read_relevance(Path(relevant).expanduser(), encoding)
    relevant = list(relevant)
    has_ids = is_file or any(isinstance(name, str) for row in relevant for name in row[:2])
    tables = (asked, source) if has_ids else (None, None)
    asked_ids, ids = (read_ids(own, len(x)) for own, x in zip(tables, (queries, vectors), strict=True))
    return make_search(queries, relevant, asked_ids, ids)


def load_runs(
    folder: str | Path = "outputs", experiment: str | None = None, paper: str | Path | None = None
) -> pandas.DataFrame:
    """Load the ended runs of an output folder, one row a run, in the order of task, encoder, method and seed.

    The columns are: names, seed, the settings in which the runs differ (by their dotted names), where data and
    weights come from (``task.data``, ``encoder.weights``), status, failure, score and metrics of the reported epoch
    (x 100, as in reports), its isotropy, what monitors noted of it (``NAME/MEASURE``), cost, and what the run was
    made with. Their types are pandas' own that allow missing values (``Int64``, ``Float64``, ``boolean``,
    ``string``). Data and weights need not be at hand.

    A run whose record or predictions have changed since it ended has the status ``damaged`` and no score, or is left
    out if no plan has it; a line on standard error names it.

    Args:
        folder: the output folder, as of ``output_dir``, or a bundle.
        experiment: load only the runs of this experiment: those that one of its sweeps asked for.
        paper: the folder of a paper of your own, as after ``--paper``; the process knows it from then on.

    Raises:
        UserError: there is no such folder, or it has no such runs.
    """
    runs = _read_checked_runs(folder, experiment, paper)
    return set_types(build_runs(runs, find_varying_settings(runs)))


def load_epochs(
    folder: str | Path = "outputs", experiment: str | None = None, paper: str | Path | None = None
) -> pandas.DataFrame:
    """Load the evaluated epochs of the ended runs of an output folder, one row for each run and epoch.

    The rows are in the order of task, encoder, method, seed and epoch. The columns are: names, seed, settings and
    sources as in ``load_runs``; ``epoch`` (counted from 1), ``step`` (optimiser steps so far), ``score`` (the task's
    primary metric on its first dev split, x 100), the epoch's isotropy, ``<matrix>/<measure>``, such as
    ``embedding/ev1``, and the numbers that monitors noted of it, ``NAME/MEASURE``. A measure that an epoch lacks is
    missing. Epoch 0 is before the first step: it has isotropy and no score, and old runs lack it. Runs without an
    evaluated epoch and damaged ones have no rows; a line on standard error names the latter.

    Arguments and errors are those of ``load_runs``.
    """
    runs = _read_checked_runs(folder, experiment, paper)
    varying = find_varying_settings(runs)
    return set_types(build_epochs(runs, build_runs(runs, varying), varying))


def report_table(
    folder: str | Path = "outputs", experiment: str | None = None, paper: str | Path | None = None
) -> pandas.DataFrame:
    """Make the tables of a report: one row for each cell, in the order of the paper's tables.

    This is the table ``cells``, whose columns docs/reference/tables.md describes: the page, the terminal,
    Markdown, LaTeX and the claims show the same cells. A cell is one encoder and method (a line of a table) in one
    column. ``table.pivot(index=["encoder", "method"], columns="column", values="mean")`` has the paper's shape, if
    there is one table with one part. ``values``, ``seeds``, ``base`` and ``troubles`` are lists.

    Args:
        folder: the output folder, as of ``output_dir``, or a bundle.
        experiment: take the runs of this experiment, and its paper's tables. None takes all runs of the folder, and
            the tables of the experiment that they have.
        paper: as of ``load_runs``.

    Raises:
        UserError: as ``load_runs`` does; the runs are of several experiments, and none is named; or the experiment's
            selection rule can't be applied to these runs.
    """
    runs = _read_checked_runs(folder, experiment, paper)
    settings = _find_experiment(runs)
    return set_types(build_report(settings, runs).cells)


def _read_checked_runs(folder: str | Path, experiment: str | None, paper: str | Path | None) -> list[Run]:
    """Read the ended runs of an output folder, sorted; a damaged one has the state ``damaged`` and no record."""
    take_paper_flags([f"{PAPER_FLAG}={paper}"] if paper else [])
    folder = Path(folder).expanduser()
    runs = [run for run in read_runs(str(folder), experiment) if run.record or run.trouble]
    remedy = "give the output folder, the one that holds runs/, such as outputs"
    refuse((not runs, f"{runs_folder(str(folder))} has no ended runs of {experiment or 'any kind'}: {remedy}"))
    check_predictions(runs)
    print_troubles(runs)
    runs = [run if run.record else replace(run, state="damaged") for run in runs]
    return sorted(runs, key=lambda run: (*read_run_names(run.cfg), run.cfg.seed))


def _find_experiment(runs: list[Run]) -> Experiment:
    """Find the settings of the one experiment that some runs were started by; defaults if they were by none."""
    known = {run.cfg.experiment.name: run.cfg.experiment for run in reversed(runs) if run.cfg.experiment.name}
    refuse((len(known) > 1, f"the runs are of several experiments: name one of {', '.join(sorted(known))}"))
    settings = next(iter(known.values()), Experiment())
    if settings.paper not in (None, *find_papers()) and (today := compose_experiment(settings.name)):
        settings = replace(settings, paper=today.experiment.paper)  # its folder has another name now
    check_value("experiment", settings, Experiment)
    return settings
