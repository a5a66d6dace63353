"""What processes tell each other by environment variables, what a process sets for itself, and what it runs on.

Every variable is named here only. The user's own two, ISOBENCH_DATA and ISOBENCH_CACHE, are read by
conf/config.yaml alone: they are the defaults of ``data.root`` and ``data.cache``.
"""

import contextlib
import ctypes
import gc
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

# Messages from a command to the processes that it starts
DEBUG = "ISOBENCH_DEBUG"  # "1": show tracebacks
COMMAND_START = "ISOBENCH_STARTED"  # when the user's command began, in seconds since the epoch
COMMAND = "ISOBENCH_COMMAND"  # what the user typed
JOB = "ISOBENCH_JOB"  # the scheduler's id of the job that this process belongs to
LOG = "ISOBENCH_LOG"  # the file that this process's output goes to
DEVICE_SHARE = "ISOBENCH_SHARE"  # how many runs share this process's device (a GPU, or the whole machine)
PAPERS = "ISOBENCH_PAPER_FOLDERS"  # the folders that --paper named, with : between them (; on Windows)

# What a process sets for itself
SPIN_COUNT = "GOMP_SPINCOUNT"  # GNU OpenMP's: how often a thread looks for work before it sleeps
MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # options of the GNU C library's mallopt
SPIN_SETTINGS = (SPIN_COUNT, "OMP_WAIT_POLICY")  # a user who sets one of these has chosen

# What a process runs on: the packages whose versions are recorded with every result
RECORDED_PACKAGES = (
    "isobench", "torch", "pytorch-lightning", "transformers", "tokenizers", "datasets", "hydra-core", "omegaconf",
    "numpy", "scipy", "scikit-learn", "safetensors", "wandb",
    "sacrebleu", "rouge-score",
)  # fmt: skip
ROUNDING_PACKAGES = ("torch", "numpy", "transformers", "pytorch-lightning", "tokenizers")


def is_debugging() -> bool:
    """Return True if errors show their tracebacks: the user set HYDRA_FULL_ERROR=1."""
    return os.environ.get(DEBUG) == "1"


def read_command_start() -> float:
    """Return when the user's command began, in seconds since the epoch; now outside a command."""
    return float(os.environ.get(COMMAND_START) or time.time())


def note_command(words: Sequence[str]) -> None:
    """Note the user's command, for records, plans and advice; the first word is the program."""
    os.environ[COMMAND] = shlex.join(words)


def read_command() -> list[str]:
    """Return the user's command, the program first; a Python program that imports isobench has none."""
    return shlex.split(os.environ.get(COMMAND, "isobench"))


def read_arguments() -> list[str]:
    """Return what the user typed after the program's name."""
    return read_command()[1:]


def read_papers() -> list[str]:
    return [folder for folder in os.environ.get(PAPERS, "").split(os.pathsep) if folder]


def format_paper_flags() -> list[str]:
    """Write the flags ``--paper`` of a command that the user is told to type."""
    return [f"--paper={folder}" for folder in read_papers()]


def share_processor() -> None:
    """Let torch's idle threads sleep soon, so that they don't take the processor from other programs.

    Without this, a second busy program makes a training step several times as slow: threads that wait for each other
    keep the cores busy. Alone on the machine a step takes the same time. GNU OpenMP, which torch uses on Linux, reads
    the setting when torch is imported, so call this first. It does nothing where the user has set the policy.
    """
    if not any(name in os.environ for name in SPIN_SETTINGS):
        os.environ[SPIN_COUNT] = "1000"


@contextmanager
def keep_threads(count: int | None = None) -> Iterator[None]:
    """A context in which torch has ``count`` threads, if it is given, and after which it has as many as before."""
    import torch

    before = torch.get_num_threads()
    if count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_freed_memory() -> None:
    """Let this process keep memory that it frees, for its next tensors, in place of giving it back each time.

    The GNU C library returns a large tensor's memory to the system when the tensor is freed. The system then has to
    clear the same pages again for the next training step, up to a tenth of a step. It does nothing with another C
    library, or where the user has set one of its variables (MALLOC_...).
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_option is None or any(name.startswith("MALLOC_") for name in os.environ):
        return
    # Tensors larger than this many bytes are still mapped by themselves. Versions up to 2.34 refuse more than 32 MiB.
    if set_option(MMAP_THRESHOLD, 1 << 30) or set_option(MMAP_THRESHOLD, 32 << 20):
        set_option(TRIM_THRESHOLD, (1 << 31) - 1)


@contextmanager
def collect_garbage_rarely() -> Iterator[None]:
    """A context or decorator for code that makes many objects and keeps them, such as reading thousands of records.

    Python searches for cycles of unused objects after every 700 new objects, which took a third of the time of
    reading records. In this context it hardly searches. The first context of a process keeps all objects made so far
    out of later searches. Later ones don't, because such cycles would add up where a command repeats itself.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(3_000_000, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if gc.get_freeze_count() == 0:
            gc.freeze()


def collect_provenance() -> dict[str, Any]:
    """Collect the git commit and whether the code differs from it, package versions, hardware, threads, command."""
    import torch

    return {
        "git": read_git_state(),
        "python": platform.python_version(),
        "versions": {name: read_package_version(name) for name in RECORDED_PACKAGES},
        "platform": platform.platform(),
        "cpu": _read_cpu_name(),
        # Such as AVX512: it decides how sums are rounded, and virtual machines hide it behind one processor's name.
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "command": read_command(),
    }


def list_rounding(provenance: Mapping[str, Any]) -> list[Any]:
    """List what of a provenance decides how sums are rounded: where it is equal, results are equal to the bit."""
    versions = [provenance["versions"].get(name) for name in ROUNDING_PACKAGES]
    used = [provenance.get(name) for name in ("cpu", "instruction_set", "threads", "python")]
    return [*used, (provenance.get("gpus") or [])[:1], *versions]  # a run has one GPU


def read_git_state() -> dict[str, Any] | None:
    """Read the commit of the checkout that this code is in, and whether it was changed; None without a checkout."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return None
    try:
        changes = run_git(folder, "status", "--porcelain", "--untracked-files=no")
        return {"commit": run_git(folder, "rev-parse", "HEAD"), "dirty": bool(changes)}
    except (OSError, subprocess.SubprocessError):
        return None


def run_git(folder: Path, *arguments: str) -> str:
    """Run git in a folder and return what it prints; a failure is an OSError or subprocess.SubprocessError."""
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def read_package_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _read_cpu_name() -> str:
    try:  # psutil does not know it
        match = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        match = None
    return match[1] if match else platform.processor() or platform.machine()


def reset_peak_memory() -> None:
    """Set the peak memory back to the current use, so that each run of a sweep in one process has its own peak."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):  # not Linux: the mark is then the process's
        Path("/proc/self/clear_refs").write_text("5")


def read_peak_memory_mib() -> dict[str, float]:
    """Return the peak resident memory since ``reset_peak_memory``, and with a GPU its peak allocation, in MiB."""
    import torch

    try:  # psutil knows no peak on Linux, and can't start a new one
        status = Path("/proc/self/status").read_text()
        resident = int(re.search(r"VmHWM:\s*(\d+)", status)[1]) / 1024  # type: ignore[index]
    except (OSError, TypeError):  # not Linux
        import resource

        unit = 1024**2 if sys.platform == "darwin" else 1024
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    peak = {"resident": round(resident, 1)}
    if torch.cuda.is_available():
        peak["gpu"] = round(torch.cuda.max_memory_allocated() / 1024**2, 1)
    return peak
