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
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from isobench.common import environment
from isobench.common.errors import UserError, extract_first_line, suggest_nearest
from isobench.common.files import cache_until_changed
from isobench.common.packages import conf_dir, experiments_dir

PAPER_FLAG = "--paper"  # followed by a folder, or by = and a folder; it can be repeated
PAPER_FILE = "paper.yaml"
ENTRY_POINTS = "isobench.papers"
# Start of pydantic's name of a mistake -> what to write instead.
WANTED = {
    "list": "write a list: [ONE, TWO]", "dict": "write entries, KEY: VALUE", "model": "write entries, KEY: VALUE",
    "string": "write a text, in quotes if it looks like a number", "int": "write a whole number",
    "is_instance_of": "write a number as it is printed, such as 85.29, or null where cells may lack one",
    "missing": "it is missing: add it",
}  # fmt: skip


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
        if not folder:
            raise UserError(f"{PAPER_FLAG} needs a value after it: the folder of a paper, with a {PAPER_FILE}")
        folders.append(str(Path(folder).expanduser().resolve()))
    os.environ[environment.PAPERS] = os.pathsep.join(dict.fromkeys(folders))
    try:
        _check_configs()
    except UserError:
        os.environ[environment.PAPERS] = os.pathsep.join(before)
        raise
    return others


def find_papers() -> dict[str, Path]:
    """Find every paper: name -> folder, by name."""
    return _find_papers(experiments_dir(), tuple(environment.read_papers()))


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
    found = [*_find_installed(), *((Path(folder).name, Path(folder)) for folder in named)]
    for name, folder in found:
        if not (folder / PAPER_FILE).is_file():
            raise UserError(f"{folder} is no paper: it needs a {PAPER_FILE} (CONTRIBUTING.md, Add a paper)")
        if not name.isidentifier():
            raise UserError(f"{folder}: a paper's folder is a name of Python too: use letters, digits and _ alone")
        if papers.setdefault(name, folder) != folder:
            raise UserError(f"two papers are called {name}: {papers[name]} and {folder}: rename one of the folders")
    return dict(sorted(papers.items()))


def _find_installed() -> Iterator[tuple[str, Path]]:
    """Yield the name and the folder of each paper that an installed package brings."""
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            spec = importlib.util.find_spec(entry.value)
        except ImportError:  # of the package above it
            spec = None
        if spec is None or not spec.submodule_search_locations:
            raise UserError(f"the installed paper {entry.name} is no package: {entry.value}: install it again")
        yield entry.name, Path(next(iter(spec.submodule_search_locations)))


def _check_configs() -> None:
    """Raise UserError if two folders have a config of one name: Hydra would silently take the first one."""
    first: dict[tuple[str, str], Path] = {}
    for folder in find_config_folders():
        for group in list_config_groups():
            for file in sorted((folder / group).glob("*.yaml")):
                other = first.setdefault((group, file.name), file)
                if other != file:
                    raise UserError(f"{group}={file.stem} is in {other} and in {file}: rename one of the files")


@cache_until_changed
def read_checked_yaml(
    file: Path, content_type: Any, names: tuple[str, ...], loader: type[yaml.SafeLoader] = yaml.SafeLoader
) -> Any:
    """Read a paper's YAML file; a mistake in it is a UserError that names its line or its entry.

    ``names`` are entries that the file can have, to suggest one for a misspelt entry.
    """
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), loader)
        return TypeAdapter(content_type).validate_python(content, strict=True)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{file}{line}: {error.problem or 'this is no YAML'}: correct it") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{file} can't be read: {extract_first_line(error)}: correct the file") from error
    except ValidationError as error:
        raise UserError(f"{file}: {_describe_mistake(error, names)}") from error


def _describe_mistake(error: ValidationError, names: Sequence[str]) -> str:
    first = error.errors()[0]
    entry = ".".join(str(key) for key in first["loc"] if not str(key).startswith("is-instance["))
    if first["type"] == "extra_forbidden":
        wanted = f"there is no such entry: {suggest_nearest(str(first['loc'][-1]), names)}"
    elif first["type"] == "literal_error":
        wanted = f"write {first['ctx']['expected']}"
    else:
        wanted = next((advice for start, advice in WANTED.items() if first["type"].startswith(start)), first["msg"])
    return f"{entry}: {wanted}" if entry else wanted
