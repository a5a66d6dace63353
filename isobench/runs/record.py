"""A run's record, ``result.json``, and the heartbeat of a running one, ``progress.json``, as pydantic models.

Validation is strict: a text in a number's place, a missing part or a wrong kind of part is refused, never converted.
Entries that a model does not name are kept as they are (a later version's, or what a user's monitors note).

docs/result.schema.json and docs/progress.schema.json are their JSON Schemas.
"""

import hashlib
import json
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, model_validator

from isobench.common.errors import UserError, extract_first_line, refuse
from isobench.common.files import BUNDLE_FILE, RECORD_LIMIT, UnfitFileError, name_system_error, read_bounded
from isobench.config.schema import HELD_OUT

RECORD_FORMAT: Final = 3  # raise it when the shape of result.json changes
Count = Annotated[int, Field(ge=0, le=2**53)]  # a table's column of integers and a JSON reader can hold it
Seconds = Annotated[float, Field(ge=0, le=1e12)]
Time = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]  # a calendar date can be made of it


class Part(BaseModel):
    """A part of a record: checked strictly when it is made, not changed afterwards, with room for more entries."""

    # defer_build: validators are built at first use, so that --help does not wait for them
    model_config = ConfigDict(strict=True, extra="allow", frozen=True, defer_build=True)


class Failure(Part):
    """Why a run failed."""

    name: str = Field(description="stable name: crash, out_of_memory, non_finite_loss, ...")
    message: str = Field(description="one line for people")
    step: int | None = Field(default=None, description="optimiser step at which it happened, where it is known")
    traceback: str | None = Field(default=None, description="of a crash or of lack of memory")


class Scale(Part):
    """How a run's data and encoder differ from its paper's."""

    name: str = Field(description="embedded, laptop or paper")
    differs: list[str] = Field(description="how the data are less than the whole, one phrase each")


class Epoch(Part):
    """One evaluated epoch.

    Beside the entries named here it has the metrics of every dev split under the split's name (fractions, null where
    undefined, and `constant_predictor`), and whatever monitors note, such as `explained_variance` and `drift`.
    """

    epoch: Count = Field(description="counted from 1")
    step: Count = Field(description="optimiser steps so far")
    score: float = Field(description="the primary metric on the first dev split, 0 where that is undefined")
    selection: float = Field(description="what the best epoch is chosen by: score, or that of held_out")
    isotropy: dict[str, float | None] = Field(
        default_factory=dict, description="<matrix>/<measure> -> value, such as embedding/ev1"
    )

    def metrics(self, split: str) -> dict[str, Any]:
        """Return the metrics of a dev split by name, empty if the split was not evaluated."""
        return self.noted(split)

    def noted(self, name: str) -> dict[str, Any]:
        """Return the mapping that a monitor noted under a name, empty if there is none."""
        entry = (self.model_extra or {}).get(name)
        return entry if isinstance(entry, dict) else {}

    def list_monitored(self, task: dict[str, Any]) -> dict[str, float | None]:
        """List the numbers that monitors noted: ``NAME/MEASURE`` -> number; lists and texts are left out.

        ``task``: the config's, whose splits are no monitors. A number without a measure's name is ``NAME/value``.
        """
        own = {*task["dev_splits"], HELD_OUT, "explained_variance"}
        found: dict[str, float | None] = {}
        for name, value in (self.model_extra or {}).items():
            if name not in own:
                found |= _list_numbers(value if isinstance(value, dict) else {"value": value}, name)
        return found


def _list_numbers(entries: dict[str, Any], start: str) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name, value in entries.items():
        if isinstance(value, dict):
            found |= _list_numbers(value, f"{start}/{name}")
        elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            found[f"{start}/{name}"] = value
    return found


class PeakMemory(Part):
    """The largest amounts of memory that a run's last attempt held, in MiB."""

    resident: float = Field(description="of the process")
    gpu: float | None = Field(default=None, description="allocated on the GPU, where there is one")


class Cost(Part):
    """Hold what a run took. All attempts are added up, each up to its last checkpoint, if no field says otherwise."""

    seconds: Seconds = Field(description="wall-clock time")
    training_seconds: Seconds = Field(description="up to the last evaluation")
    evaluation_seconds: Seconds
    checkpoint_seconds: Seconds = Field(description="for saving checkpoints, in the last attempt only")
    examples: Count = Field(description="training examples, counted once for each epoch")
    tokens_per_second: float | None = Field(description="of training; null if nothing was trained")
    peak_memory_mib: PeakMemory


class Where(Part):
    """The process that carries out a run, as far as a launcher told."""

    host: str
    machine: str = Field(description="the host name that the process sees")
    job: str | None = Field(description="the scheduler's name of the job")
    log: str | None = Field(description="the file with the process's output")
    share: int = Field(ge=1, description="the number of runs that share the process's device")


class SideCounts(Part):
    """One number for the sources and one for the targets of translation or summarisation."""

    sources: int
    targets: int


class RecordedData(Part):
    """The data of a run. All but the fingerprint is missing if the run failed before its data were ready."""

    fingerprint: dict[str, str] = Field(description="what identifies the bytes of every split")
    examples: dict[str, int] = Field(default_factory=dict, description="split -> number of examples")
    at_limit: dict[str, int] = Field(default_factory=dict, description="split -> texts as long as the limit or cut")
    truncated: dict[str, SideCounts] = Field(default_factory=dict, description="split -> texts that were cut")
    in_train: dict[str, int] = Field(
        default_factory=dict, description="split -> examples whose tokens are those of a training example"
    )
    max_length: int | None = Field(default=None, description="longest sentence that is kept, in tokens")
    limits: SideCounts | None = Field(default=None, description="longest texts of a pair that are kept, in tokens")


class RecordedEncoder(Part):
    """The pretrained weights of a run."""

    fingerprint: dict[str, str] = Field(description="what identifies the weights' bytes")


class RecordedGeneration(Part):
    """How the texts of a translation or summarisation run were generated and scored."""

    search: dict[str, Any] = Field(description="search settings that are not the library's defaults, and precision")
    signatures: dict[str, str] = Field(description="metric -> how and by which version it is computed")


class Predictions(Part):
    """The file with the reported epoch's predictions, beside the record."""

    file: str
    sha256: str


class GitState(Part):
    """The checkout that the code ran from."""

    commit: str
    dirty: bool = Field(description="whether tracked files differed from the commit")


class Provenance(Part):
    """What a result was made with."""

    git: GitState | None = Field(description="null where the code was installed from a wheel")
    python: str
    versions: dict[str, str | None] = Field(description="package -> version, null where it is not installed")
    platform: str
    cpu: str
    instruction_set: str | None = Field(
        default=None, description="of the processor, as torch names it; null or missing in old records"
    )
    cores: Count | None
    threads: Count
    gpus: list[str]
    command: list[str]


class RunRecord(Part):
    """The result of one run: `result.json` in its folder, written once, when the run has ended."""

    format: Literal[3] = Field(description="of this file")
    key: str = Field(description="the run's identity, 64 hex digits")
    status: Literal["finished", "failed"]
    failure: Failure | None
    seeds: dict[str, int] = Field(description="the seed of every random stream")
    scale: Scale
    best: Epoch | None = Field(description="the epoch that is reported: the best one, or the last")
    history: list[Epoch] = Field(description="the epochs that were evaluated (evaluation.every), in order")
    isotropy_before: dict[str, float | None] = Field(
        default_factory=dict, description="as an epoch's isotropy, before the first step; missing in old records"
    )
    warnings: list[str]
    cost: Cost
    attempts: Count = Field(description="processes that worked on the run")
    mixed: bool | None = Field(
        default=None,
        description="whether it went on from a checkpoint of another processor, number of threads, GPU or packages; "
        "missing in old records",
    )
    started: Time | None = Field(
        default=None, description="when the first of them began, in seconds since 1970; missing in old records"
    )
    ended: Time | None = Field(
        default=None, description="when the record was made, in seconds since 1970; missing in old records"
    )
    where: Where
    data: RecordedData
    encoder: RecordedEncoder
    provenance: Provenance
    config: dict[str, Any] = Field(description="the resolved config")
    dropout: Literal["lanes", "torch"] | None = Field(default=None, description="whose random numbers dropout used")
    effective_rows: dict[str, float] = Field(
        default_factory=dict, description="method -> rows on which its moving averages stand after an epoch"
    )
    sources: dict[str, str] = Field(
        default_factory=dict, description="class of a method of the user's own -> sha256 of its source"
    )
    generation: RecordedGeneration | None = Field(default=None, description="of translation and summarisation")
    predictions: Predictions | None = Field(default=None, description="null or missing if no epoch ended")
    checksum: str | None = Field(default=None, description="sha256 of the file's text without this last entry")

    def drop_notes_of_history(self) -> None:
        """Save memory: of the epochs in ``history`` drop metrics and curves, which no table shows."""
        for epoch in self.history:
            for name in (*self.config["task"]["dev_splits"], HELD_OUT, "explained_variance"):
                (epoch.model_extra or {}).pop(name, None)

    @model_validator(mode="after")
    def _check_agreement(self) -> Self:
        if (self.status == "failed") != (self.failure is not None):
            raise ValueError("a failed run has a failure, and no other run has one")
        return self


class Beat(Where):
    """What a running run says of itself: `progress.json` in its folder, renewed every few seconds."""

    state: Literal["starting", "training", "evaluating", "interrupted"]
    step: int | None = Field(description="optimiser steps so far")
    steps: int | None = Field(description="optimiser steps of the whole run")
    loss: float | None = Field(default=None, description="the newest training loss that was read")
    speed: float | None = Field(
        default=None, description="optimiser steps per second since this process began training, evaluations included"
    )
    pid: int = Field(ge=1, le=2**31 - 1, description="the process, on `machine`")
    started: Time | None = Field(default=None, description="when the run's first process started it, likewise")
    since: Time = Field(description="when the process started the run, in seconds since 1970")
    updated: Time = Field(description="when this was written, in seconds since 1970")
    attempt: int = Field(description="processes that worked on the run, this one included")


CHECKSUM_START = b',\n "checksum": "'  # how the last entry of a record's text begins


def read_record_text(file: Path) -> bytes | None:
    """Read a ``result.json``; None if there is none, UserError if it can't be read."""
    try:
        return read_bounded(file, RECORD_LIMIT)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnfitFileError as error:
        raise make_damage_error(file, error) from error
    except OSError as error:
        raise UserError(f"{file} may be intact, but can't be read: {name_system_error(error)}") from error


def parse_record(text: bytes, file: Path) -> RunRecord:
    """Parse a record, and check it: its checksum, its shape, and that its scores agree with each other.

    ``file`` is the path that error messages name. UserError if the record is damaged, or in another version's format.
    """
    try:
        content = orjson.loads(text)  # refuses NaN and infinities
        version = content["format"]
        is_newer = type(version) is int and version > RECORD_FORMAT
        refuse((is_newer, f"{file} has format {version} and this isobench reads {RECORD_FORMAT}: update isobench"))
        _require_checksum(text)
        record = RunRecord.model_validate(content)
        _check_epochs(record)
        return record
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise make_damage_error(file, error) from error


def make_damage_error(file: Path, error: Exception) -> UserError:
    """Make an error that says that a file of a run or a bundle is damaged, and what to do."""
    return UserError(f"{file} is damaged; {name_remedy(file)} ({extract_first_line(error)})")


def name_remedy(file: Path, remove: str = "it") -> str:
    """Say what to do about a run's damaged file: run again, unless it is in a bundle, whose runs are others'."""
    is_in_bundle = (file.parent / BUNDLE_FILE).exists()
    return "get the bundle again from where it came from" if is_in_bundle else f"remove {remove} to run again"


def _require_checksum(text: bytes) -> None:
    start = text.rfind(CHECKSUM_START)
    if start < 0:
        raise ValueError("it has no checksum")
    if _format_checksum(memoryview(text)[:start]) != text[start:]:
        raise ValueError("it was changed after it was written")


def add_checksum(text: bytes) -> bytes:
    """Return a record's text, JSON with an indent of one space, with its sha256 as last entry ``checksum``."""
    content = text.removesuffix(b"\n}")
    return content + _format_checksum(content)


def _format_checksum(content: bytes | memoryview) -> bytes:
    """Return the end of a record's text whose other entries are ``content``: their sha256 with the brace closed."""
    digest = hashlib.sha256(content)
    digest.update(b"\n}")
    return CHECKSUM_START + f'{digest.hexdigest()}"\n}}\n'.encode()


def format_record(content: dict[str, Any]) -> bytes:
    """Return the text of a ``result.json`` with this content and its checksum; ValueError for NaN and infinity."""
    named = {name: value for name, value in content.items() if name != "checksum"}
    return add_checksum(json.dumps(named, indent=1, allow_nan=False).encode())


def _check_epochs(record: RunRecord) -> None:
    """Check a record's epochs against each other and against its config; ValueError or LookupError if they disagree.

    Epochs are in order. The score of each is its primary metric on the first dev split, 0 where that is undefined,
    and ``selection`` the same of the split that decides. The reported epoch is the one of the history that
    ``optimization.report`` asks for.
    """
    if record.best is None and not record.history:
        return
    task = record.config["task"]
    splits = [*task["dev_splits"], *([HELD_OUT] if task.get("held_out") is not None else [])]
    if any(earlier >= later for earlier, later in pairwise([0, *(epoch.epoch for epoch in record.history)])):
        raise ValueError("the epochs of the history are not in order")
    for epoch in record.history:
        _check_scores(epoch, task["primary"], splits)
    if not record.history:
        raise ValueError("the best epoch is not in the history")
    if record.config["optimization"].get("report") == "last":
        reported = record.history[-1]
    else:
        reported = max(record.history, key=lambda epoch: epoch.selection)  # the first of equals
    if record.best != reported:
        raise ValueError(f"the best epoch is not epoch {reported.epoch} of the history")


def _check_scores(epoch: Epoch, primary: str, splits: list[str]) -> None:
    """Check that the scores of an epoch are its metrics, and that these are numbers.

    The first split gives ``score``, and ``selection`` unless there is a held-out share.
    """
    scores = {}
    for split in splits:
        metrics = epoch.metrics(split)
        if primary not in metrics or not isinstance(metrics.get("constant_predictor"), bool):
            raise ValueError(f"epoch {epoch.epoch} lacks its metrics on {split}")
        if not all(value is None or isinstance(value, (int, float)) for value in metrics.values()):
            raise ValueError(f"a metric of epoch {epoch.epoch} on {split} is not a number")
        scores[split] = float(metrics[primary] or 0)
    deciding = HELD_OUT if HELD_OUT in splits else splits[0]
    for name, value, split in (("score", epoch.score, splits[0]), ("selection", epoch.selection, deciding)):
        if value != scores[split]:
            raise ValueError(f"the {name} of epoch {epoch.epoch} is not its {primary} on {split}")
