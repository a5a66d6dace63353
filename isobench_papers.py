"""The papers' folders as packages: ``isobench_papers.NAME.MODULE`` is MODULE.py in the folder of the paper NAME.

A paper's folder can be anywhere, so no path of Python's leads to it: isobench/papers/folders.py says where it is.
"""

import sys
from importlib.machinery import ModuleSpec
from typing import Any

__path__: list[str] = []  # makes this module a package; `_PaperFinder` finds what is in it


class _PaperFinder:
    """Find the package of a paper by its name."""

    @staticmethod
    def find_spec(fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return a package whose modules are the files of the paper's folder; None for every other module."""
        parent, _, name = fullname.rpartition(".")
        if parent != __name__:
            return None
        from isobench.papers.folders import find_papers  # late: pickles may import this module first

        folder = find_papers().get(name)
        if folder is None:
            return None
        spec = ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        return spec


sys.meta_path.append(_PaperFinder)
