"""Show isobench's sweeper and launchers to Hydra, which looks for plugins in this namespace package."""

from isobench.sweep.auto import AutomaticLauncher
from isobench.sweep.launchers import InProcessLauncher, LocalProcessesLauncher, SlurmArrayLauncher
from isobench.sweep.sweeper import GridSweeper


class IsobenchSweeper(GridSweeper):
    """The sweeper that conf/config.yaml chooses (``hydra/sweeper=isobench``)."""


class AutoLauncher(AutomaticLauncher):
    """The default launcher, ``hydra/launcher=auto``."""


class SequentialLauncher(InProcessLauncher):
    """The launcher ``hydra/launcher=sequential``."""


class SlurmLauncher(SlurmArrayLauncher):
    """The launcher ``hydra/launcher=slurm``."""


class LocalLauncher(LocalProcessesLauncher):
    """The launcher ``hydra/launcher=local``."""
