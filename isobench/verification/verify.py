"""Verify a bundle or an output folder: `isobench verify` and tests call this."""

from dataclasses import dataclass, field
from pathlib import Path

from isobench.common.errors import UserError
from isobench.runs.layout import ABOUT_FILE
from isobench.verification.environment import check_environment
from isobench.verification.folder import VerifiedFolder
from isobench.verification.ledger import Ledger
from isobench.verification.manifest import check_analysis, check_manifest, check_refused, read_manifest
from isobench.verification.retrain import retrain_runs
from isobench.verification.run_check import CheckedRun, Code, check_run
from isobench.verification.scores import check_labels
from isobench.verification.sources import Locations, check_sources
from isobench.verification.tables import check_report


@dataclass(frozen=True)
class Options:
    """What to verify.

    Args:
        level: 1 checks the folder by itself; 2 also compares data, weights and environment.
        retrain: how many runs are trained again, which makes it level 3.
        seed: of the choice of these runs.
        locations: where data and weights are, and whether the folder's own paths and classes may be used.
    """

    level: int = 1
    retrain: int = 0
    seed: int = 0
    locations: Locations = field(default_factory=Locations)


def verify(root: Path, options: Options) -> Ledger:
    """Verify a folder and return the outcomes of all checks.

    Levels 1 and 2 run nothing that the folder names, and read no file outside of it but the data and weights that the
    user names.

    Raises:
        UserError: it is no such folder.
    """
    folder, ledger, code = VerifiedFolder(root), Ledger(), Code()
    check_refused(folder, ledger)
    manifest = read_manifest(folder, ledger) if folder.is_bundle else None
    runs = {name: check_run(folder, name, code, ledger) for name in folder.list_runs()}
    if not runs and manifest is None and not ledger.has_failed and not folder.list_reports():
        raise UserError(f"{root} has no runs and no reports: there is nothing to verify")
    check_labels(
        (
            (run.name, run.record, run.cfg.task, run.labels)
            for run in runs.values()
            if run.record and run.cfg and run.labels
        ),
        ledger,
    )
    check_tables(folder, runs, code, ledger)
    if manifest is not None:
        check_manifest(folder, manifest, runs, ledger)
    if options.level >= 2 or options.retrain:
        check_sources(runs, options.locations, ledger)
        check_environment(runs, code, ledger)
    if options.retrain:
        declared = manifest.tolerance if manifest else {}
        retrain_runs(folder, runs, options.retrain, options.seed, options.locations, declared, ledger)
    return ledger


def check_tables(folder: VerifiedFolder, runs: dict[str, CheckedRun], code: Code, ledger: Ledger) -> None:
    """Check every report and every analysis of a folder."""
    for run in runs.values():
        if run.record:
            run.record.drop_notes_of_history()
    for path in folder.list_reports():
        if folder.has(f"{path}/{ABOUT_FILE}"):
            check_analysis(folder, path, ledger)
        if folder.has(f"{path}/runs.parquet"):
            check_report(folder, path, runs, code, ledger)
        elif folder.has(f"{path}/report.md"):
            ledger.fail(path, "tables", "it lacks runs.parquet, which says whose report it is")
