"""Find what a bundle must not or need not tell: keys and tokens, names of machines and folders.

A token in a file is refused. Names of machines and folders stand in every record; they are kept, because a record
proves by its checksum that nobody changed it, unless the user asks for an anonymous bundle.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import orjson
import yaml

from isobench.common.checksums import JSON_ENTRY, add_json_checksum, add_text_checksum
from isobench.common.errors import UserError
from isobench.runs.layout import run_folder_name
from isobench.runs.record_file import format_record

# An absolute path, or one from a home folder, up to a character that ends a path in a setting or a traceback.
PATH = re.compile(r"""(?:(?<![\w.~$</-])|(?<=file://))(?:~[\w.-]*/|/(?=[\w.~-]))[^\s,;\]})'"]*""")
HIDDEN = "PATH/TO"
LOCAL_SETTINGS = ("output_dir=", "data.cache=", "checkpoint.", "tracking.", "tracking=")  # they change no result
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


def hide_paths(text: str) -> str:
    """Replace every absolute path in a text by ``PATH/TO/`` and its last part, so that it names no folder or user."""
    return PATH.sub(lambda match: f"{HIDDEN}/{PurePosixPath(match[0]).name.lstrip('~') or 'home'}", text)


def hide_paths_in_arguments(arguments: Iterable[str]) -> list[str]:
    """Take out of a command's arguments what concerns one machine: settings of places, and absolute paths."""
    kept = (text for text in arguments if not text.lstrip("+~").startswith(LOCAL_SETTINGS))
    return [
        f"{text.partition('=')[0]}={HIDDEN}" if PATH.search(text) and re.search(r"\s", text) else hide_paths(text)
        for text in kept
    ]


def require_no_secret(path: str, content: bytes) -> None:
    """Raise UserError if a file holds a key or a token: of a known form, or the value of a variable of this process.

    The message names the file and never the secret.
    """
    for kind, pattern in TOKENS.items():
        if pattern.search(content):
            raise UserError(f"{path} holds what looks like {kind}, so nothing is exported: don't publish this run")
    for name, value in os.environ.items():
        if SECRET_VARIABLE.search(name) and len(value) >= MIN_SECRET and value.encode() in content:
            raise UserError(f"{path} holds the value of {name}, so nothing is exported: don't publish this run")


def find_places(records: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Find which machines and which absolute paths the contents of records name; both sorted."""
    machines, paths = set[str](), set[str]()
    for content in records:
        where = content.get("where") or {}
        machines |= {where[name] for name in ("host", "machine") if where.get(name)}
        for text in list_texts(content):
            paths |= set(PATH.findall(text))
    return sorted(machines - {UNKNOWN}), sorted(paths)


def list_texts(value: Any) -> Iterable[str]:
    """Yield every text in a JSON value, but the names of its entries."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from list_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from list_texts(item)


def hide_paths_in_value(value: Any) -> Any:
    """Copy a JSON value with every absolute path in its texts hidden."""
    if isinstance(value, str):
        return hide_paths(value)
    if isinstance(value, Mapping):
        return {name: hide_paths_in_value(item) for name, item in value.items()}
    return [hide_paths_in_value(item) for item in value] if isinstance(value, list) else value


def anonymise_record(content: Mapping[str, Any]) -> bytes:
    """Return the text of a record without names of machines, users and folders, with a checksum of its own.

    Results, settings that decide them, fingerprints, versions and the kind of processor stay.

    Args:
        content: a ``result.json``.
    """
    hidden = hide_paths_in_value(content)
    hidden["where"] |= {"host": UNKNOWN, "machine": UNKNOWN, "job": None, "log": None}
    hidden["provenance"]["command"] = hide_paths_in_arguments(content["provenance"]["command"])
    hidden["config"] = anonymise_config(content["config"])
    return format_record(hidden)


def anonymise_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's config without names of users and folders."""
    hidden: dict[str, Any] = hide_paths_in_value(config)
    hidden["output_dir"] = "outputs"
    if "tracking" in hidden:
        hidden["tracking"] |= {"entity": None, "group": None}
    if "data" in hidden:
        hidden["data"] |= {"cache": None}
    return hidden


def anonymise_json(text: bytes) -> bytes:
    """Return the text of an analysis's about.json without names of users and folders, with a checksum of its own.

    Raises:
        ValueError: it is no JSON.
    """
    content = hide_paths_in_value({k: v for k, v in orjson.loads(text).items() if k != JSON_ENTRY})
    content["runs"] = [anonymise_config(config) for config in content.get("runs", [])]
    provenance = content.get("provenance", {})
    provenance["command"] = hide_paths_in_arguments(provenance.get("command", []))
    return json.dumps(add_json_checksum(content), indent=1).encode() + b"\n"


def format_config(config: Mapping[str, Any], key: str) -> bytes:
    """Return the text of a run's config.yaml, with its checksum."""
    return add_text_checksum(yaml.safe_dump(dict(config), sort_keys=False), run_folder_name(key)).encode()


def require_anonymous(path: str, content: bytes, names: Iterable[str]) -> None:
    """Raise UserError if a file still holds one of these names, or the path of the user's home folder.

    Names without a digit, a dot or a dash, such as ``gpu`` or ``login``, are ordinary words and not looked for.
    """
    home = str(Path.home())
    telling = [name for name in names if re.search(r"[\d.-]", name)]
    for name in (*telling, *([home] if len(home) > 1 else [])):
        if re.search(rb"(?<![\w-])" + re.escape(name.encode()) + rb"(?![\w-])", content):
            raise UserError(f"{path} names {name} where it can't be taken out: export without --anonymous")
