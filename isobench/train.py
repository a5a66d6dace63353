"""ONE run, top to bottom: config -> data, encoder, calibration, head -> fit -> result.json."""

import contextlib
import gc
import logging
import os
import sys
import time
import traceback
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hydra.utils
import numpy as np
import pyarrow
import pyarrow.parquet
import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.callbacks import Callback, EarlyStopping, LearningRateMonitor, TQDMProgressBar

from isobench import encoders, tracking
from isobench.calibration.base import Calibration, overrides
from isobench.classifier import Classifier
from isobench.data.loaders import Loaders
from isobench.errors import RunFailure, UserError
from isobench.files import sha256_file, write_atomic
from isobench.provenance import provenance, reset_peak_memory
from isobench.run import Identity, RunFolder, scale_notes
from isobench.schema import Config
from isobench.seeding import resolve_seeds, seed_everything
from isobench.stopwatch import Stopwatch, cost
from isobench.validate import CALIBRATION_KEYS


def train(cfg: Config, identity: Identity, folder: RunFolder) -> dict[str, Any] | None:
    """Carry out one run and write its record; None if another process is at it.

    A non-finite loss, a crash, lack of memory: the record then says ``failed``, with a name and a reason.

    Raises:
        UserError: something the user can mend; nothing is written then.
    """
    started = time.perf_counter()
    configure(cfg)
    module, loaders, notes = build(cfg, identity)
    with folder.lock() as ours:
        if not ours:
            return None
        if (record := folder.settled(cfg.retry_failed)) is not None:  # another process finished it meanwhile
            return record
        tracker = tracking.logger(cfg, identity.key, asdict(cfg))
        (folder.path / "config.yaml").write_text(yaml.safe_dump(asdict(cfg), sort_keys=False))
        stopwatch = Stopwatch()
        failure = fit(cfg, tracker, module, loaders, stopwatch)
        record = {
            "status": "failed" if failure else "finished",
            "failure": failure,
            "seeds": resolve_seeds(cfg),
            "scale": {"name": cfg.scale, "differs": scale_notes(cfg)},
            "best": module.best.get("epoch"),
            "history": module.history,
            "warnings": notes,
            "cost": cost(started, stopwatch, loaders.train),
            "data": {"fingerprint": identity.data, "examples": loaders.sizes, "at_limit": loaders.at_limit},
            "encoder": {"fingerprint": identity.encoder},
            "provenance": provenance(),
            "config": asdict(cfg),
        }
        if module.best:
            record["predictions"] = write_predictions(folder.path / "predictions.parquet", module.best["outputs"])
        folder.write_result(record)
    del module, loaders
    gc.collect()  # a module and its trainer hold each other: free them before the next run of a sweep
    return folder.result()


def configure(cfg: Config) -> None:
    """Process-wide settings: quiet libraries, repeatable arithmetic, threads."""
    warnings.filterwarnings("ignore", module="pytorch_lightning|lightning_utilities|torch.utils.data")
    for name in ("pytorch_lightning.utilities.rank_zero", "pytorch_lightning.accelerators.cuda", "datasets"):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    if cfg.trainer.accelerator in ("gpu", "mps") and not (
        torch.cuda.is_available() or torch.backends.mps.is_available()
    ):
        raise UserError(f"trainer.accelerator={cfg.trainer.accelerator}: torch sees no such device; use auto or cpu")
    if cfg.trainer.threads is not None:
        torch.set_num_threads(cfg.trainer.threads)
    reset_peak_memory()


def build(cfg: Config, identity: Identity) -> tuple[Classifier, Loaders, list[str]]:
    """Everything a run needs, checked and ready, before anything is written for it."""
    tokenizer = encoders.load_tokenizer(cfg.encoder, cfg.data.cache)
    seeds = resolve_seeds(cfg)
    loaded = encoders.load(cfg.encoder, cfg.data.cache, seeds["init"])
    loaders = Loaders(cfg, identity, tokenizer, loaded)
    seed_everything(seeds["init"])
    calibration = make_calibration(cfg.calibration, loaded.dim)
    seed_everything(seeds["init"])  # the head starts alike under every method, whatever the method drew
    steps = len(loaders.train) * cfg.optimization.epochs
    module = Classifier(cfg, loaded, calibration, steps)
    if overrides(calibration, "prepare"):
        prepare(module, loaders)
    module.train()  # from_pretrained gives a model in evaluation mode, and Lightning leaves modes as they are
    return module, loaders, loaded.warnings


def make_calibration(config: dict[str, Any], dim: int) -> Calibration:
    """The class that ``_target_`` names, with its settings and the embedding's width."""
    settings = {key: value for key, value in config.items() if key not in CALIBRATION_KEYS}
    try:
        calibration = hydra.utils.instantiate(settings, dim=dim, _convert_="all")
    except hydra.errors.InstantiationException as error:
        cause = error.__cause__ or error
        raise UserError(f"calibration={config['name']}: {cause}") from error
    if not isinstance(calibration, Calibration):
        raise UserError(
            f"calibration={config['name']}: {config['_target_']} is not an isobench.calibration.Calibration"
        )
    return calibration


@torch.no_grad()
def prepare(module: Classifier, loaders: Loaders) -> None:
    """Show a method that asks for it the training set's pretrained embeddings at its own place, once."""
    module.eval()

    def embeddings() -> Any:
        for batch in loaders.train:
            h = module.encode(batch)
            yield h if module.before_pooler else module.pooler(h)

    module.calibration.prepare(embeddings())


def fit(cfg: Config, tracker: Any, module: Classifier, loaders: Loaders, stopwatch: Stopwatch) -> Any:
    """Train; returns None, or what to record of the failure."""
    callbacks: list[Callback] = [stopwatch]
    if cfg.optimization.patience is not None:
        stop = EarlyStopping(f"dev/{cfg.task.primary}", patience=cfg.optimization.patience, mode="max")
        callbacks.append(stop)
    if tracker is not False:
        callbacks.append(LearningRateMonitor("step"))
    bar = cfg.trainer.progress_bar if cfg.trainer.progress_bar is not None else sys.stderr.isatty()
    if bar:
        callbacks.append(TQDMProgressBar(leave=False))
    failure: dict[str, Any] | None = {"name": "interrupted"}  # until it is known how it ended
    seed_everything(resolve_seeds(cfg)["dropout"])
    try:
        trainer = pl.Trainer(
            accelerator=cfg.trainer.accelerator,
            devices=1,
            precision=cfg.trainer.precision,
            max_epochs=cfg.optimization.epochs,
            gradient_clip_val=cfg.optimization.clip,
            deterministic=True,
            logger=tracker,
            callbacks=callbacks,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=bar,
            num_sanity_val_steps=0,
            log_every_n_steps=10,
        )
        with contextlib.redirect_stdout(sys.stderr):
            trainer.fit(module, loaders.train, loaders.dev)
        failure = None
    except SystemExit as stop:  # Lightning's answer to Ctrl-C
        raise KeyboardInterrupt from stop
    except RunFailure as error:
        failure = {"name": error.name, "message": str(error), "step": error.step}
    except Exception as error:  # one run's crash is its result; the sweep goes on
        name = "out_of_memory" if isinstance(error, torch.OutOfMemoryError | MemoryError) else "crash"
        message = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        failure = {
            "name": name,
            "message": message,
            "step": module.global_step,
            "traceback": traceback.format_exc(),
        }
    finally:
        tracking.finish(tracker, failed=failure is not None)
    return failure


def write_predictions(file: Path, outputs: dict[str, dict[str, np.ndarray]]) -> dict[str, str]:
    """The best epoch's dev predictions, one row an example, as Parquet; returns file name and sha256."""
    columns: dict[str, list[Any]] = {"split": [], "index": [], "label": [], "prediction": [], "logits": []}
    for split, output in outputs.items():
        n = len(output["labels"])
        columns["split"] += [split] * n
        columns["index"] += list(range(n))
        columns["label"] += output["labels"].astype(float).tolist()
        columns["prediction"] += output["predictions"].astype(float).tolist()
        columns["logits"] += output["logits"].tolist()
    table = pyarrow.table(columns)
    write_atomic(file, lambda temporary: pyarrow.parquet.write_table(table, temporary))
    return {"file": file.name, "sha256": sha256_file(file)}
