"""Weights & Biases, offline unless there is a login. The local record is written with or without it."""

import netrc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from isobench.errors import UserError, first_line
from isobench.schema import Config, method_name


def logger(cfg: Config, key: str, resolved: dict[str, Any]) -> Any:
    """A Lightning logger for the run, or False for none.

    Names of what is logged: ``train/loss``, ``dev/<split>/<metric>``, ``dev/<primary>``, ``lr-AdamW/...``, and what
    ``IsotropyMonitor`` names: ``isotropy/<embedding|head|vocabulary>/<measure>``.
    """
    if cfg.tracking.backend == "none":
        return False
    from pytorch_lightning.loggers import WandbLogger

    folder = Path(cfg.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run = start(cfg, key, resolved, folder)
    except Exception as error:  # no network, a wrong key, a broken installation
        reason = first_line(error)
        raise UserError(
            f"W&B can't start: {reason}; tracking.mode=offline or tracking=none does without it"
        ) from error
    return WandbLogger(experiment=run)


def start(cfg: Config, key: str, resolved: dict[str, Any], folder: Path) -> Any:
    """A W&B run whose id is the run's key, grouped by experiment."""
    import wandb

    return wandb.init(
        name=f"{cfg.task.name}-{cfg.encoder.name}-{method_name(cfg.calibration)}-{cfg.seed}",
        id=key[:16],
        resume="allow",
        group=cfg.tracking.group or cfg.experiment.name,
        project=cfg.tracking.project,
        entity=cfg.tracking.entity,
        dir=str(folder),
        mode=cfg.tracking.mode or ("online" if has_login() else "offline"),
        config=resolved,
        settings=wandb.Settings(silent=True, console="off"),
    )


def log_curves(tracker: Any, curves: Mapping[str, list[list[float]]]) -> None:
    """Log to W&B, as one chart a name, a line for every epoch so far; other loggers have no such thing."""
    from pytorch_lightning.loggers import WandbLogger

    if not isinstance(tracker, WandbLogger):
        return
    import wandb

    charts = {}
    for name, lines in curves.items():
        epochs = [f"epoch {number}" for number in range(1, len(lines) + 1)]
        ks = list(range(1, max(map(len, lines), default=0) + 1))
        if ks:
            charts[name] = wandb.plot.line_series(xs=ks, ys=lines, keys=epochs, title=name, xname="k")
    tracker.experiment.log(charts)


def finish(tracker: Any, failed: bool) -> None:
    """End the W&B run, so that the next run in this process gets its own."""
    if tracker is not False:
        import wandb

        wandb.finish(exit_code=int(failed))


def has_login() -> bool:
    """True if W&B would find a key: WANDB_API_KEY, or an entry for its host in the netrc file."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlparse(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
