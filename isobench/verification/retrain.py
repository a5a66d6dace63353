"""Level 3: train runs again and compare predictions and history with their records."""

import random
import tempfile
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from isobench.common.errors import extract_first_line
from isobench.common.terminal import print_note
from isobench.config.schema import Checkpoint, Config, Experiment, Tracking
from isobench.runs.folder import PREDICTIONS_FILE, run_folder_name
from isobench.runs.record import RunRecord
from isobench.verification.classes import NotAvailable, use_own_classes
from isobench.verification.folder import TABLE_LIMIT, VerifiedFolder
from isobench.verification.outcomes import DIFFERS, FAILS, HOLDS, UNCHECKED, Outcomes
from isobench.verification.predictions import read_predictions
from isobench.verification.run_check import CheckedRun
from isobench.verification.sources import Options, find_matching_folder, locate_data

PACKAGES = ("torch", "numpy", "transformers", "pytorch-lightning", "tokenizers")  # which decide a result's bits
# How far a run may be from its record on another processor or with other threads: sums are then rounded in another
# order, and training makes the difference larger. It is a choice of ours; benchmarks/tolerance.py measures them.
TOLERANCE = {
    "score": 0.02,  # difference of the reported score, a fraction
    "logits": 0.1,  # root mean square difference of the reported epoch's logits
}


def retrain_runs(
    folder: VerifiedFolder,
    runs: Mapping[str, CheckedRun],
    options: Options,
    outcomes: Outcomes,
) -> None:
    """Train some of the finished runs again, drawn at random, and compare what they give with their records.

    Failed runs are never drawn, and neither are runs whose predictions can't be used, which is a failure already.
    A run that can't be trained here is noted as not checked. Each other gives a line on standard error as it starts.

    Args:
        folder: the verified folder.
        runs: its runs.
        options: how many are drawn, all if there are fewer, and where data and weights are.
        outcomes: where the outcomes go.
    """
    usable = {name: run.record for name, run in runs.items() if run.record and not run.has_unusable_predictions}
    finished = sorted(name for name, record in usable.items() if record.status == "finished")
    if failed := len(usable) - len(finished):
        outcomes.note("runs", "retrained", UNCHECKED, f"{failed} failed run(s), which are never drawn")
    if not finished:
        outcomes.note("runs", "retrained", UNCHECKED, "there is no finished run with an intact record and config")
    drawn = random.Random(options.seed).sample(finished, min(options.retrain, len(finished)))
    for number, name in enumerate(drawn, 1):
        cfg, record = runs[name].cfg, usable[name]
        assert cfg is not None
        try:
            with tempfile.TemporaryDirectory() as output_dir:
                prepared = _prepare_config(cfg, record, output_dir, options)
                print_note(f"trains run {number} of {len(drawn)} again: {name}")
                file = f"runs/{name}/{PREDICTIONS_FILE}"
                stored = folder.read(file, TABLE_LIMIT) if folder.has(file) else None
                outcome, text = _judge(cfg, record, stored, *train_again(prepared))
                outcomes.note(name, "retrained", outcome, text)
        except Exception as error:  # what a stranger's config makes of training may raise anything
            outcomes.note(name, "retrained", UNCHECKED, extract_first_line(error))


def _prepare_config(cfg: Config, record: RunRecord, output_dir: str, options: Options) -> Config:
    """Return a run's config for training it again here, with as many threads as its record tells.

    Raises:
        NotAvailable: it runs foreign code, its data or weights are not here, or it was trained on another device.
        UserError: data or weights are missing.
    """
    import torch

    cfg = cfg if options.trust else use_own_classes(cfg)
    if record.provenance.gpus and record.dropout == "torch" and not torch.cuda.is_available():
        raise NotAvailable(f"it was trained on {record.provenance.gpus[0]}, which draws other random numbers")
    threads = max(1, record.provenance.threads)
    return replace(
        cfg,
        data=locate_data(cfg, options),
        encoder=find_matching_folder(record.encoder.fingerprint, cfg, options) if cfg.encoder.path else cfg.encoder,
        trainer=replace(cfg.trainer, accelerator="auto", threads=threads),
        checkpoint=Checkpoint(minutes=None),
        tracking=Tracking(),
        experiment=Experiment(),
        analysis={},
        output_dir=output_dir,
        retry_failed=False,
        dry_run=False,
    )


def train_again(cfg: Config) -> tuple[RunRecord, bytes]:
    """Train a run; return its record as a file holds it, and the content of its file of predictions.

    Raises:
        UserError: it can't be trained here.
    """
    import torch

    from isobench.training.execute import train_if_needed

    threads = torch.get_num_threads()
    try:
        row, _ = train_if_needed(cfg, since=float("inf"))
    finally:
        torch.set_num_threads(threads)
    record = row.folder.read_record()
    assert record is not None
    file = row.folder.path / PREDICTIONS_FILE
    return record, file.read_bytes() if file.exists() else b""


def _judge(cfg: Config, old: RunRecord, stored: bytes | None, new: RunRecord, content: bytes) -> tuple[str, str]:
    """Compare a run with its repetition: equal to the bit on the same kind of machine, else within the tolerance.

    Args:
        cfg: the run's config.
        old: its record.
        stored: its file of predictions; None if it was removed.
        new: the record of the repetition.
        content: the repetition's file of predictions.

    Returns:
        The outcome, and what differs; empty if nothing does.
    """
    if new.key != old.key:
        return FAILS, f"its config gives the run {run_folder_name(new.key)} with the data here"
    if new.failure is not None or new.best is None or old.best is None:
        return FAILS, f"trained again it failed: {new.failure.message if new.failure else 'no epoch'}"
    before = read_predictions(stored, cfg.task, {}) if stored is not None else {}
    after = read_predictions(content, cfg.task, {})
    pairs = [(own, after[split]) for split, own in before.items()]
    sizes = {"score": abs(old.best.score - new.best.score)}
    if distances := [_measure_distance(own.logits, again.logits) for own, again in pairs if own.logits is not None]:
        sizes["logits"] = max(distances)
    has_same_predictions = all(np.array_equal(own.predictions, again.predictions) for own, again in pairs)
    if old.history == new.history and has_same_predictions and not sizes.get("logits"):
        return HOLDS, "" if before else "no predictions to compare; its history is equal to the bit"
    text = ", ".join(f"{name} by {size:.2g} (tolerance {TOLERANCE[name]:g})" for name, size in sizes.items())
    if is_same_machine(old, new):
        return FAILS, f"trained again on the same kind of machine it gives other numbers: {text}"
    if all(size <= TOLERANCE[name] for name, size in sizes.items()):
        return DIFFERS, f"not equal to the bit, on another kind of machine; within: {text}"
    return FAILS, f"trained again it is outside of the tolerance: {text}"


def _measure_distance(own: np.ndarray | None, again: np.ndarray | None) -> float:
    """Return the root mean square difference of two arrays of logits."""
    assert own is not None
    assert again is not None
    return float(np.sqrt(np.mean((own - again) ** 2)))


def is_same_machine(old: RunRecord, new: RunRecord) -> bool:
    """Return True if processor, threads, GPUs and packages are those of the record, so that every bit must agree.

    Records that lack the processor's instruction set were made on an unknown kind of machine.
    """
    own, here = (
        (made.cpu, made.instruction_set, made.threads, made.gpus, made.python, *map(made.versions.get, PACKAGES))
        for made in (old.provenance, new.provenance)
    )
    return own == here
