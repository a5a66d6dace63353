"""Check the files of a bundle by its manifest, and those of an analysis by its about.json."""

from collections.abc import Mapping
from typing import Any

import orjson

from isobench.bundles.bundle_check import names_machine, pair_statements
from isobench.bundles.layout import COMMANDS_FILE, CRATE_FILE, MANIFEST_FILE, REPORT_FILES, REPORT_FOLDER
from isobench.bundles.manifest import (
    MANIFEST_LIMIT,
    BundledFile,
    BundledRun,
    Manifest,
    check_paths,
    describe_error,
    parse_manifest,
)
from isobench.common.checksums import drop_json_checksum
from isobench.common.errors import UserError, extract_first_line
from isobench.common.reading import RECORD_LIMIT, SETTINGS_LIMIT
from isobench.runs.layout import ABOUT_FILE, run_folder_name
from isobench.verification.folder import VerifiedFolder
from isobench.verification.ledger import Ledger
from isobench.verification.run_check import CheckedRun


def read_manifest(folder: VerifiedFolder, ledger: Ledger) -> Manifest | None:
    """Read a bundle's manifest and compare its checksum; None, with a failure noted, if it can't be used."""
    try:
        manifest = parse_manifest(folder.read(MANIFEST_FILE, MANIFEST_LIMIT))
    except (OSError, UserError, ValueError, TypeError, RecursionError) as error:
        ledger.fail(MANIFEST_FILE, "files", describe_error(error))
        return None
    try:
        check_paths(manifest)
    except ValueError as error:
        ledger.fail(MANIFEST_FILE, "files", describe_error(error))
    return manifest


def check_manifest(
    folder: VerifiedFolder, manifest: Manifest, runs: Mapping[str, CheckedRun], ledger: Ledger
) -> None:
    """Compare the sums, the names of files and the runs of a manifest with what the bundle has."""
    ledger.judge(MANIFEST_FILE, "files", compare_statements(folder, manifest))
    for name, about in sorted(manifest.files.items()):
        if name not in folder.refused:  # which is a failure already
            ledger.judge(name, "files", compare_sum(folder, name, about))
    for name in sorted(folder.sizes.keys() - manifest.files.keys() - {MANIFEST_FILE, CRATE_FILE}):
        ledger.fail(name, "files", "the manifest does not name it")
    if folder.has(CRATE_FILE):
        ledger.judge(CRATE_FILE, "files", compare_crate(folder))
    for key, run in manifest.runs.items():
        ledger.judge(run_folder_name(key), "files", compare_run(key, run, manifest, runs))
    for name in sorted(runs.keys() - set(map(run_folder_name, manifest.runs))):
        ledger.fail(name, "files", "the manifest lists no such run")


def compare_sum(folder: VerifiedFolder, name: str, about: BundledFile) -> list[str]:
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


def compare_crate(folder: VerifiedFolder) -> list[str]:
    """Return what is wrong if the RO-Crate, which no other file has a sum of, names other files or sums."""
    try:
        entities = orjson.loads(folder.read(CRATE_FILE, MANIFEST_LIMIT))["@graph"]
        sums = {entity["@id"]: entity["sha256"] for entity in entities if "sha256" in entity}
        wrong = [name for name, sha256 in sums.items() if not folder.has(name) or folder.digest(name) != sha256]
        lacking = sorted(folder.sizes.keys() - sums.keys() - {CRATE_FILE})
    except (OSError, ValueError, LookupError, TypeError) as error:
        return [extract_first_line(error)]
    return [f"its sum of {name} is not the file's" for name in wrong] + [f"it lacks {name}" for name in lacking]


def compare_run(key: str, about: BundledRun, manifest: Manifest, runs: Mapping[str, CheckedRun]) -> list[str]:
    """Return what is wrong if a run is not the one that the manifest lists."""
    run = runs.get(run_folder_name(key))
    if run is None:
        return ["the manifest lists this run, and its folder is missing"]
    if run.record is None or run.cfg is None:
        return []  # a failure already
    record, cfg = run.record, run.cfg
    pairs = {
        "key": (key, record.key),
        "status": (about.status, record.status),
        "seed": (about.seed, cfg.seed),
        **pair_statements(about, manifest, record, cfg),
    }
    problems = [
        f"the manifest says that its {name} is {listed}, and its record {recorded}"
        for name, (listed, recorded) in pairs.items()
        if listed != recorded
    ]
    if (about.predictions == "none") != (record.predictions is None):
        problems.append(
            f"the manifest says that its predictions are {about.predictions}, which its record contradicts"
        )
    if manifest.anonymous and names_machine(record):
        problems.append("the manifest says that it is anonymous, and its record names a machine")
    return problems


def compare_statements(folder: VerifiedFolder, manifest: Manifest) -> list[str]:
    """Return what is wrong in what a manifest says of the bundle: commands, number of runs, files of the report."""
    problems = []
    if not manifest.runs and not manifest.analysis:
        problems.append("it lists no run and no analysis")
    if manifest.planned < len(manifest.runs):
        problems.append(f"it says that {manifest.planned} runs were planned, and lists {len(manifest.runs)}")
    own = {f"{REPORT_FOLDER}/{name}" for name in (*REPORT_FILES, *manifest.analysis)}
    listed = [name for name in manifest.files if name.startswith(f"{REPORT_FOLDER}/")]
    problems += [
        f"it lists {name}, which is no file of a report or the analysis" for name in listed if name not in own
    ]
    try:
        if folder.has(COMMANDS_FILE) or manifest.commands:
            lines = folder.read(COMMANDS_FILE, SETTINGS_LIMIT).decode().splitlines()
            if [line for line in lines if line and not line.startswith("#")] != manifest.commands:
                problems.append(f"its commands are not those of {COMMANDS_FILE}")
        if manifest.analysis:
            about = read_checksummed_json(folder, f"{REPORT_FOLDER}/{ABOUT_FILE}")
            if set(manifest.analysis) != {ABOUT_FILE, *about["sha256"]}:
                problems.append(f"its files of the analysis are not those of {ABOUT_FILE}")
            analysed = set(about["keys"]) & manifest.runs.keys()
            if set(about.get("ended", analysed)) != analysed:
                problems.append("its analysis was made of other runs than it has: repeat the analysis and the export")
    except (OSError, ValueError, LookupError, TypeError) as error:
        problems.append(extract_first_line(error))
    return problems


def read_checksummed_json(folder: VerifiedFolder, name: str) -> dict[str, Any]:
    """Read a JSON object, compare its entry ``checksum``, and return the other entries.

    Raises:
        OSError: there is no such file, or it can't be read.
        ValueError: it is no JSON object, has no checksum, or was changed.
    """
    return drop_json_checksum(orjson.loads(folder.read(name, RECORD_LIMIT)))


def check_refused(folder: VerifiedFolder, ledger: Ledger) -> None:
    """Note a failure for every entry of the folder that is not read."""
    for name, reason in folder.refused.items():
        ledger.fail(name, "files", reason)


def check_analysis(folder: VerifiedFolder, path: str, ledger: Ledger) -> None:
    """Compare the files of an analysis with the sums that it wrote; its numbers are not computed again."""
    name = f"{path}/{ABOUT_FILE}"
    try:
        about = read_checksummed_json(folder, name)
        sums = about.get("sha256")
        if not isinstance(sums, dict) or set(about.get("files", ())) != sums.keys():
            raise ValueError("it has no sum of each of its files")
    except (OSError, ValueError, TypeError) as error:
        ledger.fail(name, "analysis", extract_first_line(error))
        return
    for file, sha256 in sums.items():
        own = f"{path}/{file}"
        try:
            is_same = folder.has(own) and folder.digest(own) == sha256
        except OSError:
            is_same = False
        problem = "it is missing" if not folder.has(own) else f"its sha256 is not that in {ABOUT_FILE}"
        ledger.judge(own, "analysis", [] if is_same else [problem])
