"""Forecast how long runs will take and how much memory they need, from finished runs of the same shape.

Without such a run, memory is estimated by a formula of a transformer's sizes; no model is built and no weights are
read. AdamW keeps 16 bytes for each parameter (weight, gradient, two moments), the backward pass about 16 vectors for
each token and layer. It is rough: what a calibration keeps, a CPU's attention weights and what the allocator loses
are not in it.
"""

import contextlib
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from isobench.common.errors import UserError, doing, refuse
from isobench.common.files import sha256_json
from isobench.config.schema import Config, Encoder
from isobench.runs.identity import to_plain
from isobench.runs.plan import list_run_folders, read_ended_run
from isobench.runs.record import RunRecord
from isobench.runs.run import Run, format_run_name
from isobench.tasks.kind import kind_of

MIB, GIB = 2**20, 2**30
BASE_BYTES = 1 * GIB  # of a process: Python with its libraries
MARGIN = 1.15  # a run may need this much more memory than the runs that were measured
COPIES = 4  # of the weights: themselves, their gradients, and Adam's two moments
VECTORS_OF_LAYER = 16  # kept for the backward pass; a decoder's layer, which also attends to the source, keeps more
DECODER_SHARE = 1.5  # what a decoder's layer keeps, in layers of an encoder
BYTES_OF_ENTRY = {"32-true": 4, "bf16-mixed": 3, "16-mixed": 3}
RunShape = tuple[Any, ...]


class Forecast:
    """Forecasts a run's seconds as the median of the finished runs of its shape (`_build_run_shape`).

    Where no such run has finished, runs that differ in batch size and epochs only give the seconds of an epoch and of
    the rest; early stopping may end a run sooner. If the given runs' records don't give a forecast for all of them,
    the output folder's other records are read too.
    """

    def __init__(self, runs: list[Run]) -> None:
        self.seconds_by_shape: dict[RunShape, list[float]] = defaultdict(list)
        # Seconds of an epoch, and of the rest.
        self.parts_by_shape: dict[RunShape, list[tuple[float, float]]] = defaultdict(list)
        for run in runs:
            self._add(run)
        if any(run.record is None and self.estimate_seconds(run.cfg) is None for run in runs):
            self._add_other_records(runs)

    def estimate_seconds(self, cfg: Config) -> float | None:
        """Estimate a run's seconds on one device; None if no comparable run has finished."""
        if same := self.seconds_by_shape.get(_build_run_shape(cfg)):
            return statistics.median(same)
        if parts := self.parts_by_shape.get(_build_epoch_shape(cfg)):
            per_epoch, rest = map(statistics.median, zip(*parts, strict=True))
            return per_epoch * cfg.optimization.epochs + rest
        return None

    def _add(self, run: Run) -> None:
        if run.record is not None and run.record.status == "finished":
            cost, share = run.record.cost, run.record.where.share
            epochs = run.record.history[-1].epoch if run.record.history else run.cfg.optimization.epochs
            per_epoch = (cost.training_seconds + cost.evaluation_seconds) / epochs / share
            seconds = compute_device_seconds(run.record)
            self.seconds_by_shape[_build_run_shape(run.cfg)].append(seconds)
            self.parts_by_shape[_build_epoch_shape(run.cfg)].append((per_epoch, seconds - per_epoch * epochs))

    def _add_other_records(self, runs: list[Run]) -> None:
        given_names = {run.folder.path.name for run in runs}
        output_dir = runs[0].cfg.output_dir
        for folder in list_run_folders(output_dir):
            if folder.name not in given_names:
                with contextlib.suppress(UserError):  # a damaged record gives no forecast
                    self._add(read_ended_run(output_dir, folder))


def compute_device_seconds(record: RunRecord) -> float:
    """Return a run's seconds divided by the number of runs that shared its device."""
    return record.cost.seconds / record.where.share


def _build_epoch_shape(cfg: Config) -> RunShape:
    """Return the settings that decide the time of an epoch, except the batch size."""
    task = cfg.task
    data = task.name, task.train_split, task.train_samples, task.max_length
    return *data, sha256_json(to_plain(cfg.encoder)), cfg.trainer.precision, cfg.evaluation.every


def _build_run_shape(cfg: Config) -> RunShape:
    o = cfg.optimization
    return *_build_epoch_shape(cfg), o.batch_tokens or o.batch_size, o.epochs


def format_duration(seconds: float) -> str:
    """Format a duration for people: ``42 s``, ``3.1 min``, ``12.4 h``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def forecast_memory(configs: Iterable[Config], runs: Iterable[Run], with_gpu: bool) -> float | None:
    """Forecast how many bytes of the machine's own memory, not of a GPU's, the largest of some runs needs.

    The peaks of ``runs`` that finished, on machines with a GPU or on ones without, tell it for runs of their shape.
    None if an encoder's config can't be read.
    """
    peaks: dict[RunShape, float] = defaultdict(float)
    for run in runs:
        record, shape = run.record, _build_run_shape(run.cfg)
        if record and record.status == "finished" and bool(record.provenance.gpus) == with_gpu:
            peaks[shape] = max(peaks[shape], MARGIN * MIB * record.cost.peak_memory_mib.resident)
    estimate = _estimate_weights if with_gpu else estimate_bytes  # which go to a GPU through the machine's memory
    needs = [0.0]
    for shape, cfg in {_build_run_shape(cfg): cfg for cfg in configs}.items():
        try:
            needs.append(peaks[shape] or BASE_BYTES + estimate(cfg, _read_encoder_config(cfg.encoder)))
        except UserError:
            return None
    return max(needs)


def describe_memory(configs: Sequence[Config]) -> list[str]:
    """Describe the memory of the largest of these runs, after a line for each encoder whose config is not known."""
    lines, models = [], {}
    for name, encoder in {repr(cfg.encoder): cfg.encoder for cfg in configs}.items():
        try:
            models[name] = _read_encoder_config(encoder)
        except UserError as error:
            lines.append(f"Memory: unknown, because {error}")
    sizes = [(estimate_bytes(cfg, models[name]), cfg) for cfg in configs if (name := repr(cfg.encoder)) in models]
    if sizes:
        size, cfg = max(sizes, key=lambda pair: pair[0])
        amount = f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"
        lines.append(
            f"Memory of the largest run: roughly {amount} in training ({format_run_name(cfg)}, "
            f"{cfg.trainer.precision}, all texts as long as task.max_length)"
        )
    return lines


def estimate_bytes(cfg: Config, model: Any) -> int:
    """Estimate the bytes that a run's training needs if every text is as long as the limit.

    ``model`` is its encoder's transformers config.
    """
    from isobench.models.loading import read_max_positions

    o, task = cfg.optimization, cfg.task
    source = min(task.max_length, read_max_positions(model))
    target = min(kind_of(task).count_written(task), read_max_positions(model))
    examples = max(1, o.batch_tokens // (source + target)) if o.batch_tokens else o.batch_size
    width, layers = model.hidden_size, model.num_hidden_layers
    kept = VECTORS_OF_LAYER * layers
    if cfg.encoder.gradient_checkpointing:  # each layer's input, and all of the layer that is at work
        kept = VECTORS_OF_LAYER + layers
    vectors = examples * (source + DECODER_SHARE * target) * kept
    return int(COPIES * _estimate_weights(cfg, model) + BYTES_OF_ENTRY[cfg.trainer.precision] * width * vectors)


def _estimate_weights(cfg: Config, model: Any) -> float:
    """Estimate the bytes of a model's weights in float32."""
    width, decoder = model.hidden_size, DECODER_SHARE * bool(kind_of(cfg.task).count_written(cfg.task))
    return float(4 * (12 * model.num_hidden_layers * width**2 * (1 + decoder) + model.vocab_size * width))


def _read_encoder_config(cfg: Encoder) -> Any:
    """Read an encoder's transformers config: from its settings, folder or package, the hub's cache or the hub."""
    from huggingface_hub import try_to_load_from_cache
    from transformers import AutoConfig

    from isobench.data import hub, weights
    from isobench.data.packaged.encoders import CONFIGS, find_packaged_weights
    from isobench.models.loading import silence_transformers

    source = weights.find_encoder_source(cfg)
    silence_transformers()
    if source == "scratch":
        settings = {"vocab_size": cfg.vocabulary_size} if cfg.vocabulary_size else {}
        return AutoConfig.for_model(**settings | dict(cfg.scratch or {}))
    if source == "embedded" and cfg.embedded in CONFIGS:
        return AutoConfig.for_model(**CONFIGS[cfg.embedded])
    options: dict[str, Any] = {}
    if source == "hub":
        name = str(cfg.hub)
        is_cached = isinstance(try_to_load_from_cache(name, "config.json", revision=cfg.revision), str)
        is_away = not is_cached and not hub.is_reachable()  # asked for minutes otherwise
        refuse((is_away, f"encoder={cfg.name}: the hub can't be reached and the model's config is not in its cache"))
        options = {"revision": cfg.revision, "local_files_only": is_cached}
    else:
        name = str(weights.find_encoder_folder(cfg) if source == "path" else find_packaged_weights(cfg).parent)
    with doing(f"encoder={cfg.name}: reading its config"):
        return AutoConfig.from_pretrained(name, trust_remote_code=cfg.trust_remote_code, **options)
