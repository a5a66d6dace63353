"""Split runs into parts: only runs of one part may be compared, tested against each other or selected among.

A part holds one protocol (``PROTOCOL_SETTINGS``). For each encoder and task it holds one scale, one data set and
one set of weights.
"""

from typing import Any

from isobench.report.run_notes import list_scale_differences
from isobench.runs.grouping import (
    PROTOCOL_SETTINGS,
    SOURCE_SETTINGS,
    find_varying_settings,
    list_setting_values,
    read_fingerprints,
    read_run_names,
    read_scale_differences,
)
from isobench.runs.row import Row


def split_into_parts(rows: list[Row]) -> list[list[Row]]:
    """Split runs into parts, in order of appearance."""
    kinds: dict[tuple[str, ...], list[Any]] = {}  # protocol, task, encoder -> scales and fingerprints of its runs
    parts: dict[tuple[tuple[str, ...], int], list[Row]] = {}
    for row in rows:
        protocol = tuple(list_setting_values(row, PROTOCOL_SETTINGS))
        task, encoder, _ = read_run_names(row.cfg)
        known = kinds.setdefault((*protocol, task, encoder), [])
        kind = (read_scale_differences(row), *read_fingerprints(row))
        if kind not in known:
            known.append(kind)
        parts.setdefault((protocol, known.index(kind)), []).append(row)
    return list(parts.values())


def name_parts(parts: list[list[Row]]) -> list[str]:
    """Name each part by what tells it from the others, such as ``head.name=isobn``; empty if it is the only part."""
    protocols = [list_setting_values(part[0], PROTOCOL_SETTINGS) for part in parts]
    scales = [list_scale_differences(part) or ["as in the paper"] for part in parts]
    varying = find_varying_settings([row for part in parts for row in part])
    sources = [setting for setting in SOURCE_SETTINGS if setting in varying]
    names = []
    for part, protocol, scale in zip(parts, protocols, scales, strict=True):
        words = [
            f"{setting}={value}"
            for setting, value, *values in zip(PROTOCOL_SETTINGS, protocol, *protocols, strict=True)
            if len(set(values)) > 1
        ]
        for setting in sources:
            places = dict.fromkeys(list_setting_values(row, [setting])[0] for row in part)
            words.append(f"{setting.partition('.')[2]} {' and '.join(places)}")
        names.append("; ".join([*words, *(scale if any(other != scale for other in scales) else [])]))
    return names


def name_group(encoder: str, part: str) -> str:
    """Name a group of runs that are compared with each other: by its encoder, and its part if there are several."""
    return f"{encoder}; {part}" if part else encoder
