"""Split runs into parts: only runs of one part may be compared, tested against each other or selected among.

A part holds one protocol (``PROTOCOL_SETTINGS``), and one scale for each encoder and task.
"""

from isobench.report.run_notes import list_scale_differences
from isobench.runs.grouping import PROTOCOL_SETTINGS, list_setting_values, read_scale_differences
from isobench.runs.row import Row


def split_into_parts(rows: list[Row]) -> list[list[Row]]:
    """Split runs into parts, in order of appearance."""
    scales: dict[tuple[str, ...], list[list[str]]] = {}  # protocol, encoder, task -> the scales of its runs
    parts: dict[tuple[tuple[str, ...], int], list[Row]] = {}
    for row in rows:
        protocol = tuple(list_setting_values(row.cfg, PROTOCOL_SETTINGS))
        known = scales.setdefault((*protocol, row.cfg.encoder.name, row.cfg.task.name), [])
        scale = read_scale_differences(row)
        if scale not in known:
            known.append(scale)
        parts.setdefault((protocol, known.index(scale)), []).append(row)
    return list(parts.values())


def name_parts(parts: list[list[Row]]) -> list[str]:
    """Name each part by what tells it from the others, such as ``head.name=isobn``; empty if it is the only part."""
    protocols = [list_setting_values(part[0].cfg, PROTOCOL_SETTINGS) for part in parts]
    scales = [list_scale_differences(part) or ["as in the paper"] for part in parts]
    names = []
    for protocol, scale in zip(protocols, scales, strict=True):
        words = [
            f"{setting}={value}"
            for setting, value, *values in zip(PROTOCOL_SETTINGS, protocol, *protocols, strict=True)
            if len(set(values)) > 1
        ]
        names.append("; ".join([*words, *(scale if any(other != scale for other in scales) else [])]))
    return names
