"""Where things are installed: isobench's folders conf/ and experiments/, and the packages of its extras."""

from importlib.util import find_spec
from pathlib import Path

from isobench.common.errors import UserError
from isobench.common.files import sha256_file

PACKAGE = Path(__file__).resolve().parents[1]


def conf_dir() -> str:
    """Return the folder with Hydra's config groups."""
    return _find_folder("conf")


def experiments_dir() -> str:
    """Return the folder that holds one folder for each paper."""
    return _find_folder("experiments")


def _find_folder(name: str) -> str:
    inside = PACKAGE / name
    return str(inside if inside.is_dir() else PACKAGE.parent / name)


def require_package(package: str, extra: str, needed_by: str, module: str | None = None) -> Path:
    """Return the folder of an installed package, without importing the package.

    Args:
        package: its name on the package index, such as ``rouge-score``.
        extra: the extra of isobench that installs it, such as ``generation`` (pyproject.toml has them all).
        needed_by: the setting or command that needs it, such as ``task=captions``. The error message begins with it.
        module: the name of its folder, where it is not its own name with underscores.
    """
    folder = find_package_folder(module or package.replace("-", "_"))
    if folder is None:
        raise UserError(f"{needed_by} needs the package {package}: pip install 'isobench[{extra}]'")
    return folder


def find_package_folder(module: str) -> Path | None:
    """Return the folder of an installed package, named as in an import statement; None if it is not installed."""
    spec = find_spec(module)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def find_packaged_file(
    requirement: str, path: str, sha256: str, needed_by: str, extra: str = "embedded", module: str | None = None
) -> Path:
    """Find a file inside an installed package and check its bytes; the package is not imported.

    Args:
        requirement: the package with its version, such as ``gensim==4.4.0``.
        path: the file's path inside the package.
        sha256: the expected hash of the file.
        needed_by, extra, module: as in `require_package`.
    """
    file = require_package(requirement.partition("==")[0], extra, needed_by, module) / path
    if not file.is_file() or sha256_file(file) != sha256:
        raise UserError(f"{file} is not the pinned file: pip install --force-reinstall {requirement}")
    return file
