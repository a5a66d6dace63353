"""Find the papers: folders with a paper.yaml, each of which is also a folder of configs and a package of Python.

They come along (experiments/), with installed packages (entry points of the group ``isobench.papers``), or by
``--paper FOLDER``. Hydra reads their configs (hydra_plugins/isobench.py), and Python imports their modules as
``isobench_papers.NAME`` (isobench_papers.py).
"""

import importlib.util
import os
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter

from isobench.common import environment
from isobench.common.errors import doing, refuse, suggest_nearest
from isobench.common.files import cache_until_changed
from isobench.common.packages import conf_dir, experiments_dir

PAPER_FLAG = "--paper"  # followed by a folder, or by = and a folder; it can be repeated
PAPER_FILE = "paper.yaml"
ENTRY_POINTS = "isobench.papers"


class StrictEntries(BaseModel):
    """Entries of a paper's YAML file, checked strictly: an unknown one is refused, as it may be a misspelt one."""

    # defer_build: validators are built at first use, so that --help does not wait for them
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


def take_paper_flags(arguments: Sequence[str]) -> list[str]:
    """Take ``--paper FOLDER`` out of a command's arguments, and make these papers known to it and to its workers.

    Raises:
        UserError: a folder is no paper, two papers have one name, or two folders have a config of one name. No paper
            is made known then.
    """
    before = environment.read_papers()
    folders, others = list(before), []
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        if flag != PAPER_FLAG:
            others.append(argument)
            continue
        folder = value if equals else next(rest, "")
        folders.append(str(Path(folder).expanduser().resolve()))
    os.environ[environment.PAPERS] = os.pathsep.join(dict.fromkeys(folders))
    try:
        _check_configs()
    except Exception:
        os.environ[environment.PAPERS] = os.pathsep.join(before)
        raise
    return others


def find_papers() -> dict[str, Path]:
    """Find every paper: name -> folder, by name."""
    return _find_papers(experiments_dir(), tuple(environment.read_papers()))


def find_paper(name: str) -> Path:
    """Find the folder of a paper; raise UserError if no paper has this name."""
    papers = find_papers()
    hint = "" if environment.read_papers() else f"; for one of yours add {PAPER_FLAG}=FOLDER"
    refuse((name not in papers, f"{name} is no paper: {suggest_nearest(name, papers)}{hint}"))
    return papers[name]


def find_paper_name(folder: Path) -> str | None:
    """Find the name of the paper in a folder: the folder's own, or the one that a package's entry point gives it."""
    return next((name for name, place in find_papers().items() if place == folder), None)


def find_config_folders() -> list[Path]:
    """Find the folders whose configs every command reads: isobench's own and the papers'."""
    return [Path(conf_dir()), *find_papers().values()]


@cache
def list_config_groups() -> list[str]:
    """List the groups of configs that a paper's folder can have: those of conf/, and experiments."""
    return ["experiment", *sorted(entry.name for entry in Path(conf_dir()).iterdir() if entry.is_dir())]


def advise_on_experiment(word: str) -> str | None:
    """Return how an experiment is named in a command, if a word is the bare name of one."""
    return f"{word} is an experiment: write +experiment={word}" if word in list_configs("experiment") else None


def find_config(group: str, name: str) -> Path | None:
    """Find the YAML file of a config in isobench's own folder or a paper's; None if there is none."""
    files = (folder / group / f"{name}.yaml" for folder in find_config_folders())
    return next((file for file in files if file.is_file()), None)


@cache_until_changed
def read_config_file(file: Path) -> dict[str, Any]:
    """Read the YAML file of a config as Hydra reads it, without the other files that its defaults name."""
    return write_out_paper(yaml.safe_load(file.read_text(encoding="utf-8")) or {}, file.parents[1])


def write_out_paper(node: Any, folder: Path) -> Any:
    """Copy a config of a folder; if it is a paper's, with the folder for ``${paper:}`` and the paper's package before
    each ``_target_`` that begins with a dot."""
    name = find_paper_name(folder)
    return _write_out(node, name, folder) if name else node


def _write_out(node: Any, name: str, folder: Path) -> Any:
    if isinstance(node, dict):
        written = {key: _write_out(value, name, folder) for key, value in node.items()}
        if str(written.get("_target_", "")).startswith("."):
            written["_target_"] = f"isobench_papers.{name}{written['_target_']}"
        return written
    if isinstance(node, list):
        return [_write_out(value, name, folder) for value in node]
    return node.replace("${paper:}", str(folder)) if isinstance(node, str) else node


def list_configs(group: str) -> list[str]:
    """List the names of the configs of a group, in isobench's own folder and the papers'."""
    return sorted({file.stem for folder in find_config_folders() for file in folder.glob(f"{group}/*.yaml")})


@cache
def _find_papers(experiments: str, named: tuple[str, ...]) -> dict[str, Path]:
    papers = {file.parent.name: file.parent for file in sorted(Path(experiments).glob(f"*/{PAPER_FILE}"))}
    for name, folder in [*_find_installed(), *((Path(folder).name, Path(folder)) for folder in named)]:
        other = papers.setdefault(name, folder)
        refuse(
            (
                not (folder / PAPER_FILE).is_file(),
                f"{folder} is no paper: it needs a {PAPER_FILE} (isobench papers --new FOLDER)",
            ),
            (other != folder, f"two papers are called {name}: {other}, {folder}"),
        )
    return dict(sorted(papers.items()))


def _find_installed() -> Iterator[tuple[str, Path]]:
    """Yield the name and the folder of each paper that an installed package brings."""
    for entry in entry_points(group=ENTRY_POINTS):
        spec = importlib.util.find_spec(entry.value)
        folders = list((spec and spec.submodule_search_locations) or ())
        refuse((not folders, f"the installed paper {entry.name} is no package: {entry.value}"))
        yield entry.name, Path(folders[0])


def _check_configs() -> None:
    """Raise UserError if two folders have a config of one name: Hydra would silently take the first one."""
    first: dict[tuple[str, str], Path] = {}
    for folder in find_config_folders():
        for group in list_config_groups():
            for file in sorted((folder / group).glob("*.yaml")):
                other = first.setdefault((group, file.name), file)
                refuse((other != file, f"{group}={file.stem} is in {other} and in {file}: rename one of the files"))


@cache_until_changed
def read_checked_yaml(file: Path, content_type: Any, loader: type[yaml.SafeLoader] = yaml.SafeLoader) -> Any:
    """Read a paper's YAML file, whose content has a type; an error names the file."""
    with doing(str(file)):
        content = yaml.load(file.read_text(encoding="utf-8"), loader)
        return TypeAdapter(content_type).validate_python(content, strict=True)
