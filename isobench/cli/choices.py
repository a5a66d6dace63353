"""Run ``isobench tasks`` (or encoders, methods, experiments, papers): list what can be chosen, one line each.

``isobench --help`` lists the names of all of them.
"""

import collections
import itertools
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from isobench.cli.command import CommandParser, run_guarded
from isobench.common.environment import format_paper_flags
from isobench.common.errors import refuse
from isobench.common.files import BUNDLE_FILE, explain_output_errors, write_whole
from isobench.common.packages import conf_dir, examples_dir, experiments_dir
from isobench.config.command_line import CONFIG_DIR_FLAGS, check_typed_settings
from isobench.config.schema import Config
from isobench.papers.description import describe_paper, read_paper
from isobench.papers.folders import (
    PAPER_FLAG,
    find_config,
    find_config_folders,
    find_paper,
    find_papers,
    list_config_groups,
    list_configs,
)
from isobench.papers.published import count_numbers
from isobench.tasks.kind import name_kind

GROUPS = {"tasks": "task", "encoders": "encoder", "methods": "calibration", "experiments": "experiment"}


def main(word: str) -> None:
    """Parse the command line and print the list; ``word`` is ``papers`` or one of ``GROUPS``."""
    group = GROUPS.get(word)
    choose = f" that {'+' if group == 'experiment' else ''}{group}=NAME can choose" if group else ""
    page = {"tasks": "own_data", "papers": "experiments"}.get(word, word)
    description = (
        f"List the {word}{choose}, those of --paper FOLDER too, one line each{'' if group else '; or show one'}."
    )
    example = f"isobench {word} {'--config-dir FOLDER' if group else 'isobn'}"
    parser = CommandParser(f"isobench {word}", f"{description}\nExample: {example}", "[--paper FOLDER]", page=page)
    if group:
        parser.add_argument(*CONFIG_DIR_FLAGS, metavar="FOLDER", type=Path, help="list those in FOLDER too")
        options = parser.parse_args()
        run_guarded(lambda: print_choices(group, options.config_dir))
    else:
        text = "show this paper: tables and figures with their commands, its page, claims, experiments, runs"
        parser.add_argument("name", metavar="NAME", nargs="?", help=text)
        parser.add_argument("--map", action="store_true", help="show every table and figure of every paper")
        text = "write the example paper into this folder, to begin a paper of your own with"
        parser.add_argument("--new", metavar="FOLDER", type=Path, help=text)
        options = parser.parse_args()
        if options.new is not None:
            run_guarded(lambda: _write_new_paper(options.new.expanduser()))
        elif options.name is not None:
            run_guarded(lambda: _print_paper(options.name))
        elif options.map:
            run_guarded(lambda: print("\n\n".join(describe_paper(name, _find_width()) for name in find_papers())))
        else:
            run_guarded(_print_papers)


def _print_papers() -> None:
    """Print each paper's name and title."""
    papers = {name: read_paper(folder) for name, folder in find_papers().items()}
    for name, paper in papers.items():
        print(f"{name:{max(map(len, papers)) + 2}}{paper.format_title()}")


def _print_paper(name: str) -> None:
    """Print what there is of a paper: its tables and figures, page, printed numbers, experiments, runs and claims."""
    from isobench.report.claims import load_claims
    from isobench.sweep.find_runs import count_runs

    folder = find_paper(name)
    print(describe_paper(name, _find_width()))
    claims = load_claims(name) if (folder / "claims.py").is_file() else []
    judge = shlex.join(["isobench", "report", *format_paper_flags(), "--claims", name])
    need = " (its links need the repository)" if folder.parent == Path(experiments_dir()) else ""
    print(f"\nPage: {folder / 'README.md'}{need}")
    count = count_numbers(name)
    place = ", in published.yaml beside the page" if count else ""
    print(f"Printed numbers that reports show beside ours: {count:,}{place}")
    print(f"Claims: {len(claims)}{f', which {judge} judges by your runs' if claims else ''}")
    experiments = [shown.experiment for shown in read_paper(folder).shows.values()]
    experiments += [file.stem for file in sorted(folder.glob("experiment/*.yaml"))]
    if shipped := [file.parent.name for file in sorted(folder.glob(f"results/*/{BUNDLE_FILE}"))]:
        print(f"Results: {', '.join(shipped)}: {shlex.join(['isobench', 'report', f'{folder}/results/NAME'])}")
    counts = count_runs(Config.output_dir)
    for experiment in filter(None, dict.fromkeys(experiments)):
        print(f"+experiment={experiment}: {counts.get(experiment, 'no run')} in {Config.output_dir}/")


def _find_width() -> int:
    return max(40, min(100, shutil.get_terminal_size((100, 24)).columns))


def _write_new_paper(folder: Path) -> None:
    """Write the example paper into a new folder, whose name is the paper's."""
    name = folder.absolute().name
    refuse(
        (folder.exists() or folder.is_symlink(), f"{folder} is there already: name a new folder"),
        (name in find_papers(), f"there is a paper {name} already (isobench papers): give the folder another name"),
        (not name.isidentifier(), f"{name} can't be a paper's name: take letters, digits and _, a letter first"),
    )
    with explain_output_errors(folder), write_whole(folder) as copy:
        shutil.copytree(Path(examples_dir()) / "paper", copy, ignore=shutil.ignore_patterns("__pycache__"))
        for file in [*copy.rglob("*.yaml"), *copy.rglob("*.md")]:
            text = file.read_text(encoding="utf-8").replace("examples/paper", shlex.quote(str(folder)))
            file.write_text(text, encoding="utf-8")
    print(f"Written: {folder}, whose README.md says what its files are")
    print(f"Try it: {shlex.join(['isobench', f'{PAPER_FLAG}={folder}', '+experiment=greetings'])}")


def print_help() -> None:
    """Print what ``isobench --help`` shows, as Hydra would, which reads every config for it and takes a second."""
    config = yaml.safe_load((Path(conf_dir()) / "config.yaml").read_text(encoding="utf-8"))
    lines = []
    for group in sorted(list_config_groups()):
        if names := list_configs(group):
            lines.append(f"{group}: {', '.join(names)}\n")
    print(config["hydra"]["help"]["template"].replace("$APP_CONFIG_GROUPS", "".join(lines)), end="")


def print_choices(group: str, folder: Path | None = None) -> None:
    """Print the name and the description of each choice in a group; on a terminal, cut to its width."""
    folders = find_config_folders()
    if folder is not None:
        check_typed_settings([f"--config-dir={folder}"])
        folders = [*folders, folder]
    choices = list_choices(folders, group)
    indent = max(map(len, choices)) + 2
    width = shutil.get_terminal_size().columns - indent if sys.stdout.isatty() else 1000
    for name, text in sorted(choices.items()):
        print(f"{name:{indent}}{textwrap.shorten(text, max(width, 20), placeholder=' ...')}")


def list_choices(folders: Sequence[Path], group: str) -> dict[str, str]:
    """List the YAML files of a group in folders of configs: name -> description; a later folder's is taken."""
    files = [file for place in folders for file in sorted(place.glob(f"{group}/*.yaml")) if file.is_file()]
    return {file.stem: (f"{_name_kind(file)}: " if group == "task" else "") + describe_choice(file) for file in files}


def _name_kind(file: Path) -> str:
    """Name the kind of a task by its YAML, and those that this one's defaults name; no code is imported."""
    settings = _read_settings(file)
    names = [name for name in settings.get("defaults", []) if name != "_self_"]
    beside = [file.with_name(f"{name}.yaml") for name in names]
    files = [own if own.is_file() else find_config("task", name) for own, name in zip(beside, names, strict=True)]
    others = [_read_settings(other) for other in files if other]
    return name_kind(dict(collections.ChainMap(settings, *others))).rpartition(".")[2].lower()


def _read_settings(file: Path) -> dict[str, Any]:
    settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    return settings if isinstance(settings, dict) else {}


def describe_choice(file: Path) -> str:
    """Describe a YAML file by the hub's name of its model, else by the first sentence of the comment on its top.

    Data sets of the hub have a comment. A file without either is described by its class or its path.
    """
    text, settings = file.read_text(encoding="utf-8"), _read_settings(file)
    if file.parent.name == "encoder" and settings.get("hub"):
        return f"{settings['hub']}, from the hub"
    lines = [line.lstrip("# ") for line in itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())]
    comment = " ".join(line for line in lines if line and not line.startswith(("@", "python -m ", "isobench ")))
    first_sentence = re.match(r".*?\.(?= [A-Za-z\"]|$)", comment)
    return first_sentence[0] if first_sentence else comment or str(settings.get("_target_", file))
