"""Carry out one run, from config to result.json: build, fit, write the record."""

import contextlib
import gc
import logging
import math
import os
import sys
import time
import traceback
import warnings
from dataclasses import asdict, dataclass, field
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.plugins.environments import LightningEnvironment

from isobench.common.environment import collect_provenance, keep_threads, list_rounding, reset_peak_memory
from isobench.common.errors import RunFailure, UserError, extract_first_line, refuse
from isobench.common.files import is_storage_error, remove_temporaries
from isobench.common.interruption import SignalWatch
from isobench.common.progress import print_above_bars
from isobench.config.schema import Config
from isobench.data.batches.loaders import uses_gpu
from isobench.data.scale import drop_paper_remarks, find_scale_differences
from isobench.runs.folder import PREDICTIONS_FILE, RunFolder, write_predictions
from isobench.runs.identity import Identity, resolve_seeds, seed_everything
from isobench.runs.record import (
    RECORD_FORMAT,
    Failure,
    Provenance,
    RecordedData,
    RecordedEncoder,
    RunRecord,
    Scale,
)
from isobench.runs.run import format_run_name
from isobench.runs.state import Heartbeat, describe_process
from isobench.runs.trust import hash_loaded_sources
from isobench.training import tracking
from isobench.training.build import RunParts, build_run_parts
from isobench.training.callbacks import (
    EvaluationSchedule,
    ProgressReporter,
    Stopwatch,
    make_early_stopping,
)
from isobench.training.checkpoint import Checkpointer, CheckpointFiles
from isobench.training.export_model import make_exporters
from isobench.training.monitor import build_monitors
from isobench.training.preparation import EpochSamples


def train(cfg: Config, identity: Identity, folder: RunFolder, since: float = math.inf) -> RunRecord | None:
    """Carry out one run, from its newest checkpoint if it has one, and write its record.

    A non-finite loss, a crash or lack of memory is recorded too: the record's status is then ``failed``. With
    ``retry_failed`` a failure recorded before ``since`` (seconds since the epoch) is tried again. The result is
    None if another process is running the run.
    """
    watch = SignalWatch()
    try:
        with folder.lock() as ours, keep_threads():
            if not ours:
                return None
            record = folder.read_final_record(cfg.retry_failed, since)
            if record is not None:  # another process finished it meanwhile
                return record
            sources = hash_loaded_sources(cfg.calibration)  # before they may be edited
            checkpoints = CheckpointFiles(folder.path, identity.key, sources)
            remove_temporaries(folder.path)  # what a killed process left half-written
            with Heartbeat(folder.path) as heartbeat:
                record = Attempt(cfg, identity, folder, checkpoints, heartbeat).carry_out(watch)
                folder.write_record(record)
            # A crashed run starts anew, because its code may be fixed. Lack of memory doesn't spoil a checkpoint.
            if record.failure is None or record.failure.name != "out_of_memory":
                checkpoints.remove_all()
        gc.collect()  # module and trainer refer to each other: free them before the next run of a sweep
    finally:
        watch.stop()
    watch.raise_if_signalled()  # a signal too late to stop this run stops the sweep
    return folder.read_record()


@dataclass
class Attempt:
    """Hold an attempt at a run: what it is given, and what came of it so far."""

    cfg: Config
    identity: Identity
    folder: RunFolder
    checkpoints: CheckpointFiles
    heartbeat: Heartbeat
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    built: RunParts | None = None
    failure: Failure | None = None
    provenance: dict[str, Any] = field(default_factory=dict)

    def carry_out(self, watch: SignalWatch) -> RunRecord:
        """Build the run's parts, train, and return the record; a crash is recorded with all that came before it."""
        try:
            configure_process(self.cfg)
            self.provenance = collect_provenance()
            self.checkpoints.rounding = [*list_rounding(self.provenance), self.cfg.trainer.accelerator]
            self.built = build_run_parts(self.cfg, self.identity)
            self._train(self.built, watch)
        except Exception as error:  # one run's crash is its result; the sweep goes on
            if isinstance(error, UserError) or is_storage_error(error):
                raise
            self.failure = build_failure_entry(error, self.built.module.global_step if self.built else None)
        return self._make_record()

    def _train(self, built: RunParts, watch: SignalWatch) -> None:
        cfg, loaders = self.cfg, built.loaders
        self.stopwatch.mean_tokens = float(loaders.train_tokens.lengths.mean())
        evaluations = EvaluationSchedule(cfg.evaluation.every, cfg.optimization.epochs)
        checkpointer = Checkpointer(cfg.checkpoint, self.checkpoints, loaders, watch, evaluations)
        progress = ProgressReporter(self.heartbeat, format_run_name(cfg))
        try:
            watch.start()
            callbacks = [evaluations, self.stopwatch, progress, EpochSamples(loaders), *build_monitors(cfg)]
            callbacks += make_exporters(cfg, self.identity, loaders.inputs.tokenizer)
            callbacks.append(checkpointer)  # the last one: it saves what the others keep
            fit(cfg, self.identity, built, self.checkpoints, callbacks)
        finally:
            progress.close()

    def _make_record(self) -> RunRecord:
        built, module = self.built, self.built.module if self.built else None
        data = {"fingerprint": self.identity.data, **(built.loaders.describe_data() if built else {})}
        # A record lacks what is None.
        optional: dict[str, Any] = {"sources": self.checkpoints.sources or None, "mixed": self.checkpoints.mixed}
        if built and module:
            optional |= {"generation": built.generation, "effective_rows": built.effective_rows or None}
            optional["dropout"] = "lanes" if module.dropout_numbers else "torch"  # lanes: isobench's random numbers
            optional["isotropy_before"] = module.isotropy_before or {}
        if module and module.best:
            optional["predictions"] = write_predictions(self.folder.path / PREDICTIONS_FILE, module.best.outputs)
        else:
            (self.folder.path / PREDICTIONS_FILE).unlink(missing_ok=True)  # of an attempt that failed later than this
        return RunRecord(
            format=RECORD_FORMAT,
            key=self.identity.key,
            status="failed" if self.failure else "finished",
            failure=self.failure,
            seeds=resolve_seeds(self.cfg),
            scale=Scale(name=self.cfg.scale, differs=drop_paper_remarks(find_scale_differences(self.cfg))),
            best=module.best.epoch if module and module.best else None,
            history=module.history if module else [],
            warnings=[*built.warnings, *built.module.warnings] if built else [],
            cost=self.stopwatch.measure_cost(self.checkpoints.save_seconds),
            attempts=self.heartbeat.beat.attempt,
            started=self.heartbeat.beat.started,
            ended=time.time(),
            where=describe_process(),
            data=RecordedData.model_validate(data),
            encoder=RecordedEncoder(fingerprint=self.identity.encoder),
            provenance=Provenance.model_validate(self.provenance or collect_provenance()),
            config=asdict(self.cfg),
            **{name: entry for name, entry in optional.items() if entry is not None},
        )


def build_failure_entry(error: Exception, step: int | None) -> Failure:
    """Build the record's failure entry: an expected failure, lack of memory, or a crash with its traceback."""
    if isinstance(error, RunFailure):
        return Failure(name=error.name, message=str(error), step=error.step)
    lacks_memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
    message = f"{type(error).__name__}: {extract_first_line(error)}"
    if lacks_memory:
        message += "; set encoder.gradient_checkpointing=true, or a smaller optimization.batch_size with accumulate"
    name = "out_of_memory" if lacks_memory else "crash"
    return Failure(name=name, message=message, step=step, traceback=traceback.format_exc())


def configure_process(cfg: Config) -> None:
    """Set up the process: silence libraries, make arithmetic repeatable, set the number of threads."""
    warnings.filterwarnings(
        "ignore", module="pytorch_lightning|lightning_fabric|lightning_utilities|torch.utils.data"
    )
    lightning = ("pytorch_lightning", "pytorch_lightning.utilities.rank_zero", "pytorch_lightning.accelerators.cuda")
    for name in (*lightning, "datasets"):
        logging.getLogger(name).setLevel(logging.ERROR)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    # Deterministic mode fills all new memory with NaN. Only an operation that reads it before it writes needs that.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    is_half = cfg.trainer.precision == "16-mixed" and not uses_gpu(cfg)
    refuse(
        (uses_gpu(cfg) and not torch.cuda.is_available(), "trainer.accelerator=gpu: torch sees none"),
        (is_half, "trainer.precision=16-mixed needs a GPU: on a CPU set bf16-mixed"),
    )
    if cfg.trainer.threads is not None:
        torch.set_num_threads(cfg.trainer.threads)
    reset_peak_memory()


def fit(
    cfg: Config, identity: Identity, built: RunParts, checkpoints: CheckpointFiles, callbacks: list[Callback]
) -> None:
    """Train, from the newest checkpoint if there is one, with the run's logger and early stopping."""
    callbacks = [*callbacks, *make_early_stopping(cfg)]
    tracker = tracking.make_logger(cfg, identity.key, asdict(cfg))
    seed_everything(resolve_seeds(cfg)["dropout"])
    status, failure = "interrupted", None
    try:
        trainer = pl.Trainer(
            accelerator="gpu" if uses_gpu(cfg) else "cpu",  # Apple's has no float64, in which methods are measured
            devices=1,
            precision=cfg.trainer.precision,
            max_epochs=cfg.optimization.epochs,
            gradient_clip_val=cfg.optimization.clip,
            accumulate_grad_batches=cfg.optimization.accumulate,
            deterministic=True,
            logger=tracker,
            callbacks=callbacks,
            # A run is one process: Lightning must neither requeue a SLURM job nor take its tasks for ranks.
            plugins=[checkpoints, LightningEnvironment()],
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,  # ProgressReporter draws it
            num_sanity_val_steps=0,
            log_every_n_steps=min(10, max(1, built.module.total_steps // 50)),  # a short run's curves have points too
        )
        with print_above_bars() if sys.stderr.isatty() else contextlib.redirect_stdout(sys.stderr):
            trainer.fit(
                built.module,
                built.loaders.train,
                built.loaders.dev,
                ckpt_path=checkpoints.load_newest(),
                weights_only=True,
            )
        status = "finished"
    except SystemExit as stop:  # Lightning turns Ctrl-C into it
        raise KeyboardInterrupt from stop
    except Exception as error:
        status, failure = "failed", build_failure_entry(error, None).name
        raise
    finally:
        tracking.finish_wandb_run(tracker, status, failure, built.module.best.epoch if built.module.best else None)
