"""Verify a bundle or an output folder: `isobench verify`, `isobench import` and tests call this.

Data, weights and training are checked on request (isobench.verification.reproduction).
"""

import hashlib
import math
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow

from isobench.analyses.rows import make_tables, needs_training
from isobench.analyses.runner import find_analysis, load_analysis, make_subjects
from isobench.bundles.manifest import MANIFEST_FILE, PLAN_FILE, Manifest, find_changes, read_manifest
from isobench.bundles.privacy import UNKNOWN
from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import RECORD_LIMIT, read_bounded, read_json
from isobench.common.progress import track_progress
from isobench.config.schema import Config
from isobench.papers.folders import find_config, read_config_file
from isobench.runs.bundled import TABLE_LIMIT, parse_table
from isobench.runs.folder import ABOUT_FILE, RunFolder, run_folder_name
from isobench.runs.identity import Identity, compute_key
from isobench.runs.plan import read_intact_plans
from isobench.runs.run import Run
from isobench.verification.folder import FAILS, UNCHECKED, Outcomes, VerifiedFolder
from isobench.verification.reproduction import Memo, NotAvailable, Options, adapt_config, check_sources, retrain_runs
from isobench.verification.run_check import CheckedRun, check_run, compare_runs, find_other_classes

# How far rows may be from those that are computed again, relative to the largest number of their column.
OF_RUNS = 1e-6  # statistics of records and predictions in float64
OF_VECTORS = 1e-3  # of what an encoder gives, in float32, on another processor

ABOUT_TYPES = {"analysis": dict, "keys": list, "ended": set, "sha256": dict}  # of what a stranger's about.json has
Planned = Mapping[str, tuple[Config, Identity]]  # the runs that were asked for, by key


def verify(root: Path, options: Options) -> Outcomes:
    """Verify a folder and return the outcomes of all checks; raise UserError if it is no bundle and no output folder.

    Nothing that the folder names is imported or run, and no file outside of it is read but the data and weights that
    the user names.
    """
    folder, outcomes, options = VerifiedFolder(root), Outcomes(), replace(options, call_once=Memo())
    try:
        outcomes.manifest = read_manifest(root) if folder.is_bundle else None
        changes = dict(find_changes(root, outcomes.manifest)) if outcomes.manifest else {}
        if not changes:
            folder.find_runs()
    except UserError as error:  # nothing more of a damaged bundle is read
        outcomes.note(MANIFEST_FILE, "files", FAILS, extract_first_line(error))
        return outcomes
    manifest = outcomes.manifest
    for name in sorted((manifest.files.keys() if manifest else set()) | changes.keys()):
        outcomes.judge(name, "files", [changes[name]] if name in changes else [])
    if changes:
        return outcomes
    names = track_progress(folder.runs, root.name)
    runs = {name: check_run(folder.runs[name], outcomes, options.trust) for name in names}
    if not runs and manifest is None and not outcomes.has_failed and not folder.list_analyses():
        raise UserError(f"{root} has no runs and no analyses: there is nothing to verify")
    compare_runs(runs.values(), folder.is_bundle, outcomes)
    planned = _check_plans(folder, manifest, outcomes)
    if manifest is not None:
        _check_manifest(manifest, runs, planned, outcomes)
    for path in folder.list_analyses():
        _check_analysis(folder, path, manifest, runs, planned or {}, options, outcomes)
    if options.level >= 2 or options.retrain:
        check_sources(runs, options, outcomes)
    if options.retrain:
        retrain_runs(folder.runs, runs, options, outcomes)
    return outcomes


def _check_plans(folder: VerifiedFolder, manifest: Manifest | None, outcomes: Outcomes) -> Planned | None:
    """Read which runs were asked for, by their keys, each of which must follow from its settings; None if damaged."""
    subject = PLAN_FILE if folder.is_bundle else "plans"
    plans, troubles = read_intact_plans(folder.root)
    if troubles:
        outcomes.note(subject, "files", FAILS, troubles[0])
        return None
    problems = [
        f"its settings and fingerprints of {run_folder_name(identity.key)} give another key"
        for plan in plans
        for cfg, identity in plan.runs
        if compute_key(cfg, identity.data, identity.encoder) != identity.key
    ]
    problems += sorted({text for plan in plans for cfg, _ in plan.runs for text in find_other_classes(cfg)})
    names = {(plan.experiment, cfg.experiment.name) for plan in plans for cfg, _ in plan.runs}
    problems += [f"it is a plan of {plan}, and has runs of {run}" for plan, run in names if plan != run]
    if manifest is not None and plans and manifest.experiment != plans[0].experiment:
        problems.append(f"it is a plan of {plans[0].experiment}, and the bundle is of {manifest.experiment}")
    if plans:
        outcomes.judge(subject, "key", problems)
    return {identity.key: (cfg, identity) for plan in plans for cfg, identity in plan.runs}


def _check_manifest(
    manifest: Manifest, runs: Mapping[str, CheckedRun], planned: Planned | None, outcomes: Outcomes
) -> None:
    """Compare the runs of a manifest with those that the bundle has, and with the plan."""
    named = [run.record.where.host for run in runs.values() if run.record and run.record.where.host != UNKNOWN]
    if manifest.anonymous and named:
        outcomes.note(MANIFEST_FILE, "files", FAILS, f"it is not anonymous: a record names the host {named[0]}")
    if others := set(map(run_folder_name, manifest.runs)) ^ runs.keys():
        outcomes.note(MANIFEST_FILE, "files", FAILS, f"its runs are not those of the records: {min(others)}")
    for key in manifest.runs:
        if planned is not None and key not in planned:
            outcomes.note(run_folder_name(key), "files", FAILS, "the plan does not ask for this run")
    if planned is not None and manifest.runs and (missing := len(planned.keys() - manifest.runs)):
        text = f"of the {len(planned)} runs of the plan, {missing} are not in the bundle"
        outcomes.note(PLAN_FILE, "files", UNCHECKED, text)


def _check_analysis(
    folder: VerifiedFolder,
    path: Path,
    manifest: Manifest | None,
    runs: Mapping[str, CheckedRun],
    planned: Planned,
    options: Options,
    outcomes: Outcomes,
) -> None:
    """Check the tables of an experiment's analysis by their checksums and by computing their rows again."""
    subject = path.relative_to(folder.root).as_posix()
    try:
        about, contents = _read_analysis(path, subject, manifest)
        stored = {file: parse_table(content) for file, content in contents.items()}
    except Exception as error:  # a stranger's file may be wrong in any way
        outcomes.note(f"{subject}/{ABOUT_FILE}", "analysis", FAILS, extract_first_line(error))
        return
    for file, content in contents.items():
        if hashlib.sha256(content).hexdigest() != about["sha256"][file]:
            outcomes.note(f"{subject}/{file}", "analysis", FAILS, f"its sha256 is not that in {ABOUT_FILE}")
    try:
        expected, tolerance = _compute_again(folder, about, runs, planned, options)
    except ValueError as error:
        outcomes.note(subject, "analysis", FAILS, extract_first_line(error))
        return
    except Exception as error:  # what a stranger's settings make of an analysis may raise anything
        outcomes.note(subject, "analysis", UNCHECKED, f"its rows are not computed again: {extract_first_line(error)}")
        return
    problems = {file: ["its rows are stored, and not computed"] for file in stored}
    problems |= {file: ["its rows are missing"] for file in expected}
    for file in stored.keys() & expected.keys():
        problems[file] = list(find_differences(stored[file], expected[file], tolerance))
    for file, found in problems.items():
        outcomes.judge(f"{subject}/{file}", "analysis", found)


def _read_analysis(path: Path, subject: str, manifest: Manifest | None) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read an analysis's about.json, and the tables that it names: file -> content."""
    about = read_json(path / ABOUT_FILE, RECORD_LIMIT)
    experiment = path.name if manifest is None else manifest.experiment
    if about["experiment"]["name"] != experiment:
        raise ValueError(f"it is of the experiment {about['experiment']['name']}, and not of {experiment}")
    about |= {name: make(about[name]) for name, make in ABOUT_TYPES.items()}
    files = [file for file in about["sha256"] if file.endswith(".parquet")]
    listed = {file for file in manifest.files if file.startswith(f"{subject}/")} if manifest else set()
    if manifest and listed != {f"{subject}/{file}" for file in (ABOUT_FILE, *files)}:
        raise ValueError("its tables are not those of the bundle")
    return about, {file: read_bounded(path / file, TABLE_LIMIT) for file in files}


def _compute_again(
    folder: VerifiedFolder,
    about: Mapping[str, Any],
    runs: Mapping[str, CheckedRun],
    planned: Planned,
    options: Options,
) -> tuple[dict[str, pyarrow.Table], float]:
    """Compute an analysis's rows again, by file, with their tolerance; ValueError if it is of other runs."""
    name = about["experiment"]["name"]
    ours = _find_own_analysis(name)
    trains = needs_training(ours)
    if trains != needs_training(about["analysis"]):
        raise ValueError(f"its settings are not those of the analysis {name}")
    if not trains and not options.recompute:
        raise NotAvailable("it needs data and weights: add --recompute")
    settings = about["analysis"] | {"_target_": ours["_target_"]}  # what a stored file names is not imported
    with tempfile.TemporaryDirectory() as output_dir:
        if trains:
            analysed = list(_list_trained_runs(folder, about, runs, planned, bool(ours.get("unfinished"))))
        else:
            analysed = []
            for cfg, identity in map(planned.__getitem__, about["keys"]):
                adapted = adapt_config(cfg, identity, options, output_dir)
                analysed.append(Run(adapted, RunFolder(output_dir, identity.key), None, identity=identity))
        tables = make_tables(load_analysis(settings).compute(make_subjects(analysed)))
    tolerance = OF_RUNS if trains else OF_VECTORS
    return {f"{name}.parquet": table for name, table in tables.items()}, tolerance


def _find_own_analysis(experiment: str) -> dict[str, Any]:
    """Find our analysis of an experiment: in its YAML, which is quick, unless it has the settings of another one."""
    file = find_config("experiment", experiment)
    own = read_config_file(file) if file else {}
    others = [text for text in own.get("defaults", []) if isinstance(text, str) and text != "_self_"]
    is_whole = not others and "_target_" in (own.get("analysis") or {})
    return own["analysis"] if is_whole else find_analysis(experiment)


def _list_trained_runs(
    folder: VerifiedFolder,
    about: Mapping[str, Any],
    runs: Mapping[str, CheckedRun],
    planned: Planned,
    unfinished: bool,
) -> Iterator[Run]:
    """Yield the runs of an analysis of trained runs, in its order; ValueError if they are not those of the folder.

    A bundle's are the plan's that have finished, with ``unfinished`` all of the plan.
    """
    status = {run.record.key: run.record.status for run in runs.values() if run.record}
    expected = [key for key in planned if unfinished or status.get(key) == "finished"]
    if folder.is_bundle and sorted(about["keys"]) != sorted(expected):
        raise ValueError("it was made of other runs than the plan has: repeat the analysis, and the export")
    if not about["ended"] or about["ended"] != status.keys() & set(about["keys"]):
        raise ValueError("it was made of other runs than the folder has: repeat the analysis, and the export")
    for key in about["keys"]:
        run = runs.get(run_folder_name(key))
        if run is not None and run.cfg is not None and run.record is not None:
            record, state = run.record, "failed" if run.record.failure else "done"
            identity = Identity(key, record.data.fingerprint, record.encoder.fingerprint)
            cfg, _ = planned.get(key, (run.cfg, identity))  # its record may name another experiment
        elif key in planned:
            (cfg, identity), record, state = planned[key], None, "missing"
        else:
            raise ValueError(f"its run {run_folder_name(key)} is neither in the folder nor in a plan")
        cfg = replace(cfg, output_dir=str(folder.root))
        yield Run(cfg, RunFolder(cfg.output_dir, key), record, state, identity=identity)


def find_differences(stored: pyarrow.Table, expected: pyarrow.Table, tolerance: float) -> Iterator[str]:
    """Yield for each column where stored rows differ first from those that were computed again."""
    if (stored.num_rows, stored.column_names) != (expected.num_rows, expected.column_names):
        yield f"it has {stored.shape} rows and columns, computed again it has {expected.shape}, or columns differ"
        return
    for column in stored.column_names:
        ours, theirs = expected[column].to_pylist(), stored[column].to_pylist()
        finite = (abs(value) for value in ours if isinstance(value, float) and math.isfinite(value))
        margin = tolerance * max(finite, default=0.0)
        for row_number, (computed, found) in enumerate(zip(ours, theirs, strict=True), 1):
            if not _agree(computed, found, margin):
                yield f"{column} in row {row_number} is {found}, and computed again {computed}"
                break


def _agree(computed: Any, found: Any, margin: float) -> bool:
    if isinstance(computed, float) and isinstance(found, float):
        both_undefined = math.isnan(computed) and math.isnan(found)
        return computed == found or abs(computed - found) <= margin or both_undefined
    return type(computed) is type(found) and computed == found
