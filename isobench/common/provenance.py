"""Where a result comes from: code, package versions, machine, and the memory that it took."""

import contextlib
import os
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

RECORDED_PACKAGES = (
    "isobench", "torch", "pytorch-lightning", "transformers", "tokenizers", "datasets", "hydra-core", "omegaconf",
    "numpy", "scipy", "scikit-learn", "safetensors", "wandb",
    "sacrebleu", "rouge-score",
)  # fmt: skip


def collect_provenance() -> dict[str, Any]:
    """Collect the git commit and whether the code differs from it, package versions, hardware, threads, command."""
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "git": read_git_state(),
        "python": platform.python_version(),
        "versions": {name: read_package_version(name) for name in RECORDED_PACKAGES},
        "platform": platform.platform(),
        "cpu": read_cpu_name(),
        "instruction_set": read_instruction_set(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": gpus,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def read_git_state() -> dict[str, Any] | None:
    """Read the commit of the checkout that this code is in, and whether it was changed; None without a checkout."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return None
    try:
        commit = run_git(folder, "rev-parse", "HEAD")
        return {
            "commit": commit,
            "dirty": bool(run_git(folder, "status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def run_git(folder: Path, *arguments: str) -> str:
    """Run git in a folder and return what it prints; raises OSError or subprocess.SubprocessError if it fails."""
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def read_package_version(package: str) -> str | None:
    """Return the installed version of a package, None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def read_cpu_name() -> str:
    """Return the processor's name, as the system reports it."""
    try:  # psutil does not know it
        match = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        match = None
    return match[1] if match else platform.processor() or platform.machine()


def read_instruction_set() -> str:
    """Return the processor's instruction set as torch names it, such as AVX512: it decides how sums are rounded.

    Virtual machines show the same name for processors with different ones.
    """
    import torch

    return torch.backends.cpu.get_cpu_capability()


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
