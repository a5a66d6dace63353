"""The record of a run, ``result.json``, and the heartbeat of a running one, ``progress.json``, as pydantic models.

Validation is strict: a text in a number's place, a missing part or a wrong kind of part is refused, never converted.
Entries that a model does not name are kept as they are (a later version's, or what a user's monitors note).

``python -m isobench.runs.record`` prints the JSON Schema of ``result.json`` (docs/result.schema.json), and with the
argument ``progress`` that of ``progress.json`` (docs/progress.schema.json).
"""

import json
import sys
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

RECORD_FORMAT = 3  # raise it when the shape of result.json changes (isobench.runs.record_file says which are read)
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

    name: str = Field(description="paper or embedded")
    differs: list[str] = Field(description="one sentence for each difference, none at the paper's scale")


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

    format: int = Field(ge=1, description="of this file")
    key: str = Field(description="the run's identity, 64 hex digits")
    status: Literal["finished", "failed"]
    failure: Failure | None
    seeds: dict[str, int] = Field(description="the seed of every random stream")
    scale: Scale
    best: Epoch | None = Field(description="the epoch that is reported: the best one, or the last")
    history: list[Epoch] = Field(description="the epochs that were evaluated (evaluation.every), in order")
    warnings: list[str]
    cost: Cost
    attempts: Count = Field(description="processes that worked on the run")
    where: Where
    data: RecordedData
    encoder: RecordedEncoder
    provenance: Provenance
    config: dict[str, Any] = Field(description="the resolved config")
    dropout: Literal["lanes", "torch"] | None = Field(default=None, description="whose random numbers dropout used")
    generation: RecordedGeneration | None = Field(default=None, description="of translation and summarisation")
    predictions: Predictions | None = Field(default=None, description="null or missing if no epoch ended")
    checksum: str | None = Field(default=None, description="sha256 of the file's text without this last entry")

    def drop_notes_of_history(self) -> None:
        """Save memory: keep only number, score and isotropy of the epochs in ``history``; ``best`` stays whole."""
        for epoch in self.history:
            (epoch.model_extra or {}).clear()

    @model_validator(mode="after")
    def _check_agreement(self) -> Self:
        if (self.status == "failed") != (self.failure is not None):
            raise ValueError("a failed run has a failure, and no other run has one")
        if not isinstance(self.config.get("checkpoint", {}), dict):
            raise ValueError("config.checkpoint is not a mapping")
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
    since: Time = Field(description="when the process started the run, in seconds since 1970")
    updated: Time = Field(description="when this was written, in seconds since 1970")
    attempt: int = Field(description="processes that worked on the run, this one included")


if __name__ == "__main__":
    model: type[Part] = Beat if sys.argv[1:] == ["progress"] else RunRecord
    print(json.dumps(model.model_json_schema(), indent=2))
