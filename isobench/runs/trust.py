"""Decide whose classes a stored config may run, and say which of the user's own have changed since a run.

Isobench's own are those that the configs of isobench, of the papers and of the folders that a command names have
under the names of their methods and monitors.
"""

import contextlib
import hashlib
import inspect
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from hydra._internal.utils import _locate

from isobench.common.errors import UserError, refuse
from isobench.common.terminal import format_count
from isobench.config.schema import Config, Tracking, map_chain, split_chain
from isobench.papers.folders import find_config_folders, read_config_file
from isobench.runs.run import Run


class UntrustedError(UserError):
    """A stored config names code that is neither isobench's nor of a folder that the command names."""


def require_own_classes(cfg: Config, folders: Sequence[Path] = ()) -> Config:
    """Return a config as `use_own_classes` does; UntrustedError if a class of another name would be replaced."""
    own = use_own_classes(cfg, folders)
    if other := next(find_other_classes(cfg, folders), None):
        raise UntrustedError(f"{other}, which is run with --trust only")
    return own


def use_own_classes(cfg: Config, folders: Sequence[Path] = ()) -> Config:
    """Return a config whose methods and monitors are the classes that isobench has under their names.

    ``folders`` have configs of the user's own. Raises UntrustedError where there is no such name, or for other code.
    """
    refuse(
        (cfg.task.kind is not None, "its task is of a kind from outside, which is run with --trust only"),
        (cfg.encoder.trust_remote_code, "its encoder brings code of its own, which is run with --trust only"),
        error=UntrustedError,
    )

    def use_own(group: str, name: str, settings: dict[str, Any]) -> dict[str, Any]:
        others = {key: value for key, value in settings.items() if key != "_target_"}
        own = read_own_classes(folders).get((group, name))
        refuse(
            (own is None, f"isobench has no {group} {name}: the class {settings.get('_target_')} needs --trust"),
            (_has_instruction(others), f"its {group} {name} has settings that Hydra would carry out: --trust only"),
            error=UntrustedError,
        )
        return {"_target_": own, **others}

    monitors = {name: use_own("monitor", name, settings) for name, settings in cfg.monitors.items()}
    calibration = map_chain(lambda own: use_own("calibration", str(own.get("name")), own), cfg.calibration)
    return replace(cfg, calibration=calibration, monitors=monitors)


def stay_in_folder(cfg: Config) -> Config:
    """Return the config of a stranger's plan without his cache, folder of exported models and tracking."""
    checkpoint = replace(cfg.checkpoint, export=None)
    return replace(cfg, data=replace(cfg.data, cache=None), checkpoint=checkpoint, tracking=Tracking("none"))


def find_other_classes(cfg: Config, folders: Sequence[Path] = ()) -> Iterator[str]:
    """Yield which methods and monitors have a name of isobench's own and another class.

    A run's key has a method's name and not its class, so another class under this name would pass for it.
    Only the class's own name is compared, because a class may have moved since.
    """
    named = [("calibration", str(method.get("name")), method) for method in split_chain(cfg.calibration)]
    named += [("monitor", name, settings) for name, settings in cfg.monitors.items()]
    for group, name, settings in named:
        ours, target = read_own_classes(folders).get((group, name)), str(settings.get("_target_"))
        if ours is not None and target.rpartition(".")[2] != ours.rpartition(".")[2]:
            yield f"the {group} {name} is the class {target}, and isobench's is {ours}"


def _has_instruction(value: Any) -> bool:
    """Return True if a mapping in a value has a key like ``_target_`` or ``_partial_``."""
    if isinstance(value, dict):
        return any(str(key).startswith("_") or _has_instruction(item) for key, item in value.items())
    return isinstance(value, list) and any(map(_has_instruction, value))


def read_own_classes(folders: Sequence[Path] = ()) -> dict[tuple[str, str], str]:
    """Return the classes of isobench's methods and of its experiments' monitors: (group, name) -> dotted path."""
    return _read_classes_in((*folders, *find_config_folders()))  # isobench's own last: no other takes their names


@cache
def _read_classes_in(folders: tuple[Path, ...]) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for folder in folders:
        methods = map(read_config_file, folder.glob("calibration/*.yaml"))
        named = [("calibration", method["name"], method) for method in methods if "name" in method]
        for experiment in map(read_config_file, folder.glob("experiment/*.yaml")):
            named += [("monitor", name, own) for name, own in (experiment.get("monitors") or {}).items()]
        found |= {(group, name): own["_target_"] for group, name, own in named if "_target_" in own}
    return found


def hash_sources(calibration: dict[str, Any], targets: Collection[str] | None = None) -> dict[str, str]:
    """Hash the source of each class of the user's own, as the run's key has its version alone: class -> sha256.

    ``targets``: the classes that may be imported. None: all.
    """
    hashes = {}
    for target in (str(part.get("_target_")) for part in split_chain(calibration)):
        if not target.startswith("isobench.") and (targets is None or target in targets):
            with contextlib.suppress(Exception, SystemExit):  # no source is at hand, it is being edited, or no class
                hashes[target] = hashlib.sha256(inspect.getsource(_locate(target)).encode()).hexdigest()
    return hashes


_AS_LOADED: dict[tuple[str, Any], str] = {}  # a class and its name -> sha256 of its source when it was first used


def hash_loaded_sources(calibration: dict[str, Any]) -> dict[str, str]:
    """Hash sources as `hash_sources` does, but as this process has them, whatever became of their files since."""
    now = hash_sources(calibration)
    return {name: _AS_LOADED.setdefault((name, _locate(name)), digest) for name, digest in now.items()}


def describe_changed_sources(runs: Iterable[Run], targets: Collection[str] | None = None) -> list[str]:
    """Say how many runs ended with other code of the user's own classes than these have now, or can't be told.

    ``targets``: the classes that may be imported. None: all.
    """
    changed, unknown = Counter[str](), Counter[str]()
    hashed: dict[str, dict[str, str]] = {}  # thousands of runs share a few methods, whose sources are read once
    for run in runs:
        if run.record and (sources := run.record.sources):
            if (method := repr(run.cfg.calibration)) not in hashed:
                hashed[method] = hash_sources(run.cfg.calibration, targets)
            now = hashed[method]
            unknown.update(sources.keys() - now.keys())
            changed.update(name for name in sources.keys() & now.keys() if sources[name] != now[name])
    again = "a higher version in its YAML runs them again"
    texts = [
        f"{name} has changed since {format_count(n, 'run')} with it ended; {again}." for name, n in changed.items()
    ]
    for name, n in unknown.items():
        texts.append(
            f"Whether {name} has changed since {format_count(n, 'run')} ended can't be told: it is not found."
        )
    return texts
