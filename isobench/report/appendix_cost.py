"""Add up what runs cost on each kind of device, for the section on computational requirements."""

from dataclasses import dataclass, field

from isobench.common.terminal import format_count
from isobench.runs.record import RunRecord


@dataclass
class DeviceCost:
    """Hold what the runs on one kind of device cost.

    Attributes:
        name: the GPUs, or the processor if there is none, with the number of threads.
        runs: number of runs that ended there.
        failed: number of those that failed.
        seconds: wall-clock seconds of every run, with evaluation and checkpoints.
        training_seconds: of every run.
        peak_memory: largest resident memory of a process, in MiB.
        peak_gpu_memory: largest memory allocated on a GPU, in MiB; None if none is recorded.
        shared: number of runs that shared their device with others.
        retried: number of runs that more than one process worked on.
    """

    name: str
    runs: int = 0
    failed: int = 0
    seconds: list[float] = field(default_factory=list)
    training_seconds: list[float] = field(default_factory=list)
    peak_memory: float = 0.0
    peak_gpu_memory: float | None = None
    shared: int = 0
    retried: int = 0

    @property
    def hours(self) -> str:
        """The sum of the wall-clock times, in hours."""
        return f"{sum(self.seconds) / 3600:.2f}"

    @property
    def training_hours(self) -> str:
        """The sum of the training times, in hours."""
        return f"{sum(self.training_seconds) / 3600:.2f}"

    @property
    def minutes_per_run(self) -> str:
        """The mean wall-clock time of a run, in minutes."""
        return f"{sum(self.seconds) / 60 / self.runs:.2f}"

    @property
    def memory(self) -> str:
        """The largest memory of a run, in GiB: of the process, and of the GPU if there is one."""
        gpu = "" if self.peak_gpu_memory is None else f"; {self.peak_gpu_memory / 1024:.1f} on the GPU"
        return f"{self.peak_memory / 1024:.1f}{gpu}"


def describe_devices(records: list[RunRecord]) -> list[DeviceCost]:
    """Add up the costs of runs for each kind of device, in order of appearance."""
    devices: dict[str, DeviceCost] = {}
    for record in records:
        name = name_device(record)
        own = devices.setdefault(name, DeviceCost(name))
        own.runs += 1
        own.failed += record.status == "failed"
        own.seconds.append(record.cost.seconds)
        own.training_seconds.append(record.cost.training_seconds)
        memory = record.cost.peak_memory_mib
        own.peak_memory = max(own.peak_memory, memory.resident)
        if memory.gpu is not None:
            own.peak_gpu_memory = max(own.peak_gpu_memory or 0.0, memory.gpu)
        own.shared += record.where.share > 1
        own.retried += record.attempts > 1
    return list(devices.values())


def name_device(record: RunRecord) -> str:
    """Name the device of a run: its GPUs if it sees any, else processor, cores and threads."""
    origin = record.provenance
    cores = "an unknown number of cores" if origin.cores is None else format_count(origin.cores, "core")
    processor = f"{origin.cpu or 'unknown processor'}, {cores}, {format_count(origin.threads, 'thread')} a run"
    return f"{' + '.join(origin.gpus)} ({processor})" if origin.gpus else processor
