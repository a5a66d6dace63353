"""Level 2: compare data and weights with the fingerprints in the records, and labels with those of the data.

Paths in a config are not followed, because the config may be a stranger's: the user says where data and weights are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isobench.common.errors import UserError, extract_first_line
from isobench.config.schema import HELD_OUT, Config, Data, Encoder, Task
from isobench.data import pairs, sources, weights
from isobench.verification.ledger import Ledger
from isobench.verification.predictions import PredictedSplit
from isobench.verification.run_check import CheckedRun


class NotAvailable(Exception):
    """Data or weights are not at hand, so that they can't be compared."""


@dataclass(frozen=True)
class Locations:
    """Where the user says that data and weights are.

    Args:
        root: folder of Parquet files, as ``data.root``.
        encoders: folders of encoders, as ``encoder.path``.
        cache: as ``data.cache``.
        trust: also use the paths and classes that configs name.
    """

    root: str | None = None
    encoders: tuple[str, ...] = ()
    cache: str | None = None
    trust: bool = False


def check_sources(runs: Mapping[str, CheckedRun], locations: Locations, ledger: Ledger) -> None:
    """Compare every run's data, labels and weights with its record; those that runs share are read once."""
    call_once = Memo()
    for run in runs.values():
        if run.record is None or run.cfg is None:
            continue
        cfg, record = run.cfg, run.record
        for check, recorded, fingerprint in (
            ("data", record.data.fingerprint, fingerprint_data),
            ("weights", record.encoder.fingerprint, fingerprint_weights),
        ):
            try:
                found = fingerprint(cfg, locations, call_once)
            except (NotAvailable, UserError, OSError) as error:
                ledger.skip(run.name, check, extract_first_line(error))
                continue
            if recorded in found:
                ledger.hold(run.name, check)
                if check == "data" and run.labels is not None:
                    check_labels_by_data(run, locations, call_once, ledger)
            else:
                ledger.fail(run.name, check, describe_change(check, recorded, found))


class Memo:
    """Calls a function once for equal arguments, and raises its error again when it is asked again."""

    def __init__(self) -> None:
        """Start with no results."""
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


def locate_data(cfg: Config, locations: Locations) -> Data:
    """Return where a run's data are here.

    Raises:
        NotAvailable: the config names a path, and the user has not said where the data are.
    """
    data = replace(cfg.data, cache=locations.cache)
    if cfg.task.generation and cfg.task.generation.grammar:
        return data
    source = sources.find_data_source(cfg.task, cfg.data)
    if source == "files" and not locations.trust:
        raise NotAvailable("its data.files are paths, which are followed with --trust only")
    if source == "parquet":
        if locations.root is None and not locations.trust:
            raise NotAvailable("it read data.root: add data.root=FOLDER with the same files")
        return replace(data, root=locations.root or data.root)
    return data


def fingerprint_data(cfg: Config, locations: Locations, call_once: Memo) -> list[dict[str, str]]:
    """Return the fingerprint of a run's data as they are here.

    Raises:
        NotAvailable: they are not at hand.
        UserError: they are missing.
    """
    if sources.find_data_source(cfg.task, cfg.data) == "hub" and not (
        cfg.task.generation and cfg.task.generation.grammar
    ):
        raise NotAvailable(f"its data are the hub's, at the revision {str(cfg.task.revision)[:12]}")
    return [call_once(sources.fingerprint_data, cfg.task, locate_data(cfg, locations))]


def list_encoders(cfg: Config, locations: Locations) -> list[Encoder]:
    """List a run's encoder with each of the folders that it may be in.

    Raises:
        NotAvailable: it was read from a folder, and the user has named none.
    """
    if not cfg.encoder.path:
        return [cfg.encoder]
    folders = [*locations.encoders, *([cfg.encoder.path] if locations.trust else [])]
    if not folders:
        raise NotAvailable("its encoder was read from a folder: add encoder.path=FOLDER with the same files")
    return [replace(cfg.encoder, path=folder) for folder in folders]


def fingerprint_weights(cfg: Config, locations: Locations, call_once: Memo) -> list[dict[str, str]]:
    """Return the fingerprint of a run's pretrained weights as they are here, one for each folder that may hold them.

    Raises:
        NotAvailable: they are not at hand.
        UserError: they are missing.
    """
    if weights.find_encoder_source(cfg.encoder) == "hub":
        raise NotAvailable(f"its weights are the hub's, at the revision {str(cfg.encoder.revision)[:12]}")
    return [call_once(weights.fingerprint_encoder, encoder) for encoder in list_encoders(cfg, locations)]


def describe_change(what: str, recorded: Mapping[str, str], found: list[dict[str, str]]) -> str:
    """Say which files of the data or the weights are not those of the record."""
    nearest = min(found, key=lambda own: len(set(own.items()) ^ set(recorded.items())))
    names = sorted(name for name in recorded.keys() | nearest.keys() if recorded.get(name) != nearest.get(name))
    return f"its {what} are not those of its record: {', '.join(names)}"


def check_labels_by_data(run: CheckedRun, locations: Locations, call_once: Memo, ledger: Ledger) -> None:
    """Compare the labels in a run's predictions with those of the data."""
    cfg, labels = run.cfg, run.labels
    assert cfg is not None
    assert labels is not None
    try:
        expected = call_once(hash_data_labels, cfg.task, locate_data(cfg, locations))
    except (NotAvailable, UserError, OSError) as error:
        ledger.skip(run.name, "data", f"labels: {extract_first_line(error)}")
        return
    wrong = [split for split in labels if labels[split] != expected.get(split)]
    if wrong:
        ledger.fail(
            run.name, "data", f"the labels of {', '.join(wrong)} in its predictions are not those of the data"
        )


def hash_data_labels(task: Task, data: Data) -> dict[str, str]:
    """Hash the labels of every split that a task evaluates, and of its test split, as predictions are hashed."""
    hashes = {}
    for split in [*task.dev_splits, *([task.test_split] if task.test_split else [])]:
        limit = None if split == task.test_split else task.dev_samples
        if task.generation:
            labels: Any = pairs.read_pairs(task, data, split, limit).targets
        else:
            labels = sources.read_examples(task, data, split, limit).labels
        hashes[split] = hash_labels(labels, split == task.test_split)
    if task.held_out is not None:
        train = sources.read_examples(task, data, task.train_split, task.train_samples).labels
        chosen = sorted(sources.select_by_hash(len(train), round(task.held_out * len(train))))
        hashes[HELD_OUT] = hash_labels(train[chosen], is_test=False)
    return hashes


def hash_labels(labels: Any, is_test: bool) -> str:
    """Hash labels in the type in which predictions hold them: whole numbers for classes, else float64."""
    if isinstance(labels, np.ndarray) and (is_test or labels.dtype != np.int64):
        labels = labels.astype(np.float64)
    return PredictedSplit(labels, [], None).hash_labels()


def find_matching_folder(recorded: Mapping[str, str], cfg: Config, locations: Locations) -> Encoder:
    """Return a run's encoder in the folder here whose files are those of the record.

    Raises:
        NotAvailable: there is none.
        UserError: a folder is not an encoder's.
    """
    for encoder in list_encoders(cfg, locations):
        if weights.fingerprint_encoder(encoder) == recorded:
            return encoder
    raise NotAvailable("no folder that was named has the weights of its record")
