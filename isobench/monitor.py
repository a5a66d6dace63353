"""The documented name of the callback that measures isotropy while any Lightning module trains."""

from isobench.training.monitor import IsotropyMonitor

__all__ = ["IsotropyMonitor"]
