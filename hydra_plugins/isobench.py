"""Hydra looks for sweepers in this namespace package; ours lives in isobench.sweep.sweeper."""

from isobench.sweep.sweeper import GridSweeper


class IsobenchSweeper(GridSweeper):
    """The sweeper that conf/config.yaml names."""
