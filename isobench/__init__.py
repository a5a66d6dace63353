"""isobench: isotropy calibration of transformer embeddings, reproduced and compared under one protocol.

``isobench.run`` carries out a run. ``isobench.load_runs``, ``load_epochs`` and ``report_table`` read finished ones
into pandas tables. ``isobench.diagnose`` diagnoses vectors. ``isobench.Calibrator`` fits a method on them.
``isobench.metrics`` and ``isobench.calibration`` are the measures and the methods.
``isobench.monitor.IsotropyMonitor`` is a callback that measures isotropy while any Lightning module trains. Each is
imported when it is first used.
"""

from typing import Any

__version__ = "0.1.0"
FUNCTIONS = ("diagnose", "load_epochs", "load_runs", "report_table", "run")
CLASSES = {"Calibrator": "isobench.calibrator"}
MODULES = ("calibration", "metrics", "monitor")
__all__ = ["__version__", *FUNCTIONS, *CLASSES, *MODULES]


def __getattr__(name: str) -> Any:
    """Import a function or module of the public interface; Python calls this for a name that is not there yet."""
    from importlib import import_module

    if name in FUNCTIONS:
        return getattr(import_module("isobench.api"), name)
    if name in CLASSES:
        return getattr(import_module(CLASSES[name]), name)
    if name in MODULES:
        return import_module(f"isobench.{name}")
    raise AttributeError(f"module 'isobench' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the names of the public interface."""
    return sorted([*globals(), *FUNCTIONS, *CLASSES, *MODULES])
