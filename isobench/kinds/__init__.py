"""The kinds of tasks: what a run asks of its kind (`base`), and a folder with the answers of each kind."""

from isobench.kinds.base import Kind

__all__ = ["Kind"]
