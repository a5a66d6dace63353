"""The kinds of tasks, a folder each; a kind from outside derives from `Kind`."""

from isobench.tasks.kind import Examples, Kind

__all__ = ["Examples", "Kind"]
