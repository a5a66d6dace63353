"""Where conf/ and experiments/ are: inside the package when installed from a wheel, beside it in a checkout."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def conf_dir() -> str:
    """The folder with the Hydra groups."""
    return _find_folder("conf")


def experiments_dir() -> str:
    """The folder with one folder a paper."""
    return _find_folder("experiments")


def _find_folder(name: str) -> str:
    inside = PACKAGE / name
    return str(inside if inside.is_dir() else PACKAGE.parent / name)
