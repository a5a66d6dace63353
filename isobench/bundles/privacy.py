"""Find what a bundle must not or need not tell: keys and tokens, names of machines and users, folders.

A token in a file is refused. Names of machines and folders stand in every record; they are kept, because a record
proves by its checksum that nobody changed it, unless the user asks for an anonymous bundle. Of such a bundle, the
fields that name a machine or a folder are emptied, and the names that stood in them are taken out of every text.
"""

import contextlib
import getpass
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from isobench.common.errors import UserError
from isobench.common.packages import conf_dir, experiments_dir
from isobench.config.command_line import CONFIG_DIR_FLAGS
from isobench.papers.folders import PAPER_FLAG
from isobench.runs.record import format_record

# An absolute path (of Unix, of a Windows drive or share), or one from a home folder, up to a character that ends a
# path in a setting or a message.
PATH = re.compile(
    r"""(?:(?<![\w.~$<:/-])//(?=[\w.~-])|(?:(?<![\w.~$</-])|(?<=file://))(?:~[\w.-]*/|/(?=[\w.~-]))"""
    r"""|(?<!\w)[A-Za-z]:\\|(?<![\w\\])\\\\(?=\w))[^\s,;\]})'"]*"""
)
PATH_SETTINGS = ("encoder.path", "data.root", "data.files")
HOME_FOLDER = re.compile(r"(?:[/\\](?:home|Users)[/\\][^/\\]+|~[^/\\]*)[/\\]?$")
HOME_OWNER = re.compile(r"(?:[/\\](?:home|Users)[/\\]|~(?=[\w.-]+[/\\]))([\w.-]+)")
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
DIGEST = re.compile("[0-9a-f]{16,64}")


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


def hide_paths(text: str) -> str:
    """Replace every absolute path in a text by ``PATH/TO/`` and its last part, so that it names no folder or user."""
    return PATH.sub(lambda match: _hide_path(match[0]), text)


def _hide_path(path: str) -> str:
    """Keep the last part of a path; of a home folder, whose last part is a user's name, write ``home``."""
    last = "home" if HOME_FOLDER.search(path) else re.split(r"[/\\]", path.rstrip("/\\"))[-1] or "home"
    return f"{HIDDEN}/{last}"


def hide_paths_in_arguments(arguments: Iterable[str]) -> list[str]:
    """Take out of a command's arguments what concerns one machine: paths, and settings that change no result."""
    kept, follows_flag = [], False
    for text in arguments:
        name, equals, value = text.partition("=")
        setting = name.lstrip("+")
        if follows_flag:
            kept.append(HIDDEN)
        elif name in (*CONFIG_DIR_FLAGS, PAPER_FLAG) and equals:
            kept.append(f"{name}={HIDDEN}")
        elif setting in PATH_SETTINGS or setting.startswith("data.files."):
            kept.append(f"{name}={HIDDEN if re.search(r'[ ,{]', value) else _hide_path(value)}")
        elif not text.lstrip("+~").startswith(LOCAL_SETTINGS):
            is_split = PATH.search(text) and re.search(r"\s", text)  # a folder's name may go on behind the blank
            kept.append(f"{name}={HIDDEN}" if is_split else hide_paths(text))
        follows_flag = text in (*CONFIG_DIR_FLAGS, PAPER_FLAG)
    return kept


def _map_texts(value: Any, change: Callable[[str], Any], check_key: Callable[[str], Any] = str) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        for name in value:
            check_key(name)
        return {name: _map_texts(item, change, check_key) for name, item in value.items()}
    return [_map_texts(item, change, check_key) for item in value] if isinstance(value, list) else value


@cache
def _read_own_words() -> frozenset[str]:
    """Read the words of isobench's own code and configs: ``linear`` is nobody's name, though it has Lin's in it."""
    package, conf, papers = Path(__file__).parents[1], Path(conf_dir()), Path(experiments_dir())
    files = [*package.rglob("*.py"), *conf.rglob("*.yaml"), *papers.glob("*/*.*"), *papers.glob("*/*/*.yaml")]
    texts = (file.read_text(encoding="utf-8") for file in files if file.suffix in (".py", ".yaml"))
    prose = re.compile(r'"""[\s\S]*?"""|#.*')  # it has people's names
    return frozenset(word for text in texts for word in re.findall(r"[\w-]+", prose.sub("", text)))


def _is_telling(word: str) -> bool:
    return word not in _read_own_words() and not DIGEST.fullmatch(word)


class Disguise:
    """Takes paths, and the names of some machines and users, out of texts.

    A name is found in any case and whatever stands beside it, in ``alice_bert`` and in ``myalice2`` too; one of two
    letters only where no letter touches it. Words that isobench itself writes stay, and so do digests.
    """

    def __init__(self, names: Iterable[str]) -> None:
        longest_first = sorted({name for name in names if len(name) > 1}, key=len, reverse=True)
        patterns = [
            re.escape(name) if len(name) > 2 else rf"(?<![^\W\d_]){re.escape(name)}(?![^\W\d_])"
            for name in longest_first
        ]
        any_name = "|".join(patterns) or r"(?!)"
        self.name = re.compile(any_name, re.IGNORECASE)
        self.word = re.compile(rf"[\w-]*(?:{any_name})[\w-]*", re.IGNORECASE)

    def hide_names(self, text: str) -> str:
        if not self.name.search(text):
            return text
        return self.word.sub(lambda word: self.name.sub(UNKNOWN, word[0]) if _is_telling(word[0]) else word[0], text)

    def require_no_name(self, what: str) -> None:
        """Raise UserError if what can't be replaced has a name in it."""
        if self.hide_names(what) != what:
            raise UserError(
                f"{what} has a user's or machine's name in it, and can't be replaced: rename it and run it again, "
                "or export without --anonymous"
            )

    def require_no_name_in_rows(self, file: str, content: bytes) -> None:
        """Raise UserError if a text or a column's name in a Parquet file has a name in it."""
        import pyarrow.parquet

        texts: set[str] = set()
        _map_texts(pyarrow.parquet.read_table(pyarrow.BufferReader(content)).to_pylist(), texts.add, texts.add)
        for text in texts:
            self.require_no_name(f"{file}: {text}")

    def hide(self, value: Any) -> Any:
        """Copy a JSON value with paths and names hidden in all of its texts; UserError for a name in a key."""
        return _map_texts(value, lambda text: self.hide_names(hide_paths(text)), self.require_no_name)

    def anonymise_record(self, content: Mapping[str, Any]) -> bytes:
        """Return a ``result.json`` without names of machines, users and folders, with a checksum of its own.

        Results, settings that decide them, fingerprints, versions and the kind of processor stay.
        """
        hidden = self.anonymise_about(content)
        hidden["where"] |= {"host": UNKNOWN, "machine": UNKNOWN, "job": None, "log": None}
        if hidden["failure"]:
            hidden["failure"]["traceback"] = None  # it is made of paths
        hidden["config"] = self.anonymise_config(content["config"])
        return format_record(hidden)

    def anonymise_about(self, about: Mapping[str, Any]) -> dict[str, Any]:
        hidden: dict[str, Any] = self.hide(about)
        command = hide_paths_in_arguments(about["provenance"]["command"])
        hidden["provenance"]["command"] = [self.hide_names(text) for text in command]
        return hidden

    def anonymise_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a run's config without names of users and folders."""
        hidden: dict[str, Any] = self.hide(config)
        hidden["output_dir"] = "outputs"
        for setting in PATH_SETTINGS:
            section, _, entry = setting.partition(".")
            if entry in hidden.get(section, {}):
                hidden[section] |= {entry: _map_texts(config[section][entry], self._hide_file)}
        if "tracking" in hidden:
            hidden["tracking"] |= {"entity": None, "group": None}
        if "data" in hidden:
            hidden["data"] |= {"cache": None}
        return hidden

    def _hide_file(self, text: str) -> str:
        return self.hide_names(_hide_path(text) if re.search(r"[/\\]", text) else text)


def list_names(contents: Iterable[Mapping[str, Any]]) -> set[str]:
    """List the names to hide: this user's and machine's, those in records, and the owners of home folders there."""
    names, texts = {platform.node(), Path.home().name}, list[str]()
    with contextlib.suppress(OSError, KeyError, ImportError):  # this user has no entry in the system's list
        names.add(getpass.getuser())
    for content in contents:
        names |= _read_machines(content)
        _map_texts(content, texts.append)
    names |= {owner for text in texts for owner in HOME_OWNER.findall(text)}
    return names | {name.partition(".")[0] for name in names if not name[:1].isdigit()}


def _read_machines(content: Mapping[str, Any]) -> set[str]:
    where = content.get("where") or {}  # an about.json has none
    return {where[name] for name in ("host", "machine") if where.get(name)}


def find_machines_and_paths(records: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Find which machines and which absolute paths the contents of records name; both sorted."""
    machines, texts = set[str](), list[str]()
    for content in records:
        machines |= _read_machines(content)
        _map_texts(content, texts.append)
    paths = {path for text in texts for path in PATH.findall(text)}
    return sorted(machines - {UNKNOWN}), sorted(paths)


def find_remains(texts: Iterable[bytes]) -> list[str]:
    """Find which names of files and folders `hide_paths` left in texts, sorted."""
    last_part = re.compile(rf"{HIDDEN}/([^\s,;\](){{}}'\"\\]+)".encode())
    found = {match.decode("utf-8", "replace") for text in texts for match in last_part.findall(text)}
    return sorted(found - {"home"})
