"""Carry out the Python code of a page, block by block, and put under each block what a notebook would show.

A block is fenced by ```` ```python ````. All blocks of a page share their names. What is shown is what the block
prints, and the value of its last line if that is an expression. An exception stops the build of the site.
"""

import ast
import base64
import contextlib
import io
import os
import re
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def execute_page(markdown: str, folder: Path) -> str:
    """Return a page with the output of each of its Python blocks below it; the code works in ``folder``."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(folder):
        return BLOCK.sub(lambda block: block[0] + execute_block(block[1], names), markdown)


def execute_block(code: str, names: dict[str, Any]) -> str:
    """Carry out a block and return its output as Markdown; ``names`` are those of the blocks before."""
    lines = ast.parse(code).body
    last = lines.pop() if lines and isinstance(lines[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(lines, []), "<page>", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "<page>", "eval"), names) if last else None
    return format_text(printed.getvalue()) + format_value(value)


def format_value(value: Any) -> str:
    """Format a value as a notebook does: a pandas table, a matplotlib figure as a picture, anything else as text."""
    if value is None:
        return ""
    if hasattr(value, "to_html"):
        shown = value.astype(object).where(value.notna(), "")
        table = shown.to_html(border=0, float_format="{:.4g}".format)
        return f"\n{re.sub(r'>' + os.linesep + r' *<', '><', table)}\n"
    if hasattr(value, "savefig"):
        picture = io.BytesIO()
        value.savefig(picture, format="svg", metadata={"Date": None})
        return f"\n![figure](data:image/svg+xml;base64,{base64.b64encode(picture.getvalue()).decode()})\n"
    return format_text(str(value))


def format_text(text: str) -> str:
    """Format a text as it was printed; nothing if it is empty."""
    return f"\n~~~~~~ text\n{text.rstrip()}\n~~~~~~\n" if text.strip() else ""
