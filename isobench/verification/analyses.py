"""Compute the rows of analyses again, and compare them with those that are stored."""

import math
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pyarrow
import yaml

from isobench.analyses.names import needs_training
from isobench.analyses.runner import compute_rows, make_tables
from isobench.common.errors import extract_first_line
from isobench.common.files import drop_json_checksum
from isobench.config.schema import Config
from isobench.papers.folders import find_config
from isobench.runs.folder import ABOUT_FILE, RunFolder, run_folder_name
from isobench.runs.identity import Identity
from isobench.runs.run import Run
from isobench.verification.classes import NotAvailable, use_own_classes
from isobench.verification.folder import TABLE_LIMIT, VerifiedFolder
from isobench.verification.outcomes import FAILS, UNCHECKED, Outcomes
from isobench.verification.predictions import read_table
from isobench.verification.run_check import CheckedRun
from isobench.verification.sources import Options, find_matching_folder, locate_data

# How far rows may be from those that are computed again, relative to the largest number of their column.
OF_RUNS = 1e-6  # statistics of records and predictions in float64
OF_VECTORS = 1e-3  # of what an encoder gives, in float32, on another processor

Planned = Mapping[str, tuple[Config, Identity]]  # the runs that were asked for, by key


@dataclass(frozen=True)
class Analysed:
    """What an about.json says: the experiment, the analysis's settings, the keys of its runs, its tables' sha256."""

    experiment: str
    settings: dict[str, Any]
    keys: list[str]
    ended: set[str]
    digests: dict[str, str]


def check_analysis(
    folder: VerifiedFolder,
    path: str,
    experiment: str | None,
    runs: Mapping[str, CheckedRun],
    planned: Planned,
    options: Options,
    outcomes: Outcomes,
) -> None:
    """Check the tables of an analysis by their checksums, and by computing their rows again.

    Args:
        folder: the verified folder.
        path: of the analysis's folder in it.
        experiment: the one that the analysis must be of.
        runs: the checked runs by the names of their folders.
        planned: the folder's plan.
        options: whether to compute an analysis again that trains nothing, and where data and weights are.
        outcomes: where the outcomes go.
    """
    try:
        about = read_about(folder, path)
        if about.experiment != experiment:
            raise ValueError(f"it is of the experiment {about.experiment}, and not of {experiment}")
        stored = {name: read_table(folder.read(f"{path}/{name}.parquet", TABLE_LIMIT)) for name in about.digests}
    except Exception as error:  # a stranger's file may be wrong in any way
        outcomes.note(f"{path}/{ABOUT_FILE}", "analysis", FAILS, extract_first_line(error))
        return
    for name, sha256 in about.digests.items():
        if folder.digest(f"{path}/{name}.parquet") != sha256:
            outcomes.note(f"{path}/{name}.parquet", "analysis", FAILS, f"its sha256 is not that in {ABOUT_FILE}")
    try:
        expected, tolerance = compute_again(folder, about, runs, planned, options)
    except ValueError as error:
        outcomes.note(path, "analysis", FAILS, extract_first_line(error))
        return
    except Exception as error:  # what a stranger's settings make of an analysis may raise anything
        outcomes.note(path, "analysis", UNCHECKED, f"its rows are not computed again: {extract_first_line(error)}")
        return
    for name in stored.keys() | expected.keys():
        try:
            problems = list(find_differences(stored[name], expected[name], tolerance))
        except KeyError:
            problems = ["its rows are stored, and not computed" if name in stored else "its rows are missing"]
        outcomes.judge(f"{path}/{name}.parquet", "analysis", problems)


def read_about(folder: VerifiedFolder, path: str) -> Analysed:
    """Read an about.json.

    Raises:
        Exception: it is missing, damaged or another version's.
    """
    about = drop_json_checksum(orjson.loads(folder.read(f"{path}/{ABOUT_FILE}")))
    tables = {
        name.removesuffix(".parquet"): sha for name, sha in about["sha256"].items() if name.endswith(".parquet")
    }
    keys, ended = list(about["keys"]), set(about["ended"])
    return Analysed(about["experiment"]["name"], dict(about["analysis"]), keys, ended, tables)


def compute_again(
    folder: VerifiedFolder,
    about: Analysed,
    runs: Mapping[str, CheckedRun],
    planned: Planned,
    options: Options,
) -> tuple[dict[str, pyarrow.Table], float]:
    """Compute an analysis's rows; return them by name, and how far the stored ones may be from them.

    Raises:
        ValueError: it is an analysis of other runs than the folder has.
        Exception: it can't be computed here; the text says why.
    """
    own = find_own_analysis(about.experiment)
    if needs_training(own) != needs_training(about.settings):
        raise ValueError(f"its settings are not those of the analysis {about.experiment}")
    settings = about.settings | {"_target_": own["_target_"]}  # what a stored file names is not imported
    if needs_training(own):
        return make_tables(compute_rows(settings, list(list_trained_rows(folder, about, runs, planned)))), OF_RUNS
    if not options.recompute:
        raise NotAvailable("it needs data and weights: add --recompute")
    with tempfile.TemporaryDirectory() as output_dir:
        rows = [move_row(*planned[key], options, output_dir) for key in about.keys]
        return make_tables(compute_rows(settings, rows)), OF_VECTORS


def find_own_analysis(experiment: str) -> dict[str, Any]:
    """Return the settings of the analysis that isobench has for an experiment of this name.

    Raises:
        NotAvailable: it has none.
    """
    file = find_config("experiment", experiment)
    analysis = yaml.safe_load(file.read_text(encoding="utf-8")).get("analysis") if file else None
    if not analysis:
        raise NotAvailable(f"isobench has no analysis of an experiment {experiment}")
    return dict(analysis)


def list_trained_rows(
    folder: VerifiedFolder, about: Analysed, runs: Mapping[str, CheckedRun], planned: Planned
) -> Iterator[Run]:
    """Yield the runs of an analysis of trained runs, in its order.

    Raises:
        ValueError: others have ended than when the analysis was made, or one is neither in the folder nor planned.
    """
    ended = {run.record.key for run in runs.values() if run.record}
    if not about.ended or about.ended != ended & set(about.keys):
        raise ValueError("it was made of other runs than the folder has: repeat the analysis, and the export")
    for key in about.keys:
        run = runs.get(run_folder_name(key))
        if run is not None and run.cfg is not None and run.record is not None:
            cfg, record, state = run.cfg, run.record, "failed" if run.record.failure else "done"
            identity = Identity(key, record.data.fingerprint, record.encoder.fingerprint)
        elif key in planned:
            (cfg, identity), record, state = planned[key], None, "missing"
        else:
            raise ValueError(f"its run {run_folder_name(key)} is neither in the folder nor in a plan")
        cfg = replace(cfg, output_dir=str(folder.root))
        yield Run(cfg, RunFolder(cfg.output_dir, key), record, state, identity=identity)


def move_row(cfg: Config, identity: Identity, options: Options, output_dir: str) -> Run:
    """Return a planned run with its data and weights where they are here, and isobench's own classes.

    Raises:
        NotAvailable, UserError: data, weights or classes are not here.
    """
    cfg = cfg if options.trust else use_own_classes(cfg)
    encoder = find_matching_folder(identity.encoder, cfg, options) if cfg.encoder.path else cfg.encoder
    cfg = replace(cfg, data=locate_data(cfg, options), encoder=encoder, output_dir=output_dir)
    return Run(cfg, RunFolder(output_dir, identity.key), None, identity=identity)


def find_differences(stored: pyarrow.Table, expected: pyarrow.Table, tolerance: float) -> Iterator[str]:
    """Yield for each column where stored rows differ first from those that were computed again."""
    if (stored.num_rows, stored.column_names) != (expected.num_rows, expected.column_names):
        yield f"it has {stored.shape} rows and columns, computed again it has {expected.shape}, or columns differ"
        return
    for name in stored.column_names:
        ours, theirs = expected[name].to_pylist(), stored[name].to_pylist()
        finite = (abs(own) for own in ours if isinstance(own, float) and math.isfinite(own))
        margin = tolerance * max(finite, default=0.0)
        for place, (own, other) in enumerate(zip(ours, theirs, strict=True), 1):
            if not _agree(own, other, margin):
                yield f"{name} in row {place} is {other}, and computed again {own}"
                break


def _agree(own: Any, other: Any, margin: float) -> bool:
    if isinstance(own, float) and isinstance(other, float):
        return own == other or abs(own - other) <= margin or (math.isnan(own) and math.isnan(other))
    return type(own) is type(other) and own == other
