"""Quote the simulation of the study ``isotropy_dial``: its false positives, its coverage, what it can find."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isobench.report.sentences import MIN_COVERAGE
from isobench.statistics.seeds import ALPHA, POWER
from isobench_papers.isotropy_dial.progress import Run


def describe_power(file: Path, grid: frozenset[Run]) -> list[str]:
    """Describe the simulation of the study, if it was made for this grid.

    Args:
        file: what benchmarks/power.py wrote.
        grid: the runs of the experiment's grid on one encoder.
    """
    try:
        power = json.loads(file.read_text(encoding="utf-8"))
        shape = {name: power["shape"][name] for name in ("dials", "seeds")}
        if shape != describe_shape(grid):
            return [f"{file.name} was made for another grid: run benchmarks/power.py --write again."]
        return list_sentences(power)
    except OSError:
        return [f"There is no {file.name}: benchmarks/power.py simulates the study and writes it."]
    except (ValueError, KeyError, TypeError, AttributeError):
        return [f"{file.name} can't be read: write it again by benchmarks/power.py."]


def describe_shape(grid: frozenset[Run]) -> dict[str, Any]:
    """Describe a grid as the simulation does: the doses of each dial, and the number of seeds."""
    doses: dict[str, set[float]] = {}
    for pairs, _ in grid:
        for dial, dose in pairs:
            doses.setdefault(dial, set()).add(dose)
    return {"dials": {dial: sorted(own) for dial, own in doses.items()}, "seeds": len({seed for _, seed in grid})}


def list_sentences(power: Mapping[str, Any]) -> list[str]:
    """Write what the simulation found; raises as a missing or unfit value does."""
    false, covered = (list_numbers(power[name], "{:.1%}") for name in ("false_positives", "coverage"))
    smallest = {f"{row['encoder']}, {row['dial']}": row["points_over_the_dial"] for row in power["smallest_slopes"]}
    title = f"{power['studies']:,} simulated studies"
    scenarios = {name: read_coverage(found) for name, found in power.get("scenarios", {}).items()}
    low = {name: coverage for name, coverage in scenarios.items() if coverage < MIN_COVERAGE}
    return [
        f"{title}: false positives at p < {ALPHA}: {false}.",
        f"{title}: true values that 95% intervals hold: {covered}.",
        *([f"{title}: intervals hold too few true values where: {list_numbers(low, '{:.1%}')}."] if low else []),
        f"{title}: smallest effect of a whole dial that {POWER:.0%} of them find after Holm's correction, in "
        f"points: {list_numbers(smallest, '{:.2f}')}.",
    ]


def read_coverage(found: Mapping[str, float] | float) -> float:
    """Read the coverage of a scenario, which may stand among other figures."""
    return found["coverage"] if isinstance(found, Mapping) else float(found)


def list_numbers(numbers: Mapping[str, float], form: str) -> str:
    """Write numbers with their names in one line."""
    return ", ".join(f"{name} {form.format(number)}" for name, number in numbers.items())
