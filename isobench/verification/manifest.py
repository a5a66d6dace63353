"""Check the files of a bundle by its manifest, and those of an analysis by its about.json."""

from collections.abc import Mapping
from typing import Any

import orjson

from isobench.common.checksums import JSON_ENTRY, MISMATCH
from isobench.common.errors import extract_first_line
from isobench.common.files import sha256_json
from isobench.common.reading import RECORD_LIMIT
from isobench.runs.layout import ABOUT_FILE
from isobench.verification.folder import CRATE_FILE, MANIFEST_FILE, VerifiedFolder
from isobench.verification.ledger import Ledger
from isobench.verification.run_check import CheckedRun

MANIFEST_FORMAT = 1  # that is read


def read_manifest(folder: VerifiedFolder, ledger: Ledger) -> dict[str, Any] | None:
    """Read a bundle's manifest and compare its checksum; None, with a failure noted, if it can't be used."""
    try:
        manifest = read_checksummed_json(folder, MANIFEST_FILE)
        if manifest.get("format") != MANIFEST_FORMAT:
            raise ValueError(f"its format is {manifest.get('format')}, and this isobench reads {MANIFEST_FORMAT}")
        if not all(isinstance(manifest.get(name), dict) for name in ("files", "runs")):
            raise ValueError("it lacks its files or runs")
    except (OSError, ValueError, TypeError, AttributeError) as error:
        ledger.fail(MANIFEST_FILE, "files", extract_first_line(error))
        return None
    return manifest


def read_checksummed_json(folder: VerifiedFolder, name: str) -> dict[str, Any]:
    """Read a JSON object, compare its entry ``checksum``, and return the other entries.

    Raises:
        OSError: there is no such file, or it can't be read.
        ValueError: it is no JSON object, has no checksum, or was changed.
    """
    content = orjson.loads(folder.read(name, RECORD_LIMIT))
    if not isinstance(content, dict) or JSON_ENTRY not in content:
        raise ValueError("it is no JSON object with a checksum")
    others = {key: value for key, value in content.items() if key != JSON_ENTRY}
    if content[JSON_ENTRY] != sha256_json(["", others]):
        raise ValueError(MISMATCH)
    return others


def check_manifest(
    folder: VerifiedFolder, manifest: dict[str, Any], runs: Mapping[str, CheckedRun], ledger: Ledger
) -> None:
    """Compare the sums, the names of files and the runs of a manifest with what the bundle has."""
    listed = manifest["files"]
    for name, about in sorted(listed.items()):
        ledger.judge(name, "files", compare_sum(folder, name, about))
    for name in sorted(folder.sizes.keys() - listed.keys() - {MANIFEST_FILE, CRATE_FILE}):
        ledger.fail(name, "files", "the manifest does not name it")
    for name, about in manifest["runs"].items():
        ledger.judge(str(about_folder(name, about)), "files", compare_run(name, about, runs))
    known = {about_folder(name, about) for name, about in manifest["runs"].items()}
    for name in sorted(runs.keys() - known):
        ledger.fail(name, "files", "the manifest lists no such run")


def about_folder(key: str, about: Any) -> str:
    """Return the name of a listed run's folder."""
    path = about.get("folder") if isinstance(about, dict) else None
    return path.rpartition("/")[2] if isinstance(path, str) else key


def compare_sum(folder: VerifiedFolder, name: str, about: Any) -> list[str]:
    """Return what is wrong if a file is not the one that the manifest lists."""
    if name in folder.refused:
        return []  # noted for every refused entry
    if not folder.has(name):
        return ["it is missing"]
    if not isinstance(about, dict):
        return ["the manifest has no sum of it"]
    if about.get("bytes") != folder.sizes[name]:
        return [f"it has {folder.sizes[name]} bytes, and the manifest says {about.get('bytes')}"]
    try:
        is_same = folder.digest(name) == about.get("sha256")
    except OSError as error:
        return [extract_first_line(error)]
    return [] if is_same else ["its sha256 is not the manifest's"]


def compare_run(key: str, about: Any, runs: Mapping[str, CheckedRun]) -> list[str]:
    """Return what is wrong if a run is not the one that the manifest lists."""
    run = runs.get(about_folder(key, about))
    if run is None:
        return ["the manifest lists this run, and its folder is missing"]
    if run.record is None or run.cfg is None or not isinstance(about, dict):
        return []  # noted with the record
    problems = []
    if not run.record.key.startswith(key):
        problems.append(f"the manifest lists it as {key}")
    for name, value in (("status", run.record.status), ("seed", run.cfg.seed)):
        if name in about and about[name] != value:
            problems.append(f"the manifest says {name} {about[name]}, and its record {value}")
    return problems


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
