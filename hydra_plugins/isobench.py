"""Hydra looks for plugins in this namespace package; ours live in isobench.sweep."""

from isobench.sweep.launcher import Local, Sequential, Slurm
from isobench.sweep.sweeper import GridSweeper


class IsobenchSweeper(GridSweeper):
    """The sweeper that conf/config.yaml names."""


class SequentialLauncher(Sequential):
    """hydra/launcher=sequential, the default."""


class SlurmLauncher(Slurm):
    """hydra/launcher=slurm."""


class LocalLauncher(Local):
    """hydra/launcher=local."""
