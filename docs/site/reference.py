"""Write the pages of the reference from the code: commands, choices, settings, record fields and Python names."""

import ast
import contextlib
import dataclasses
import importlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin
from unittest import mock

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

import isobench
from isobench import __main__ as program
from isobench.cli import choices
from isobench.common.packages import conf_dir
from isobench.config import schema
from isobench.config.bounds import TYPE_NAMES, Bound, Choices, find_section, read_hints
from isobench.report.claims import judge_print, load_claims

ROOT = Path(__file__).resolve().parents[2]
GROUPS = {
    "task": "Tasks", "encoder": "Encoders", "calibration": "Methods", "experiment": "Experiments", "head": "Heads",
    "optimization": "Protocols", "scale": "Scales", "tracking": "Tracking", "hydra/launcher": "Launchers",
}  # fmt: skip
OTHER_NAMES = (
    "isobench.common.errors.UserError", "isobench.runs.record.RunRecord", "isobench.training.monitor.IsotropyMonitor",
    "isobench.training.export_model.load_calibration", "isobench.analyses.shown.Shown",
    "isobench.analyses.subject.Subject",
)  # fmt: skip


def write_commands() -> str:
    """Show the help of every command, as it is printed on a terminal of 100 columns."""
    wide = {**os.environ, "COLUMNS": "100", "PYTHONPATH": str(ROOT)}
    general = [sys.executable, "-m", "isobench", "--help"]
    text = subprocess.run(general, capture_output=True, text=True, check=True, env=wide, cwd=ROOT).stdout
    parts = [make_section("isobench", text)]
    with mock.patch.dict(os.environ, wide):
        for word in program.COMMANDS:
            parts.append(make_section(f"isobench {word}", print_help(program.find_command(word))))
        for word in program.LISTS:
            parts.append(make_section(f"isobench {word}", print_help(choices.main, word)))
    return "\n".join(parts)


def make_section(title: str, text: str) -> str:
    """Make a section with a heading and a text as it was printed."""
    return f"## {title}\n\n~~~~~~ text\n{text.rstrip()}\n~~~~~~\n"


def print_help(main: Callable[..., None], *arguments: str) -> str:
    """Return what a command prints with the flag ``--help``; ``arguments`` are those of its function ``main``."""
    printed = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["isobench", "--help"]),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        main(*arguments)
    return printed.getvalue()


def write_choices() -> str:
    """List the choices of every group of configs, each with its description and a link to its file."""
    parts = []
    for group, title in GROUPS.items():
        sign = "+" if group == "experiment" else ""
        rows = [
            f"| [`{name}`](../../conf/{group}/{name}.yaml.md) | {escape(text)} |"
            for name, text in choices.list_choices([Path(conf_dir())], group).items()
        ]
        parts.append(
            "\n".join([f"## {title}: `{sign}{group}=NAME`", "", "| name | what it is |", "|---|---|", *rows])
        )
    return "\n\n".join(parts)


def write_settings() -> str:
    """List every setting of the schema with its type, bounds, default and meaning, a table for each group."""
    composed = compose_default()
    parts = []
    for prefix, kind, note in list_groups(schema.Config, ""):
        rows = [
            f"| `{prefix}{name}` | {escape(describe(hint))} | {default} | {escape(comments.get(name, ''))} |"
            for comments in [read_comments(kind)]
            for name, hint in read_hints(kind).items()
            if find_section(hint) is None and name != "calibration"  # which has a table of its own
            for default in [read_default(composed, kind, prefix, name)]
        ]
        title = f"## `{prefix.rstrip('.')}`" if prefix else "## Settings of a whole run"
        heading = ["| setting | type and bounds | default | meaning |", "|---|---|---|---|"]
        parts.append("\n".join([title, "", note, "", *heading, *rows]))
    return "\n\n".join(parts)


def list_groups(kind: Any, prefix: str) -> Iterator[tuple[str, Any, str]]:
    """Yield each dataclass of the schema with the prefix of its settings and its docstring, in the schema's order."""
    yield prefix, kind, "" if kind is schema.Config else inspect.cleandoc(kind.__doc__ or "")
    for name, hint in read_hints(kind).items():
        if section := find_section(hint):
            yield from list_groups(section, f"{prefix}{name}.")
        elif name == "calibration":
            yield (
                f"{prefix}{name}.",
                schema.MethodSettings,
                "Settings of every method; its file has its own.",
            )


def describe(hint: Any) -> str:
    """Say what values a setting can have: its type and its bounds."""
    if type(None) in get_args(hint):
        (option,) = (option for option in get_args(hint) if option is not type(None))
        return "; ".join(filter(None, [describe(option), "or null"]))
    bounds = getattr(hint, "__metadata__", ())
    kind = get_args(hint)[0] if bounds else hint
    if get_origin(kind) is list:
        name = f"list, each entry {describe(get_args(kind)[0])}"
    else:
        name = (
            "mapping"
            if get_origin(kind) is dict
            else TYPE_NAMES.get({"str": "string"}.get(kind.__name__, kind.__name__), "")
        )
    return "; ".join(filter(None, [name, *map(describe_bound, bounds)]))


def describe_bound(bound: Any) -> str:
    """Say what a bound of a hint allows, without "must be"."""
    if isinstance(bound, Bound):
        return re.sub(r"^is ([^:]*):.*", r"not \1", bound.message.removeprefix("must be "))
    if isinstance(bound, Choices):
        return f"one of {', '.join(bound.names)}"
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    return " and ".join(f"{text} {getattr(bound, name)}" for name, text in words.items() if hasattr(bound, name))


def compose_default() -> dict[str, Any]:
    """Compose the config of ``python -m isobench`` without any setting and without the user's variables."""
    schema.register_schema()
    with mock.patch.dict(os.environ), initialize_config_dir(conf_dir(), version_base="1.3"):
        for name in ("ISOBENCH_DATA", "ISOBENCH_CACHE"):
            os.environ.pop(name, None)
        settings: dict[str, Any] = dataclasses.asdict(schema.to_config(compose("config")))
        return settings


def read_default(composed: dict[str, Any], kind: Any, prefix: str, name: str) -> str:
    """Return the value that a setting has without any setting on the command line, or "required"."""
    value: Any = composed
    for part in f"{prefix}{name}".split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None and prefix.startswith(("task.generation", "task.language")):  # the default task has neither
        field = next(field for field in dataclasses.fields(kind) if field.name == name)
        value = field.default
    if value == "???":
        return "required"
    text = OmegaConf.to_yaml(value).strip() if isinstance(value, dict | list) and not value else json.dumps(value)
    return f"`{text}`"


def read_comments(kind: Any) -> dict[str, str]:
    """Read what the source says of each field of a dataclass: the comment above it and the comment beside it."""
    source = textwrap.dedent(inspect.getsource(kind))
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    code = {token.start[0] for token in tokens if token.type in (tokenize.NAME, tokenize.OP, tokenize.STRING)}
    found = {}
    for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        if isinstance(node, ast.AnnAssign):
            first = node.lineno
            while first - 1 in comments and first - 1 not in code:
                first -= 1
            lines = [comments[line] for line in range(first, (node.end_lineno or first) + 1) if line in comments]
            found[node.target.id] = " ".join(lines)  # type: ignore[union-attr]
    return found


def write_record() -> str:
    """List every field of ``result.json`` with its type and meaning, from the record's JSON Schema."""
    full = json.loads((ROOT / "docs" / "result.schema.json").read_text("utf-8"))
    heading = ["| field | type | meaning |", "|---|---|---|"]
    rows = [f"| `{path}` | {escape(kind)} | {escape(text)} |" for path, kind, text in list_fields(full, full, "")]
    return "\n".join(["## Fields", "", *heading, *rows])


def list_fields(part: dict[str, Any], full: dict[str, Any], prefix: str) -> Iterator[tuple[str, str, str]]:
    """Yield path, type and description of each property of a JSON Schema, those of nested objects after their own."""
    for name, field in part.get("properties", {}).items():
        options = field.get("anyOf", [field])
        kinds, nested = [], []
        for option in options:
            item = option.get("items", {})
            target = option.get("$ref") or item.get("$ref") or option.get("additionalProperties", {}) or {}
            target = target.get("$ref", "") if isinstance(target, dict) else target
            kinds.append("list" if item else "object" if target else str(option.get("type", "any value")))
            if isinstance(target, str) and target:
                mark = "[]" if item else ".*" if "additionalProperties" in option else ""
                nested.append((full["$defs"][target.rpartition("/")[2]], mark))
        about = field.get("description") or " ".join(kind.get("description", "") for kind, _ in nested)
        yield f"{prefix}{name}", " or ".join(kinds), about
        for kind, mark in nested:
            yield from list_fields(kind, full, f"{prefix}{name}{mark}.")


def write_claims() -> str:
    """List every claim with its paper, its criterion, its experiment, and what the paper's own numbers say."""
    rows = []
    for claim in load_claims():
        print_says = claim.printed if isinstance(claim.printed, str) else judge_print(claim).word
        cells = (escape(text) for text in (claim.text, claim.criterion, print_says))
        rows.append(f"| {claim.paper} | {' | '.join(cells)} | `{claim.experiment}` |")
    heading = ["| paper | claim | holds if | by the printed numbers | experiment |", "|---|---|---|---|---|"]
    return "\n".join(["## The claims", "", *heading, *rows])


def write_python() -> str:
    """Name the functions of ``import isobench``, then names that other pages mention; mkdocstrings fills them in."""
    names = [f"isobench.api.{name}" for name in isobench.FUNCTIONS]
    return "\n\n".join(f"::: {name}" for name in [*names, *OTHER_NAMES])


def write_package(package: str) -> str:
    """Name everything that a package makes public; mkdocstrings fills it in."""
    return "\n\n".join(f"::: {package}.{name}" for name in importlib.import_module(package).__all__)


def escape(text: str) -> str:
    """Fit a plain text into a cell of a Markdown table; text between backquotes stays code."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    return "`".join(part if place % 2 else re.sub(r"([_*<])", r"\\\1", part) for place, part in enumerate(parts))


# The pages that are filled, each with the function that writes what follows its introduction.
SECTIONS: dict[str, Callable[[], str]] = {
    "docs/reference/commands.md": write_commands,
    "docs/reference/choices.md": write_choices,
    "docs/reference/settings.md": write_settings,
    "docs/reference/record.md": write_record,
    "docs/reference/claims.md": write_claims,
    "docs/reference/python.md": write_python,
    "docs/reference/calibration.md": lambda: write_package("isobench.calibration"),
    "docs/reference/metrics.md": lambda: write_package("isobench.metrics"),
}
