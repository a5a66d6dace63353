"""Verify a bundle or an output folder: `isobench verify`, `isobench import` and tests call this."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from isobench.bundles.manifest import (
    MANIFEST_FILE,
    PLAN_FILE,
    BundledFile,
    Manifest,
    describe_error,
    parse_manifest,
    read_bundle_file,
)
from isobench.bundles.privacy import UNKNOWN
from isobench.common.errors import UserError, extract_first_line
from isobench.common.progress import track_progress
from isobench.runs.identity import compute_key
from isobench.runs.layout import run_folder_name
from isobench.runs.plan import Plan, parse_plan, read_plans
from isobench.verification.analyses import Planned, check_analysis
from isobench.verification.folder import VerifiedFolder
from isobench.verification.outcomes import Outcomes
from isobench.verification.retrain import retrain_runs
from isobench.verification.run_check import CheckedRun, check_labels, check_run
from isobench.verification.sources import Locations, check_sources


@dataclass(frozen=True)
class Options:
    """What to verify.

    Args:
        level: 1 checks the folder by itself; 2 also compares data, weights and environment.
        recompute: compute the rows of analyses that train nothing again too, which takes data and weights.
        retrain: how many runs are trained again, which makes it level 3.
        seed: of the choice of these runs.
        locations: where data and weights are, and whether the folder's own paths and classes may be used.
    """

    level: int = 1
    recompute: bool = False
    retrain: int = 0
    seed: int = 0
    locations: Locations = field(default_factory=Locations)


def verify(root: Path, options: Options, show_progress: bool = False) -> Outcomes:
    """Verify a folder and return the outcomes of all checks.

    Nothing that the folder names is imported or run, and no file outside of it is read but the data and weights that
    the user names.

    Raises:
        UserError: it is no such folder.
    """
    folder, outcomes = VerifiedFolder(root), Outcomes()
    for name, reason in folder.refused.items():
        outcomes.fail(name, "files", reason)
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
        locations = options.locations if options.recompute else None
        check_analysis(folder, path, experiment, runs, planned, locations, outcomes)
    if options.level >= 2 or options.retrain:
        check_sources(runs, options.locations, outcomes)
    if options.retrain:
        retrain_runs(folder, runs, options.retrain, options.seed, options.locations, outcomes)
    return outcomes


def _read_manifest(folder: VerifiedFolder, outcomes: Outcomes) -> Manifest | None:
    """Read a bundle's manifest; None, with a failure noted, if it can't be used."""
    try:
        return parse_manifest(read_bundle_file(folder.root, MANIFEST_FILE))
    except (OSError, UserError, ValueError, TypeError, RecursionError) as error:
        outcomes.fail(MANIFEST_FILE, "files", describe_error(error))
        return None


def _read_planned(folder: VerifiedFolder, manifest: Manifest | None, outcomes: Outcomes) -> Planned:
    """Read which runs were asked for, by their keys, and note a failure for each key that does not follow."""
    try:
        if folder.is_bundle:
            plans = [parse_plan(folder.read(PLAN_FILE), str(folder.root))]
            _check_plan(plans[0], manifest, outcomes)
        else:
            plans = read_plans(folder.root)
    except (OSError, UserError, ValueError) as error:
        outcomes.fail(PLAN_FILE if folder.is_bundle else "plans", "files", extract_first_line(error))
        return {}
    return {identity.key: (cfg, identity) for plan in plans for cfg, identity in plan.runs}


def _check_plan(plan: Plan, manifest: Manifest | None, outcomes: Outcomes) -> None:
    """Check that the keys of a plan follow from its settings, and that it is of the bundle's experiment."""
    problems = [
        f"its settings and fingerprints of {run_folder_name(identity.key)} give another key"
        for cfg, identity in plan.runs
        if compute_key(cfg, identity.data, identity.encoder) != identity.key
    ]
    if manifest is not None and manifest.experiment != plan.experiment:
        problems.append(f"it is a plan of {plan.experiment}, and the bundle is of {manifest.experiment}")
    outcomes.judge(PLAN_FILE, "key", problems)


def _check_manifest(
    folder: VerifiedFolder, manifest: Manifest, runs: Mapping[str, CheckedRun], planned: Planned, outcomes: Outcomes
) -> None:
    """Compare the files and runs of a manifest with what the bundle has."""
    for name, about in sorted(manifest.files.items()):
        if name not in folder.refused:  # which is a failure already
            outcomes.judge(name, "files", _compare_file(folder, name, about))
    for name in sorted(folder.sizes.keys() - manifest.files.keys() - {MANIFEST_FILE}):
        outcomes.fail(name, "files", "the manifest does not name it")
    for key in manifest.runs:
        run, name = runs.get(run_folder_name(key)), run_folder_name(key)
        if run is None or (run.record is not None and run.record.key != key):
            outcomes.fail(name, "files", "the manifest lists this run, and its folder or record is another's")
        elif run.record is not None and manifest.anonymous and {*_name_machines(run)} != {UNKNOWN}:
            outcomes.fail(name, "files", "the manifest says that it is anonymous, and its record names a machine")
        if planned and key not in planned:
            outcomes.fail(name, "files", "the plan does not ask for this run")
    if manifest.runs and (missing := len(planned.keys() - manifest.runs)):
        verb = "is" if missing == 1 else "are"
        outcomes.skip(PLAN_FILE, "files", f"{missing} of the {len(planned)} planned runs {verb} not in the bundle")


def _name_machines(run: CheckedRun) -> tuple[str, str]:
    assert run.record is not None
    return run.record.where.host, run.record.where.machine


def _compare_file(folder: VerifiedFolder, name: str, about: BundledFile) -> list[str]:
    """Return what is wrong if a file is not the one that the manifest lists."""
    if not folder.has(name):
        return ["it is missing"]
    if about.bytes != folder.sizes[name]:
        return [f"it has {folder.sizes[name]} bytes, and the manifest says {about.bytes}"]
    try:
        is_same = folder.digest(name) == about.sha256
    except OSError as error:
        return [extract_first_line(error)]
    return [] if is_same else ["its sha256 is not the manifest's"]
