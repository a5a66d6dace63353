"""Functions that tests of bundles share: read a folder, change a manifest as a forger would."""

import hashlib
from pathlib import Path

import orjson

from isobench.bundles.manifest import BundledFile, Manifest, format_commands, format_manifest
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


def write_analysis_bundle(bundle: Path, experiment: str | None, *more: str) -> Path:
    """Write a well-formed bundle that has an analysis of made-up text, other files of it that are named, no runs."""
    report = bundle / "report"
    report.mkdir(parents=True)
    contents = dict.fromkeys(("tables.txt", *more), b"forged")
    about = {
        "files": sorted(contents),
        "sha256": {name: hashlib.sha256(c).hexdigest() for name, c in contents.items()},
    }
    contents["about.json"] = orjson.dumps(add_json_checksum(about))
    command = f"python -m isobench -m +experiment={experiment}"
    files = {f"report/{name}": content for name, content in contents.items()}
    files["commands.txt"] = format_commands([command]).encode()
    for path, content in files.items():
        (bundle / path).write_bytes(content)
    manifest = Manifest(
        format=1, isobench=None, experiment=experiment, commands=[command], created="2026-01-02T03:04:05+00:00",
        planned=0, anonymous=False, license=None, runs={}, data={}, weights={}, analysis=sorted(contents),
        files={path: BundledFile(sha256=hashlib.sha256(c).hexdigest(), bytes=len(c)) for path, c in files.items()},
    )  # fmt: skip
    (bundle / "manifest.json").write_bytes(format_manifest(manifest))
    return bundle


def refuse(run_import, bundle, tmp_path, *words: str) -> None:
    """Import a bundle, and check that one line refuses it and that nothing is written."""
    outputs = tmp_path / "outputs"
    code, _, err = run_import(bundle, outputs)
    assert code == 2, err
    assert len(err.splitlines()) == 1
    for word in words:
        assert word in err
    assert not outputs.exists()
