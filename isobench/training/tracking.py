"""Weights & Biases, offline unless there is a login. The local record is written with or without it.

Every name that is logged is in docs/tracking.md.
"""

import netrc
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from isobench.common.errors import UserError, extract_first_line
from isobench.common.provenance import collect_provenance
from isobench.config.schema import Config, format_method_name
from isobench.runs.record import Epoch

STEP_METRIC = "trainer/global_step"  # Lightning's name of the optimiser step


def make_logger(cfg: Config, key: str, resolved: dict[str, Any]) -> Any:
    """A Lightning logger for the run, or False for none."""
    if cfg.tracking.backend == "none":
        return False
    from pytorch_lightning.loggers import WandbLogger

    folder = Path(cfg.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run = start_wandb_run(cfg, key, resolved, folder)
    except Exception as error:  # no network, a wrong key, a broken installation
        reason = extract_first_line(error)
        raise UserError(
            f"W&B can't start: {reason}; tracking.mode=offline or tracking=none does without it"
        ) from error
    return WandbLogger(experiment=run)


def start_wandb_run(cfg: Config, key: str, resolved: dict[str, Any], folder: Path) -> Any:
    """A W&B run whose id is the run's key, grouped by experiment.

    What W&B finds out by itself (git, environment) is off: it takes along every ``SLURM_*`` variable, SLURM's token
    among them, and a token in the name of the git remote. The record's own provenance goes into the config instead.
    """
    import wandb

    known = {"method": format_method_name(cfg.calibration), "key": key, "provenance": collect_provenance()}
    run = wandb.init(
        name=f"{cfg.task.name}-{cfg.encoder.name}-{format_method_name(cfg.calibration)}-{cfg.seed}",
        id=key[:16],
        resume="allow",
        group=resolve_wandb_group(cfg),
        job_type=cfg.task.name,  # a run's attribute, so that reports can choose by task
        project=cfg.tracking.project,
        entity=cfg.tracking.entity,
        dir=str(folder),
        mode=cfg.tracking.mode or ("online" if has_login() else "offline"),
        config=resolved | known,
        settings=wandb.Settings(silent=True, console="off", disable_git=True, x_disable_meta=True),
    )
    run.define_metric(STEP_METRIC)
    run.define_metric("*", step_metric=STEP_METRIC, step_sync=True)  # a resumed run's curves then fit together
    return run


def resolve_wandb_group(cfg: Config) -> str | None:
    """The W&B group of a config's runs, None for none."""
    return cfg.tracking.group or cfg.experiment.name


def log_curves(tracker: Any, curves: Mapping[str, list[list[float]]]) -> None:
    """Log to W&B, as one chart a name, a line for every epoch so far; other loggers have no such thing."""
    from pytorch_lightning.loggers import WandbLogger

    if not isinstance(tracker, WandbLogger):
        return
    import wandb

    charts = {}
    with tolerate_wandb_errors():  # online, a chart's table asks the server something
        for name, lines in curves.items():
            epochs = [f"epoch {number}" for number in range(1, len(lines) + 1)]
            ks = list(range(1, max(map(len, lines), default=0) + 1))
            if ks:
                charts[name] = wandb.plot.line_series(xs=ks, ys=lines, keys=epochs, title=name, xname="k")
        tracker.experiment.log(charts)


def finish_wandb_run(tracker: Any, status: str, failure: str | None, best: Epoch | None) -> None:
    """End the W&B run, so that the next run in this process gets its own.

    Args:
        tracker: what ``logger`` gave.
        status: ``finished``, ``failed`` or ``interrupted``.
        failure: the failure's name.
        best: the reported epoch's entry of the history, if there is one.
    """
    numbers = flatten_best_epoch(best.model_dump(exclude_unset=True)) if best else {}
    if tracker is not False:
        import wandb

        with tolerate_wandb_errors():
            tracker.experiment.summary.update({"status": status, "failure": failure, **numbers})
        with tolerate_wandb_errors():
            wandb.finish(exit_code=int(status != "finished"))


@contextmanager
def tolerate_wandb_errors() -> Iterator[None]:
    """What goes wrong with W&B inside is said in one line and costs the run nothing: its record is its own."""
    try:
        yield
    except Exception as error:
        print(f"isobench: W&B: {extract_first_line(error)}; the run goes on without", file=sys.stderr)


def flatten_best_epoch(epoch: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a history's entry under flat names: ``best/score``, ``best/<split>/<metric>``, ..."""
    named: dict[str, Any] = {}
    for name, value in epoch.items():
        named |= (
            {f"{name}/{key}": item for key, item in value.items()} if isinstance(value, Mapping) else {name: value}
        )
    return {f"best/{name}": value for name, value in named.items() if isinstance(value, int | float)}


def has_login() -> bool:
    """True if W&B would find a key: WANDB_API_KEY, or an entry for its host in the netrc file."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlparse(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
