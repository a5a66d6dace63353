"""Find what is installed: isobench's folders conf/, experiments/ and examples/, and the packages of its extras."""

import contextlib
import shlex
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from isobench.common.errors import UserError
from isobench.common.files import sha256_file


def conf_dir() -> str:
    return _find_folder("conf")


def experiments_dir() -> str:
    return _find_folder("experiments")


def examples_dir() -> str:
    return _find_folder("examples")


@cache
def _find_folder(name: str) -> str:
    package = Path(__file__).resolve().parents[1]
    return str(package / name if (package / name).is_dir() else package.parent / name)


def require_package(package: str, extra: str, needed_by: str, module: str | None = None) -> Path:
    """Return the folder of an installed package, without importing the package.

    Args:
        package: its name on the package index, such as ``rouge-score``.
        extra: the extra of isobench that installs it, such as ``generation``.
        needed_by: the setting or command that needs it, such as ``task=captions``: the error begins with it.
        module: the name of its folder, where it is not its own name with underscores.
    """
    folder = find_package_folder(module or package.replace("-", "_"))
    if folder is None:
        requirements = _list_requirements(extra) or package
        raise UserError(f"{needed_by} needs the package {package}: pip install {requirements}")
    return folder


def _list_requirements(extra: str) -> str:
    """Write what an extra of isobench installs, for pip: no index need have isobench itself."""
    lines: list[str] = []
    with contextlib.suppress(metadata.PackageNotFoundError):  # it runs from a folder, not installed
        lines = metadata.requires("isobench") or lines
    found = (line.partition("; extra == ") for line in lines)
    return shlex.join(requirement for requirement, _, name in found if name.strip("'\"") == extra)


def find_package_folder(module: str) -> Path | None:
    """Return the folder of an installed package, named as in an import statement; None if it is not installed."""
    spec = find_spec(module)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def find_packaged_file(
    requirement: str, path: str, sha256: str, needed_by: str, extra: str = "embedded", module: str | None = None
) -> Path:
    """Find a file inside an installed package, such as ``gensim==4.4.0``, and check its bytes, importing nothing.

    ``needed_by``, ``extra`` and ``module`` are as in `require_package`.
    """
    file = require_package(requirement.partition("==")[0], extra, needed_by, module) / path
    if not file.is_file() or sha256_file(file) != sha256:
        raise UserError(f"{file} is not the pinned file: pip install --force-reinstall {requirement}")
    return file
