"""Find the class that a ``_target_`` names, and say what to do if it can't be imported."""

import inspect
import re
import sys
from pathlib import Path
from typing import Any

from hydra._internal.utils import _locate

from isobench.common.errors import UserError, extract_first_line, suggest_nearest
from isobench.config.command_line import split_config_dirs
from isobench.papers.folders import find_papers


def locate_class(target: str, base: type) -> Any:
    """Import what a ``_target_`` names; UserError if it can't be imported, or is a class that is no ``base``."""
    try:
        found = _locate(target)
    except ImportError as error:
        raise UserError(_explain_import_error(target, error)) from error
    if isinstance(found, type) and not issubclass(found, base):
        raise UserError(f"{target} must subclass {base.__module__.removesuffix('.base')}.{base.__name__}")
    return found


def _explain_import_error(target: str, error: ImportError) -> str:
    module_name, _, class_name = target.rpartition(".")
    if module := sys.modules.get(module_name):
        classes = [name for name, value in vars(module).items() if inspect.isclass(value)]
        return f"{module_name} has no {class_name}: {suggest_nearest(class_name, classes)}"
    missing = re.search(r"No module named '([\w.]+)'", str(error))
    reason = missing[0] if missing else extract_first_line(error)
    advice = _advise_on_import(target) if missing and target.startswith(f"{missing[1]}.") else "mend its module"
    return f"{target} can't be imported ({reason}): {advice}"


def _advise_on_import(target: str) -> str:
    package, _, rest = target.partition(".")
    if package == "isobench_papers":
        paper, _, module = rest.rpartition(".")[0].partition(".")
        if folder := find_papers().get(paper):
            return suggest_nearest(module, [file.stem for file in folder.glob("*.py")])
        return f"--paper=FOLDER names the folder of the paper {paper}"
    folders = [
        folder for folder in map(Path, split_config_dirs(sys.argv[1:])[0]) if (folder / f"{package}.py").is_file()
    ]
    return f"set PYTHONPATH={folders[0] if folders else 'FOLDER'}, the folder that holds {package}.py"
