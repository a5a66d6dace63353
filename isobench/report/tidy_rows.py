"""Run records as tidy rows: one a run, and one a run and epoch."""

from typing import Any

from isobench.common.files import sha256_json, shorten_digest
from isobench.config.schema import format_method_name
from isobench.report.document import TidyRows
from isobench.runs.grouping import find_varying_settings, list_setting_values, read_scale_differences
from isobench.runs.row import Row, find_failure

NON_FRACTION_METRICS = ("loss",)  # metrics of a split that are no percentages


def build_run_rows(rows: list[Row]) -> TidyRows:
    """One row a run, ended or not: what it is, its score (x 100), every metric, isotropy, cost, provenance."""
    varying = find_varying_settings(rows)
    return [{**read_identity(row, varying), **read_outcome(row), **read_origin(row)} for row in rows]


def build_epoch_rows(rows: list[Row]) -> TidyRows:
    """One row a run and epoch that was evaluated: score (x 100) and isotropy."""
    varying = find_varying_settings(rows)
    return [
        {
            **read_identity(row, varying),
            "epoch": epoch["epoch"],
            "step": epoch["step"],
            "score": to_percent(epoch["score"]),
            **epoch.get("isotropy", {}),
        }
        for row in rows
        if row.record
        for epoch in row.record["history"]
    ]


def read_identity(row: Row, varying: list[str]) -> dict[str, Any]:
    """What tells a run from the others."""
    cfg = row.cfg
    names = {"key": row.folder.path.name, "task": cfg.task.name, "encoder": cfg.encoder.name}
    names |= {"method": format_method_name(cfg.calibration), "seed": str(cfg.seed)}
    return {**names, **dict(zip(varying, list_setting_values(cfg, varying), strict=True)), "seed": cfg.seed}


def read_outcome(row: Row) -> dict[str, Any]:
    """Score, metrics, isotropy and cost of the reported epoch; None where there is none."""
    record = row.record
    found: dict[str, Any] = {"status": record["status"] if record else row.state, "failure": find_failure(row)}
    best = record["best"] if record else None
    found |= {"metric": row.cfg.task.primary, "score": to_percent(best["score"]) if best else None}
    if record is None:
        return found
    if best:
        splits = {split: best[split] for split in row.cfg.task.evaluated if split in best}
        found |= {"epoch": best["epoch"]}
        found |= {
            f"{s}/{m}": scale_metric(m, v) for s, scores in splits.items() for m, v in scores.items() if is_score(v)
        }
        found |= best.get("isotropy", {})
    cost = record["cost"]
    names = ("seconds", "training_seconds", "evaluation_seconds", "examples", "tokens_per_second")
    found |= {"epochs": len(record["history"]), **{name: cost.get(name) for name in names}}
    memory = cost.get("peak_memory_mib") or {}
    found |= {"peak_memory_mib": memory.get("resident"), "peak_gpu_memory_mib": memory.get("gpu")}
    return {**found, "attempts": record.get("attempts")}


def read_origin(row: Row) -> dict[str, Any]:
    """Scale, data, weights, code and machine."""
    record = row.record or {}
    where = record.get("provenance") or {}
    git = where.get("git") or {}
    return {
        "scale": "; ".join(read_scale_differences(row)),
        "data": shorten_fingerprint(record.get("data", {}).get("fingerprint")),
        "weights": shorten_fingerprint(record.get("encoder", {}).get("fingerprint")),
        "commit": git.get("commit"),
        "code_changed": git.get("dirty"),
        "python": where.get("python"),
        "torch": (where.get("versions") or {}).get("torch"),
        "machine": ", ".join(where["gpus"]) if where.get("gpus") else where.get("cpu"),
    }


def shorten_fingerprint(hashes: Any) -> str | None:
    """Sixteen digits for a set of hashes."""
    return shorten_digest(sha256_json(hashes)) if hashes else None


def scale_metric(metric: str, value: Any) -> float | None:
    """A metric x 100, but for those that are no fractions: a loss."""
    return value if metric in NON_FRACTION_METRICS else to_percent(value)


def to_percent(value: Any) -> float | None:
    """A score x 100."""
    return None if value is None else 100 * float(value)


def is_score(value: Any) -> bool:
    """True for a number that is a metric, or an undefined one."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
