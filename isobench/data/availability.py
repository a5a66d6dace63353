"""Find out before a run starts whether it can have what it needs of the hub and of optional packages.

This module imports no large library, so that what is missing is said at once.
"""

from collections.abc import Iterable

from isobench.common.errors import UserError
from isobench.config.schema import Config
from isobench.data import hub, sources, weights
from isobench.tasks.kind import kind_of


def ask_hub_early(configs: Iterable[Config]) -> None:
    """Start asking whether the hub is reachable, if one of these configs needs it; don't wait for the answer."""
    for cfg in configs:
        where = (sources.find_data_source(cfg.task, cfg.data), weights.find_encoder_source(cfg.encoder))
        if "hub" in where and not hub.is_offline():
            hub.start_asking()


def require_hub_files(cfg: Config) -> None:
    """Raise UserError if a run needs data or weights of the hub that can't be had."""
    task, encoder = cfg.task, cfg.encoder
    needs_data = sources.find_data_source(task, cfg.data) == "hub"
    if needs_data and not hub.is_reachable() and hub.is_absent("datasets", str(task.hub)):
        name = f"{task.hub}/{task.subset}" if task.subset else str(task.hub)
        raise hub.make_absence_error(f"task={task.name}", name, sources.advise_without_hub(task))
    needs_weights = weights.find_encoder_source(encoder) == "hub"
    if needs_weights and not hub.is_reachable() and hub.is_absent("models", str(encoder.hub)):
        raise weights.make_encoder_absence_error(encoder, kind_of(task).packaged[1])


def require_hub_files_of_some(configs: Iterable[Config]) -> None:
    """Raise UserError if none of these runs can have what it needs of the hub; the error is that of the first."""
    first: UserError | None = None
    for cfg in configs:
        try:
            require_hub_files(cfg)
        except UserError as error:
            first = first or error
        else:
            return
    if first:
        raise first
