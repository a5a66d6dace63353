"""Jinja2 environments for the templates of reports: each escapes every value for the format that it writes."""

import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from isobench.common.terminal import replace_control_characters

LATEX_DELIMITERS = {
    "block_start_string": "<%", "block_end_string": "%>", "variable_start_string": "<<", "variable_end_string": ">>",
    "comment_start_string": "<#", "comment_end_string": "#>",
}  # fmt: skip
LATEX_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "†": r"$\dagger$", "<": r"$<$", ">": r"$>$",
    "\N{MINUS SIGN}": r"$-$", "\N{MULTIPLICATION SIGN}": r"$\times$", "\N{EN DASH}": "--",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
}  # fmt: skip


def make_markdown_environment() -> Environment:
    return make_environment(finalize=_finalize_with(escape_markdown))


def make_latex_environment() -> Environment:
    """Make the environment of the LaTeX files; its delimiters are ``<< >>``, ``<% %>`` and ``<# #>``."""
    environment = make_environment(finalize=_finalize_with(_escape_latex), **LATEX_DELIMITERS)
    # One line of ASCII can't leave a LaTeX comment.
    environment.filters["comment"] = lambda text: Markup("".join(map(_to_ascii, " ".join(text.split()))))
    return environment


def make_environment(**options: Any) -> Environment:
    """Make an environment over ``templates/`` that escapes values as HTML; a name that is not defined is an error."""
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, **options
    )


def _finalize_with(escape: Callable[[str], str]) -> Callable[[Any], Markup]:
    """Return Jinja2's ``finalize`` that escapes a value once; ``Markup`` (of a macro) is in the format already."""
    return lambda value: value if isinstance(value, Markup) else Markup(escape(str(value)))


def render_paragraphs(environment: Environment, template: str, **values: Any) -> str:
    """Render a template of Markdown or LaTeX, with never more than one empty line in a row."""
    text = environment.get_template(template).render(**values)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


def escape_markdown(text: str) -> str:
    """Escape a text so that it neither ends a table's cell nor starts markup; ``<``, ``>`` and ``&`` as in HTML."""
    one_line = replace_control_characters(" ".join(text.splitlines()))
    escaped = re.sub(r"([\\|*_`~\[\]])", r"\\\1", one_line)
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _escape_latex(text: str) -> str:
    """Escape a text for LaTeX, in ASCII: what pdflatex can't take becomes its nearest letter, or its name.

    A bracket at the start is guarded: after ``\\\\``, which ends a table's row, LaTeX would read it as an argument.
    """
    escaped = "".join(LATEX_ESCAPES.get(character) or _to_ascii(character) for character in " ".join(text.split()))
    return "{}" + escaped if text.startswith("[") else escaped


def _to_ascii(character: str) -> str:
    """Return a printable character without its accents; a question mark for what is not ASCII then."""
    plain = "".join(part for part in unicodedata.normalize("NFKD", character) if not unicodedata.combining(part))
    return plain if plain.isascii() and plain.isprintable() else "?"
