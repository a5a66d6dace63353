"""Find the class that a ``_target_`` names, and say what to do if it can't be imported."""

import inspect
import re
import sys
from typing import Any

from hydra._internal.utils import _locate

from isobench.common.errors import UserError, extract_first_line, suggest_nearest


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
    package = target.partition(".")[0]
    advice = (
        "--paper=FOLDER adds a paper"
        if package == "isobench_papers"
        else f"set PYTHONPATH=FOLDER, the folder that holds {package}.py"
    )
    return f"{target} can't be imported ({missing[0] if missing else extract_first_line(error)}): {advice}"
