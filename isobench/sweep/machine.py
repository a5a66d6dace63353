"""Divide this machine among the workers of a sweep: its cores, its GPUs, its memory."""

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from isobench.common.terminal import print_note
from isobench.config.schema import Config
from isobench.sweep.forecast import GIB

CGROUPS, MEMBERSHIPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Division:
    """Say how runs share the machine.

    Args:
        workers: how many processes carry out runs at the same time.
        threads: torch's threads in each process; None leaves them to torch.
        gpus: the GPU of each process, as CUDA_VISIBLE_DEVICES names it; empty where the processor computes.
    """

    workers: int
    threads: int | None = None
    gpus: tuple[str, ...] = ()


def divide_machine(configs: list[Config], planned: int, workers: int | None = None) -> Division:
    """Divide the machine among workers: one for each GPU (Apple's counts as one), or else for each core.

    There are never more than runs to carry out. Each has one thread. A sweep of fewer runs than there are cores
    divides the cores among them, and a user who sets ``trainer.threads`` or OMP_NUM_THREADS has chosen how many cores
    a run takes. The number of threads does not depend on how many runs are left, so that a sweep that goes on
    computes with as many as before.

    Args:
        configs: the runs that are to be carried out.
        planned: how many runs the whole sweep has, the finished ones included.
        workers: the user's choice of their number; None leaves it to this function.
    """
    wanted = {cfg.trainer.accelerator for cfg in configs}
    gpus = list_gpus() if wanted & {"auto", "gpu"} else []
    cores, runs = _count_cores(), len(configs)
    if gpus:
        count = workers or max(1, len(gpus))
        return Division(min(count, runs), None if count == 1 else max(1, cores // count), tuple(gpus))
    asked = max((cfg.trainer.threads or 0 for cfg in configs), default=0) or _read_thread_setting()  # 0: for none
    threads = asked or max(1, cores // (workers or planned))
    count = workers or max(1, cores // threads)
    return Division(min(count, runs), threads if count > 1 else None)


def _count_cores() -> int:
    """Count the physical cores that this process may use, by its affinity and by the limits of its container."""
    from joblib.externals.loky import cpu_count

    return max(1, int(cpu_count(only_physical_cores=True)))


def _read_thread_setting() -> int:
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdecimal() else 0


def list_gpus() -> list[str]:
    """List the GPUs that torch sees, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    count = torch.cuda.device_count()
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return names.split(",")[:count] if names and count else [str(index) for index in range(count)]


def limit_by_memory(division: Division, need: float | None) -> Division:
    """Return a division with as many workers as there is memory for, at least one; a line says if they are fewer.

    ``need``: the bytes that each of them needs, roughly; None if that is not known.
    """
    free = measure_free_memory()
    workers = max(1, min(division.workers, int(free / need))) if need else 1
    if workers < division.workers:
        size = f"about {need / GIB:.1f} GiB of memory" if need else "an unknown size of memory"
        print_note(f"{workers} at once: the largest run needs {size}, and {free / GIB:.1f} GiB are free")
    return replace(division, workers=workers)


def measure_free_memory(groups: Path = CGROUPS, memberships: Path = MEMBERSHIPS) -> float:
    """Return the bytes that this machine has left, or that its control groups let this process take (Linux)."""
    free = float(psutil.virtual_memory().available)
    with contextlib.suppress(OSError, ValueError):  # there are none, or "max": no limit
        folder = groups / memberships.read_text().rpartition("::")[2].strip().lstrip("/")
        for group in (folder, *folder.parents):  # the limits above it hold too; folders above ``groups`` have none
            with contextlib.suppress(OSError, ValueError):
                limit, use = (float((group / name).read_text()) for name in ("memory.max", "memory.current"))
                stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                free = min(free, limit - use + float(stat.get("inactive_file", 0)))  # which can be dropped
    return free
