"""The docs site: built without a network, complete, the same pages as in the repository, readable and searchable."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT, make_config

from isobench.config import schema
from isobench.runs.record import RunRecord

pytest.importorskip("mkdocs", reason="mkdocs is not installed (pip install 'isobench[docs]')")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("site")]

NO_NETWORK = """import socket
def refuse(self, address):
    raise OSError(f"no network here: {address}")
socket.socket.connect = socket.socket.connect_ex = refuse
"""
LOADED = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?\s(?:src|href)=["']?([^"'\s>]+)""")
PACKAGES = ("calibration", "metrics")
SHAPES = ("h1", "h2", "h3", "ul", "ol", "li", "pre", "table", "tr", "img")


@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    """The environment of programs that can't connect to anything."""
    folder = tmp_path_factory.mktemp("offline")
    (folder / "sitecustomize.py").write_text(NO_NETWORK)
    return {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"}


@pytest.fixture(scope="module")
def site(offline, tmp_path_factory):
    """The site, built by the command of the Makefile with this Python, without a network."""
    folder = tmp_path_factory.mktemp("site")
    here = [f"BIN={Path(sys.executable).parent}", f"SITE={folder}", "-o", ".venv/.installed"]
    done = subprocess.run(["make", "docs", *here], cwd=ROOT, env=offline, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "build --strict" in done.stdout
    return folder


@pytest.fixture(scope="module")
def reference(site):
    """Return the HTML of a page of the reference by its name."""
    return lambda name: (site / "docs" / "reference" / f"{name}.html").read_text()


def test_no_page_loads_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    loaded = {target for page in pages for target in LOADED.findall(page.read_text())}
    assert any(target.endswith(".css") for target in loaded)
    pictures = {picture for page in pages for picture in re.findall(r'<img[^>]* src="([^"]+)"', page.read_text())}
    assert any(target.endswith(".svg") for target in pictures)
    assert [target for target in pictures if target.endswith(".html")] == []
    assert [target for target in loaded if target.startswith(("http:", "https:", "//"))] == []
    styles = "".join(file.read_text() for file in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)]*", styles) == []


def test_a_page_has_the_same_parts_in_the_repository_and_in_the_site(site):
    """Headings, lists, tables, code and pictures, as CommonMark renders the file and as the site shows it."""
    from markdown_it import MarkdownIt

    commonmark = MarkdownIt("commonmark").enable("table")
    generated = {ROOT / "docs" / "reference" / file.name for file in ROOT.glob("docs/reference/*.md")}
    pages = {file for pattern in ("*.md", "docs/**/*.md", "experiments/**/*.md") for file in ROOT.glob(pattern)}
    executed = {ROOT / "docs" / "how-to" / "notebook.md"}  # which has its outputs in the site only
    for file in sorted(pages - generated - executed):
        place = file.relative_to(ROOT).with_name("index.html" if file.name == "README.md" else f"{file.stem}.html")
        article = (site / place).read_text().partition("<article")[2].partition("</article>")[0]
        parts = {"repository": commonmark.render(file.read_text()), "site": article[article.index("<h1") :]}
        counts = {
            where: {tag: len(re.findall(rf"<{tag}[ >]", text)) for tag in SHAPES} for where, text in parts.items()
        }
        assert counts["site"] == counts["repository"], place


def test_every_command_is_in_the_reference(reference):
    page = reference("commands")
    words = {
        file.stem.rstrip("_")
        for file in ROOT.glob("isobench/cli/*.py")
        if "\ndef main(" in file.read_text() and file.stem != "choices"
    }
    words |= {"tasks", "encoders", "methods", "experiments"}
    assert len(words) >= 9
    assert [
        word for word in words if f'id="isobench-{word}"' not in page or f"usage: isobench {word}" not in page
    ] == []


def list_settings(value, prefix=""):
    """Every setting of a config by its dotted name."""
    for name, part in vars(value).items():
        if dataclasses.is_dataclass(part):
            yield from list_settings(part, f"{prefix}{name}.")
        elif f"{prefix}{name}" not in (
            "task.generation",
            "task.language",
            "calibration",
        ):  # their own settings are below
            yield f"{prefix}{name}"


def test_every_setting_is_in_the_reference(reference):
    page = reference("settings")
    settings = {*list_settings(make_config("task=captions", "encoder=bart-scratch")), *list_settings(make_config())}
    settings |= {f"calibration.{field.name}" for field in dataclasses.fields(schema.MethodSettings)}
    settings |= {f"task.generation.{field.name}" for field in dataclasses.fields(schema.Generation)}
    settings |= {f"task.language.{field.name}" for field in dataclasses.fields(schema.Language)}
    assert len(settings) > 90
    assert [name for name in settings if f"<td><code>{name}</code></td>" not in page] == []
    row = re.search(r"<td><code>optimization\.warmup</code></td>\s*(.*?)</tr>", page, re.DOTALL)[1]
    assert re.findall(r"<td>(.*?)</td>", row) == [
        "a number; at least 0; below 1",
        f"<code>{make_config().optimization.warmup}</code>",
        "share of all steps",
    ]


def test_every_field_of_the_record_is_in_the_reference(reference):
    listed = re.findall(r"<td><code>([^<]+)</code></td>", reference("record"))
    assert set(RunRecord.model_fields) <= set(listed)
    parts = [RunRecord.model_json_schema(), *RunRecord.model_json_schema()["$defs"].values()]
    fields = {name for part in parts for name in part.get("properties", {})}
    assert fields == {path.rpartition(".")[2] for path in listed}
    assert "cost.peak_memory_mib.gpu" in listed


def test_every_public_name_is_in_the_reference(reference):
    import isobench

    page = reference("python")
    assert {*isobench.FUNCTIONS, *PACKAGES, "__version__"} <= set(isobench.__all__)
    assert "isobench.__version__" in page
    assert [name for name in isobench.FUNCTIONS if f'id="isobench.api.{name}"' not in page] == []
    for package in PACKAGES:
        page = reference(package)
        names = getattr(isobench, package).__all__
        assert [name for name in names if f'id="isobench.{package}.{name}"' not in page] == []
