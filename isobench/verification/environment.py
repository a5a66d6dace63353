"""Name what code, packages and machine the runs were made with, where these are others than here."""

import os
import platform
from collections.abc import Mapping
from typing import Any

from isobench.common.provenance import RECORDED_PACKAGES, read_cpu_name, read_instruction_set, read_package_version
from isobench.runs.record import Provenance
from isobench.verification.ledger import Ledger
from isobench.verification.run_check import CheckedRun, Code


def check_environment(runs: Mapping[str, CheckedRun], code: Code, ledger: Ledger) -> None:
    """Note in what the code, packages and machine of every run differ from those here; no difference is a failure."""
    here = describe_here(code)
    for run in runs.values():
        if run.record is None:
            continue
        there = describe_there(run.record.provenance)
        names = [name for name in there if name in here and here[name] != there[name]]
        for name in names:
            ledger.differ(run.name, "environment", f"{name} is {here[name]} here and was {there[name]}")
        if not names:
            ledger.hold(run.name, "environment")


def describe_here(code: Code) -> dict[str, Any]:
    """Describe this code and this machine, by the names that ``describe_there`` uses."""
    packages = {name: read_package_version(name) for name in RECORDED_PACKAGES}
    return {
        "commit": code.commit,
        "python": platform.python_version(),
        **packages,
        "processor": read_cpu_name(),
        "instruction set": read_instruction_set(),
        "cores": os.cpu_count(),
        "platform": platform.platform(),
    }


def describe_there(provenance: Provenance) -> dict[str, Any]:
    """Describe the code and the machine of a record."""
    git = provenance.git
    own = {"commit": git.commit if git else None, "python": provenance.python, **provenance.versions}
    if provenance.instruction_set is not None:  # old records lack it
        own["instruction set"] = provenance.instruction_set
    return {**own, "processor": provenance.cpu, "cores": provenance.cores, "platform": provenance.platform}
