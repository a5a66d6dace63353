"""Keep keys and tokens out of every bundle, and machines, users and folders out of an anonymous one.

A token in a file is refused. An anonymous record lacks every field that names a machine, a user or a folder and every
text that was written freely: host, job, log, command, warnings, messages, W&B's names, what monitors said. Of a path
in a setting its last part stays. So do the names by which results are known: of tasks, encoders, methods, monitors,
experiments, and on the hub.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from isobench.common.errors import UserError
from isobench.config.command_line import PATHS
from isobench.config.schema import Config, Tracking, config_from_plain
from isobench.data.scale import READ_FROM, drop_paper_remarks, find_scale_differences
from isobench.papers.folders import find_config_folders, read_config_file
from isobench.runs.identity import compute_key
from isobench.runs.record import Provenance, RunRecord, format_record

TOKENS = {
    "a token of the Hugging Face hub": re.compile(rb"\bhf_[A-Za-z0-9]{30,}"),
    "a token of GitHub": re.compile(rb"\bgh[opsu]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{30,}"),
    "a key of Weights & Biases": re.compile(
        rb"\bwandb_v\d_\w{30,}|(?i:wandb_api_key|api[_-]?key)\W{1,4}[0-9a-f]{40}\b"
    ),
    "a key of a cloud": re.compile(rb"\bAKIA[0-9A-Z]{16}\b|\bsk-[A-Za-z0-9_-]{32,}"),
    "a private key": re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
}
SECRET_VARIABLE = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)$")
MIN_SECRET = 12  # characters; shorter values of such variables may be words of their own
UNKNOWN = "anonymous"
PATH_SETTINGS = (*PATHS, "task.folder")
PATH = re.compile(r"[~/\\]|\.{1,2}[/\\]|[A-Za-z]:[/\\]|[A-Za-z][\w+.-]*://")  # how a path begins in any other setting
# A path of two folders or more anywhere in a text, and no address of the web.
FOLDERS = re.compile(r"(?<![\w.~:/\\])(?:~|/|[A-Za-z]:[/\\]|\\\\)[\w.-]*[/\\][\w.-]")


def require_no_secret(what: str, content: bytes) -> None:
    """Raise UserError, never showing it, if a text holds a key or a token: of a known form, or a variable's value."""
    found = [name for name, pattern in TOKENS.items() if pattern.search(content)]
    for name, value in os.environ.items():
        if SECRET_VARIABLE.search(name) and len(value) >= MIN_SECRET and value.encode() in content:
            found.append(f"the value of {name}")
    if found:
        raise UserError(f"{what} holds what looks like {found[0]}, so nothing is exported: don't publish this run")


def require_no_folder(what: str, content: bytes) -> None:
    """Raise UserError if a text in the rows of a Parquet file names folders: no field of a table can be emptied."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(pyarrow.BufferReader(content))
    columns = [field.name for field in table.schema if "string" in str(field.type)]
    if any(FOLDERS.search(text) for name in columns for text in map(str, table[name].to_pylist())):
        raise UserError(f"{what} names folders in its rows: name none there, or export without --anonymous")


def anonymise_config(cfg: Config, key: str, fingerprints: tuple[dict[str, str], dict[str, str]]) -> Config:
    """Return a config without folders and users; UserError if one stays, or if the key would be another one."""
    plain = asdict(cfg) | {"output_dir": Config.output_dir, "tracking": asdict(Tracking(cfg.tracking.backend))}
    for section, setting in (("data", "cache"), ("checkpoint", "export")):
        plain[section] |= {setting: None}
    hidden = config_from_plain(_shorten_paths(plain))
    if left := FOLDERS.search(str(asdict(hidden))):
        raise UserError(f"a setting names a folder ({left[0]}): name none there, or export without --anonymous")
    if compute_key(hidden, *fingerprints) != key:
        raise UserError(
            f"a path is in what the key of the run {key[:16]} is made of: run it with another setting, or export "
            "without --anonymous"
        )
    return hidden


def _shorten_paths(value: Any, setting: str = "") -> Any:
    """Copy a value of a config with the last part in the place of each path; ``setting``: its dotted name."""
    if isinstance(value, Mapping):
        # A grid names whole settings.
        names = {name: name if "." in str(name) else f"{setting}.{name}".lstrip(".") for name in value}
        return {name: _shorten_paths(item, names[name]) for name, item in value.items()}
    if isinstance(value, list):
        return [_shorten_paths(item, setting) for item in value]
    is_path = isinstance(value, str) and (setting.startswith(PATH_SETTINGS) or PATH.match(value))
    if setting == "task.folder" and value in _list_task_folders():
        return value  # whoever trains the run again has the data there
    return re.split(r"[/\\]", value.rstrip("/\\"))[-1] if is_path else value


def _list_task_folders() -> set[str | None]:
    """List the folders below data.root that the configs of isobench and of papers give their tasks."""
    files = (file for folder in find_config_folders() for file in folder.glob("task/*.yaml"))
    return {read_config_file(file).get("folder") for file in files}


def anonymise_record(record: RunRecord) -> bytes:
    """Return the text of a record without what names machines, users and folders, with a checksum of its own."""
    content = record.model_dump(exclude_unset=True, include=set(RunRecord.model_fields))
    cfg = config_from_plain(record.config)
    hidden = anonymise_config(cfg, record.key, (record.data.fingerprint, record.encoder.fingerprint))
    read_from = [phrase for phrase in record.scale.differs if phrase.startswith(READ_FROM)]
    differs = [*drop_paper_remarks(find_scale_differences(hidden, ())), *read_from]
    where = {"host": UNKNOWN, "machine": UNKNOWN, "job": None, "log": None, "share": record.where.share}
    content |= {"where": where, "warnings": [], "scale": {"name": record.scale.name, "differs": differs}}
    content |= {"provenance": anonymise_provenance(content["provenance"]), "config": asdict(hidden)}
    if record.failure:
        content["failure"] = {"name": record.failure.name, "message": UNKNOWN, "step": record.failure.step}
    for name in ("best", "history"):
        content[name] = _drop_texts(content[name])
    return format_record(content)


def anonymise_provenance(provenance: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: provenance[name] for name in Provenance.model_fields if name in provenance}
    return kept | {"platform": str(kept.get("platform")).partition("-")[0], "command": []}


def _drop_texts(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _drop_texts(item) for name, item in value.items() if not isinstance(item, str)}
    return [_drop_texts(item) for item in value if not isinstance(item, str)] if isinstance(value, list) else value


def anonymise_about(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return an analysis's about.json likewise; remarks on the scale that name a path are left out."""
    differs = [phrase for phrase in about["scale"]["differs"] if not any(map(PATH.match, phrase.split()))]
    known = ("keys", "seconds", "times", "ended", "files", "sha256")
    return {
        **{name: about[name] for name in known if name in about},
        "experiment": _shorten_paths(about["experiment"]),
        "analysis": _shorten_paths(about["analysis"]),
        "scale": {"name": about["scale"]["name"], "differs": differs},
        "provenance": anonymise_provenance(about["provenance"]),
    }
