"""The plans of an output folder: the runs that its sweeps and imported bundles have, with their keys and settings.

A sweep writes ``OUTPUT_DIR/plans/<hash>.json`` before its first run starts. Later readers find its runs
there, so that neither the folder's place nor configs, data or weights have to be as they were. The same command,
given again in the same folder, replaces its plan. A plan is JSON:

format      1
experiment  the experiment's name, null without one
commands    what was typed, for people: nothing reads it
settings    section of the config -> its different values; runs that have the same value share it
data        the different fingerprints of data, and in ``weights`` those of pretrained weights
runs        for each run its key, the places of its values in the lists of ``settings`` (those that have more than one
            value), in ``data`` and in ``weights``
checksum    of all this
"""

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from isobench.common.errors import UserError, doing, extract_first_line, refuse
from isobench.common.files import (
    BUNDLE_PLAN,
    RECORD_LIMIT,
    add_json_checksum,
    drop_json_checksum,
    name_system_error,
    read_bounded,
    sha256_json,
    shorten_digest,
    write_whole,
)
from isobench.common.terminal import format_count, print_note, print_note_once
from isobench.config.schema import Config, read_section
from isobench.runs.bundled import is_bundle
from isobench.runs.folder import (
    RECORD_FILE,
    RunFolder,
    is_run_folder_name,
    mark_output_folder,
    plans_folder,
    run_folder_name,
    runs_folder,
)
from isobench.runs.grouping import label_runs
from isobench.runs.identity import Identity, to_plain
from isobench.runs.record import name_remedy, parse_record, read_record_text
from isobench.runs.run import Run

PLAN_FORMAT = 1  # raise it when the shape of the file changes


@dataclass(frozen=True)
class Plan:
    """The runs of a sweep or a bundle, in their order, each with its config and its identity."""

    experiment: str | None
    commands: list[str]
    runs: list[tuple[Config, Identity]]


Place = Annotated[int, Field(ge=0)]  # in one of a plan's lists


class _Stored(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True)


class _StoredRun(_Stored):
    key: str
    settings: dict[str, Place]
    data: Place
    weights: Place


class _StoredPlan(_Stored):
    format: Literal[1]
    experiment: str | None
    commands: list[str]
    settings: dict[str, list[Any]]
    data: list[dict[str, str]]
    weights: list[dict[str, str]]
    runs: list[_StoredRun]


class _Values:
    """Lists the different values of some kind, each once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.places: dict[bytes, int] = {}

    def find_place(self, value: Any) -> int:
        plain = to_plain(value)
        text = orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)
        if text not in self.places:
            self.places[text] = len(self.values)
            self.values.append(plain)
        return self.places[text]


def write_plan(output_dir: str | Path, plan: Plan, is_imported: bool = False) -> Path:
    """Write a plan into an output folder, which is marked as isobench's; an equal file stays as it is."""
    file = locate_plan(output_dir, plan, is_imported)
    text = format_plan(plan)
    if not file.is_file() or file.read_bytes() != text:
        with write_whole(file) as temporary:
            temporary.write_bytes(text)
    mark_output_folder(output_dir)
    return file


def locate_plan(output_dir: str | Path, plan: Plan, is_imported: bool = False) -> Path:
    """Return the file of a plan: the same for the same commands, typed in the same working folder.

    That of an imported plan follows from its runs, because a stranger may have typed the same command.
    """
    source = sorted(identity.key for _, identity in plan.runs) if is_imported else str(Path.cwd())
    origin = sha256_json([plan.experiment, plan.commands, source])
    return plans_folder(output_dir) / f"{shorten_digest(origin)}.json"


def read_plans(output_dir: str | Path, experiment: str | None = None) -> list[Plan]:
    """Read the plans of an output folder, in the order in which they were written; name once what can't be read.

    ``output_dir`` takes the place of the one that the plans' configs name. ``experiment`` None reads all.
    """
    plans, troubles = read_intact_plans(output_dir)
    for trouble in troubles:
        print_note_once(trouble)
    return [plan for plan in plans if experiment in (None, plan.experiment)]


def read_intact_plans(output_dir: str | Path) -> tuple[list[Plan], list[str]]:
    """Read the plans of an output folder as `read_plans` does, and return beside them why others can't be read."""
    plans, troubles, times = [], [], {}
    folder = plans_folder(output_dir)
    bundles_own = [Path(output_dir) / BUNDLE_PLAN] if is_bundle(output_dir) else None
    try:  # glob passes over some errors
        for file in bundles_own or (file for file in folder.iterdir() if file.suffix == ".json"):
            with contextlib.suppress(FileNotFoundError):  # another process may have removed it meanwhile
                times[file] = (file.lstat().st_mtime_ns, file.name)
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    except OSError as error:
        troubles.append(f"{folder} can't be read: {name_system_error(error)}")
    for file in sorted(times, key=times.__getitem__):
        try:
            plans.append(parse_plan(read_bounded(file, RECORD_LIMIT), str(output_dir)))
        except UserError as error:
            troubles.append(f"{file} {error}")
        except (OSError, ValueError) as error:
            troubles.append(
                f"{file} is damaged or can't be read ({extract_first_line(error)}): its runs are kept, and count as "
                "runs of no plan; repeat their command, which stands in their result.json, in its working folder, or "
                "their import"
            )
    return plans, troubles


def format_plan(plan: Plan) -> bytes:
    """Return a plan's file: JSON in which each value of a setting stands once, and runs name values by their places.

    A setting that has one value in the whole plan is left out of the runs.
    """
    settings = {name: _Values() for name in vars(plan.runs[0][0])}
    data, weights = _Values(), _Values()
    runs = [
        _StoredRun(
            key=identity.key,
            settings={name: settings[name].find_place(value) for name, value in vars(cfg).items()},
            data=data.find_place(identity.data),
            weights=weights.find_place(identity.encoder),
        ).model_dump()
        for cfg, identity in plan.runs
    ]
    for shared in (name for name, different in settings.items() if len(different.values) == 1):
        for run in runs:
            del run["settings"][shared]
    content = {
        "format": PLAN_FORMAT,
        "experiment": plan.experiment,
        "commands": plan.commands,
        "settings": {name: different.values for name, different in settings.items()},
        "data": data.values,
        "weights": weights.values,
        "runs": runs,
    }
    return orjson.dumps(add_json_checksum(content), option=orjson.OPT_APPEND_NEWLINE)


def parse_plan(text: bytes, output_dir: str | None = None) -> Plan:
    """Parse a plan's file; nothing in it is composed, interpolated or imported.

    Runs with the same settings in a section share one object: don't change it. ``output_dir`` None leaves the folder
    that their configs name.

    Raises:
        UserError: a newer version wrote it.
        ValueError: it is no plan, was changed, or has a setting or a value that this version doesn't know.
    """
    content = orjson.loads(text)
    version = content.get("format") if isinstance(content, dict) else None
    is_newer = isinstance(version, int) and version > PLAN_FORMAT
    refuse((is_newer, f"has format {version} and this isobench reads {PLAN_FORMAT}: update isobench"))
    stored = _StoredPlan.model_validate(drop_json_checksum(content))
    try:
        settings = {name: [read_section(name, value) for value in values] for name, values in stored.settings.items()}
        if output_dir is not None:
            settings["output_dir"] = [output_dir]
        runs = []
        for run in stored.runs:
            cfg = Config(**{name: values[run.settings.get(name, 0)] for name, values in settings.items()})
            runs.append((cfg, Identity(run.key, stored.data[run.data], stored.weights[run.weights])))
        if len({identity.key for _, identity in runs}) < len(runs):
            raise LookupError("it has a run twice")
    except (LookupError, UserError) as error:
        raise ValueError(extract_first_line(error)) from error
    return Plan(stored.experiment, stored.commands, runs)


def read_runs(output_dir: str, experiment: str | None = None) -> list[Run]:
    """Read the runs of an output folder or a bundle; neither their data nor their weights need to be there.

    These are the runs of the folder's plans and, with ``experiment`` None, every other run in the folder. Where no
    plan can be read, runs are found by the experiment that their record names, and a line on standard error says so.
    """
    every_plan, troubles = read_intact_plans(output_dir)
    for trouble in troubles:
        print_note_once(trouble)
    plans = [plan for plan in every_plan if experiment in (None, plan.experiment)]
    planned = {identity.key: (cfg, identity) for plan in plans for cfg, identity in plan.runs}
    runs = [Run.of(cfg, key, identity) for key, (cfg, identity) in planned.items()]
    if experiment is None or not plans or troubles:
        known = {run_folder_name(identity.key) for plan in every_plan for _, identity in plan.runs}
        read = {run_folder_name(key) for key in planned}
        others = list(_read_unplanned_runs(output_dir, experiment, read, known))
        if others and experiment is not None:
            print_note(
                f"{format_count(len(others), 'run')} of {experiment} in {output_dir} stand in no plan that can be "
                "read; repeat the commands that you still need, which runs nothing twice"
            )
        runs += others
    label_runs(runs)
    return runs


def _read_unplanned_runs(
    output_dir: str, experiment: str | None, read: Collection[str], planned: Collection[str]
) -> Iterator[Run]:
    """Read the runs whose folders are not ``read`` yet; say which can't be, and why, unless a plan has them."""
    left_out: dict[str, list[Path]] = {}
    for folder in list_run_folders(output_dir):
        if folder.name in read:
            continue
        try:
            run = read_ended_run(output_dir, folder)
        except UserError as error:
            if folder.name not in planned:
                left_out.setdefault(extract_first_line(error).replace(str(folder), "its folder"), []).append(folder)
            continue
        if experiment in (None, run.cfg.experiment.name):
            yield run
    for reason, folders in left_out.items():
        more = f" and {format_count(len(folders) - 1, 'more run')}" if len(folders) > 1 else ""
        print_note(f"left out: {folders[0]}{more}: {reason}")


def list_run_folders(output_dir: str) -> list[Path]:
    """List the folders of all runs of an output folder, sorted by name; what has another kind of name is no run."""
    paths = runs_folder(output_dir).glob("*")
    return sorted(path for path in paths if is_run_folder_name(path.name) and path.is_dir())


def read_ended_run(output_dir: str, folder: Path) -> Run:
    """Read a run from its record alone; UserError if it has none, or none that can be used."""
    file = folder / RECORD_FILE
    text = read_record_text(file)
    if text is None:
        raise UserError(f"{folder} has no {RECORD_FILE}, and no plan has this run")
    record = parse_record(text, file)
    refuse((run_folder_name(record.key) != folder.name, f"{file} is not this run's record; {name_remedy(file)}"))
    with doing(f"{file} is damaged; {name_remedy(file)}"):
        sections = {name: _read_section(name, orjson.dumps(value)) for name, value in record.config.items()}
        cfg = Config(**sections | {"output_dir": output_dir})
    identity = Identity(record.key, record.data.fingerprint, record.encoder.fingerprint)
    return Run(cfg, RunFolder(output_dir, record.key), record, "done", identity=identity)


@cache  # equal sections of several records are one object: don't change it
def _read_section(name: str, text: bytes) -> Any:
    return read_section(name, orjson.loads(text))
