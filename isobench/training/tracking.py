"""Log runs to Weights & Biases, offline unless the user is logged in; a run's own record doesn't need it.

Every logged name is listed in docs/how-to/tracking.md.
"""

import netrc
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlparse

from isobench.common.environment import JOB, collect_provenance
from isobench.common.errors import doing, extract_first_line
from isobench.common.terminal import print_note
from isobench.config.schema import Config, format_method_name
from isobench.data.weights import format_encoder_name, label_encoder
from isobench.runs.folder import run_folder_name
from isobench.runs.record import Epoch

STEP_METRIC = "trainer/global_step"  # Lightning's name for the optimiser step
CONSTANT_OF_TWO = ("ev", "isoscore", "effective_rank")  # of any two rows: once centred they lie on one line
CONSTANT_OF_ONE = (*CONSTANT_OF_TWO, "average_cosine", "coordinate_share", "mean_ratio")
CONSTANT_MEASURES = {1: CONSTANT_OF_ONE, 2: CONSTANT_OF_TWO}  # by the number of rows
MAX_WANDB_NAME, MAX_WANDB_TAG = 128, 64  # characters that W&B takes


def make_logger(cfg: Config, key: str, resolved: dict[str, Any]) -> Any:
    """Make the run's Lightning logger; False for ``tracking=none``."""
    if cfg.tracking.backend == "none":
        return False
    from pytorch_lightning.loggers import WandbLogger

    folder = Path(cfg.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with doing("starting W&B (WANDB_MODE=offline or tracking=none run without it)"):
        try:
            run = _start_wandb_run(cfg, key, resolved, folder)
        except Exception as error:
            if JOB not in os.environ:
                raise
            # Nobody watches a job, and W&B may not be reached from where it runs.
            print_note(f"W&B did not start, so curves are kept in {folder / 'wandb'}: {extract_first_line(error)}")
            load_wandb().teardown()
            os.environ["WANDB_MODE"] = "offline"
            run = _start_wandb_run(cfg, key, resolved, folder)
    return WandbLogger(experiment=run)


def _start_wandb_run(cfg: Config, key: str, resolved: dict[str, Any], folder: Path) -> Any:
    """Start or resume the W&B run of a run, grouped by experiment; its id is the start of the key.

    What W&B collects by itself (git, environment) is off: it would upload every ``SLURM_*`` variable, SLURM's token
    among them, and a token in the git remote's address. The record's provenance is logged instead.
    """
    wandb = load_wandb()
    names = {"method": format_method_name(cfg.calibration), "encoder_label": label_encoder(cfg.encoder)}
    extra = {**names, "key": key, "provenance": collect_provenance()}
    tags = (cfg.experiment.paper, cfg.scale, names["method"])
    run = wandb.init(
        name=format_wandb_name(cfg),
        id=run_folder_name(key),
        resume="allow",
        group=resolve_wandb_group(cfg),
        job_type=cfg.task.name,  # an attribute of the W&B run, so that reports can filter by task
        project=read_project(),
        dir=str(folder),
        mode=None if os.environ.get("WANDB_MODE") else _choose_mode(),
        tags=list(dict.fromkeys(tag[:MAX_WANDB_TAG] for tag in tags if tag)),
        config=resolved | extra,
        settings=wandb.Settings(silent=True, console="off", disable_git=True, x_disable_meta=True),
    )
    run.define_metric(STEP_METRIC)
    run.define_metric("*", step_metric=STEP_METRIC, step_sync=True)  # so that a resumed run's curves continue
    return run


def _choose_mode() -> Literal["online", "offline"]:
    return "online" if has_login() else "offline"


def print_destination(configs: Iterable[Config]) -> None:
    """Say whether W&B gets these runs or a folder does, and how to turn it off."""
    folders = {cfg.output_dir for cfg in configs if cfg.tracking.backend != "none"}
    mode = os.environ.get("WANDB_MODE") or _choose_mode()
    place = f"project {read_project()}" if mode == "online" else f"{mode}, {', '.join(folders)}/wandb"
    if folders:
        print_note(f"W&B: {place}; tracking=none turns it off")


def load_wandb() -> Any:
    """Import W&B with the settings of the environment and of the user.

    W&B would also read ``wandb/settings`` in the working folder, which may be a copied project's, and send the API
    key to the address in it. So it reads its settings, once in a process, in an empty folder.
    """
    import wandb
    from wandb.sdk import wandb_setup

    with tempfile.TemporaryDirectory() as empty, chdir(empty):
        _ = wandb_setup.singleton().settings
    return wandb


def read_project() -> str:
    """Return W&B's project: what its own variable says, else isobench."""
    return os.environ.get("WANDB_PROJECT") or "isobench"


def format_wandb_name(cfg: Config) -> str:
    """Name the W&B run by task, encoder, method, seed and label: ``sst2-minilm-isobn_paper-1-beta=0.25``."""
    encoder, method = format_encoder_name(cfg.encoder), format_method_name(cfg.calibration)
    names = [cfg.task.name, encoder, method, str(cfg.seed)]
    return "-".join([*names, *(cfg.tracking.label or "").split()])[:MAX_WANDB_NAME]


def resolve_wandb_group(cfg: Config) -> str | None:
    """Return the W&B group of a run: ``tracking.group``, else the experiment's name; None without either."""
    return cfg.tracking.group or cfg.experiment.name


def log_curves(tracker: Any, curves: Mapping[str, list[list[float]]], epochs: list[int]) -> None:
    """Log a chart for every name to W&B, with a line for every evaluated epoch; do nothing with other loggers.

    ``curves``: chart's name -> for every evaluated epoch the values at k = 1, 2, ...; ``epochs``: counted from 1.
    """
    from pytorch_lightning.loggers import WandbLogger

    if not isinstance(tracker, WandbLogger):
        return
    import wandb

    charts, keys = {}, [f"epoch {number}" for number in epochs]
    with _tolerate_wandb_errors():  # online, making a chart's table calls the server
        for name, lines in curves.items():
            ks = list(range(1, max(map(len, lines), default=0) + 1))
            if ks:
                charts[name] = wandb.plot.line_series(xs=ks, ys=lines, keys=keys, title=name, xname="k")
        tracker.experiment.log(charts)


def finish_wandb_run(tracker: Any, status: str, failure: str | None, best: Epoch | None) -> None:
    """Write the summary of the W&B run and end it, so that the next run in this process gets a W&B run of its own."""
    if tracker is False:
        return
    import wandb

    numbers = _flatten_best_epoch(best.model_dump(exclude_unset=True)) if best else {}
    with _tolerate_wandb_errors():
        tracker.experiment.summary.update({"status": status, "failure": failure, **numbers})
    with _tolerate_wandb_errors():
        wandb.finish(exit_code=int(status != "finished"))


@contextmanager
def _tolerate_wandb_errors() -> Iterator[None]:
    """Print errors of W&B in one line and go on: tracking must not cost a run its record."""
    try:
        yield
    except Exception as error:
        print_note(f"W&B: {extract_first_line(error)}; the run goes on without")


def _flatten_best_epoch(epoch: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in epoch.items():
        inner = {f"/{key}": item for key, item in value.items()} if isinstance(value, Mapping) else {"": value}
        flat |= {f"best/{name}{key}": item for key, item in inner.items() if isinstance(item, int | float)}
    return flat


def has_login() -> bool:
    """True if W&B would find an API key: WANDB_API_KEY, or an entry for its host in the netrc file."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlparse(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
