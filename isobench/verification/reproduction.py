"""Carry out somebody's runs here: compare data, weights and software (level 2), and train again (level 3).

Paths and classes that a config names are not used, because the config may be a stranger's: the user says where data
and weights are, and methods and monitors are of the classes that isobench has under their names.
"""

import math
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from isobench.common.environment import collect_provenance, list_rounding
from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import sha256_file
from isobench.common.terminal import format_count, print_note
from isobench.config.schema import HELD_OUT, Checkpoint, Config, Data, Encoder, Experiment, Task, Tracking
from isobench.data import sources, weights
from isobench.data.availability import require_hub_files
from isobench.data.tables import FORMATS, describe_format
from isobench.runs.folder import RunFolder, run_folder_name
from isobench.runs.identity import Identity, identify
from isobench.runs.record import Provenance, RunRecord
from isobench.runs.run import Run
from isobench.runs.trust import use_own_classes
from isobench.runs.validate import validate_config
from isobench.tasks.kind import kind_of, load_kind
from isobench.tasks.predictions import PredictedSplit
from isobench.verification.folder import DIFFERS, FAILS, HOLDS, UNCHECKED, Outcomes
from isobench.verification.run_check import CheckedRun, parse_predictions

# How far a run may be from its record on another processor or with other threads: sums are then rounded in another
# order, and training makes the difference larger. It is a choice of ours; benchmarks/tolerance.py measures them.
TOLERANCE = {
    "score": 0.02,  # difference of the reported score, a fraction
    "logits": 0.1,  # root mean square difference of the reported epoch's logits, or of nats for each token
}


class NotAvailable(Exception):
    """Data, weights or code are not at hand, so that something can't be checked here."""


class Memo:
    """Calls a function once for equal arguments, and raises its error again when it is asked again."""

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        call = f"{function.__module__}.{function.__qualname__}{arguments!r}"
        if call not in self.results:
            try:
                self.results[call] = function(*arguments)
            except (UserError, OSError, NotAvailable) as error:
                self.results[call] = error
        if isinstance(self.results[call], Exception):
            raise self.results[call]
        return self.results[call]


@dataclass(frozen=True)
class Options:
    """What to verify, and where the user says that data and weights are."""

    level: int = 1  # 1 checks the folder by itself; 2 also compares data, weights and environment
    recompute: bool = False  # compute the rows of analyses that train nothing again too, from data and weights
    retrain: int = 0  # how many runs are trained again
    seed: int = 0  # of the choice of these runs
    root: str | None = None  # folder of Parquet files, as ``data.root``
    encoders: tuple[str, ...] = ()  # folders of encoders, as ``encoder.path``
    cache: str | None = None  # as ``data.cache``
    trust: bool = False  # also use the paths and classes that configs name
    call_once: Memo = field(default_factory=Memo, compare=False)  # of one folder: what its runs share is read once


def adapt_config(cfg: Config, identity: Identity, options: Options, output_dir: str) -> Config:
    """Return a stored config with data, weights and classes that are here; NotAvailable where something is not."""
    if options.trust:
        load_kind(cfg.task)
    else:
        cfg = use_own_classes(cfg)
    data = _locate_data(cfg, identity.data, options)  # first, because it reads little
    encoder = _find_encoder(identity.encoder, cfg, options) if cfg.encoder.path else cfg.encoder
    return replace(cfg, data=data, encoder=encoder, output_dir=output_dir)


def _locate_data(cfg: Config, recorded: Mapping[str, str], options: Options) -> Data:
    """Return where a run's data are here, unless its config names a path and the user has not said where they are."""
    data = replace(cfg.data, cache=options.cache)
    source = sources.find_data_source(cfg.task, cfg.data)
    if source not in ("files", "parquet") or (options.trust and options.root is None):
        return data
    if options.root is None:
        names = dict.fromkeys(_file_name(file) for file in (data.files or {}).values() if isinstance(file, str))
        read = ", ".join(names) or "files"
        raise NotAvailable(f"it read {read} of the user's own: add data.root=FOLDER with the same files")
    if source == "parquet":
        return replace(data, root=options.root)
    files = {split: file for split, file in (cfg.data.files or {}).items() if split in cfg.task.read_splits}
    for split, file in files.items():
        if not isinstance(file, float):  # a share of the training file's rows
            files[split] = options.call_once(_find_file, options.root, recorded.get(split), file, cfg.data.encoding)
    return replace(data, root=options.root, files=files)


def _file_name(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


def _find_file(root: str, recorded: str | None, path: str, encoding: str | None) -> str:
    """Find the file below a folder whose format and sha256 are recorded; its name and place don't matter."""
    name = _file_name(path)
    files = [file for file in Path(root).rglob("*") if file.suffix.lower() in FORMATS and file.is_file()]
    for file in sorted(files, key=lambda file: (file.name != name, file)):  # of its name first: most need no reading
        if recorded == f"{describe_format(file, encoding)} {sha256_file(file)}":
            return str(file)
    raise NotAvailable(f"no file below {root} is {name} of its record, by its sha256")


def _list_encoders(cfg: Config, options: Options) -> list[Encoder]:
    if not cfg.encoder.path:
        return [cfg.encoder]
    folders = [*options.encoders, *([cfg.encoder.path] if options.trust else [])]
    if not folders:
        raise NotAvailable("its encoder was read from a folder: add encoder.path=FOLDER with the same files")
    return [replace(cfg.encoder, path=folder) for folder in folders]


def _find_encoder(recorded: Mapping[str, str], cfg: Config, options: Options) -> Encoder:
    for encoder in _list_encoders(cfg, options):
        if options.call_once(weights.fingerprint_encoder, encoder) == recorded:
            return encoder
    raise NotAvailable("no folder that was named has the weights of its record")


def check_sources(runs: Mapping[str, CheckedRun], options: Options, outcomes: Outcomes) -> None:
    """Compare every run's data, labels, weights and software with its record; what runs share is read once."""
    here = Provenance.model_validate(collect_provenance())
    for run in runs.values():
        if run.record is None or run.cfg is None:
            continue
        for check, recorded, fingerprint in (
            ("data", run.record.data.fingerprint, _fingerprint_data),
            ("weights", run.record.encoder.fingerprint, _fingerprint_weights),
        ):
            try:
                found = fingerprint(run.cfg, recorded, options)  # of weights, one for each folder that is named
                problems = [] if recorded in found else [_describe_change(check, recorded, found)]
                if check == "data" and not problems:
                    problems = _compare_labels(run, options)
            except (NotAvailable, UserError, OSError) as error:
                outcomes.note(run.name, check, UNCHECKED, extract_first_line(error))
            else:
                outcomes.judge(run.name, check, problems)
        outcomes.judge(run.name, "environment", list_differences(run.record.provenance, here), DIFFERS)


def _fingerprint_data(cfg: Config, recorded: Mapping[str, str], options: Options) -> list[dict[str, str]]:
    if sources.find_data_source(cfg.task, cfg.data) == "hub":
        raise NotAvailable(f"its data are the hub's, at the revision {str(cfg.task.revision)[:12]}")
    return [options.call_once(sources.fingerprint_data, cfg.task, _locate_data(cfg, recorded, options))]


def _fingerprint_weights(cfg: Config, _: Mapping[str, str], options: Options) -> list[dict[str, str]]:
    if weights.find_encoder_source(cfg.encoder) == "hub":
        raise NotAvailable(f"its weights are the hub's, at the revision {str(cfg.encoder.revision)[:12]}")
    return [options.call_once(weights.fingerprint_encoder, encoder) for encoder in _list_encoders(cfg, options)]


def _describe_change(what: str, recorded: Mapping[str, str], found: list[dict[str, str]]) -> str:
    nearest = min(found, key=lambda fingerprint: len(set(fingerprint.items()) ^ set(recorded.items())))
    names = sorted(name for name in recorded.keys() | nearest.keys() if recorded.get(name) != nearest.get(name))
    return f"its {what} are not those of its record: {', '.join(names)}"


def _compare_labels(run: CheckedRun, options: Options) -> list[str]:
    if not run.labels or run.cfg is None or run.record is None or not kind_of(run.cfg.task).has_labels:
        return []
    data = _locate_data(run.cfg, run.record.data.fingerprint, options)
    expected = options.call_once(_hash_data_labels, run.cfg.task, data)
    wrong = [split for split in run.labels if run.labels[split] != expected.get(split)]
    return [f"the labels of {', '.join(wrong)} in its predictions are not those of the data"] if wrong else []


def _hash_data_labels(task: Task, data: Data) -> dict[str, str]:
    """Hash the labels of every split that a task evaluates, and of its test split, as predictions are hashed."""
    hashes, kind = {}, kind_of(task)
    for split in [*task.dev_splits, *([task.test_split] if task.test_split else [])]:
        limit = None if split == task.test_split else task.dev_samples
        hashes[split] = _hash_labels(kind.read(task, data, split, limit).labels, split == task.test_split)
    if task.held_out is not None:
        train = kind.read(task, data, task.train_split, task.train_samples).labels
        chosen = sorted(sources.select_by_hash(len(train), round(task.held_out * len(train))))
        hashes[HELD_OUT] = _hash_labels(train[chosen], is_test=False)
    return hashes


def _hash_labels(labels: Any, is_test: bool) -> str:
    """Hash labels in the type in which predictions hold them: whole numbers for classes, else float64."""
    if isinstance(labels, np.ndarray) and (is_test or labels.dtype != np.int64):
        labels = labels.astype(np.float64)
    return PredictedSplit(labels, [], None).hash_labels()


def list_differences(recorded: Provenance, here: Provenance) -> list[str]:
    """List how code, packages and machine differ from the record's, or may: an installed package has no commit."""
    values = {name: (getattr(recorded, name), getattr(here, name)) for name in ("python", "cpu", "cores", "platform")}
    values |= {name: (version, here.versions.get(name)) for name, version in recorded.versions.items()}
    if "-" not in recorded.platform:  # an anonymous record has the system's name alone
        values["platform"] = (recorded.platform, here.platform.partition("-")[0])
    if recorded.instruction_set is not None:  # old records lack it
        values["instruction set"] = (recorded.instruction_set, here.instruction_set)
    differences = [f"{name} is {now} here and was {then}" for name, (then, now) in values.items() if now != then]
    then, now = (
        f"{git.commit}{' with changes' * git.dirty}" if git else "unknown" for git in (recorded.git, here.git)
    )
    is_same = then == now and recorded.git and not recorded.git.dirty  # else equal words say nothing of the code
    return differences if is_same else [*differences, f"commit is {now} here and was {then}"]


def retrain_runs(
    folders: Mapping[str, RunFolder], runs: Mapping[str, CheckedRun], options: Options, outcomes: Outcomes
) -> None:
    """Train some of the finished runs again, drawn at random, and compare what they give with their records."""
    prepared = _prepare_runs(runs, options, outcomes)
    drawn = random.Random(options.seed).sample(list(prepared), min(options.retrain, len(prepared)))
    for position, name in enumerate(drawn, 1):
        cfg, record = prepared[name], runs[name].record
        assert record is not None
        cost = (
            f"at most {format_count(cfg.optimization.epochs, 'epoch')}; its record says {record.cost.seconds:,.0f} s"
        )
        print_note(f"trains run {position} of {len(drawn)} again: {name} ({cost})")
        try:
            with tempfile.TemporaryDirectory() as output_dir:
                again = _train_again(replace(cfg, output_dir=output_dir))
                stored = folders[name].read_predictions()
                outcomes.note(name, "retrained", *_compare_training(cfg, record, stored, *again))
        except Exception as error:  # what a stranger's config makes of training may raise anything
            outcomes.note(name, "retrained", UNCHECKED, extract_first_line(error))


def _prepare_runs(runs: Mapping[str, CheckedRun], options: Options, outcomes: Outcomes) -> dict[str, Config]:
    """Return configs of finished runs that passed all other checks and can be trained here; note why others can't."""
    failing = {part for entry in outcomes.list_entries(FAILS) for part in entry.subject.split("/")}
    intact = {name: run for name, run in runs.items() if run.record and name not in failing}
    finished = sorted(name for name, run in intact.items() if run.record and run.record.status == "finished")
    if failed := len(intact) - len(finished):
        outcomes.note("runs", "retrained", UNCHECKED, f"{failed} failed run(s), which are never drawn")
    if not finished:
        outcomes.note("runs", "retrained", UNCHECKED, "there is no finished run that passed the other checks")
    prepared: dict[str, Config] = {}
    reasons = Counter[str]()
    for name in finished:
        try:
            prepared[name] = _prepare_training(intact[name], options)
        except Exception as error:  # a stranger's config may raise anything
            reasons[extract_first_line(error)] += 1
    for reason, count in reasons.items():
        text = f"{count} of {len(finished)} finished run(s) can't be trained here, and are not drawn: {reason}"
        outcomes.note("runs", "retrained", UNCHECKED, text)
    return prepared


def _prepare_training(run: CheckedRun, options: Options) -> Config:
    """Return a run's config for training it again here; NotAvailable or UserError where something is not here."""
    import torch

    cfg, record = run.cfg, run.record
    assert cfg is not None
    assert record is not None
    if record.provenance.gpus and record.dropout == "torch" and not torch.cuda.is_available():
        raise NotAvailable(f"it was trained on {record.provenance.gpus[0]}, which draws other random numbers")
    identity = Identity(record.key, record.data.fingerprint, record.encoder.fingerprint)
    adapted = adapt_config(cfg, identity, options, output_dir="")
    options.call_once(sources.fingerprint_data, adapted.task, adapted.data)  # what is missing is said by both
    options.call_once(weights.fingerprint_encoder, adapted.encoder)
    kind_of(adapted.task).require_packages(adapted.task)
    require_hub_files(adapted)
    accelerator = "cpu" if cfg.trainer.accelerator == "cpu" else "auto"
    return replace(
        adapted,
        trainer=replace(cfg.trainer, accelerator=accelerator, threads=max(1, record.provenance.threads)),
        checkpoint=Checkpoint(minutes=None),
        tracking=Tracking(),
        experiment=Experiment(),
        analysis={},
        retry_failed=False,
        dry_run=False,
    )


def _train_again(cfg: Config) -> tuple[RunRecord, Any]:
    """Train a run; return its record as a file holds it, and the rows of its predictions, None without an epoch."""
    from isobench.training.execute import train_if_needed

    validate_config(cfg)
    run = Run(cfg, RunFolder(cfg.output_dir, identify(cfg).key), None)
    record = train_if_needed(run, since=math.inf)
    assert record is not None
    return record, run.folder.read_predictions()


def _compare_training(cfg: Config, old: RunRecord, stored: Any, new: RunRecord, made: Any) -> tuple[str, str]:
    """Compare a run with its repetition: equal predictions on the same kind of machine, else within the tolerance.

    ``stored`` and ``made`` are the rows of predictions of both; stored ones that were removed are None.
    Return the outcome, and what differs; empty if nothing does.
    """
    if new.key != old.key:
        return FAILS, f"its config gives the run {run_folder_name(new.key)} with the data here"
    if new.failure is not None or new.best is None or old.best is None:
        return FAILS, f"trained again it failed: {new.failure.message if new.failure else 'no epoch'}"
    before = parse_predictions(stored, cfg.task, {}) if stored is not None else {}
    after = parse_predictions(made, cfg.task, {})
    pairs = [(predicted, after[split]) for split, predicted in before.items()]
    has_same_predictions = all(np.array_equal(one.predictions, other.predictions) for one, other in pairs)
    distances = [_measure_distance(one, other) for one, other in pairs if one.logits is not None]
    sizes = {"score": abs(old.best.score - new.best.score)} | ({"logits": max(distances)} if distances else {})
    histories = (record.model_dump(include={"history"}) for record in (old, new))
    if _repeats(*histories) and has_same_predictions and not sizes.get("logits"):
        return HOLDS, "" if before else "no predictions to compare; its history is the same"
    text = ", ".join(f"{name} by {size:.2g} (tolerance {TOLERANCE[name]:g})" for name, size in sizes.items())
    if is_same_machine(old, new):
        return FAILS, f"trained again on the same kind of machine it gives other numbers: {text}"
    if all(size <= TOLERANCE[name] for name, size in sizes.items()):
        return DIFFERS, f"not equal to the bit, on another kind of machine or several; within: {text}"
    return FAILS, f"trained again it is outside of the tolerance: {text}"


def _repeats(old: Any, new: Any) -> bool:
    """Return True if all that was noted is noted again, but for rounding; monitors may note more than they did."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(name in new and _repeats(value, new[name]) for name, value in old.items())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_repeats, old, new))
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=1e-9, abs_tol=1e-12)
    return bool(old == new)


def _measure_distance(before: PredictedSplit, after: PredictedSplit) -> float:
    """Return the root mean square difference of logits, in the units in which a kind compares them."""
    return float(np.sqrt(np.mean(((before.logits - after.logits) / before.units) ** 2)))


def is_same_machine(old: RunRecord, new: RunRecord) -> bool:
    """Return True if processor, threads, GPUs and packages are those of the record, so that every bit must agree.

    Records that lack the processor's instruction set were made on an unknown kind of machine, and interrupted runs
    that don't tell whether they went on elsewhere may be mixed.
    """
    if old.mixed or (old.mixed is None and old.attempts > 1):
        return False
    before, here = (list_rounding(made.provenance.model_dump()) for made in (old, new))
    return before == here
