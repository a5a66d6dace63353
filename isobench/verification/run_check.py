"""Check one run by its own files: record, config and key agree with each other. Reads nothing else."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from isobench.common.checksums import check_text_checksum
from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import replace_non_finite
from isobench.common.provenance import read_git_state, read_package_version
from isobench.common.reading import SETTINGS_LIMIT
from isobench.config.bounds import check_value
from isobench.config.schema import LAST_EPOCH, Config, config_from_plain
from isobench.data.scale import find_scale_differences
from isobench.runs.identity import compute_key
from isobench.runs.layout import CONFIG_FILE, PREDICTIONS_FILE, RECORD_FILE, run_folder_name
from isobench.runs.listing import parse_config
from isobench.runs.record import Provenance, RunRecord
from isobench.runs.record_file import parse_record
from isobench.runs.seeding import resolve_seeds
from isobench.verification.folder import PREDICTIONS_LIMIT, VerifiedFolder
from isobench.verification.ledger import Ledger
from isobench.verification.predictions import read_predictions
from isobench.verification.scores import check_scores
from isobench.verification.targets import find_foreign_code, find_renamed_class, name_monitors_anew


@dataclass
class CheckedRun:
    """One run's folder and what is left of it once it was checked.

    Args:
        name: the folder's name, the first digits of the run's key.
        record: None if it has not ended, or its record can't be read.
        cfg: None if its config can't be read or is not valid.
        labels: split -> hash of the labels in its predictions; None if these are absent or can't be read.
        has_unusable_predictions: its file of predictions is a link, damaged, or not of the form that runs write.
    """

    name: str
    record: RunRecord | None = None
    cfg: Config | None = None
    labels: dict[str, str] | None = None
    has_unusable_predictions: bool = False


class Code:
    """The version of isobench that verifies.

    ``commit`` is None outside of a checkout.
    """

    def __init__(self) -> None:
        """Read commit and version."""
        git = read_git_state()
        self.commit, self.version = (git["commit"] if git else None), read_package_version("isobench")

    def wrote(self, provenance: Provenance) -> bool:
        """Return True if this version made a record, as far as the record tells."""
        commit = provenance.git.commit if provenance.git else None
        return commit == self.commit and provenance.versions.get("isobench") == self.version


def check_run(folder: VerifiedFolder, name: str, code: Code, ledger: Ledger) -> CheckedRun:
    """Check a run's record, config, key and scores.

    A run without a record has not ended; in a bundle that is a failure, because every run of a bundle has one.
    """
    run, path = CheckedRun(name), f"runs/{name}"
    try:
        run.cfg = read_config(folder, name)
    except Exception as error:  # a stranger's config may be wrong in any way
        ledger.fail(name, "config", f"config.yaml can't be used: {extract_first_line(error)}")
    try:
        run.record = parse_record(folder.read(f"{path}/{RECORD_FILE}"), Path(path, RECORD_FILE))
    except FileNotFoundError as error:
        if folder.is_bundle or f"{path}/{RECORD_FILE}" in folder.refused:
            ledger.fail(name, "record", extract_first_line(error))
        else:
            ledger.skip(name, "record", "it has not ended")
        return run
    except (UserError, OSError) as error:
        ledger.fail(name, "record", extract_first_line(error))
        return run
    try:
        check_contents(folder, run, code, ledger)
    except Exception as error:  # as above
        ledger.fail(name, "record", f"it can't be checked: {extract_first_line(error)}")
        run.record = None
    return run


def check_contents(folder: VerifiedFolder, run: CheckedRun, code: Code, ledger: Ledger) -> None:
    """Check a run's config, record, key and scores against each other; without a config drop the record too."""
    name, record, cfg = run.name, run.record, run.cfg
    if cfg is None or record is None:
        run.record = None  # no table can be made of it
        return
    renamed = find_renamed_class(cfg)  # the class of a method is not in the key
    ledger.judge(name, "config", compare_configs(cfg, record) + ([renamed] if renamed else []))
    if foreign := find_foreign_code(name_monitors_anew(cfg)):
        ledger.differ(name, "config", f"{foreign}, which isobench does not bring")
    ledger.judge(name, "record", find_contradictions(cfg, record, name))
    check_scale(cfg, record, name, code, ledger)
    ledger.judge(name, "key", compare_key(cfg, record))
    read_and_check_scores(folder, run, ledger)


def read_config(folder: VerifiedFolder, name: str) -> Config:
    """Read a run's config and check every value's type and bounds; nothing that it names is opened.

    Raises:
        Exception: it is damaged, or not valid in this version.
    """
    text = folder.read(f"runs/{name}/{CONFIG_FILE}", SETTINGS_LIMIT).decode()
    cfg = parse_config(check_text_checksum(text, name))
    check_value("", cfg, Config)
    return cfg


def compare_configs(cfg: Config, record: RunRecord) -> list[str]:
    """Return what is wrong if the record's config is not that of config.yaml."""
    if record.config == replace_non_finite(asdict(cfg)):
        return []
    try:  # an earlier version's has fewer settings, and the absent ones have their defaults
        recorded = config_from_plain(record.config)
    except Exception as error:  # as above
        return [f"the record's config can't be used: {extract_first_line(error)}"]
    names = [name for name, value in vars(cfg).items() if getattr(recorded, name) != value]
    return [f"the record's config and config.yaml differ in {', '.join(names)}"] if names else []


def compare_key(cfg: Config, record: RunRecord) -> list[str]:
    """Return what is wrong if the config and the recorded fingerprints don't give the record's key."""
    key = compute_key(cfg, record.data.fingerprint, record.encoder.fingerprint)
    return [] if key == record.key else [f"its config and fingerprints give the key {run_folder_name(key)}"]


def find_contradictions(cfg: Config, record: RunRecord, name: str) -> list[str]:
    """Return what in a record contradicts its config or its folder's name, beyond what reading it has checked."""
    problems = []
    if run_folder_name(record.key) != name:
        problems.append(f"its record is that of {run_folder_name(record.key)}")
    if record.seeds != resolve_seeds(cfg):
        problems.append("its seeds are not those of its config")
    if record.scale.name != cfg.scale:
        problems.append(f"its scale {record.scale.name!r} is not that of its config")
    return problems + check_schedule(cfg, record)


def check_schedule(cfg: Config, record: RunRecord) -> list[str]:
    """Return what is wrong if the epochs of the history are not those at which the config evaluates."""
    o, every = cfg.optimization, cfg.evaluation.every
    interval = o.epochs if every == LAST_EPOCH else int(every)
    planned = -(-o.epochs // interval)  # not a list: a stranger's config may name any number of epochs
    epochs = [epoch.epoch for epoch in record.history]
    if epochs != [min(number * interval, o.epochs) for number in range(1, min(len(epochs), planned) + 1)]:
        return ["its history has not the epochs that its config evaluates"]
    if record.status == "finished" and len(epochs) < planned and o.patience is None:
        return [f"it is finished, and its history ends after {len(epochs)} of {planned} evaluations"]
    return []


def check_scale(cfg: Config, record: RunRecord, name: str, code: Code, ledger: Ledger) -> None:
    """Check what the record says of the differences from the paper's setting; other versions may say it otherwise.

    A record that says less is a failure in any case: a report would take the run for one at the paper's scale.
    What depends on the names of data files is not checked, because no path of a config is followed.
    """
    found = set(find_scale_differences(replace(cfg, data=replace(cfg.data, root=None))))
    recorded = {phrase for phrase in record.scale.differs if not phrase.startswith("read from ")}
    if found == recorded:
        return
    text = f"its differences from the paper's setting should be: {'; '.join(sorted(found)) or 'none'}"
    if code.wrote(record.provenance) or len(recorded) < len(found):
        ledger.fail(name, "record", text)
    else:
        ledger.differ(name, "record", f"{text}, by this version; another version made the record")


def read_and_check_scores(folder: VerifiedFolder, run: CheckedRun, ledger: Ledger) -> None:
    """Check the reported epoch's scores by the run's predictions."""
    record, cfg = run.record, run.cfg
    assert record is not None
    assert cfg is not None
    file = f"runs/{run.name}/{PREDICTIONS_FILE}"
    if record.best is None:
        if folder.has(file) or file in folder.refused:
            ledger.fail(run.name, "scores", "it has predictions, and no epoch ended")
            run.has_unusable_predictions = True
        return
    if not folder.has(file) and file not in folder.refused:
        ledger.skip(run.name, "scores", "no predictions")
        return
    try:
        content = folder.read(file, PREDICTIONS_LIMIT)
        problems = []
        if record.predictions is None:
            problems = ["its record names no predictions"]
        elif folder.digest(file) != record.predictions.sha256:
            problems = ["the sha256 of its predictions is not the record's"]
        splits = read_predictions(content, cfg.task, record.data.examples)
    except Exception as error:  # a damaged Parquet file may raise anything
        ledger.fail(run.name, "scores", f"its predictions can't be used: {extract_first_line(error)}")
        run.has_unusable_predictions = True
        return
    for problem in problems:
        ledger.fail(run.name, "scores", problem)
    check_scores(run.name, record, cfg.task, splits, ledger)
    run.labels = {split: own.hash_labels() for split, own in splits.items()}
