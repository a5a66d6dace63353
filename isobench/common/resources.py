"""The folders conf/ and experiments/: inside the package if it was installed as a wheel, beside it in a checkout."""

from pathlib import Path

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
