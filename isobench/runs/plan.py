"""The plans of an output folder: the runs that its sweeps and imported bundles have, with their keys and settings.

A sweep writes ``OUTPUT_DIR/plans/<hash>.json`` before its first run starts. Who asks for its runs later reads them
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

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict

from isobench.common.checksums import add_json_checksum, drop_json_checksum
from isobench.common.errors import UserError, extract_first_line
from isobench.common.files import sha256_json, shorten_digest, write_whole
from isobench.common.reading import RECORD_LIMIT, read_bounded
from isobench.config.schema import Config, read_section
from isobench.runs.folder import mark_output_folder
from isobench.runs.identity import Identity, to_plain
from isobench.runs.layout import plans_folder

PLAN_FORMAT = 1  # raise it when the shape of the file changes


@dataclass(frozen=True)
class Plan:
    """The runs of a sweep or a bundle, in their order, each with its config and its identity."""

    experiment: str | None
    commands: list[str]
    runs: list[tuple[Config, Identity]]


class _Stored(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True)


class _StoredRun(_Stored):
    key: str
    settings: dict[str, int]
    data: int
    weights: int


class _StoredPlan(_Stored):
    format: int
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
        self.known: dict[int, int] = {}  # by the id of an object, which many runs share

    def find_place(self, value: Any) -> int:
        """Return the place of a value in the list, where it is put if it is new."""
        if id(value) not in self.known:
            plain = to_plain(value)
            text = orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)
            if text not in self.places:
                self.places[text] = len(self.values)
                self.values.append(plain)
            self.known[id(value)] = self.places[text]
        return self.known[id(value)]


def write_plan(output_dir: str | Path, plan: Plan) -> Path:
    """Write a plan into an output folder, which is marked as isobench's; an equal file stays as it is.

    Raises:
        OSError: the folder can't be written.
    """
    file = locate_plan(output_dir, plan)
    text = format_plan(plan)
    if not file.is_file() or file.read_bytes() != text:
        with write_whole(file) as temporary:
            temporary.write_bytes(text)
    mark_output_folder(output_dir)
    return file


def locate_plan(output_dir: str | Path, plan: Plan) -> Path:
    """Return the file of a plan: the same for the same commands, typed in the same working folder."""
    origin = sha256_json([plan.experiment, plan.commands, str(Path.cwd())])
    return plans_folder(output_dir) / f"{shorten_digest(origin)}.json"


def read_plans(output_dir: str | Path, experiment: str | None = None) -> list[Plan]:
    """Read the plans of an output folder, in the order in which they were written.

    Args:
        output_dir: the output folder. It takes the place of the one that the plans' configs name.
        experiment: its plans only; None reads all.

    Raises:
        UserError: a plan is damaged: its runs must not be taken for runs that nothing asked for.
    """
    files = sorted(plans_folder(output_dir).glob("*.json"), key=lambda file: (file.lstat().st_mtime_ns, file.name))
    plans = []
    for file in files:
        try:
            plan = parse_plan(read_bounded(file, RECORD_LIMIT), str(output_dir))
        except (OSError, ValueError) as error:
            raise UserError(
                f"{file} is damaged, or another version's: remove it and repeat its command; no run is lost"
            ) from error
        if experiment in (None, plan.experiment):
            plans.append(plan)
    return plans


def format_plan(plan: Plan) -> bytes:
    """Return the text of a plan's file."""
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

    Runs with the same settings in a section share one object: don't change it.

    Args:
        text: the content of the file.
        output_dir: the folder that its runs are in; None leaves what their configs say.

    Raises:
        ValueError: it is no plan, was changed, or has a setting or a value that this version doesn't know.
    """
    stored = _StoredPlan.model_validate(drop_json_checksum(orjson.loads(text)))
    if stored.format != PLAN_FORMAT:
        raise ValueError(f"its format is {stored.format} and this isobench reads {PLAN_FORMAT}")
    try:
        settings = {name: [read_section(name, value) for value in values] for name, values in stored.settings.items()}
        if output_dir is not None:
            settings["output_dir"] = [output_dir]
        runs = []
        for run in stored.runs:
            cfg = Config(**{name: values[run.settings.get(name, 0)] for name, values in settings.items()})
            runs.append((cfg, Identity(run.key, stored.data[run.data], stored.weights[run.weights])))
    except (LookupError, UserError) as error:
        raise ValueError(extract_first_line(error)) from error
    return Plan(stored.experiment, stored.commands, runs)
