"""Tell how many runs this machine can carry out at the same time: its cores, its GPUs and its free memory."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from isobench.config.schema import Config
from isobench.data.weights import measure_weight_bytes
from isobench.runs.run import Run
from isobench.sweep.forecast import build_run_shape

MIB, GIB = 2**20, 2**30
MARGIN = 1.15  # a run may need this much more memory than the runs that were measured
# A run that no other was measured for: Python with its libraries, and so many times its weights in float32: the
# weights, their gradient, AdamW's two averages, and as much again for activations.
BASE_BYTES, COPIES_OF_WEIGHTS = 1 * GIB, 6
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Division:
    """Tell how runs share the machine.

    Args:
        processes: how many are carried out at the same time, if there is memory for them.
        threads: torch's threads in each process; None leaves them to torch.
        gpus: the GPU of each process, as CUDA_VISIBLE_DEVICES names it; empty where the processor computes.
    """

    processes: int
    threads: int | None = None
    gpus: tuple[str, ...] = ()


def divide_machine(configs: list[Config], planned: int, processes: int | None = None) -> Division:
    """Divide the machine among a sweep's runs: a process for each GPU, or else for each core.

    Apple's GPU counts as one. There are never more processes than runs to carry out. Each process has one thread. A
    sweep of fewer runs than there are cores divides the cores among them, and a user who sets ``trainer.threads`` or
    OMP_NUM_THREADS has chosen how many cores a run takes. The number of threads does not depend on how many runs are
    left, so that a sweep that goes on computes with as many as before.

    Args:
        configs: the runs that are to be carried out.
        planned: how many runs the whole sweep has, the finished ones included.
        processes: the user's choice of a number of processes; None leaves it to this function.
    """
    wanted = {cfg.trainer.accelerator for cfg in configs}
    gpus = list_gpus() if wanted & {"auto", "gpu"} else []
    cores, runs = count_cores(), len(configs)
    if gpus or (wanted & {"auto", "gpu", "mps"} and has_apple_gpu()):
        count = processes or max(1, len(gpus))
        return Division(min(count, runs), None if count == 1 else max(1, cores // count), tuple(gpus))
    chosen = max((cfg.trainer.threads or 0 for cfg in configs), default=0) or read_thread_setting()
    threads = chosen or max(1, cores // (processes or planned))
    count = processes or max(1, cores // threads)
    return Division(min(count, runs), threads if count > 1 else None)


def count_cores() -> int:
    """Count the physical cores that this process may use, by its affinity and by the limits of its container."""
    from joblib.externals.loky import cpu_count

    return max(1, int(cpu_count(only_physical_cores=True)))


def read_thread_setting() -> int:
    """Return the number of threads in OMP_NUM_THREADS; 0 where the user has set none."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdecimal() else 0


def list_gpus() -> list[str]:
    """List the GPUs that torch sees, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    count = torch.cuda.device_count()
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return names.split(",")[:count] if names and count else [str(index) for index in range(count)]


def has_apple_gpu() -> bool:
    """True if torch can use the GPU of an Apple computer."""
    import torch

    return bool(torch.backends.mps.is_available())


@dataclass
class MemoryNeeds:
    """Forecasts how much memory a run needs, from the peaks of runs that have ended."""

    peaks: dict[tuple[object, ...], float] = field(default_factory=dict)  # largest, in bytes, by shape and by encoder

    def add(self, cfg: Config, peak: float) -> None:
        """Note the peak of a run that has ended, in bytes."""
        for kind in (build_run_shape(cfg), (cfg.encoder.name,)):
            self.peaks[kind] = max(peak, self.peaks.get(kind, 0.0))

    def add_finished(self, rows: Iterable[Run], with_gpu: bool) -> None:
        """Note the peaks of runs that finished before, on machines with a GPU or on ones without."""
        for row in rows:
            record = row.record
            if record and record.status == "finished" and bool(record.provenance.gpus) == with_gpu:
                self.add(row.cfg, record.cost.peak_memory_mib.resident * MIB)

    def estimate(self, cfg: Config) -> float | None:
        """Estimate a run's peak in bytes.

        The largest peak of runs of the same shape is taken. Without one, it is the larger of a multiple of the size
        of the weights and the largest peak of runs with the same encoder; None if neither is known.
        """
        if same := self.peaks.get(build_run_shape(cfg)):
            return MARGIN * same
        weights = measure_weight_bytes(cfg.encoder)
        by_weights = 0.0 if weights is None else BASE_BYTES + COPIES_OF_WEIGHTS * weights
        return max(by_weights, MARGIN * self.peaks.get((cfg.encoder.name,), 0.0)) or None


def measure_free_memory() -> float:
    """Return the bytes that this machine has left, or that this process's container or job may still take."""
    free = float(psutil.virtual_memory().available)
    return min([free, *(limit - used for limit, used in read_memory_limits())])


def read_memory_limits(groups: Path = CGROUPS, own: Path = Path("/proc/self/cgroup")) -> list[tuple[float, float]]:
    """Read the limit and the use of memory, in bytes, of every control group of Linux that this process is in.

    Files that were read and can be dropped don't count as used. The list is empty where there are no such groups.
    """
    found = []
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return []
    for _, controllers, path in lines:
        if controllers not in ("", "memory"):
            continue
        root = groups / controllers
        limit_file, use_file, cached = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            if controllers
            else ("memory.max", "memory.current", "inactive_file")
        )
        folder = root / path.lstrip("/")
        for group in (folder, *folder.parents[: len(Path(path).parts)]):
            try:
                limit, use = float((group / limit_file).read_text()), float((group / use_file).read_text())
                stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            except (OSError, ValueError):  # no such group here, or "max": no limit
                continue
            found.append((limit, use - float(stat.get(cached, 0))))
    return found
