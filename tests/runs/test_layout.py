"""One module names the folders and files of an output folder."""

import ast
from pathlib import Path

from helpers import ROOT

from isobench.common import files
from isobench.runs import folder as layout

FILE_NAMES = {value for name, value in vars(layout).items() if name.isupper() and isinstance(value, str)}
FOLDER_NAMES = {"runs", "reports", "jobs", "plans", "commands", "imports"}


def find_spelt_names(file: Path) -> set[str]:
    """Names of files and folders that a module spells, and slices that cut a digest."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    divisions = [node for node in nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)]
    paths = {node.right.value for node in divisions if isinstance(node.right, ast.Constant)}
    slices = {ast.unparse(node) for node in nodes if isinstance(node, ast.Slice)}
    return (texts & FILE_NAMES) | (paths & FOLDER_NAMES) | (slices & {":16"})


def test_no_other_module_spells_them():
    spelt = {file: find_spelt_names(file) for file in (ROOT / "isobench").rglob("*.py")}
    assert spelt.pop(Path(layout.__file__)) >= FILE_NAMES
    assert spelt.pop(Path(files.__file__)) == {":16"}
    assert {file: names for file, names in spelt.items() if names} == {}
