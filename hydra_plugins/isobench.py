"""Hydra looks for plugins in this namespace package; ours live in isobench.sweep."""

from isobench.sweep.launchers import InProcessLauncher, LocalProcessesLauncher, SlurmArrayLauncher
from isobench.sweep.sweeper import GridSweeper


class IsobenchSweeper(GridSweeper):
    """The sweeper that conf/config.yaml names."""


class SequentialLauncher(InProcessLauncher):
    """hydra/launcher=sequential, the default."""


class SlurmLauncher(SlurmArrayLauncher):
    """hydra/launcher=slurm."""


class LocalLauncher(LocalProcessesLauncher):
    """hydra/launcher=local."""
