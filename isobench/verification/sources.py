"""Level 2: compare data and weights with the fingerprints in the records, and code and machine with what they say.

Paths in a config are not followed, because the config may be a stranger's: the user says where data and weights are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isobench.common.environment import collect_provenance
from isobench.common.errors import UserError, extract_first_line
from isobench.config.schema import HELD_OUT, Config, Data, Encoder, Task
from isobench.data import sources, weights
from isobench.data.seq2seq_pairs import read_pairs
from isobench.runs.record import Provenance
from isobench.verification.classes import NotAvailable
from isobench.verification.outcomes import DIFFERS, HOLDS, UNCHECKED, Outcomes
from isobench.verification.predictions import PredictedSplit
from isobench.verification.run_check import CheckedRun


@dataclass(frozen=True)
class Options:
    """What to verify, and where the user says that data and weights are.

    Args:
        level: 1 checks the folder by itself; 2 also compares data, weights and environment.
        recompute: compute the rows of analyses that train nothing again too, which takes data and weights.
        retrain: how many runs are trained again, which includes level 2.
        seed: of the choice of these runs.
        root: folder of Parquet files, as ``data.root``.
        encoders: folders of encoders, as ``encoder.path``.
        cache: as ``data.cache``.
        trust: also use the paths and classes that configs name.
    """

    level: int = 1
    recompute: bool = False
    retrain: int = 0
    seed: int = 0
    root: str | None = None
    encoders: tuple[str, ...] = ()
    cache: str | None = None
    trust: bool = False


def check_sources(runs: Mapping[str, CheckedRun], options: Options, outcomes: Outcomes) -> None:
    """Compare every run's data, labels, weights and software with its record; what runs share is read once."""
    call_once, here = _Memo(), Provenance.model_validate(collect_provenance())
    for run in runs.values():
        if run.record is None or run.cfg is None:
            continue
        for check, recorded, fingerprint in (
            ("data", run.record.data.fingerprint, _fingerprint_data),
            ("weights", run.record.encoder.fingerprint, _fingerprint_weights),
        ):
            try:
                found = fingerprint(run.cfg, options, call_once)
                problems = [] if recorded in found else [_describe_change(check, recorded, found)]
                if check == "data" and not problems:
                    problems = _compare_labels(run, options, call_once)
            except (NotAvailable, UserError, OSError) as error:
                outcomes.note(run.name, check, UNCHECKED, extract_first_line(error))
            else:
                outcomes.judge(run.name, check, problems)
        differences = _name_differences(run.record.provenance, here)
        for text in differences:
            outcomes.note(run.name, "environment", DIFFERS, text)
        if not differences:
            outcomes.note(run.name, "environment", HOLDS)


class _Memo:
    """Calls a function once for equal arguments, and raises its error again when it is asked again."""

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what the function returns for these arguments, which have a ``repr`` that tells them apart."""
        call = f"{function.__module__}.{function.__qualname__}{arguments!r}"
        if call not in self.results:
            try:
                self.results[call] = function(*arguments)
            except (UserError, OSError, NotAvailable) as error:
                self.results[call] = error
        if isinstance(self.results[call], Exception):
            raise self.results[call]
        return self.results[call]


def locate_data(cfg: Config, options: Options) -> Data:
    """Return where a run's data are here.

    Raises:
        NotAvailable: the config names a path, and the user has not said where the data are.
    """
    data = replace(cfg.data, cache=options.cache)
    source = None if _is_generated(cfg.task) else sources.find_data_source(cfg.task, cfg.data)
    if source == "files" and not options.trust:
        raise NotAvailable("its data.files are paths, which are followed with --trust only")
    if source == "parquet":
        if options.root is None and not options.trust:
            raise NotAvailable("it read data.root: add data.root=FOLDER with the same files")
        return replace(data, root=options.root or data.root)
    return data


def _is_generated(task: Task) -> bool:
    return bool(task.generation and task.generation.grammar)


def _fingerprint_data(cfg: Config, options: Options, call_once: _Memo) -> list[dict[str, str]]:
    """Return the fingerprint of a run's data as they are here."""
    if not _is_generated(cfg.task) and sources.find_data_source(cfg.task, cfg.data) == "hub":
        raise NotAvailable(f"its data are the hub's, at the revision {str(cfg.task.revision)[:12]}")
    return [call_once(sources.fingerprint_data, cfg.task, locate_data(cfg, options))]


def _list_encoders(cfg: Config, options: Options) -> list[Encoder]:
    """List a run's encoder with each of the folders that it may be in."""
    if not cfg.encoder.path:
        return [cfg.encoder]
    folders = [*options.encoders, *([cfg.encoder.path] if options.trust else [])]
    if not folders:
        raise NotAvailable("its encoder was read from a folder: add encoder.path=FOLDER with the same files")
    return [replace(cfg.encoder, path=folder) for folder in folders]


def _fingerprint_weights(cfg: Config, options: Options, call_once: _Memo) -> list[dict[str, str]]:
    """Return the fingerprint of a run's pretrained weights in each folder here that may hold them."""
    if weights.find_encoder_source(cfg.encoder) == "hub":
        raise NotAvailable(f"its weights are the hub's, at the revision {str(cfg.encoder.revision)[:12]}")
    return [call_once(weights.fingerprint_encoder, encoder) for encoder in _list_encoders(cfg, options)]


def find_matching_folder(recorded: Mapping[str, str], cfg: Config, options: Options) -> Encoder:
    """Return a run's encoder in the folder here whose files are those of the record.

    Raises:
        NotAvailable: there is none.
        UserError: a folder is not an encoder's.
    """
    for encoder in _list_encoders(cfg, options):
        if weights.fingerprint_encoder(encoder) == recorded:
            return encoder
    raise NotAvailable("no folder that was named has the weights of its record")


def _describe_change(what: str, recorded: Mapping[str, str], found: list[dict[str, str]]) -> str:
    """Say which files of the data or the weights are not those of the record."""
    nearest = min(found, key=lambda own: len(set(own.items()) ^ set(recorded.items())))
    names = sorted(name for name in recorded.keys() | nearest.keys() if recorded.get(name) != nearest.get(name))
    return f"its {what} are not those of its record: {', '.join(names)}"


def _compare_labels(run: CheckedRun, options: Options, call_once: _Memo) -> list[str]:
    """Return what is wrong if the labels in a run's predictions are not those of the data."""
    if run.labels is None or run.cfg is None:
        return []
    expected = call_once(hash_data_labels, run.cfg.task, locate_data(run.cfg, options))
    wrong = [split for split in run.labels if run.labels[split] != expected.get(split)]
    return [f"the labels of {', '.join(wrong)} in its predictions are not those of the data"] if wrong else []


def hash_data_labels(task: Task, data: Data) -> dict[str, str]:
    """Hash the labels of every split that a task evaluates, and of its test split, as predictions are hashed."""
    hashes = {}
    for split in [*task.dev_splits, *([task.test_split] if task.test_split else [])]:
        limit = None if split == task.test_split else task.dev_samples
        if task.generation:
            labels: Any = read_pairs(task, data, split, limit).targets
        else:
            labels = sources.read_examples(task, data, split, limit).labels
        hashes[split] = _hash_labels(labels, split == task.test_split)
    if task.held_out is not None:
        train = sources.read_examples(task, data, task.train_split, task.train_samples).labels
        chosen = sorted(sources.select_by_hash(len(train), round(task.held_out * len(train))))
        hashes[HELD_OUT] = _hash_labels(train[chosen], is_test=False)
    return hashes


def _hash_labels(labels: Any, is_test: bool) -> str:
    """Hash labels in the type in which predictions hold them: whole numbers for classes, else float64."""
    if isinstance(labels, np.ndarray) and (is_test or labels.dtype != np.int64):
        labels = labels.astype(np.float64)
    return PredictedSplit(labels, [], None).hash_labels()


def _name_differences(own: Provenance, here: Provenance) -> list[str]:
    """Name in what the code, packages and machine of a record differ from those here."""
    pairs = {name: (getattr(own, name), getattr(here, name)) for name in ("python", "cpu", "cores", "platform")}
    pairs |= {name: (version, here.versions.get(name)) for name, version in own.versions.items()}
    pairs["commit"] = (own.git and own.git.commit, here.git and here.git.commit)
    if own.instruction_set is not None:  # old records lack it
        pairs["instruction set"] = (own.instruction_set, here.instruction_set)
    return [f"{name} is {now} here and was {then}" for name, (then, now) in pairs.items() if now != then]
