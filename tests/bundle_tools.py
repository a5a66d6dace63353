"""Functions that tests of bundles share: read a folder, change a manifest as a forger would."""

import hashlib
from pathlib import Path

import orjson

from isobench.common.checksums import add_json_checksum


def read_content(folder: Path) -> dict[str, bytes]:
    """Read every file of a folder: relative path -> content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def sign(bundle: Path, change=lambda manifest: None) -> None:
    """Change a manifest and give it the checksum of its content."""
    file = bundle / "manifest.json"
    manifest = orjson.loads(file.read_bytes())
    del manifest["checksum"]
    change(manifest)
    file.write_bytes(orjson.dumps(add_json_checksum(manifest)))


def sign_file(bundle: Path, path: str) -> None:
    """Give a manifest the sum of a file that was changed."""
    content = (bundle / path).read_bytes()
    about = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    sign(bundle, lambda manifest: manifest["files"].update({path: about}))


def pick_run(folder: Path) -> Path:
    """Return the folder of the first run of a bundle or output folder."""
    return sorted((folder / "runs").iterdir())[0]
