"""Explain what is wrong with a YAML file of the config: its name, the line, and what to do."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml
from yaml.reader import ReaderError

from isobench.config.command_line import split_config_dirs
from isobench.papers.folders import find_config_folders


def explain_yaml_error(error: BaseException) -> str | None:
    """Explain in one line which YAML file can't be read, and why; None if the error is of another kind."""
    for cause in list_causes(error):
        if isinstance(cause, yaml.MarkedYAMLError) and (mark := cause.problem_mark or cause.context_mark):
            return f"{mark.name}, line {mark.line + 1}: {cause.problem or cause.context}: correct this line"
        if isinstance(cause, ReaderError):
            return f"{cause.name} has a character that YAML does not allow ({cause.reason}): remove it"
        if isinstance(cause, UnicodeDecodeError) and (files := ", ".join(map(str, find_files_not_in_utf8()))):
            return f"{files} can't be read as UTF-8 ({cause.reason}): save it in this encoding"
        if match := re.match(r"Invalid defaults list in '(.*)', defaults must be a list", str(cause)):
            return f"{find_yaml_file(match[1])}: defaults must be a list: write each choice after a - or in brackets"
        if match := re.match(r"(?:Expected header format: KEY VALUE, got|Too many components in) '(.*)'", str(cause)):
            files = ", ".join(map(str, find_files_with_line(match[1])))
            return f"{files or 'a YAML file'}: # {match[1]} must have one name: write # @package _global_"
    return None


def find_yaml_file(name: str) -> str:
    """Return the path of a config that Hydra names, such as task/mine; the name itself if no folder has it."""
    for folder in (*map(Path, split_config_dirs(sys.argv[1:])[0]), *find_config_folders()):
        if (file := folder / f"{name}.yaml").is_file():
            return str(file)
    return name


def find_files_with_line(line: str) -> Iterator[Path]:
    """Yield the YAML files of the user's own folders that have a comment with this text alone."""
    for folder in split_config_dirs(sys.argv[1:])[0]:
        for file in sorted(Path(folder).rglob("*.yaml")):
            texts = file.read_text(encoding="utf-8", errors="replace").splitlines()
            if any(text.strip().startswith("#") and text.strip("# ") == line for text in texts):
                yield file


def list_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, then the error that caused it, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def find_files_not_in_utf8() -> Iterator[Path]:
    """Yield the YAML files of isobench and of the user's own folders that are not text in UTF-8."""
    for folder in (*find_config_folders(), *map(Path, split_config_dirs(sys.argv[1:])[0])):
        for file in sorted(Path(folder).rglob("*.yaml")):
            try:
                file.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                yield file
            except OSError:  # unreadable for another reason
                continue
