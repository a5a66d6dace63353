"""Say how far a run that is trained again may be from its record, on another processor or with other threads.

On a processor of the same name and instruction set, with as many threads, a run gives the same bits. Elsewhere sums
are rounded in another order, and training makes the difference larger. The tolerance is a choice of ours;
benchmarks/tolerance.py measures the differences.
"""

from collections.abc import Mapping
from typing import Any

TOLERANCE = {
    "score": 0.02,  # difference of the reported score, a fraction
    "logits": 0.1,  # root mean square difference of the reported epoch's logits
}


def limit_tolerance(declared: Mapping[str, Any]) -> dict[str, float]:
    """Return what a bundle declares as its tolerance, but never more than isobench's own; absent entries are its own.

    A forger could declare a tolerance that everything is within.
    """
    limited = dict(TOLERANCE)
    for name, own in TOLERANCE.items():
        value = declared.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= own:
            limited[name] = float(value)
    return limited
