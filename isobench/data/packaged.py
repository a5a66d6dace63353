"""Data and weights inside installed packages, as the scale ``embedded`` uses them."""

from pathlib import Path

from isobench.common.errors import UserError
from isobench.common.files import sha256_file
from isobench.common.packages import require_package


def find_packaged_file(
    requirement: str, path: str, sha256: str, needed_by: str, extra: str = "embedded", module: str | None = None
) -> Path:
    """Find a file inside an installed package and check its bytes; the package is not imported.

    Args:
        requirement: the package with its version, such as ``gensim==4.4.0``.
        path: the file's path inside the package.
        sha256: the expected hash of the file.
        needed_by: the setting that needs the file, such as ``encoder=minilm``, for the error message.
        extra: the extra of isobench that installs the package.
        module: the name of the package's folder, where it is not that of the package with underscores.

    Raises:
        UserError: the package is not installed, or the file is missing or has other bytes.
    """
    file = require_package(requirement.partition("==")[0], extra, needed_by, module) / path
    if not file.is_file() or sha256_file(file) != sha256:
        raise UserError(f"{file} is not the pinned file: pip install --force-reinstall {requirement}")
    return file
