"""Describe a bundle as an RO-Crate: ``ro-crate-metadata.json``, which archives such as WorkflowHub read."""

import mimetypes
from pathlib import Path
from typing import Any

from isobench.bundles.layout import COMMANDS_FILE, MANIFEST_FILE, REPORT_FOLDER, RUNS_FOLDER
from isobench.bundles.manifest import BundledFile, Manifest
from isobench.common.packages import require_package
from isobench.runs.layout import CONFIG_FILE, PREDICTIONS_FILE, RECORD_FILE

CRATE_VERSION = "1.1"  # of the specification, which most archives read
OWN_LICENCE = "https://spdx.org/licenses/Apache-2.0"  # of isobench itself, not of the results
MEDIA_TYPES = {".parquet": "application/vnd.apache.parquet", ".yaml": "application/yaml", ".md": "text/markdown"}
NAMES = {
    COMMANDS_FILE: "the commands that make these runs",
    RECORD_FILE: "record of a run: settings, scores, isotropy, cost, provenance",
    CONFIG_FILE: "settings of a run",
    PREDICTIONS_FILE: "predictions of a run's reported epoch",
    "report.html": "report of the runs: tables, statistics and figures",
}


def require_rocrate() -> None:
    """Raise UserError unless the library that writes RO-Crates is installed."""
    require_package("rocrate", "bundle", "isobench export")


def write_crate(bundle: Path, manifest: Manifest, manifest_file: BundledFile) -> None:
    """Write the RO-Crate's file into a bundle.

    Args:
        bundle: the folder, in which all other files are.
        manifest: its manifest.
        manifest_file: sum and size of the manifest's own file.

    Raises:
        OSError: it can't be written.
    """
    from rocrate.model.contextentity import ContextEntity
    from rocrate.rocrate import ROCrate

    crate = ROCrate(version=CRATE_VERSION)
    crate.name = f"isobench runs: {manifest.experiment or 'a sweep'}"
    crate.description = (
        f"{len(manifest.runs)} runs of isobench {manifest.isobench or ''} with records, predictions and report. "
        f"manifest.json has the sha256 of every file; isobench verify checks them and computes every score again."
    )
    root = crate.root_dataset
    root["datePublished"] = manifest.created
    root["keywords"] = "isotropy, embeddings, calibration, transformers"
    for folder, name in ((RUNS_FOLDER, "one folder a run"), (REPORT_FOLDER, "report of the runs")):
        if any(path.startswith(f"{folder}/") for path in manifest.files):
            crate.add_dataset(dest_path=folder, properties={"name": name})
    for path, about in {**manifest.files, MANIFEST_FILE: manifest_file}.items():
        crate.add_file(dest_path=path, properties=describe_file(path, about))
    software: dict[str, Any] = {"@type": "SoftwareApplication", "name": "isobench", "license": {"@id": OWN_LICENCE}}
    if manifest.isobench:
        software["softwareVersion"] = manifest.isobench
    tool = crate.add(ContextEntity(crate, "#isobench", properties=software))
    root["mentions"] = tool
    root["license"] = crate.add(ContextEntity(crate, *describe_licence(manifest.license)))
    crate.metadata.write(bundle)


def describe_licence(name: str | None) -> tuple[str, dict[str, Any]]:
    """Return the address and the description of a licence by its name in SPDX's list; None stands for no licence."""
    if name is None:
        text = "The bundle's author states no licence: ask before you publish these files again."
        return "#licence", {"@type": "CreativeWork", "name": "no licence", "description": text}
    about = {"@type": "CreativeWork", "name": name, "description": f"The licence that SPDX calls {name}."}
    return f"https://spdx.org/licenses/{name}", about


def describe_file(path: str, about: BundledFile) -> dict[str, Any]:
    """Describe a file by name, media type, size and sha256."""
    name = path.rpartition("/")[2]
    guessed = MEDIA_TYPES.get(Path(name).suffix) or mimetypes.guess_type(name, strict=False)[0]
    described = {"name": NAMES.get(name, path), "contentSize": str(about.bytes), "sha256": about.sha256}
    return described | ({"encodingFormat": guessed} if guessed else {})
