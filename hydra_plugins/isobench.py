"""Hydra looks for plugins in this namespace package; ours live in isobench.sweep."""

from isobench.sweep.launcher import Local, Slurm
from isobench.sweep.sweeper import GridSweeper


class IsobenchSweeper(GridSweeper):
    """The sweeper that conf/config.yaml names."""


class SlurmLauncher(Slurm):
    """hydra/launcher=slurm."""


class LocalLauncher(Local):
    """hydra/launcher=local."""
