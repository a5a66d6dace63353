"""Verify a bundle or an output folder: `isobench verify`, `isobench import` and tests call this."""

from collections.abc import Mapping
from pathlib import Path

from isobench.bundles.manifest import MANIFEST_FILE, PLAN_FILE, Manifest, read_manifest
from isobench.bundles.privacy import UNKNOWN
from isobench.common.errors import UserError, extract_first_line
from isobench.common.progress import track_progress
from isobench.runs.folder import run_folder_name
from isobench.runs.identity import compute_key
from isobench.runs.plan import parse_plan, read_plans
from isobench.verification.analyses import Planned, check_analysis
from isobench.verification.folder import VerifiedFolder
from isobench.verification.outcomes import FAILS, UNCHECKED, Outcomes
from isobench.verification.retrain import retrain_runs
from isobench.verification.run_check import CheckedRun, check_labels, check_run
from isobench.verification.sources import Options, check_sources


def verify(root: Path, options: Options, show_progress: bool = False) -> Outcomes:
    """Verify a folder and return the outcomes of all checks.

    Nothing that the folder names is imported or run, and no file outside of it is read but the data and weights that
    the user names.

    Raises:
        UserError: it is no such folder.
    """
    folder, outcomes = VerifiedFolder(root), Outcomes()
    for name, reason in folder.refused.items():
        outcomes.note(name, "files", FAILS, reason)
    manifest = _read_manifest(folder, outcomes) if folder.is_bundle else None
    names = track_progress(folder.list_runs(), root.name, show_progress)
    runs = {name: check_run(folder, name, outcomes) for name in names}
    if not runs and manifest is None and not outcomes.has_failed and not folder.list_analyses():
        raise UserError(f"{root} has no runs and no analyses: there is nothing to verify")
    check_labels(runs.values(), outcomes)
    planned = _read_planned(folder, manifest, outcomes)
    if manifest is not None:
        _check_manifest(folder, manifest, runs, planned, outcomes)
    for path in folder.list_analyses():
        experiment = path.rpartition("/")[2] if manifest is None else manifest.experiment
        check_analysis(folder, path, experiment, runs, planned, options, outcomes)
    if options.level >= 2 or options.retrain:
        check_sources(runs, options, outcomes)
    if options.retrain:
        retrain_runs(folder, runs, options, outcomes)
    return outcomes


def _read_manifest(folder: VerifiedFolder, outcomes: Outcomes) -> Manifest | None:
    """Read a bundle's manifest; None, with a failure noted, if it can't be used."""
    try:
        return read_manifest(folder.root)
    except UserError as error:
        outcomes.note(MANIFEST_FILE, "files", FAILS, extract_first_line(error))
        return None


def _read_planned(folder: VerifiedFolder, manifest: Manifest | None, outcomes: Outcomes) -> Planned:
    """Read which runs were asked for, by their keys; each key of a bundle's plan must follow from its settings."""
    try:
        if not folder.is_bundle:
            return {run[1].key: run for plan in read_plans(folder.root) for run in plan.runs}
        plan = parse_plan(folder.read(PLAN_FILE), str(folder.root))
    except (OSError, UserError, ValueError) as error:
        outcomes.note(PLAN_FILE if folder.is_bundle else "plans", "files", FAILS, extract_first_line(error))
        return {}
    problems = [
        f"its settings and fingerprints of {run_folder_name(identity.key)} give another key"
        for cfg, identity in plan.runs
        if compute_key(cfg, identity.data, identity.encoder) != identity.key
    ]
    if manifest is not None and manifest.experiment != plan.experiment:
        problems.append(f"it is a plan of {plan.experiment}, and the bundle is of {manifest.experiment}")
    outcomes.judge(PLAN_FILE, "key", problems)
    return {run[1].key: run for run in plan.runs}


def _check_manifest(
    folder: VerifiedFolder, manifest: Manifest, runs: Mapping[str, CheckedRun], planned: Planned, outcomes: Outcomes
) -> None:
    """Compare the files and runs of a manifest with what the bundle has."""
    for name, sha256 in sorted(manifest.files.items()):
        if name in folder.refused:  # which is a failure already
            continue
        try:
            is_same = folder.digest(name) == sha256
            outcomes.judge(name, "files", [] if is_same else ["it is not the file that the manifest lists"])
        except OSError as error:
            outcomes.note(name, "files", FAILS, extract_first_line(error))
    for name in sorted(folder.sizes.keys() - manifest.files.keys() - {MANIFEST_FILE}):
        outcomes.note(name, "files", FAILS, "the manifest does not name it")
    for key in manifest.runs:
        name = run_folder_name(key)
        record = runs[name].record if name in runs else None
        problems = []
        if name not in runs or (record is not None and record.key != key):
            problems.append("the manifest lists this run, and its folder is missing or another run's")
        if record is not None and manifest.anonymous and {record.where.host, record.where.machine} != {UNKNOWN}:
            problems.append("the manifest says that no machine is named, and its record names one")
        if planned and key not in planned:
            problems.append("the plan does not ask for this run")
        for problem in problems:
            outcomes.note(name, "files", FAILS, problem)
    if manifest.runs and (missing := len(planned.keys() - manifest.runs)):
        text = f"of the {len(planned)} runs of the plan, {missing} are not in the bundle"
        outcomes.note(PLAN_FILE, "files", UNCHECKED, text)
