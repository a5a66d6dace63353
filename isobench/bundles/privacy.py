"""Find what a bundle must not or need not tell: keys and tokens, names of machines and folders.

A token in a file is refused. Names of machines and folders stand in every record; they are kept, because a record
proves by its checksum that nobody changed it, unless the user asks for an anonymous bundle.
"""

import getpass
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from isobench.common.errors import UserError
from isobench.config.command_line import CONFIG_DIR_FLAGS
from isobench.runs.record import format_record

# An absolute path (of Unix, of a Windows drive or share), or one from a home folder, up to a character that ends a
# path in a setting or a traceback.
PATH = re.compile(
    r"""(?:(?<![\w.~$<:/-])//(?=[\w.~-])|(?:(?<![\w.~$</-])|(?<=file://))(?:~[\w.-]*/|/(?=[\w.~-]))"""
    r"""|(?<!\w)[A-Za-z]:\\|(?<![\w\\])\\\\(?=\w))[^\s,;\]})'"]*"""
)
# In a setting whose value is a path, or paths by split: everything with a slash in it is a path.
RELATIVE_PATH = re.compile(r"""[^\s,;:=\[\](){}'"]*[/\\][^\s,;\](){}'"]*""")
PATH_SETTINGS = ("encoder.path", "data.root", "data.files")
HOME_FOLDER = re.compile(r"(?:[/\\](?:home|Users)[/\\][^/\\]+|~[^/\\]*)[/\\]?$")
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
SHORTEST_IN_COMPRESSED = 5  # in a megabyte a given word of 5 bytes stands by chance once in a million files
ORDINARY_WORDS = {
    "root", "user", "users", "admin", "login", "home", "localhost", "node", "gpu", "cpu", "cuda",
    "data", "cache", "train", "test", "model", "models", "path",
}  # fmt: skip


def require_no_secret(path: str, content: bytes) -> None:
    """Raise UserError if a file holds a key or a token: of a known form, or the value of a variable of this process.

    The message names the file and never the secret.
    """
    for description, pattern in TOKENS.items():
        if pattern.search(content):
            raise UserError(
                f"{path} holds what looks like {description}, so nothing is exported: don't publish this run"
            )
    for name, value in os.environ.items():
        if SECRET_VARIABLE.search(name) and len(value) >= MIN_SECRET and value.encode() in content:
            raise UserError(f"{path} holds the value of {name}, so nothing is exported: don't publish this run")


def require_anonymous(path: str, content: bytes, names: Iterable[str]) -> None:
    """Raise UserError if a file still holds one of these names, or the path of the user's home folder.

    Ordinary words, such as ``gpu`` or ``root``, are not looked for: they stand in every record for something else.
    Short names are not looked for in compressed files, whose bytes hold every short word by chance.
    """
    home = str(Path.home())
    shortest = SHORTEST_IN_COMPRESSED if path.endswith(".parquet") else 1
    telling = [name for name in names if name.lower() not in ORDINARY_WORDS and len(name) >= shortest]
    for name in (*telling, *([home] if len(home) > 1 else [])):
        if re.search(rb"(?<![\w-])" + re.escape(name.encode()) + rb"(?![\w-])", content):
            raise UserError(f"{path} names {name} where it can't be taken out: export without --anonymous")


def hide_paths(text: str, pattern: re.Pattern[str] = PATH) -> str:
    """Replace every absolute path in a text by ``PATH/TO/`` and its last part, so that it names no folder or user."""
    return pattern.sub(lambda match: _hide_path(match[0]), text)


def _hide_path(path: str) -> str:
    """Keep the last part of a path; of a home folder, whose last part is a user's name, write ``home``."""
    last = "home" if HOME_FOLDER.search(path) else re.split(r"[/\\]", path.rstrip("/\\"))[-1] or "home"
    return f"{HIDDEN}/{last}"


def hide_paths_in_arguments(arguments: Iterable[str]) -> list[str]:
    """Take out of a command's arguments what concerns one machine: paths, and settings that change no result."""
    kept, follows_flag = [], False
    for text in arguments:
        name, equals, value = text.partition("=")
        if follows_flag:
            kept.append(HIDDEN)
        elif name in CONFIG_DIR_FLAGS and equals:
            kept.append(f"{name}={HIDDEN}")
        elif not text.lstrip("+~").startswith(LOCAL_SETTINGS):
            kept.append(_hide_paths_in_argument(name, equals, value))
        follows_flag = text in CONFIG_DIR_FLAGS
    return kept


def _hide_paths_in_argument(name: str, equals: str, value: str) -> str:
    """Hide paths in one argument; a value with both a path and a space is hidden as a whole."""
    is_path = any(name.lstrip("+") == known or name.startswith(f"{known}.") for known in PATH_SETTINGS)
    found = PATH.search(name + equals + value) or (is_path and RELATIVE_PATH.search(value))
    if found and re.search(r"\s", name + value):
        return f"{name}={HIDDEN}"
    if is_path:
        return name + equals + hide_paths(hide_paths(value), RELATIVE_PATH)
    return hide_paths(name + equals + value)


def _map_texts(value: Any, change: Callable[[str], Any]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _map_texts(item, change) for name, item in value.items()}
    return [_map_texts(item, change) for item in value] if isinstance(value, list) else value


def _hide_whole_path(text: str) -> str:
    return _hide_path(text) if re.search(r"[/\\]", text) else text


def anonymise_record(content: Mapping[str, Any]) -> bytes:
    """Return a ``result.json`` without names of machines, users and folders, with a checksum of its own.

    Results, settings that decide them, fingerprints, versions and the kind of processor stay.
    """
    hidden = anonymise_about(content)
    hidden["where"] |= {"host": UNKNOWN, "machine": UNKNOWN, "job": None, "log": None}
    hidden["config"] = anonymise_config(content["config"])
    return format_record(hidden)


def anonymise_about(about: Mapping[str, Any]) -> dict[str, Any]:
    hidden: dict[str, Any] = _map_texts(about, hide_paths)
    hidden["provenance"]["command"] = hide_paths_in_arguments(about["provenance"]["command"])
    return hidden


def anonymise_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's config without names of users and folders."""
    hidden: dict[str, Any] = _map_texts(config, hide_paths)
    hidden["output_dir"] = "outputs"
    for setting in PATH_SETTINGS:
        section, _, entry = setting.partition(".")
        if entry in hidden.get(section, {}):
            hidden[section] |= {entry: _map_texts(config[section][entry], _hide_whole_path)}
    if "tracking" in hidden:
        hidden["tracking"] |= {"entity": None, "group": None}
    if "data" in hidden:
        hidden["data"] |= {"cache": None}
    return hidden


def find_machines_and_paths(records: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Find which machines and which absolute paths the contents of records name; both sorted."""
    machines, texts = set[str](), list[str]()
    for content in records:
        where = content.get("where") or {}
        machines |= {where[name] for name in ("host", "machine") if where.get(name)}
        _map_texts(content, texts.append)
    paths = {path for text in texts for path in PATH.findall(text)}
    return sorted(machines - {UNKNOWN}), sorted(paths)


def list_user_names() -> list[str]:
    """List the user's login name and the last part of the home folder, sorted."""
    try:
        login = getpass.getuser()
    except (OSError, KeyError, ImportError):  # this user has no entry in the system's list
        login = ""
    return sorted({login, Path.home().name} - {""})


def find_remains(names: Iterable[str], texts: Iterable[bytes]) -> list[str]:
    """Find which of these names of machines and users, and which names of files and folders, are in texts; sorted.

    Names of files and folders are what `hide_paths` left. Machines and users only remain if they are ordinary words.
    """
    last_part = re.compile(rf"{HIDDEN}/([^\s,;\](){{}}'\"\\]+)".encode())
    found = {match.decode("utf-8", "replace") for text in texts for match in last_part.findall(text)}
    return sorted(found - {"home"} | {name for name in names if name.lower() in ORDINARY_WORDS})
